//! A stream of decoded events, of a file or of a partition of a hub, on its way to the combiner: events get their times,
//! are put in order and run through the part of the query that sees one partition alone.
//!
//! A stream knows nothing of others. It may run on any thread, as fast or slow as it is asked: nothing of its output
//! depends on that.

use std::sync::Arc;

use highwater_connect::Events;
use highwater_engine::{Column, DataErrors, PhysicalPlan, ValueRef, eval};
use highwater_time::Instant;

use crate::account::{Account, Rejection, json};
use crate::events::TimedEvents;
use crate::intake::{BlockOrigin, Intake};
use crate::partition_pipeline::{Delivery, PartitionPipeline};
use crate::plan::{InputPlan, PartitionId};
use crate::report::{InputReport, TroubleKind};
use crate::side_row::{EventLocation, QueryText, SideRow, StreamLocation};
use crate::witness::Witness;

pub(crate) struct Stream {
    /// Its place among all streams of the job.
    pub number: usize,
    pub input: usize,
    intake: Intake,
    partitions: Vec<PartitionPipeline>,
    /// The value of the partition column for each partition.
    partition_keys: Vec<Vec<u8>>,
    pub account: Account,
    /// Events that a policy moves or drops become rows of an output.
    late_events: bool,
    query: Arc<QueryText>,
}

/// What a stream is made of.
pub(crate) struct StreamPlan {
    pub number: usize,
    pub location: StreamLocation,
    /// The file or partition in full.
    pub name: String,
    pub partitions: Vec<PartitionId>,
    pub witness: bool,
    pub late_events: bool,
    pub query: Arc<QueryText>,
}

/// Decoded events, in order of arrival.
pub(crate) struct EventBlock<'a> {
    pub events: Events,
    /// When each event arrived, if its log knows.
    pub arrivals: Option<Vec<Instant>>,
    /// When each event that cannot be read arrived; empty if that is unknown.
    pub bad_arrivals: Vec<Instant>,
    /// The file that holds them, or that they were taken from on their way to a hub.
    pub file: Option<&'a str>,
    /// When the file was last written.
    pub modified: Instant,
}

/// What a stream has made of its events.
pub(crate) struct StreamOutput {
    pub stream: usize,
    pub input: usize,
    pub deliveries: Vec<Delivery>,
    /// Dead letters of events; of a hub in order of arrival.
    pub rejected: Vec<SideRow>,
    /// Dead letters of rows, in no order.
    pub failed: Vec<SideRow>,
    /// Late events, in order of arrival.
    pub late: Vec<SideRow>,
    /// The latest arrival of a hub's event or punctuation.
    pub arrived: Instant,
    pub watermark: Instant,
}

impl Stream {
    /// Takes the events of `intake`.
    pub fn new(plan: StreamPlan, intake: Intake, physical: &PhysicalPlan) -> Stream {
        let input = intake.input();
        let key = |id: &PartitionId| {
            let mut key = Vec::new();
            eval::encode_key(id.shown.view(), &mut key);
            key
        };
        let partition_keys = plan.partitions.iter().map(key).collect();
        let partitions = plan.partitions.into_iter();
        let partitions = partitions
            .map(|id| PartitionPipeline::new(input, physical, id, plan.witness))
            .collect();
        Stream {
            number: plan.number,
            input: input.index,
            account: Account::new(input, plan.number, plan.location, plan.name, plan.witness),
            partitions,
            partition_keys,
            intake,
            late_events: plan.late_events,
            query: plan.query,
        }
    }

    pub fn plan(&self) -> &InputPlan {
        self.intake.input()
    }

    /// The only partition of a stream of a hub.
    pub fn partition(&self) -> &PartitionPipeline {
        &self.partitions[0]
    }

    pub fn partition_mut(&mut self) -> &mut PartitionPipeline {
        &mut self.partitions[0]
    }

    /// The minimum watermark over its partitions.
    pub fn watermark(&self) -> Instant {
        let watermarks = self.partitions.iter().map(PartitionPipeline::watermark);
        watermarks.min().unwrap_or(Instant::BEFORE_ALL)
    }

    /// The first error so far, in words.
    pub fn first_error(&self) -> Option<String> {
        let troubles = self.account.report.troubles.iter();
        let trouble = troubles.flat_map(|(_, sum)| &sum.samples).next();
        let trouble = trouble.map(|t| format!("{}:{}: {}", t.file, t.line, t.reason));
        let errors = || {
            let mut partitions = self.partitions.iter();
            partitions.find_map(|partition| partition.pipeline.errors.samples.first())
        };
        trouble.or_else(|| errors().map(|error| error.reason.clone()))
    }

    pub fn new_output(&self) -> StreamOutput {
        StreamOutput {
            stream: self.number,
            input: self.input,
            deliveries: Vec::new(),
            rejected: Vec::new(),
            failed: Vec::new(),
            late: Vec::new(),
            arrived: Instant::BEFORE_ALL,
            watermark: Instant::BEFORE_ALL,
        }
    }

    /// Processes a block of events.
    pub fn push(&mut self, block: EventBlock<'_>, out: &mut StreamOutput) {
        let mut arrivals = block.bad_arrivals.iter().copied();
        for bad in &block.events.bad {
            let rejection = Rejection {
                kind: TroubleKind::of(bad.kind, false),
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
        match self.late_events {
            true => self.push_and_report_late(timed, file, out),
            // The common case: nothing is noted of single events.
            false => {
                for (partition, events) in self.split(timed) {
                    let witness = self.account.witness.as_mut();
                    self.partitions[partition].take(events, witness, &mut out.deliveries);
                }
            }
        }
        self.punctuate_all(&mut out.deliveries);
    }

    /// The events with their times, without those that have none.
    fn timed(&mut self, block: EventBlock<'_>, rejected: &mut Vec<SideRow>) -> TimedEvents {
        let (intake, account) = (&mut self.intake, &mut self.account);
        let whole = intake.whole(&block.events);
        account.remember(&block.events, whole);
        let whole: Option<Column> = whole.filter(|_| account.has_dead_letters()).cloned();
        let first = &self.partitions[0].id;
        let origin = BlockOrigin {
            number: self.number,
            name: block.file.unwrap_or_default(),
            modified: block.modified,
            partition: (first.number, &first.shown),
        };
        intake.timed(block.events, &origin, block.arrivals, &mut |event| {
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

    fn push_and_report_late(
        &mut self,
        timed: TimedEvents,
        file: Option<&str>,
        out: &mut StreamOutput,
    ) {
        let (lines, whole) = (timed.lines.clone(), timed.whole.clone());
        let fates = self.partitions[0].take_and_report(timed, &mut out.deliveries);
        for (row, fate) in fates {
            let event = whole
                .as_ref()
                .map_or(ValueRef::Null, |whole| whole.get(row));
            let location = EventLocation {
                stream: self.account.location(),
                file,
                offset: Some(lines[row]),
            };
            let arrival = fate.arrival.unwrap_or(out.arrived);
            let row = SideRow::of_late(location, &fate, arrival, json(event));
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

    /// A file is in order of arrival, so the arrivals of one partition hold for the others: they will send nothing older
    /// than the late bound any more. Verdicts do not depend on this, only how soon results come.
    fn punctuate_all(&mut self, out: &mut Vec<Delivery>) {
        // With a clock for every key, this would show in the order of rows, and so would the size of blocks.
        let per_key = !self.intake.input().plan.substream.is_empty();
        let apart = self.partitions.len() < 2 || !self.intake.has_arrivals();
        if apart || per_key || self.account.witness.is_some() {
            return;
        }
        let arrived = self.intake.arrived();
        for partition in &mut self.partitions {
            partition.punctuate(arrived, out);
        }
    }

    /// Ends time: no event will follow.
    pub fn end(&mut self, out: &mut StreamOutput) {
        let partitions = self.partitions.iter_mut();
        partitions.for_each(|partition| partition.end(&mut out.deliveries));
    }

    /// Adds the dead letters of rows that failed, and the watermark.
    pub fn complete(&mut self, out: &mut StreamOutput) {
        for partition in &mut self.partitions {
            for error in partition.pipeline.errors.take_collected() {
                out.failed
                    .push(self.account.failed_row(&error, &self.query));
            }
        }
        out.watermark = self.watermark();
    }

    /// What was read and what was wrong, and the rows that the query failed on.
    pub fn finish(self) -> (InputReport, DataErrors, Option<Witness>) {
        let (mut report, mut witness) = (self.account.report, self.account.witness);
        let mut errors = DataErrors::default();
        for mut partition in self.partitions {
            report.time.merge(partition.counts());
            errors.merge(std::mem::take(&mut partition.pipeline.errors));
            if let Some(witness) = &mut witness {
                witness.windows.extend(partition.pipeline.take_trace());
            }
        }
        (report, errors, witness)
    }
}
