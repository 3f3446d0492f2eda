//! A stream: the events of a file or of a partition of a hub get their times, are ordered, and run through the local
//! part of the query.
//!
//! Streams are independent of each other and of the thread they run on.

use std::sync::Arc;

use highwater_connect::Events;
use highwater_engine::{Column, DataErrors, Item, PhysicalPlan, ValueRef, eval};
use highwater_time::Instant;

use crate::account::{Account, Rejection, json};
use crate::early::{EndPreview, PipelineCopies, StreamProgress};
use crate::error_log::ErrorLog;
use crate::event_trace::EventTrace;
use crate::events::TimedEvents;
use crate::order::JudgedEvents;
use crate::partition_pipeline::{ExitItem, PartitionPipeline};
use crate::plan::{InputPlan, PartitionId};
use crate::report::{InputErrorKind, InputReport};
use crate::samples::StreamSampler;
use crate::side_row::{EventLocation, QueryText, SideRow, StreamLocation};
use crate::timestamp_assigner::{BlockOrigin, TimestampAssigner};

pub(crate) struct Stream {
    /// Its number within the job.
    pub number: usize,
    pub input: usize,
    assigner: TimestampAssigner,
    partitions: Vec<PartitionPipeline>,
    /// The value of the partition column for each partition.
    partition_keys: Vec<Vec<u8>>,
    pub account: Account,
    /// Events that a policy adjusts or drops become rows of an output.
    late_events: bool,
    /// Set for a live job.
    sampler: Option<StreamSampler>,
    /// How many failed rows of each partition are in the log of data errors.
    logged_errors: usize,
    query: Arc<QueryText>,
}

/// The parameters of a stream.
pub(crate) struct StreamPlan {
    pub number: usize,
    pub location: StreamLocation,
    /// The path of the file, or hub and partition.
    pub name: String,
    pub partitions: Vec<PartitionId>,
    pub trace: bool,
    pub late_events: bool,
    pub query: Arc<QueryText>,
}

/// Decoded events, in order of arrival.
pub(crate) struct EventBlock<'a> {
    pub events: Events,
    /// The arrival of each event; `None` for files.
    pub arrivals: Option<Vec<Instant>>,
    /// The arrival of each bad event; empty for files.
    pub bad_arrivals: Vec<Instant>,
    /// The file, also of followed files.
    pub file: Option<&'a str>,
    /// The modification time of the file.
    pub modified: Instant,
}

/// The output of a stream for the combiner.
pub(crate) struct StreamOutput {
    pub stream: usize,
    pub input: usize,
    pub exit_items: Vec<ExitItem>,
    /// Dead letters of events; of a hub in order of arrival.
    pub rejected: Vec<SideRow>,
    /// Dead letters of rows, in no order.
    pub failed: Vec<SideRow>,
    /// Late events, in order of arrival.
    pub late: Vec<SideRow>,
    /// The latest arrival of a hub's event or punctuation.
    pub arrived: Instant,
    pub watermark: Instant,
    /// The watermark, ignoring the barrier.
    pub reached: Instant,
    /// Set if the stream stops at barriers.
    pub progress: Option<StreamProgress>,
}

/// The account of a stream after its end.
pub(crate) struct StreamReport {
    pub input: InputReport,
    /// The rows that failed.
    pub errors: DataErrors,
    pub trace: Option<EventTrace>,
}

impl StreamOutput {
    /// An output without rows, of a stream that has processed nothing.
    pub(crate) fn new(stream: usize, input: usize) -> StreamOutput {
        StreamOutput {
            stream,
            input,
            exit_items: Vec::new(),
            rejected: Vec::new(),
            failed: Vec::new(),
            late: Vec::new(),
            arrived: Instant::BEFORE_ALL,
            watermark: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            progress: None,
        }
    }

    /// An estimate in bytes.
    pub(crate) fn size(&self) -> u64 {
        let sizes = self.exit_items.iter().map(|exit| match &exit.item {
            Item::Rows(chunk) => chunk.approximate_bytes(),
            _ => 0,
        });
        sizes.sum::<usize>() as u64
    }
}

impl Stream {
    /// Takes the events of `assigner`.
    pub(crate) fn new(
        plan: StreamPlan,
        assigner: TimestampAssigner,
        physical: &PhysicalPlan,
    ) -> Stream {
        let input = assigner.input();
        let key = |id: &PartitionId| {
            let mut key = Vec::new();
            eval::encode_key(id.shown.view(), &mut key);
            key
        };
        let partition_keys = plan.partitions.iter().map(key).collect();
        let partitions = plan.partitions.into_iter();
        let partitions = partitions
            .map(|id| PartitionPipeline::new(input, physical, id, plan.trace))
            .collect();
        Stream {
            number: plan.number,
            input: input.index,
            account: Account::new(input, plan.number, plan.location, plan.name, plan.trace),
            partitions,
            partition_keys,
            assigner,
            late_events: plan.late_events,
            sampler: None,
            logged_errors: 0,
            query: plan.query,
        }
    }

    /// Samples events for watchers, and logs data errors.
    pub(crate) fn observe(&mut self, sampler: StreamSampler, errors: Arc<ErrorLog>) {
        self.sampler = Some(sampler);
        self.account.error_log = Some(errors);
    }

    pub(crate) fn sampler(&self) -> Option<&StreamSampler> {
        self.sampler.as_ref()
    }

    pub(crate) fn plan(&self) -> &InputPlan {
        self.assigner.input()
    }

    /// The only partition of a stream of a hub.
    pub(crate) fn partition(&self) -> &PartitionPipeline {
        &self.partitions[0]
    }

    pub(crate) fn partition_mut(&mut self) -> &mut PartitionPipeline {
        &mut self.partitions[0]
    }

    /// The minimum watermark over its partitions.
    pub(crate) fn watermark(&self) -> Instant {
        let watermarks = self.partitions.iter().map(PartitionPipeline::watermark);
        watermarks.min().unwrap_or(Instant::BEFORE_ALL)
    }

    /// The text of the first error so far.
    pub(crate) fn first_error(&self) -> Option<String> {
        let errors = self.account.report.errors.iter();
        let sample = errors.flat_map(|(_, sum)| &sum.samples).next();
        let sample = sample.map(|t| format!("{}:{}: {}", t.file, t.line, t.reason));
        let errors = || {
            let mut partitions = self.partitions.iter();
            partitions.find_map(|partition| partition.pipeline.errors.samples.first())
        };
        sample.or_else(|| errors().map(|error| error.reason.clone()))
    }

    pub(crate) fn new_output(&self) -> StreamOutput {
        StreamOutput::new(self.number, self.input)
    }

    /// From now on stops at barriers; the first one is before all events.
    pub(crate) fn stop_at_barriers(&mut self, copies: &Arc<PipelineCopies>) {
        let input = self.input;
        let partitions = self.partitions.iter_mut();
        partitions.for_each(|partition| partition.stop_at_barriers(copies, input));
    }

    /// Continues up to `barrier`.
    pub(crate) fn raise_barrier(&mut self, barrier: Instant, out: &mut StreamOutput) {
        let partitions = self.partitions.iter_mut();
        partitions.for_each(|partition| partition.raise_barrier(barrier, &mut out.exit_items));
    }

    /// The output of the local pipelines if the input ended here. The error is the reason why the job must fail.
    pub(crate) fn preview_end(&self) -> Result<EndPreview, String> {
        let mut preview = EndPreview {
            stream: self.number,
            input: self.input,
            exit_items: Vec::new(),
        };
        for partition in &self.partitions {
            let made = partition.preview_end(&mut preview.exit_items);
            made.map_err(|overflow| self.query.overflow_reason(overflow))?;
        }
        Ok(preview)
    }

    /// Processes a block of events.
    pub(crate) fn push(&mut self, block: EventBlock<'_>, out: &mut StreamOutput) {
        let mut arrivals = block.bad_arrivals.iter().copied();
        for bad in &block.events.bad {
            let rejection = Rejection {
                kind: InputErrorKind::of(bad.kind, false),
                line: bad.line,
                reason: &bad.reason,
                arrival: arrivals.next(),
                text: &bad.text,
                event: None,
                file: block.file,
            };
            self.account.reject(&rejection, &mut out.rejected);
        }
        if block.events.rows == 0 {
            return;
        }
        let file = block.file;
        let timed = self.timed(block, &mut out.rejected);
        let events = timed.times.len();
        let share = self.sampler.as_ref();
        let share = share.and_then(|sampler| sampler.share(events));
        let judged = match (self.late_events, share) {
            (false, None) => None,
            (true, None) => Some(JudgedEvents::moved()),
            (false, Some(share)) => Some(JudgedEvents::sample(events, share)),
            (true, Some(share)) => Some(JudgedEvents::sample(events, share).and_all_moved()),
        };
        match judged {
            Some(judged) => self.push_and_report(timed, judged, file, out),
            // The common case: no record of single events.
            None => {
                for (partition, events) in self.split(timed) {
                    let trace = self.account.trace.as_mut();
                    self.partitions[partition].take(events, trace, &mut out.exit_items);
                }
            }
        }
        self.punctuate_all(&mut out.exit_items);
    }

    /// The events with their times, without those that have none.
    fn timed(&mut self, block: EventBlock<'_>, rejected: &mut Vec<SideRow>) -> TimedEvents {
        let (assigner, account) = (&mut self.assigner, &mut self.account);
        let whole = assigner.whole(&block.events);
        account.remember(&block.events, whole);
        let whole: Option<Column> = whole.filter(|_| account.has_dead_letters()).cloned();
        let first = &self.partitions[0].id;
        let origin = BlockOrigin {
            number: self.number,
            name: block.file.unwrap_or_default(),
            modified: block.modified,
            partition: first,
        };
        assigner.assign(block.events, &origin, block.arrivals, &mut |event| {
            let rejection = Rejection {
                kind: event.kind,
                line: event.line,
                reason: event.reason,
                arrival: event.arrival,
                text: "",
                event: Some(
                    whole
                        .as_ref()
                        .map_or(ValueRef::Null, |whole| whole.get(event.row)),
                ),
                file: block.file,
            };
            account.reject(&rejection, rejected);
        })
    }

    fn push_and_report(
        &mut self,
        mut timed: TimedEvents,
        judged: JudgedEvents,
        file: Option<&str>,
        out: &mut StreamOutput,
    ) {
        let partition = &mut self.partitions[0];
        let judged = partition.take_and_report(&mut timed, judged, &mut out.exit_items);
        let TimedEvents { lines, whole, .. } = timed;
        if let Some(sampler) = &self.sampler
            && sampler.is_watched()
        {
            sampler.add(judged.iter().map(|(row, judged)| (lines[*row], *judged)));
        }
        if !self.late_events {
            return;
        }
        let late = judged.into_iter();
        for (row, judged) in late.filter(|(_, judged)| !judged.verdict.on_time()) {
            let event = whole
                .as_ref()
                .map_or(ValueRef::Null, |whole| whole.get(row));
            let location = EventLocation {
                stream: self.account.location(),
                file,
                offset: Some(lines[row]),
            };
            let arrival = judged.arrival.unwrap_or(out.arrived);
            let row = SideRow::of_late(location, &judged, arrival, json(event));
            out.late.push(row);
        }
    }

    /// The events of each partition in a block.
    fn split(&self, events: TimedEvents) -> Vec<(usize, TimedEvents)> {
        let Some(column) = &events.partitions else {
            return vec![(0, events)];
        };
        let mut key = Vec::new();
        let of_row: Vec<usize> = (0..column.len())
            .map(|row| {
                key.clear();
                eval::encode_key(column.get(row), &mut key);
                let known = self.partition_keys.iter().position(|known| *known == key);
                known.unwrap_or(0)
            })
            .collect();
        (0..self.partitions.len())
            .map(|partition| {
                let mask = of_row.iter().map(|of| *of == partition).collect();
                (partition, events.keep(&mask))
            })
            .filter(|(_, events)| !events.times.is_empty())
            .collect()
    }

    /// A file is in order of arrival, so the arrivals of one partition bound the others: none of their later events is
    /// older than the late bound. Verdicts do not depend on this, only how soon results come.
    fn punctuate_all(&mut self, out: &mut Vec<ExitItem>) {
        // With a clock per key, the order of rows would depend on the size of blocks.
        let per_key = !self.assigner.input().plan.substream.is_empty();
        let apart = self.partitions.len() < 2 || !self.assigner.has_arrivals();
        if apart || per_key || self.account.trace.is_some() {
            return;
        }
        let arrived = self.assigner.arrived();
        for partition in &mut self.partitions {
            partition.punctuate(arrived, out);
        }
    }

    /// Why the job must fail, if a step has made too many rows.
    pub(crate) fn overflow(&self) -> Option<String> {
        let mut partitions = self.partitions.iter();
        let overflow = partitions.find_map(|partition| partition.pipeline.overflow());
        overflow.map(|overflow| self.query.overflow_reason(overflow))
    }

    /// Ends time: no event will follow.
    pub(crate) fn end(&mut self, out: &mut StreamOutput) {
        let partitions = self.partitions.iter_mut();
        partitions.for_each(|partition| partition.end(&mut out.exit_items));
    }

    /// Adds the dead letters of rows that failed, and the watermark.
    pub(crate) fn complete(&mut self, out: &mut StreamOutput) {
        if let (Some(log), [partition]) = (&self.account.error_log, &self.partitions[..]) {
            let samples = &partition.pipeline.errors.samples;
            for error in &samples[self.logged_errors..] {
                log.add(self.account.failed_row_sample(error));
            }
            self.logged_errors = samples.len();
        }
        for partition in &mut self.partitions {
            for error in partition.pipeline.errors.take_collected() {
                out.failed
                    .push(self.account.failed_row(&error, &self.query));
            }
        }
        out.watermark = self.watermark();
        let reached = self.partitions.iter().map(PartitionPipeline::reached);
        out.reached = reached.min().unwrap_or(Instant::BEFORE_ALL);
        let partitions = self.partitions.iter_mut();
        let has_events = partitions.filter_map(PartitionPipeline::take_has_events);
        let has_events = has_events.reduce(|one, other| one || other);
        let next = self.partitions.iter().map(PartitionPipeline::next_release);
        out.progress = has_events.map(|has_events| StreamProgress {
            next: next.min().unwrap_or(Instant::BEFORE_ALL),
            has_events,
        });
    }

    pub(crate) fn finish(self) -> StreamReport {
        let (mut report, mut trace) = (self.account.report, self.account.trace);
        let mut errors = DataErrors::default();
        for mut partition in self.partitions {
            report.time.merge(partition.counts());
            errors.merge(std::mem::take(&mut partition.pipeline.errors));
            if let Some(trace) = &mut trace {
                trace.windows.extend(partition.pipeline.take_trace());
            }
        }
        StreamReport {
            input: report,
            errors,
            trace,
        }
    }
}
