//! MATCH_RECOGNIZE: rows for the runs of events that a pattern describes.
//!
//! Every event of a key may be the first one of a match (AFTER MATCH SKIP TO NEXT ROW), so every event starts an
//! attempt, which gives at most one row: that of the preferred match (greedy, left alternative first). A match spans
//! less than the limit, and a match without events gives no row.
//!
//! A row's time is the time at which its match is decided: that of its last event if the match cannot continue;
//! otherwise that of the key's event after which no preferred match is possible; otherwise the first event's time plus
//! the limit. Rows are emitted as soon as they are decided, in that order; those of one time in the order of their
//! first events, matches that reached the limit before those decided by an event.
//!
//! A condition that fails on an event does not hold there, and is counted. Conditions on the event alone are evaluated
//! for a whole chunk; conditions on earlier events for all open attempts of the key at once.
//!
//! The limit bounds the state: an attempt lasts no longer, and a key is dropped at most one limit after its last
//! attempt. [`attempt::THREADS_MAX`] bounds an attempt, [`ATTEMPTS_MAX`] the open attempts of a key; an attempt beyond
//! is abandoned and counted as a data error.

mod attempt;
mod captures;
mod nfa;

use std::collections::VecDeque;
use std::ops::Range;

use arrow_buffer::BooleanBuffer;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::Span;
use highwater_query::plan::{Expr, MatchNode};
use highwater_time::{Instant, LaneWatermark};

use super::groups::EncodedKeys;
use super::keyed_slots::{KeyedSlots, LaneKey, snapshot_slots};
use super::timer_queue::{ONE_LANE, TimerQueue};
use super::{Context, DataErrors, Item, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk, ChunkLanes, LaneName};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::value::Value;

use attempt::{Attempt, Condition, MatchRules};
use captures::{CaptureSpec, Event};
use nfa::Nfa;

/// The maximum number of open attempts of one key.
const ATTEMPTS_MAX: usize = 65_536;

pub(crate) struct Matcher {
    rules: MatchRules,
    keys: Vec<Expr>,
    measures: Vec<Expr>,
    /// Names of the variables.
    variables: Vec<Value>,
    limit: i64,
    /// Keys that differ only in case are equal.
    ignore_case: bool,
    span: Span,
    has_lanes: bool,
    /// The number of events so far.
    events: u64,
    /// The attempts of each key, in the order of their first events.
    attempts: KeyedSlots<VecDeque<Attempt>>,
    /// When to visit each key: no later than its oldest attempt reaches the limit.
    due: TimerQueue<Vec<u32>>,
}

/// A chunk with its evaluated keys, columns and conditions.
struct MatchInput {
    times: arrow_buffer::ScalarBuffer<i64>,
    keys: Vec<Column>,
    encoded: EncodedKeys,
    columns: Vec<Column>,
    alone: Vec<Option<BooleanBuffer>>,
}

impl Matcher {
    pub(crate) fn new(node: &MatchNode, ignore_case: bool) -> Matcher {
        let capture_spec = CaptureSpec::new(&node.refs);
        let rules = MatchRules::new(
            Nfa::new(&node.pattern),
            capture_spec,
            &node.defines,
            node.span,
        );
        Matcher {
            rules,
            keys: node.partition.iter().map(|key| key.expr.clone()).collect(),
            measures: node.measures.iter().map(|item| item.expr.clone()).collect(),
            variables: node
                .variables
                .iter()
                .map(|name| Value::text(name))
                .collect(),
            limit: node.limit.ticks(),
            ignore_case,
            span: node.span,
            has_lanes: false,
            events: 0,
            attempts: KeyedSlots::default(),
            due: TimerQueue::default(),
        }
    }

    fn rows(&mut self, chunk: Chunk, context: &mut Context<'_>) {
        let (input, lanes) = self.prepare(chunk, context.errors);
        let rows = input.times.len();
        self.has_lanes |= lanes.is_some();
        let mut writer = MatchWriter::new(self);
        match lanes {
            None => self.run(&input, None, 0..rows, &mut writer, context.errors),
            Some(lanes) => {
                let (mut from, mut names) = (0, lanes.names.iter().peekable());
                for (number, mark) in lanes.watermarks.iter().enumerate() {
                    while let Some(name) = names.next_if(|name| name.after <= number) {
                        writer.push_name(name);
                    }
                    let before = from..mark.before_row;
                    self.run(
                        &input,
                        Some(&lanes.of_row),
                        before,
                        &mut writer,
                        context.errors,
                    );
                    from = mark.before_row;
                    self.expire(
                        mark.lane,
                        mark.watermark.ticks(),
                        &mut writer,
                        context.errors,
                    );
                    writer.push_watermark(*mark);
                }
                self.run(
                    &input,
                    Some(&lanes.of_row),
                    from..rows,
                    &mut writer,
                    context.errors,
                );
                names.for_each(|name| writer.push_name(name));
            }
        }
        writer.finish(self, context);
    }

    fn prepare(&self, chunk: Chunk, errors: &mut DataErrors) -> (MatchInput, Option<ChunkLanes>) {
        let mut faults = Faults::new(chunk.rows());
        let evaluate = |chunk: &Chunk, faults: &mut Faults| -> (Vec<Column>, Vec<Column>) {
            let mut all = |exprs: &[Expr]| {
                let columns = exprs.iter().map(|e| eval::evaluate(e, chunk, faults));
                columns.collect()
            };
            (all(&self.keys), all(&self.rules.capture_spec.exprs))
        };
        let mut evaluated = evaluate(&chunk, &mut faults);
        let mut chunk = chunk;
        if !faults.is_silent() {
            chunk = errors.drop_failed_rows(chunk, &faults);
            evaluated = evaluate(&chunk, &mut Faults::new(chunk.rows()));
        }
        let (keys, columns) = evaluated;
        let tests = self.rules.tests.iter();
        let alone = tests.map(|test| self.alone(test, &chunk, &columns, errors));
        let alone = alone.collect();
        let input = MatchInput {
            times: chunk.times.clone(),
            encoded: self.encoded(&keys, chunk.rows()),
            keys,
            columns,
            alone,
        };
        (input, chunk.lanes)
    }

    fn encoded(&self, keys: &[Column], rows: usize) -> EncodedKeys {
        match self.ignore_case {
            false => EncodedKeys::new(keys.iter(), rows),
            true => {
                let keys: Vec<Column> = keys.iter().map(eval::folded).collect();
                EncodedKeys::new(keys.iter(), rows)
            }
        }
    }

    /// The rows in which a condition holds, if it depends on the row alone.
    fn alone(
        &self,
        test: &Condition,
        chunk: &Chunk,
        evaluated: &[Column],
        errors: &mut DataErrors,
    ) -> Option<BooleanBuffer> {
        let Condition::Alone { pred, columns } = test else {
            return None;
        };
        let columns = columns.iter().map(|column| match column {
            Some(expr) => evaluated[*expr].clone(),
            None => Column::Null(chunk.rows()),
        });
        let chunk = Chunk::new(chunk.times.clone(), columns.collect());
        let mut faults = Faults::new(chunk.rows());
        let holds = eval::test(pred, &chunk, &mut faults);
        errors.add_faults(&faults, |row| chunk.time(row));
        Some(holds)
    }

    fn run(
        &mut self,
        input: &MatchInput,
        lanes: Option<&[u32]>,
        rows: Range<usize>,
        writer: &mut MatchWriter,
        errors: &mut DataErrors,
    ) {
        for row in rows {
            let lane = lanes.map_or(ONE_LANE, |lanes| lanes[row]);
            // An event exactly one limit after the first is outside of the match.
            self.expire(Some(lane), input.times[row], writer, errors);
            self.event(input, row, lane, writer, errors);
        }
    }

    fn event(
        &mut self,
        input: &MatchInput,
        row: usize,
        lane: u32,
        writer: &mut MatchWriter,
        errors: &mut DataErrors,
    ) {
        let number = self.events;
        self.events += 1;
        let event = Event {
            time: input.times[row],
            row,
            columns: &input.columns,
            alone: &input.alone,
        };
        let begins = self.rules.may_begin(&event);
        let hash = input.encoded.hash(row) ^ u64::from(lane).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = LaneKey {
            lane,
            hash,
            key: input.encoded.key(row),
        };
        let slot = self.attempts.find(key);
        if slot.is_none() && !begins {
            return;
        }
        let new = begins.then(|| {
            let shown = input.keys.iter().map(|key| key.get(row).to_value());
            Attempt::new(&self.rules, event.time, number, shown.collect())
        });
        let Some(slot) = slot else {
            self.first_event(new, key, &event, writer, errors);
            return;
        };
        let Some(attempts) = self.attempts.get_mut(slot) else {
            return;
        };
        if let Some(new) = new {
            if attempts.len() < ATTEMPTS_MAX {
                attempts.push_back(new);
            } else {
                errors.add(Instant::from_ticks(event.time), self.span, || {
                    format!("no match was tried from here: {ATTEMPTS_MAX} are open for this key")
                });
            }
        }
        attempt::advance_all(&mut *attempts, &self.rules, &event, errors);
        attempts.retain(|attempt| {
            if attempt.is_decided() {
                writer.add(attempt, event.time, lane, &self.rules, &self.variables);
            }
            !attempt.is_decided()
        });
        writer.seal_if_full(&self.measures, errors);
    }

    /// An event of a key without attempts: most end at once, and then nothing is stored.
    fn first_event(
        &mut self,
        new: Option<Attempt>,
        key: LaneKey<'_>,
        event: &Event<'_>,
        writer: &mut MatchWriter,
        errors: &mut DataErrors,
    ) {
        let Some(mut new) = new else { return };
        attempt::advance_all([&mut new], &self.rules, event, errors);
        if new.is_decided() {
            writer.add(&new, event.time, key.lane, &self.rules, &self.variables);
            writer.seal_if_full(&self.measures, errors);
            return;
        }
        let due = new.first.saturating_add(self.limit);
        let slot = self.attempts.insert(key, VecDeque::from([new]));
        self.due.at(key.lane, due, Vec::new).push(slot);
    }

    /// Decides the attempts that reached the limit by `time`, of one lane or of all.
    fn expire(
        &mut self,
        lane: Option<u32>,
        time: i64,
        writer: &mut MatchWriter,
        errors: &mut DataErrors,
    ) {
        let before = Instant::from_ticks(time.saturating_add(1));
        while let Some((lane, due, slots)) = self.due.pop(lane, before) {
            let mut over = Vec::new();
            for slot in slots {
                self.expire_part(lane, slot, due, &mut over);
            }
            over.sort_unstable_by_key(|attempt| attempt.number);
            for attempt in over {
                writer.add(&attempt, due, lane, &self.rules, &self.variables);
            }
            writer.seal_if_full(&self.measures, errors);
        }
    }

    fn expire_part(&mut self, lane: u32, slot: u32, due: i64, over: &mut Vec<Attempt>) {
        let Some(attempts) = self.attempts.get_mut(slot) else {
            return;
        };
        while attempts
            .front()
            .is_some_and(|attempt| attempt.first.saturating_add(self.limit) <= due)
        {
            over.extend(attempts.pop_front());
        }
        match attempts.front() {
            Some(oldest) => {
                let next = oldest.first.saturating_add(self.limit);
                self.due.at(lane, next, Vec::new).push(slot);
            }
            None => drop(self.attempts.remove(slot)),
        }
    }
}

/// The size of an attempt without its captures.
pub(super) const ATTEMPT_BYTES: usize = size_of::<Attempt>();

/// Builds the chunks of matches.
struct MatchWriter {
    times: Vec<i64>,
    keys: Vec<ColumnBuilder>,
    refs: Vec<ColumnBuilder>,
    lanes: Option<ChunkLanes>,
    sealed: Vec<Chunk>,
}

impl MatchWriter {
    fn new(matcher: &Matcher) -> MatchWriter {
        MatchWriter {
            times: Vec::new(),
            keys: ColumnBuilder::of_width(matcher.keys.len()),
            refs: ColumnBuilder::of_width(matcher.rules.capture_spec.refs.len()),
            lanes: matcher.has_lanes.then(ChunkLanes::default),
            sealed: Vec::new(),
        }
    }

    /// Adds the match of an attempt, if it has one.
    fn add(
        &mut self,
        attempt: &Attempt,
        time: i64,
        lane: u32,
        rules: &MatchRules,
        variables: &[Value],
    ) {
        let Some(best) = &attempt.best else { return };
        self.times.push(time);
        for (builder, value) in self.keys.iter_mut().zip(attempt.shown.iter()) {
            builder.push_owned(value.clone());
        }
        for (builder, source) in self.refs.iter_mut().zip(&rules.capture_spec.refs) {
            builder.push_owned(attempt.value(best, *source, rules, variables));
        }
        if let Some(lanes) = &mut self.lanes {
            lanes.of_row.push(lane);
        }
    }

    fn push_watermark(&mut self, mark: LaneWatermark) {
        if let Some(lanes) = &mut self.lanes {
            lanes.watermarks.push(LaneWatermark {
                before_row: self.times.len(),
                ..mark
            });
        }
    }

    fn push_name(&mut self, name: &LaneName) {
        if let Some(lanes) = &mut self.lanes {
            lanes.push_name(name);
        }
    }

    fn seal_if_full(&mut self, measures: &[Expr], errors: &mut DataErrors) {
        if self.times.len() >= CHUNK_ROWS {
            self.seal(measures, errors);
        }
    }

    fn seal(&mut self, measures: &[Expr], errors: &mut DataErrors) {
        let finish = |builders: &mut Vec<ColumnBuilder>| -> Vec<Column> {
            let width = builders.len();
            let done = std::mem::replace(builders, ColumnBuilder::of_width(width));
            done.into_iter().map(ColumnBuilder::finish).collect()
        };
        let mut columns = finish(&mut self.keys);
        let times = std::mem::take(&mut self.times);
        let seen = Chunk::new(times.into(), finish(&mut self.refs));
        let mut faults = Faults::new(seen.rows());
        for measure in measures {
            columns.push(eval::evaluate(measure, &seen, &mut faults));
        }
        let mut chunk = seen.with_columns(columns);
        chunk.lanes = self.lanes.as_mut().map(std::mem::take);
        self.sealed.push(errors.drop_failed_rows(chunk, &faults));
    }

    fn finish(mut self, matcher: &Matcher, context: &mut Context<'_>) {
        let news = self.lanes.as_ref().is_some_and(ChunkLanes::has_updates);
        if !self.times.is_empty() || news {
            self.seal(&matcher.measures, context.errors);
        }
        context.out.extend(self.sealed.into_iter().map(Item::Rows));
    }
}

impl Operator for Matcher {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.rows(chunk, context),
            Item::Watermark(watermark) => {
                let mut writer = MatchWriter::new(self);
                self.expire(None, watermark.ticks(), &mut writer, context.errors);
                writer.finish(self, context);
                context.out.push(Item::Watermark(watermark));
            }
            Item::PartialPanes(_) => unreachable!("a pattern is never given shares"),
        }
    }

    fn state_bytes(&self) -> usize {
        self.attempts
            .state_bytes(|attempts| attempts.iter().map(Attempt::state_bytes).sum())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u8(self.has_lanes.into());
        out.u64(self.events);
        self.attempts.snapshot(out, |attempts, out| {
            out.count(attempts.len());
            let attempts = attempts.iter();
            attempts.for_each(|attempt| attempt.snapshot(&self.rules, out));
        });
        self.due
            .snapshot(out, |slots, out| snapshot_slots(slots, out));
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.has_lanes = from.u8()? != 0;
        self.events = from.u64()?;
        let (rules, keys) = (&self.rules, self.keys.len());
        self.attempts = KeyedSlots::restore(from, |from| {
            let attempts = 0..from.count()?;
            attempts
                .map(|_| Attempt::restore(rules, keys, from))
                .collect()
        })?;
        let attempts = &self.attempts;
        self.due = TimerQueue::restore(from, |from| attempts.restore_slots(from))?;
        Ok(())
    }
}
