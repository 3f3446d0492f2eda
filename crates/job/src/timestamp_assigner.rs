//! Assigns arrival time, event time and substream key to decoded events, and selects the columns that the query reads.
//!
//! Files and hubs differ only by their [`BlockOrigin`].

use std::sync::Arc;

use highwater_connect::Events;
use highwater_connect::json::Field;
use highwater_engine::{Chunk, Column, ColumnBuilder, Record, Value, ValueRef};
use highwater_env::random::Random;
use highwater_query::plan::Read;
use highwater_time::{Arrivals, Instant};

use crate::event_trace::origin;
use crate::events::{RowErrors, TimedEvents, event_times, substream_keys, times_column};
use crate::plan::{InputPlan, PartitionId};
use crate::record_property::RecordProperty;
use crate::report::InputErrorKind;

/// The source of a block of events.
pub(crate) struct BlockOrigin<'a> {
    /// The number of the file or partition within the job; the upper bits of origins.
    pub number: usize,
    /// The file name that metadata shows.
    pub name: &'a str,
    /// The modification time of the file.
    pub modified: Instant,
    pub partition: &'a PartitionId,
}

/// The decoded columns and their uses.
struct ColumnPlan {
    reads: Vec<ColumnSource>,
    /// The number of decoded fields; the columns of properties follow them.
    fields: usize,
    properties: Vec<RecordProperty>,
    arrival: Option<usize>,
    partition: Option<usize>,
    /// The whole event, for dead letters.
    whole: Option<usize>,
}

/// An event without a time or a key.
pub(crate) struct UntimedEvent<'a> {
    pub kind: InputErrorKind,
    pub arrival: Option<Instant>,
    /// Its index among the decoded events.
    pub row: usize,
    pub line: u64,
    pub reason: &'a str,
}

#[derive(Clone, Copy)]
enum ColumnSource {
    Decoded(usize),
    /// The first of two fields that is not NULL.
    FirstOf(usize, usize),
    /// A property of the record in a hub.
    Property(usize),
    /// A field of the event or, where it has none, the property.
    DecodedOrProperty(usize, usize),
    /// The whole event with the columns that a hub adds.
    WholeWithMetadata(usize),
    Arrival,
    Partition,
    FileName,
    FileTime,
    /// The offset in a hub, as text and as a number.
    Offset,
    SequenceNumber,
    /// Metadata that this input does not have.
    Nothing,
    /// An id that is the same whenever the event is read.
    EventId,
}

impl ColumnPlan {
    fn new(input: &InputPlan) -> (ColumnPlan, Vec<Field>) {
        let mut fields = Vec::new();
        let mut want = |field| {
            fields.push(field);
            fields.len() - 1
        };
        let mut properties = Vec::new();
        let mut property = |property| {
            properties.push(property);
            properties.len() - 1
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
                Read::Path(path) => {
                    let field = want(Field::Path(path.clone()));
                    match iot_property(input, path) {
                        Some(of) => ColumnSource::DecodedOrProperty(field, property(of)),
                        None => ColumnSource::Decoded(field),
                    }
                }
                Read::TimePath(path) => ColumnSource::Decoded(want(Field::Time(path.clone()))),
                Read::Whole if input.hub => ColumnSource::WholeWithMetadata(want(Field::Whole)),
                Read::Whole => ColumnSource::Decoded(want(Field::Whole)),
                Read::Arrival => ColumnSource::Arrival,
                Read::Partition => ColumnSource::Partition,
                Read::FileName => ColumnSource::FileName,
                Read::FileTime => ColumnSource::FileTime,
                Read::Metadata(path) => match (path.as_slice(), RecordProperty::of(path)) {
                    ([only], _) if only.eq_ignore_ascii_case("EventId") => ColumnSource::EventId,
                    // A file has no records, so columns of these names stand for properties.
                    (path, _) if !input.hub => column_of_file(path, &mut want),
                    (_, Some(of)) => ColumnSource::Property(property(of)),
                    ([adapter, of], None) if adapter.eq_ignore_ascii_case("EventHub") => {
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
            ColumnPlan {
                reads,
                fields: fields.len(),
                properties,
                arrival,
                partition,
                whole,
            },
            fields,
        )
    }
}

/// `[User].[x]` of a file: the field `x` of the record `User`, or the column `x`.
fn column_of_file(path: &[String], want: &mut impl FnMut(Field) -> usize) -> ColumnSource {
    let inside = want(Field::Path(path.to_vec()));
    match path {
        [_, .., last] => ColumnSource::FirstOf(inside, want(Field::Path(vec![last.clone()]))),
        _ => ColumnSource::Decoded(inside),
    }
}

/// `IoTHub.ConnectionDeviceId` and its siblings, which are columns in Stream Analytics.
fn iot_property(input: &InputPlan, path: &[String]) -> Option<RecordProperty> {
    let is_iot = path
        .first()
        .is_some_and(|first| first.eq_ignore_ascii_case("IoTHub"));
    match input.hub && is_iot {
        true => RecordProperty::of(path),
        false => None,
    }
}

/// The first of two values that is not NULL, in each row.
fn first_of(first: &Column, second: &Column) -> Column {
    if let Column::Null(_) = first {
        return second.clone();
    }
    let mut values = ColumnBuilder::with_capacity(first.len());
    for row in 0..first.len() {
        match first.get(row) {
            ValueRef::Null => values.push(second.get(row)),
            value => values.push(value),
        }
    }
    values.finish()
}

/// The columns that a hub adds to every event. They override fields of the same names, as in Stream Analytics.
fn metadata(path: &[String]) -> Option<ColumnSource> {
    let [only] = path else { return None };
    metadata_of(only)
}

fn metadata_of(field: &str) -> Option<ColumnSource> {
    let is = |name: &str| field.eq_ignore_ascii_case(name);
    match is("PartitionId") {
        true => Some(ColumnSource::Partition),
        // The processing time would make results differ between runs, so the arrival time replaces it.
        false if is("EventEnqueuedUtcTime") || is("EventProcessedUtcTime") => {
            Some(ColumnSource::Arrival)
        }
        false => None,
    }
}

/// Events as records with the columns that a hub adds after their own fields. Those replace fields of the same names.
fn with_hub_metadata(events: &Column, arrivals: Option<&[Instant]>, partition: &Value) -> Column {
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

/// Assigns times and keys to events in the order of reading.
pub(crate) struct TimestampAssigner {
    input: InputPlan,
    columns: ColumnPlan,
    /// The latest arrival. Arrivals never decrease.
    arrived: Instant,
    /// The latest event time, used as the arrival where that is unknown.
    reached: Instant,
    /// Rows carry the origin of their event.
    origins: bool,
    /// Substream keys are stored as text as well.
    show_keys: bool,
}

impl TimestampAssigner {
    /// Returns the fields to decode as well.
    pub(crate) fn new(input: InputPlan, trace: bool) -> (TimestampAssigner, Vec<Field>) {
        let (columns, fields) = ColumnPlan::new(&input);
        let assigner = TimestampAssigner {
            columns,
            arrived: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            origins: trace || input.dead_letters,
            show_keys: trace,
            input,
        };
        (assigner, fields)
    }

    pub(crate) fn input(&self) -> &InputPlan {
        &self.input
    }

    /// The properties of records that the decoder adds as columns after the fields; without them they are NULL.
    pub(crate) fn properties(&self) -> &[RecordProperty] {
        &self.columns.properties
    }

    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Whether events have an arrival column.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.columns.arrival.is_some()
    }

    /// The whole events, where dead letters or late events need them.
    pub(crate) fn whole<'a>(&self, decoded: &'a Events) -> Option<&'a Column> {
        self.columns.whole.map(|whole| &decoded.columns[whole])
    }

    /// Assigns times to decoded events; those without one are removed and passed to `reject`. `arrivals` is set for
    /// hubs, whose batches have them.
    pub(crate) fn assign(
        &mut self,
        decoded: Events,
        block_origin: &BlockOrigin<'_>,
        arrivals: Option<Vec<Instant>>,
        reject: &mut dyn FnMut(UntimedEvent<'_>),
    ) -> TimedEvents {
        let rows = decoded.rows;
        let mut errors = RowErrors::new(rows);
        let arrivals = match self.columns.arrival {
            Some(column) => Some(self.arrivals(&decoded.columns[column], &mut errors)),
            None => arrivals,
        };
        let mut chunk = self.chunk(&decoded, arrivals.as_deref(), block_origin);
        let times = match &self.input.plan.timestamp {
            Some(expr) => event_times(expr, &chunk, &mut errors),
            None => arrivals
                .clone()
                .unwrap_or_else(|| vec![block_origin.modified; rows]),
        };
        let substream = &self.input.plan.substream;
        let keys = substream_keys(substream, &chunk, self.show_keys, &mut errors);
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
            default_arrivals: match self.input.plan.timestamp {
                None => Arrivals::All(block_origin.modified),
                Some(_) => Arrivals::Unknown,
            },
            keys,
            chunk: Chunk::new(Vec::new().into(), Vec::new()),
        };
        if self.input.plan.timestamp.is_some() && events.arrivals.is_none() {
            self.show_latest_event_time(&mut chunk, &events.times, &errors);
        }
        self.drop_uncarried_columns(&mut chunk);
        events.chunk = chunk;
        if errors.any() {
            report_untimed(&events, &errors, reject);
            events = events.keep(&errors.good());
        }
        if self.origins {
            let origins = events
                .lines
                .iter()
                .map(|line| origin(block_origin.number, *line));
            events.chunk.origins = Some(origins.collect());
        }
        events
    }

    /// Drops the columns that only times and keys need.
    fn drop_uncarried_columns(&self, chunk: &mut Chunk) {
        let rows = chunk.rows();
        for (column, carried) in chunk.columns.iter_mut().zip(&self.input.plan.carried) {
            if !carried {
                *column = Column::Null(rows);
            }
        }
    }

    /// Arrival times never decrease within a file, as within a partition of a hub.
    fn arrivals(&mut self, column: &Column, errors: &mut RowErrors) -> Vec<Instant> {
        (0..column.len())
            .map(|row| {
                match column.get(row) {
                    ValueRef::Time(time) => self.arrived = self.arrived.max(time),
                    _ => errors.add(row, InputErrorKind::Arrival, || {
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
        block_origin: &BlockOrigin<'_>,
    ) -> Chunk {
        let rows = decoded.rows;
        let same = |value: ValueRef<'_>| Column::repeat(value, rows);
        let property = |index: usize| {
            let column = decoded.columns.get(self.columns.fields + index);
            column.cloned().unwrap_or(Column::Null(rows))
        };
        let columns = self.columns.reads.iter().map(|source| match source {
            ColumnSource::Decoded(column) => decoded.columns[*column].clone(),
            ColumnSource::FirstOf(first, second) => {
                first_of(&decoded.columns[*first], &decoded.columns[*second])
            }
            ColumnSource::Property(index) => property(*index),
            ColumnSource::DecodedOrProperty(column, index) => {
                first_of(&decoded.columns[*column], &property(*index))
            }
            ColumnSource::WholeWithMetadata(column) => {
                let events = &decoded.columns[*column];
                with_hub_metadata(events, arrivals, &block_origin.partition.shown)
            }
            ColumnSource::Arrival => match arrivals {
                Some(arrivals) => times_column(arrivals),
                None => same(ValueRef::Time(block_origin.modified)),
            },
            ColumnSource::Partition => match self.columns.partition {
                Some(column) => decoded.columns[column].clone(),
                None => same(block_origin.partition.shown.view()),
            },
            ColumnSource::FileName => same(ValueRef::Text(block_origin.name)),
            ColumnSource::FileTime => same(ValueRef::Time(block_origin.modified)),
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
            ColumnSource::EventId => self.event_ids(&decoded.lines, block_origin),
        });
        Chunk::new(vec![0; rows].into(), columns.collect())
    }

    fn event_ids(&self, lines: &[u64], block_origin: &BlockOrigin<'_>) -> Column {
        let mut ids = ColumnBuilder::with_capacity(lines.len());
        let partition = block_origin.partition.number as u64;
        let mut before = (0, 0);
        for line in lines {
            // One line or record may hold several events.
            let index = if before.0 == *line { before.1 + 1 } else { 0 };
            before = (*line, index);
            let identity = line ^ u64::rotate_right(index, 16);
            ids.push_text(&event_id(&self.input.plan.name, partition, identity));
        }
        ids.finish()
    }

    /// Where arrivals are unknown, the arrival column shows the latest event time so far.
    fn show_latest_event_time(&mut self, chunk: &mut Chunk, times: &[Instant], errors: &RowErrors) {
        let arrivals: Vec<Instant> = times
            .iter()
            .enumerate()
            .map(|(row, time)| {
                if !errors.has(row) {
                    self.reached = self.reached.max(*time);
                }
                self.reached
            })
            .collect();
        for (source, column) in self.columns.reads.iter().zip(&mut chunk.columns) {
            if let ColumnSource::Arrival = source {
                *column = times_column(&arrivals);
            }
        }
    }
}

fn report_untimed(
    events: &TimedEvents,
    errors: &RowErrors,
    reject: &mut dyn FnMut(UntimedEvent<'_>),
) {
    for (row, kind, reason) in errors.iter() {
        let arrivals = events.arrivals.as_ref();
        let arrivals = arrivals.filter(|_| kind != InputErrorKind::Arrival);
        reject(UntimedEvent {
            kind,
            arrival: arrivals.map(|arrivals| arrivals[row]),
            row,
            line: events.lines[row],
            reason,
        });
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
