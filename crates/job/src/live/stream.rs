//! One partition of a hub as a job reads it: what is fetched goes in, what the shared part of the query is due comes out.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{Value, ValueRef, eval};
use highwater_log::batch::CorruptBatch;
use highwater_log::{FetchData, Offset, TopicPartition};
use highwater_time::Instant;

use super::batch_decoder::{BatchDecoder, DecodedItem, File};
use super::side_row::{EventLocation, SideRow};
use super::status::PartitionStatus;
use crate::intake::{self, Intake};
use crate::partition_pipeline::{Delivery, PartitionPipeline, PartitionSnapshot};
use crate::report::TroubleKind;
use crate::witness::origin_line;

pub(super) struct Stream {
    /// Its place among all partitions that the job reads.
    pub number: usize,
    pub input: usize,
    place: TopicPartition,
    opener: BatchDecoder,
    intake: Intake,
    lane: PartitionPipeline,
    /// Everything before this has been taken.
    next: Offset,
    /// Nothing from here on is taken.
    until: Option<Offset>,
    /// The latest arrival of an event, or of word that there was none.
    arrived: Instant,
    wants: SideOutputOptions,
    status: PartitionStatus,
    /// Rows that failed in earlier runs of this start.
    errors_before: u64,
}

/// EndpointRequest rows besides results somebody asked for.
#[derive(Clone)]
pub(super) struct SideOutputOptions {
    pub dead_letters: bool,
    pub late: bool,
    /// What the query is called, and its text.
    pub query: Arc<(String, String)>,
}

/// What came of something that a stream took.
pub(super) struct StreamOutput {
    pub stream: usize,
    pub input: usize,
    pub deliveries: Vec<Delivery>,
    /// Dead letters of events, in order of arrival.
    pub lost: Vec<SideRow>,
    /// Dead letters of rows, in no order.
    pub failed: Vec<SideRow>,
    /// Late events, in order of arrival.
    pub late: Vec<SideRow>,
    pub arrived: Instant,
    pub watermark: Instant,
    pub status: PartitionStatus,
}

/// The state of a stream at one moment, not yet written down.
pub(super) struct StreamSnapshot {
    pub next: Offset,
    pub arrived: Instant,
    lane: PartitionSnapshot,
}

impl StreamSnapshot {
    /// As checkpoints have it: where to read on, and the state.
    pub fn written(&self) -> (Offset, Vec<u8>) {
        let mut state = Vec::new();
        self.write(&mut state);
        (self.next, state)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.i64(self.next.0);
        out.i64(self.arrived.ticks());
        self.lane.write(out);
    }
}

impl Stream {
    pub fn new(
        (number, place): (usize, TopicPartition),
        (opener, intake, lane): (BatchDecoder, Intake, PartitionPipeline),
        wants: SideOutputOptions,
    ) -> Stream {
        Stream {
            number,
            input: intake.input().index,
            status: PartitionStatus::new(place.clone()),
            place,
            opener,
            intake,
            lane,
            next: Offset(0),
            until: None,
            arrived: Instant::BEFORE_ALL,
            wants,
            errors_before: 0,
        }
    }

    /// Goes on with the counts of an earlier run.
    pub fn count_on(&mut self, status: PartitionStatus) {
        self.errors_before = status.runtime_errors;
        self.status = status;
    }

    /// Begins where others have passed a time already: no event of it will have an earlier one.
    pub fn begin_behind(&mut self, watermark: Instant) {
        let input = self.intake.input();
        let arrival = match input.plan.timestamp {
            // The arrival that nothing earlier could have.
            Some(_) => watermark + input.policy.late_arrival,
            None => watermark,
        };
        // Nothing waits yet that could come out.
        self.lane.punctuate(arrival, &mut Vec::new());
    }

    /// The latest arrival of an event, or of word that there was none.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    pub fn watermark(&self) -> Instant {
        self.lane.watermark()
    }

    /// Begins there instead of at the start.
    pub fn begin(&mut self, next: Offset) {
        self.next = next;
    }

    /// Takes nothing from there on.
    pub fn end_at(&mut self, until: Offset) {
        self.until = Some(until);
    }

    pub fn next(&self) -> Offset {
        self.next
    }

    pub fn copy(&self) -> StreamSnapshot {
        StreamSnapshot {
            next: self.next,
            arrived: self.arrived,
            lane: self.lane.copy(),
        }
    }

    /// Reads what [`StreamSnapshot::write`] wrote.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.next = Offset(from.i64()?);
        self.arrived = Instant::from_ticks(from.i64()?);
        self.lane.restore(from)
    }

    /// Works off what was fetched from where the last ended.
    pub fn take(&mut self, fetched: &FetchData) -> Result<StreamOutput, CorruptBatch> {
        let mut handed = self.nothing();
        let mut pieces = Vec::new();
        let range = (self.next, self.until);
        let next = self
            .opener
            .open(fetched, range, &mut |piece| pieces.push(piece))?;
        for piece in pieces {
            match piece {
                DecodedItem::Punctuation(arrival) => {
                    self.arrived = self.arrived.max(arrival);
                    self.lane.punctuate(arrival, &mut handed.deliveries);
                }
                DecodedItem::Events {
                    events,
                    arrivals,
                    bad_arrivals,
                    file,
                } => {
                    let file = file.as_deref();
                    let name = file.map(|file| &file.name[..]);
                    self.status.events += (events.rows + events.bad.len()) as u64;
                    let last = arrivals.iter().chain(&bad_arrivals).max();
                    self.arrived = last.map_or(self.arrived, |last| self.arrived.max(*last));
                    for (bad, arrival) in events.bad.iter().zip(bad_arrivals) {
                        let kind = TroubleKind::of(bad.kind, false);
                        self.status.lost(kind, &bad.reason, (name, bad.line));
                        if self.wants.dead_letters {
                            let spot = spot(&self.intake, (&self.place, name), bad.line);
                            handed.lost.push(SideRow::of_bad_event(&spot, arrival, bad));
                        }
                    }
                    self.take_events(events, arrivals, file, &mut handed);
                }
            }
        }
        self.next = next;
        let bytes = fetched.pieces.iter().map(|piece| piece.len() as u64);
        self.status.bytes += bytes.sum::<u64>();
        Ok(self.handed(handed))
    }

    /// Time ends: no event will follow.
    pub fn end(&mut self) -> StreamOutput {
        let mut handed = self.nothing();
        self.arrived = Instant::AFTER_ALL;
        self.lane.end(&mut handed.deliveries);
        self.handed(handed)
    }

    fn take_events(
        &mut self,
        events: highwater_connect::Events,
        arrivals: Vec<Instant>,
        file: Option<&File>,
        handed: &mut StreamOutput,
    ) {
        if events.rows == 0 {
            return;
        }
        let whole = self.intake.whole(&events).cloned();
        let (status, wants, own) = (&mut self.status, &self.wants, &self.place);
        let id = &self.lane.id;
        let name = self.intake.input().plan.name.clone();
        let of_file = file.map(|file| &file.name[..]);
        let place = intake::BlockOrigin {
            number: self.number,
            name: of_file.unwrap_or_default(),
            modified: file.map_or(Instant::BEFORE_ALL, |file| file.modified),
            partition: (id.number, &id.shown),
        };
        let timed = self
            .intake
            .timed(events, &place, Some(arrivals), &mut |lost| {
                status.lost(lost.kind, lost.reason, (of_file, lost.line));
                if let (true, Some(arrival)) = (wants.dead_letters, lost.arrival) {
                    let event = whole
                        .as_ref()
                        .map_or(ValueRef::Null, |whole| whole.get(lost.row));
                    let spot = EventLocation {
                        input: &name,
                        place: own,
                        file: of_file,
                        offset: lost.line,
                    };
                    let letter =
                        SideRow::of_event(&spot, (lost.kind, arrival), lost.reason, as_text(event));
                    handed.lost.push(letter);
                }
            });
        // Nobody has asked what became of single events: the common case, which costs nothing.
        if !self.wants.late {
            return self.lane.take(timed, None, &mut handed.deliveries);
        }
        let (lines, whole) = (timed.lines.clone(), timed.whole.clone());
        let moved = self.lane.take_and_tell(timed, &mut handed.deliveries);
        for (row, fate) in moved {
            let event = whole
                .as_ref()
                .map_or(ValueRef::Null, |whole| whole.get(row));
            let spot = spot(&self.intake, (&self.place, of_file), lines[row]);
            let arrival = fate.arrival.unwrap_or(self.arrived);
            handed
                .late
                .push(SideRow::of_fate(&spot, &fate, arrival, as_text(event)));
        }
    }

    fn nothing(&self) -> StreamOutput {
        StreamOutput {
            stream: self.number,
            input: self.input,
            deliveries: Vec::new(),
            lost: Vec::new(),
            failed: Vec::new(),
            late: Vec::new(),
            arrived: self.arrived,
            watermark: Instant::BEFORE_ALL,
            status: self.status.clone(),
        }
    }

    fn handed(&mut self, mut handed: StreamOutput) -> StreamOutput {
        for error in self.lane.pipeline.errors.take_collected() {
            let offset = error.origin.map(origin_line);
            let spot = offset.map(|offset| spot(&self.intake, (&self.place, None), offset));
            let query = (&self.wants.query.0[..], &self.wants.query.1[..]);
            handed
                .failed
                .push(SideRow::of_row(&error, query, spot.as_ref()));
        }
        // Events that cannot be read and those that have no time were found one kind after the other.
        handed.lost.sort_by_key(|letter| letter.offset);
        handed.arrived = self.arrived;
        handed.watermark = self.lane.watermark();
        self.status.next = self.next;
        self.status.time = *self.lane.counts();
        self.status.waiting = self.lane.waiting() as u64;
        self.status.watermark = handed.watermark;
        self.status.runtime_errors = self.errors_before + self.lane.pipeline.errors.count;
        handed.status = self.status.clone();
        handed
    }
}

fn spot<'a>(
    intake: &'a Intake,
    (place, file): (&'a TopicPartition, Option<&'a str>),
    offset: u64,
) -> EventLocation<'a> {
    EventLocation {
        input: &intake.input().plan.name,
        place,
        file,
        offset,
    }
}

/// The event as JSON: a column of an output has one type, and events have many.
fn as_text(event: ValueRef<'_>) -> Value {
    let mut json = String::new();
    eval::write_json(event, &mut json);
    Value::Text(json.into())
}
