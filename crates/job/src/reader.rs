//! Reads one file, a block at a time, through an intake into the lanes of its partitions.
//!
//! A reader works on its own and knows nothing of other files. It may run on any thread, as fast or slow as it is asked:
//! nothing it hands over depends on that.

use std::path::Path;

use highwater_connect::json::Field;
use highwater_connect::{Events, ReadError, Source, SourceNote};
use highwater_engine::{DataErrors, PhysicalPlan, Value, ValueRef, eval};
use highwater_time::Instant;

use crate::account::Account;
use crate::dead::DeadLetter;
use crate::events::TimedEvents;
use crate::intake::{BlockOrigin, Intake};
use crate::partition_pipeline::{Delivery, PartitionPipeline};
use crate::plan::{InputFormat, InputPlan, PartitionId};
use crate::report::{InputReport, TroubleKind};
use crate::witness::Witness;

pub(crate) struct FileReader {
    /// The number of this file among all that the job reads.
    number: usize,
    modified: Instant,
    source: Box<dyn Source>,
    intake: Intake,
    lanes: Vec<PartitionPipeline>,
    /// What the partition column holds for each lane.
    keys: Vec<Vec<u8>>,
    account: Account,
    ended: bool,
}

impl FileReader {
    pub fn open(
        path: &Path,
        number: usize,
        input: InputPlan,
        physical: &PhysicalPlan,
        partitions: Vec<PartitionId>,
        witness: bool,
    ) -> Result<FileReader, ReadError> {
        let account = Account::new(&input, path, number, witness);
        let key = |id: &PartitionId| {
            let mut key = Vec::new();
            eval::encode_key(id.shown.view(), &mut key);
            key
        };
        let keys = partitions.iter().map(key).collect();
        let lanes = partitions
            .into_iter()
            .map(|id| PartitionPipeline::new(&input, physical, id, witness))
            .collect();
        let (intake, fields) = Intake::new(input, witness);
        let input = intake.input();
        let source = input.how.open(path, fields, input.dead_letters)?;
        Ok(FileReader {
            number,
            modified: Instant::from_unix_nanos(source.modified()),
            source,
            intake,
            lanes,
            keys,
            account,
            ended: false,
        })
    }

    pub fn input(&self) -> usize {
        self.intake.input().index
    }

    pub fn bytes(&self) -> u64 {
        self.account.report.bytes
    }

    /// The first thing that was wrong with an event, if any.
    pub fn first_trouble(&self) -> Option<String> {
        let troubles = self.account.report.troubles.iter();
        let trouble = troubles.flat_map(|(_, sum)| &sum.samples).next();
        let trouble = trouble.map(|t| format!("{}:{}: {}", t.file, t.line, t.reason));
        let errors = || {
            let mut lanes = self.lanes.iter();
            lanes.find_map(|lane| lane.pipeline.errors.samples.first())
        };
        trouble.or_else(|| errors().map(|error| error.reason.clone()))
    }

    /// Works off the next block of the file. `false` when there is no more; the last call ends time.
    pub fn step(&mut self, out: &mut Vec<Delivery>) -> bool {
        if self.ended {
            return false;
        }
        match self.source.next_batch() {
            Ok(Some(events)) => {
                self.account.report.bytes = self.source.bytes_read();
                for bad in &events.bad {
                    self.account.bad_event(bad);
                }
                self.take(events, out);
            }
            Ok(None) => self.end(out),
            Err(error) => {
                let kind = error.kind();
                let kind = kind.map_or(TroubleKind::File, |kind| TroubleKind::of(kind, true));
                self.account.file_trouble(kind, error.to_string());
                self.end(out);
            }
        }
        true
    }

    /// The dead letters since the last call.
    pub fn take_dead(&mut self) -> Vec<DeadLetter> {
        let lanes = self.lanes.iter_mut();
        let failed = lanes.flat_map(|lane| lane.pipeline.errors.take_collected());
        self.account.take_dead(failed)
    }

    fn end(&mut self, out: &mut Vec<Delivery>) {
        self.account.report.bytes = self.source.bytes_read();
        match self.source.note() {
            Some(note @ SourceNote::CutShort { .. }) => {
                self.account
                    .file_trouble(TroubleKind::File, note.to_string());
            }
            Some(note) => self.account.report.notes.push(note.to_string()),
            None => {}
        }
        self.ended = true;
        self.lanes.iter_mut().for_each(|lane| lane.end(out));
    }

    /// What was read and what was wrong; errors of the query come with it.
    pub fn finish(self) -> (InputReport, DataErrors, Option<Witness>) {
        let (mut report, mut witness) = (self.account.report, self.account.witness);
        let mut errors = DataErrors::default();
        for mut lane in self.lanes {
            report.time.merge(lane.counts());
            errors.merge(std::mem::take(&mut lane.pipeline.errors));
            if let Some(witness) = &mut witness {
                witness.windows.extend(lane.pipeline.take_trace());
            }
        }
        (report, errors, witness)
    }

    fn take(&mut self, decoded: Events, out: &mut Vec<Delivery>) {
        if decoded.rows == 0 {
            return;
        }
        let (intake, account) = (&mut self.intake, &mut self.account);
        account.remember(&decoded, intake.whole(&decoded));
        let file = account.file().clone();
        let first = &self.lanes[0].id;
        let place = BlockOrigin {
            number: self.number,
            name: &file,
            modified: self.modified,
            partition: (first.number, &first.shown),
        };
        let events = intake.timed(decoded, &place, None, &mut |lost| {
            account.lose((lost.kind, lost.arrival), lost.line, lost.reason, "");
        });
        for (lane, events) in self.split(events) {
            self.lanes[lane].take(events, self.account.witness.as_mut(), out);
        }
        self.punctuate(out);
    }

    /// The events of each partition in this block.
    fn split(&self, events: TimedEvents) -> Vec<(usize, TimedEvents)> {
        let Some(column) = &events.partitions else {
            return vec![(0, events)];
        };
        let mut key = Vec::new();
        let of_row: Vec<usize> = (0..column.len())
            .map(|row| {
                key.clear();
                eval::encode_key(column.get(row), &mut key);
                let known = self.keys.iter().position(|known| *known == key);
                known.unwrap_or(0)
            })
            .collect();
        (0..self.lanes.len())
            .map(|lane| {
                let mask = of_row.iter().map(|of| *of == lane).collect();
                (lane, events.keep(&mask))
            })
            .filter(|(_, events)| !events.times.is_empty())
            .collect()
    }

    /// The file is in order of arrival, so what one partition shows of time holds for the others: they will send
    /// nothing older than the late bound any more. Verdicts do not depend on this, only how soon results come.
    fn punctuate(&mut self, out: &mut Vec<Delivery>) {
        // With a clock for every key, this would show in the order of rows, and so would the size of blocks.
        let per_key = !self.intake.input().plan.substream.is_empty();
        let apart = self.lanes.len() < 2 || !self.intake.has_arrivals();
        if apart || per_key || self.account.witness.is_some() {
            return;
        }
        let arrived = self.intake.arrived();
        for lane in &mut self.lanes {
            lane.punctuate(arrived, out);
        }
    }
}

/// The distinct partitions in a file, found by reading it once. Sorted, so that their order is that of their values.
pub(crate) fn discover_partitions(
    path: &Path,
    column: &str,
    how: &InputFormat,
) -> Result<Vec<Value>, ReadError> {
    let fields = vec![Field::Path(vec![column.to_string()])];
    let mut source = how.open(path, fields, false)?;
    let mut found = std::collections::BTreeMap::new();
    // What is wrong with the file is told when it is read for good.
    while let Ok(Some(events)) = source.next_batch() {
        for row in 0..events.rows {
            let mut key = Vec::new();
            eval::encode_key(events.columns[0].get(row), &mut key);
            found
                .entry(key)
                .or_insert_with(|| events.columns[0].get(row).to_value());
        }
    }
    let mut values: Vec<_> = found.into_values().collect();
    // Values of different kinds have no order of their own, and text beside a number would be read as one.
    let kind = |value: &Value| match value.view() {
        ValueRef::Null => 0,
        ValueRef::Bit(_) | ValueRef::Int(_) | ValueRef::Float(_) => 1,
        ValueRef::Text(_) => 2,
        _ => 3,
    };
    values.sort_by(|a, b| {
        let order = || eval::compare(a.view(), b.view()).ok().flatten();
        let kinds = kind(a).cmp(&kind(b));
        kinds.then_with(|| order().unwrap_or(std::cmp::Ordering::Equal))
    });
    Ok(values)
}
