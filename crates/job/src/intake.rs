//! From decoded events to events that can be put in order: the columns that the query reads, and the times and keys of
//! events.
//!
//! Files and hubs differ here only by their [`BlockOrigin`].

use std::sync::Arc;

use highwater_connect::Events;
use highwater_connect::json::Field;
use highwater_engine::{Chunk, Column, ColumnBuilder, Record, Value, ValueRef};
use highwater_env::random::Random;
use highwater_query::plan::Read;
use highwater_time::{Arrivals, Instant};

use crate::events::{RowTroubles, TimedEvents, event_times, substream_keys, times_column};
use crate::plan::InputPlan;
use crate::report::TroubleKind;
use crate::witness::origin;

/// Where a block of events was read.
pub(crate) struct BlockOrigin<'a> {
    /// The number of this file or partition among all that the job reads; the upper bits of origins.
    pub number: usize,
    /// The file name that metadata shows.
    pub name: &'a str,
    /// When the file was last written.
    pub modified: Instant,
    /// The number of the partition among those of the input, and its PartitionId.
    pub partition: (usize, &'a Value),
}

/// The decoded columns and their uses.
struct Columns {
    reads: Vec<ColumnSource>,
    arrival: Option<usize>,
    partition: Option<usize>,
    /// The event as it is, for dead letters.
    whole: Option<usize>,
}

/// An event without a time or a key.
pub(crate) struct UntimedEvent<'a> {
    pub kind: TroubleKind,
    pub arrival: Option<Instant>,
    /// Its index among the decoded events.
    pub row: usize,
    pub line: u64,
    pub reason: &'a str,
}

#[derive(Clone, Copy)]
enum ColumnSource {
    Decoded(usize),
    /// The whole event with the columns that a hub adds.
    Marked(usize),
    Arrival,
    Partition,
    FileName,
    FileTime,
    /// The offset in a hub, as text and as a number.
    Offset,
    SequenceNumber,
    /// Metadata that only other adapters have.
    Nothing,
    /// An id of the event that is the same whenever it is read.
    EventId,
}

impl Columns {
    fn plan(input: &InputPlan) -> (Columns, Vec<Field>) {
        let mut fields = Vec::new();
        let mut want = |field| {
            fields.push(field);
            fields.len() - 1
        };
        let reads = input
            .plan
            .reads
            .iter()
            .map(|read| match read {
                Read::Path(path) | Read::TimePath(path)
                    if input.hub && metadata(path).is_some() =>
                {
                    metadata(path).unwrap_or(ColumnSource::Nothing)
                }
                Read::Path(path) => ColumnSource::Decoded(want(Field::Path(path.clone()))),
                Read::TimePath(path) => ColumnSource::Decoded(want(Field::Time(path.clone()))),
                Read::Whole if input.hub => ColumnSource::Marked(want(Field::Whole)),
                Read::Whole => ColumnSource::Decoded(want(Field::Whole)),
                Read::Arrival => ColumnSource::Arrival,
                Read::Partition => ColumnSource::Partition,
                Read::FileName => ColumnSource::FileName,
                Read::FileTime => ColumnSource::FileTime,
                Read::Metadata(path) => match path.as_slice() {
                    [only] if only.eq_ignore_ascii_case("EventId") => ColumnSource::EventId,
                    [adapter, of] if input.hub && adapter.eq_ignore_ascii_case("EventHub") => {
                        hub_metadata(of)
                    }
                    _ => ColumnSource::Nothing,
                },
            })
            .collect();
        let arrival = input
            .arrival
            .as_ref()
            .map(|name| want(Field::Time(vec![name.clone()])));
        let partition = input
            .partition
            .as_ref()
            .map(|name| want(Field::Path(vec![name.clone()])));
        let whole = input.keeps_whole.then(|| want(Field::Whole));
        (
            Columns {
                reads,
                arrival,
                partition,
                whole,
            },
            fields,
        )
    }
}

/// The columns that a hub adds to every event. They beat a field of the same name, as in Stream Analytics.
fn metadata(path: &[String]) -> Option<ColumnSource> {
    let [only] = path else { return None };
    metadata_of(only)
}

fn metadata_of(field: &str) -> Option<ColumnSource> {
    let is = |name: &str| field.eq_ignore_ascii_case(name);
    match is("PartitionId") {
        true => Some(ColumnSource::Partition),
        // The processing time must not show in a result, because it cannot be repeated; the arrival stands in for it.
        false if is("EventEnqueuedUtcTime") || is("EventProcessedUtcTime") => {
            Some(ColumnSource::Arrival)
        }
        false => None,
    }
}

/// Events as records with the columns that a hub adds, behind their own fields. Those of the same names give way.
fn marked(events: &Column, arrivals: Option<&[Instant]>, partition: &Value) -> Column {
    let [processed, id, enqueued] = [
        "EventProcessedUtcTime",
        "PartitionId",
        "EventEnqueuedUtcTime",
    ]
    .map(Arc::<str>::from);
    let own = |name: &str| metadata_of(name).is_none();
    let record = |row: usize| {
        let ValueRef::Record(event) = events.get(row) else {
            return events.get(row).to_value();
        };
        let arrival = arrivals.map_or(Value::Null, |arrivals| Value::Time(arrivals[row]));
        let added = [
            (processed.clone(), arrival.clone()),
            (id.clone(), partition.clone()),
            (enqueued.clone(), arrival),
        ];
        let mut record = Record::with_capacity(event.len() + added.len());
        let fields = event.iter().filter(|(name, _)| own(name));
        record.add(fields.map(|(name, value)| (name.clone(), value.clone())));
        record.add(added.into_iter());
        Value::Record(Arc::new(record))
    };
    Column::Dynamic(Arc::new((0..events.len()).map(record).collect()))
}

fn hub_metadata(name: &str) -> ColumnSource {
    match &name.to_ascii_lowercase()[..] {
        "offset" => ColumnSource::Offset,
        "sequencenumber" => ColumnSource::SequenceNumber,
        "eventprocessedutctime" => ColumnSource::Arrival,
        _ => ColumnSource::Nothing,
    }
}

/// Gives events their times and keys, in the order in which they were read.
pub(crate) struct Intake {
    input: InputPlan,
    columns: Columns,
    /// The latest arrival; later events cannot have arrived before it.
    arrived: Instant,
    /// The latest event time, which stands for the arrival where that is unknown.
    reached: Instant,
    /// Rows carry the origin of their event.
    origins: bool,
    /// Substream keys are kept as text as well.
    show_keys: bool,
}

impl Intake {
    /// Also answers with the fields that have to be decoded.
    pub fn new(input: InputPlan, witness: bool) -> (Intake, Vec<Field>) {
        let (columns, fields) = Columns::plan(&input);
        let intake = Intake {
            columns,
            arrived: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            origins: witness || input.dead_letters,
            show_keys: witness,
            input,
        };
        (intake, fields)
    }

    pub fn input(&self) -> &InputPlan {
        &self.input
    }

    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Whether events hold their arrival.
    pub fn has_arrivals(&self) -> bool {
        self.columns.arrival.is_some()
    }

    /// The whole events, where dead letters or late events need them.
    pub fn whole<'a>(&self, decoded: &'a Events) -> Option<&'a Column> {
        self.columns.whole.map(|whole| &decoded.columns[whole])
    }

    /// Reads the times of the decoded events. Those without one are left out and reported to `lose`. `arrivals` is for logs,
    /// which know them without decoding the events.
    pub fn timed(
        &mut self,
        decoded: Events,
        place: &BlockOrigin<'_>,
        arrivals: Option<Vec<Instant>>,
        lose: &mut dyn FnMut(UntimedEvent<'_>),
    ) -> TimedEvents {
        let rows = decoded.rows;
        let mut troubles = RowTroubles::new(rows);
        let arrivals = match self.columns.arrival {
            Some(column) => Some(self.arrivals(&decoded.columns[column], &mut troubles)),
            None => arrivals,
        };
        let mut chunk = self.chunk(&decoded, arrivals.as_deref(), place);
        let times = match &self.input.plan.timestamp {
            Some(expr) => event_times(expr, &chunk, &mut troubles),
            None => arrivals
                .clone()
                .unwrap_or_else(|| vec![place.modified; rows]),
        };
        let keys = substream_keys(
            &self.input.plan.substream,
            &chunk,
            self.show_keys,
            &mut troubles,
        );
        let mut events = TimedEvents {
            partitions: self
                .columns
                .partition
                .map(|column| decoded.columns[column].clone()),
            whole: self
                .columns
                .whole
                .map(|column| decoded.columns[column].clone()),
            lines: decoded.lines,
            times,
            arrivals,
            otherwise: match self.input.plan.timestamp {
                None => Arrivals::All(place.modified),
                Some(_) => Arrivals::Unknown,
            },
            keys,
            chunk: Chunk::new(Vec::new().into(), Vec::new()),
        };
        if self.input.plan.timestamp.is_some() && events.arrivals.is_none() {
            self.show_reached(&mut chunk, &events.times, &troubles);
        }
        self.leave_behind(&mut chunk);
        events.chunk = chunk;
        if troubles.any() {
            for (row, kind, reason) in troubles.iter() {
                let arrivals = events.arrivals.as_ref();
                let arrival = arrivals.filter(|_| kind != TroubleKind::Arrival);
                let arrival = arrival.map(|arrivals| arrivals[row]);
                lose(UntimedEvent {
                    kind,
                    arrival,
                    row,
                    line: events.lines[row],
                    reason,
                });
            }
            events = events.keep(&troubles.good());
        }
        if self.origins {
            let origins = events.lines.iter().map(|line| origin(place.number, *line));
            events.chunk.origins = Some(origins.collect());
        }
        events
    }

    /// Drops columns that only times and keys need.
    fn leave_behind(&self, chunk: &mut Chunk) {
        let rows = chunk.rows();
        for (column, carried) in chunk.columns.iter_mut().zip(&self.input.plan.carried) {
            if !carried {
                *column = Column::Null(rows);
            }
        }
    }

    /// Arrival times never go back along a file, as they never do within a partition of a hub.
    fn arrivals(&mut self, column: &Column, troubles: &mut RowTroubles) -> Vec<Instant> {
        (0..column.len())
            .map(|row| {
                match column.get(row) {
                    ValueRef::Time(time) => self.arrived = self.arrived.max(time),
                    _ => troubles.add(row, TroubleKind::Arrival, || {
                        "the arrival column is missing or holds no ISO 8601 date-time".into()
                    }),
                }
                self.arrived
            })
            .collect()
    }

    fn chunk(
        &self,
        decoded: &Events,
        arrivals: Option<&[Instant]>,
        place: &BlockOrigin<'_>,
    ) -> Chunk {
        let rows = decoded.rows;
        let same = |value: ValueRef<'_>| Column::repeat(value, rows);
        let columns = self.columns.reads.iter().map(|serve| match serve {
            ColumnSource::Decoded(column) => decoded.columns[*column].clone(),
            ColumnSource::Marked(column) => {
                let events = &decoded.columns[*column];
                marked(events, arrivals, place.partition.1)
            }
            ColumnSource::Arrival => match arrivals {
                Some(arrivals) => times_column(arrivals),
                None => same(ValueRef::Time(place.modified)),
            },
            ColumnSource::Partition => match self.columns.partition {
                Some(column) => decoded.columns[column].clone(),
                None => same(place.partition.1.view()),
            },
            ColumnSource::FileName => same(ValueRef::Text(place.name)),
            ColumnSource::FileTime => same(ValueRef::Time(place.modified)),
            ColumnSource::Offset => {
                let mut offsets = ColumnBuilder::with_capacity(rows);
                let lines = decoded.lines.iter();
                lines.for_each(|line| offsets.push_text(&line.to_string()));
                offsets.finish()
            }
            ColumnSource::SequenceNumber => {
                Column::from_ints(decoded.lines.iter().map(|line| *line as i64).collect())
            }
            ColumnSource::Nothing => Column::Null(rows),
            ColumnSource::EventId => self.event_ids(&decoded.lines, place),
        });
        Chunk::new(vec![0; rows].into(), columns.collect())
    }

    fn event_ids(&self, lines: &[u64], place: &BlockOrigin<'_>) -> Column {
        let mut ids = ColumnBuilder::with_capacity(lines.len());
        let partition = place.partition.0 as u64;
        let mut before = (0, 0);
        for line in lines {
            // Several events may stand on one line, or in one record.
            let index = if before.0 == *line { before.1 + 1 } else { 0 };
            before = (*line, index);
            let identity = line ^ u64::rotate_right(index, 16);
            ids.push_text(&event_id(&self.input.plan.name, partition, identity));
        }
        ids.finish()
    }

    /// Where arrivals are unknown, the latest event time up to an event is shown as its arrival.
    fn show_reached(&mut self, chunk: &mut Chunk, times: &[Instant], troubles: &RowTroubles) {
        let arrivals: Vec<Instant> = times
            .iter()
            .enumerate()
            .map(|(row, time)| {
                if !troubles.has(row) {
                    self.reached = self.reached.max(*time);
                }
                self.reached
            })
            .collect();
        for (serve, column) in self.columns.reads.iter().zip(&mut chunk.columns) {
            if let ColumnSource::Arrival = serve {
                *column = times_column(&arrivals);
            }
        }
    }
}

/// A GUID made of the event's identity: its input, file and line.
fn event_id(input: &str, file: u64, line: u64) -> String {
    let half = |seed: u64| {
        let mut mixed = Random::seeded(seed ^ line);
        let start = mixed.next_u64() ^ file;
        input.bytes().fold(start, |hash, byte| {
            Random::seeded(hash ^ u64::from(byte)).next_u64()
        })
    };
    let (high, low) = (half(1 << 62), half(3 << 62));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
