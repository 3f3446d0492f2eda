//! Reads one file: its events become columns, columns become ordered events, and those run through the partition's share of
//! the query.
//!
//! A reader works on its own, a block of the file at a time, and knows nothing of other files. What it hands over is
//! addressed to the shared pipeline. It may run on any thread, as fast or slow as it is asked: nothing it hands over
//! depends on that.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connect::json::Field;
use highwater_connect::{
    BadEvent, Compression, Events, Format, Level, ReadError, Source, SourceNote, SourceOptions,
};
use highwater_engine::ColumnBuilder;
use highwater_engine::eval;
use highwater_engine::{Chunk, Column, Item, Physical, Pipeline, ValueRef, WindowEntry};
use highwater_env::random::Random;
use highwater_query::plan::{Input, Read, Type};
use highwater_time::{Arrivals, Clock, Duration, Fate, Instant, Keys, Policy};

use crate::dead::{Cause, DeadLetter, start_of};
use crate::events::{RowTroubles, TimedEvents, event_times, substream_keys, times_column};
use crate::order::{Incoming, Orderer};
use crate::report::{InputReport, Trouble, TroubleKind};

/// An item on its way to `Shared::entry(input, exit, partition)`.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub exit: usize,
    pub partition: usize,
    pub item: Item,
}

/// What a reader is told about the input it reads.
#[derive(Clone)]
pub(crate) struct InputPlan {
    pub index: usize,
    pub plan: Input,
    pub policy: Policy,
    pub linger: Duration,
    /// Payload column with the arrival time.
    pub arrival: Option<String>,
    /// Payload column with the partition.
    pub partition: Option<String>,
    pub how: HowToRead,
    /// Events that are lost are kept as dead letters.
    pub dead_letters: bool,
    /// Files are shown without it.
    pub folder: PathBuf,
}

/// How the files of an input are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct HowToRead {
    pub format: Option<Format>,
    pub compression: Compression,
    pub level: Level,
    pub declared: Option<Vec<(String, Type)>>,
}

impl HowToRead {
    pub fn open(
        &self,
        path: &Path,
        fields: Vec<Field>,
        keep_text: bool,
    ) -> Result<Box<dyn Source>, ReadError> {
        let options = SourceOptions {
            format: self.format,
            compression: self.compression,
            level: self.level,
            declared: self.declared.clone(),
            fields,
            keep_text,
        };
        highwater_connect::open(path, options)
    }
}

/// One partition of the input, as this file holds it.
#[derive(Clone)]
pub(crate) struct PartitionId {
    /// Its place among the partitions of the input.
    pub number: usize,
    /// What PartitionId shows.
    pub shown: highwater_engine::Value,
}

pub(crate) struct FileReader {
    input: InputPlan,
    /// The number of this file among all that the job reads; the upper bits of origins.
    number: usize,
    name: Arc<str>,
    modified: Instant,
    source: Box<dyn Source>,
    columns: Columns,
    /// The latest arrival; later lines cannot have arrived before it.
    arrived: Instant,
    /// The latest event time, which stands for the arrival where that is unknown.
    reached: Instant,
    partitions: Vec<Partition>,
    report: InputReport,
    /// Kept only when somebody asks for the fate of events.
    witness: Option<Witness>,
    /// Kept only where lost events have somewhere to go.
    dead: Option<Dead>,
    ended: bool,
}

/// Dead letters that nobody has taken yet, and the latest events, should the query fail on them.
#[derive(Default)]
struct Dead {
    letters: Vec<DeadLetter>,
    recent: VecDeque<(Vec<u64>, Column)>,
}

/// An event that waits longer than this many blocks for its time is not remembered.
const RECENT_BLOCKS: usize = 8;

struct Partition {
    id: PartitionId,
    key: Vec<u8>,
    orderer: Orderer,
    pipeline: Pipeline,
    /// The origins of its events, by their place in the partition; only with a witness.
    origins: Vec<u64>,
}

/// Everything a reader saw of single events.
#[derive(Debug, Default)]
pub struct Witness {
    pub fates: Vec<EventFate>,
    /// Events that never got as far as a time policy.
    pub lost: Vec<LostEvent>,
    pub windows: Vec<WindowEntry>,
}

#[derive(Clone, Debug)]
pub struct EventFate {
    /// File and line; see [`origin_file`] and [`origin_line`].
    pub origin: u64,
    pub partition: usize,
    /// The substream key, where the input has substreams.
    pub key: Option<String>,
    pub fate: Fate,
}

#[derive(Clone, Debug)]
pub struct LostEvent {
    pub origin: u64,
    pub kind: TroubleKind,
    pub reason: String,
}

const LINE_BITS: u32 = 44;

pub(crate) fn origin(file: usize, line: u64) -> u64 {
    (file as u64) << LINE_BITS | line
}

pub fn origin_file(origin: u64) -> usize {
    (origin >> LINE_BITS) as usize
}

pub fn origin_line(origin: u64) -> u64 {
    origin & ((1 << LINE_BITS) - 1)
}

/// Which decoded column serves what.
struct Columns {
    reads: Vec<Serve>,
    arrival: Option<usize>,
    partition: Option<usize>,
    /// The event as it is, for dead letters.
    whole: Option<usize>,
}

#[derive(Clone, Copy)]
enum Serve {
    Decoded(usize),
    Arrival,
    Partition,
    FileName,
    FileTime,
    /// What only other adapters know.
    Nothing,
    /// A name for the event that is the same whenever it is read.
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
                Read::Path(path) => Serve::Decoded(want(Field::Path(path.clone()))),
                Read::TimePath(path) => Serve::Decoded(want(Field::Time(path.clone()))),
                Read::Whole => Serve::Decoded(want(Field::Whole)),
                Read::Arrival => Serve::Arrival,
                Read::Partition => Serve::Partition,
                Read::FileName => Serve::FileName,
                Read::FileTime => Serve::FileTime,
                Read::Metadata(path) => match path.as_slice() {
                    [only] if only.eq_ignore_ascii_case("EventId") => Serve::EventId,
                    _ => Serve::Nothing,
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
        let whole = input.dead_letters.then(|| want(Field::Whole));
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

impl FileReader {
    pub fn open(
        path: &Path,
        number: usize,
        input: InputPlan,
        physical: &Physical,
        partitions: Vec<PartitionId>,
        witness: bool,
    ) -> Result<FileReader, ReadError> {
        let (columns, fields) = Columns::plan(&input);
        let source = input.how.open(path, fields, input.dead_letters)?;
        let modified = Instant::from_unix_nanos(source.modified());
        let partitions = partitions
            .into_iter()
            .map(|id| {
                let mut pipeline = physical.local(input.index);
                if witness {
                    pipeline.trace_windows();
                }
                if input.dead_letters {
                    pipeline.errors.keep_all();
                }
                let mut key = Vec::new();
                eval::encode_key(id.shown.view(), &mut key);
                Partition {
                    id,
                    key,
                    orderer: orderer(&input),
                    pipeline,
                    origins: Vec::new(),
                }
            })
            .collect();
        Ok(FileReader {
            report: InputReport {
                name: input.plan.name.clone(),
                ..InputReport::default()
            },
            number,
            name: path.display().to_string().into(),
            modified,
            source,
            columns,
            arrived: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            partitions,
            dead: input.dead_letters.then(Dead::default),
            input,
            witness: witness.then(Witness::default),
            ended: false,
        })
    }

    pub fn input(&self) -> usize {
        self.input.index
    }

    pub fn bytes(&self) -> u64 {
        self.report.bytes
    }

    /// The first thing that was wrong with an event, if any.
    pub fn first_trouble(&self) -> Option<String> {
        let troubles = self
            .report
            .troubles
            .iter()
            .flat_map(|(_, sum)| &sum.samples)
            .next();
        let trouble = troubles.map(|t| format!("{}:{}: {}", t.file, t.line, t.reason));
        let errors = || {
            self.partitions
                .iter()
                .flat_map(|p| p.pipeline.errors.samples.first())
                .next()
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
                self.report.bytes = self.source.bytes_read();
                events.bad.iter().for_each(|bad| self.bad_event(bad));
                self.take(events, out);
            }
            Ok(None) => self.end(out),
            Err(error) => {
                let kind = error.kind();
                let kind = kind.map_or(TroubleKind::File, |kind| TroubleKind::of(kind, true));
                self.file_trouble(kind, error.to_string());
                self.end(out);
            }
        }
        true
    }

    /// The dead letters since the last call.
    pub fn take_dead(&mut self) -> Vec<DeadLetter> {
        let Some(dead) = &mut self.dead else {
            return Vec::new();
        };
        let failed = self.partitions.iter_mut();
        let failed = failed.flat_map(|partition| partition.pipeline.errors.take_kept());
        for error in failed {
            let line = error.origin.map(origin_line);
            dead.letters.push(DeadLetter {
                input: Some(self.input.plan.name.clone()),
                cause: Cause::Query(error.span),
                reason: error.reason,
                event: line.and_then(|line| event_of(&dead.recent, line)),
                file: line.map(|_| shown_file(&self.name, &self.input.folder)),
                line,
                time: Some(error.time),
            });
        }
        std::mem::take(&mut dead.letters)
    }

    fn file_trouble(&mut self, kind: TroubleKind, reason: String) {
        let file = self.name.to_string();
        if let Some(dead) = &mut self.dead {
            dead.letters.push(DeadLetter {
                input: Some(self.input.plan.name.clone()),
                cause: Cause::Input(kind),
                reason: reason.clone(),
                event: None,
                file: Some(shown_file(&file, &self.input.folder)),
                line: None,
                time: None,
            });
        }
        self.report.troubles.add(kind, None, || Trouble {
            file,
            line: 0,
            reason,
            sample: String::new(),
        });
    }

    fn bad_event(&mut self, bad: &BadEvent) {
        let kind = TroubleKind::of(bad.kind, false);
        self.lose((kind, None), bad.line, &bad.reason, &bad.text);
    }

    fn lose(
        &mut self,
        (kind, arrival): (TroubleKind, Option<Instant>),
        line: u64,
        reason: &str,
        sample: &str,
    ) {
        let file = &self.name;
        self.report.troubles.add(kind, arrival, || Trouble {
            file: file.to_string(),
            line,
            reason: reason.into(),
            sample: shortened(sample).into(),
        });
        if let Some(dead) = &mut self.dead {
            let event = match sample {
                "" => event_of(&dead.recent, line),
                text => Some(text.to_owned()),
            };
            dead.letters.push(DeadLetter {
                input: Some(self.input.plan.name.clone()),
                cause: Cause::Input(kind),
                reason: reason.into(),
                event,
                file: Some(shown_file(&self.name, &self.input.folder)),
                line: Some(line),
                time: None,
            });
        }
        if let Some(witness) = &mut self.witness {
            let origin = origin(self.number, line);
            witness.lost.push(LostEvent {
                origin,
                kind,
                reason: reason.into(),
            });
        }
    }

    fn end(&mut self, out: &mut Vec<Delivery>) {
        self.report.bytes = self.source.bytes_read();
        match self.source.note() {
            Some(note @ SourceNote::CutShort { .. }) => {
                self.file_trouble(TroubleKind::File, note.to_string());
            }
            Some(note) => self.report.notes.push(note.to_string()),
            None => {}
        }
        self.ended = true;
        let mut items = Vec::new();
        for index in 0..self.partitions.len() {
            self.partitions[index].orderer.end(&mut items);
            self.run(index, &mut items, out);
        }
    }

    /// What was read and what was wrong; errors of the query come with it.
    pub fn finish(mut self) -> (InputReport, highwater_engine::DataErrors, Option<Witness>) {
        let mut errors = highwater_engine::DataErrors::default();
        for partition in &mut self.partitions {
            self.report.time.merge(partition.orderer.counts());
            errors.merge(std::mem::take(&mut partition.pipeline.errors));
            if let Some(witness) = &mut self.witness {
                witness.windows.extend(partition.pipeline.take_trace());
            }
        }
        (self.report, errors, self.witness)
    }

    fn take(&mut self, decoded: Events, out: &mut Vec<Delivery>) {
        if decoded.rows == 0 {
            return;
        }
        if let (Some(dead), Some(whole)) = (&mut self.dead, self.columns.whole) {
            dead.recent
                .push_back((decoded.lines.clone(), decoded.columns[whole].clone()));
            if dead.recent.len() > RECENT_BLOCKS {
                dead.recent.pop_front();
            }
        }
        let events = self.timed(decoded);
        if self.columns.partition.is_none() {
            self.order(0, events, out);
        } else {
            for (partition, events) in self.split(events) {
                self.order(partition, events, out);
            }
        }
        self.punctuate(out);
    }

    /// Reads the times of the decoded events; those without are counted and left out.
    fn timed(&mut self, decoded: Events) -> TimedEvents {
        let rows = decoded.rows;
        let mut troubles = RowTroubles::new(rows);
        let arrivals = self
            .columns
            .arrival
            .map(|column| self.arrivals(&decoded.columns[column], &mut troubles));
        let mut chunk = self.chunk(&decoded, arrivals.as_deref());
        let times = match &self.input.plan.timestamp {
            Some(expr) => event_times(expr, &chunk, &mut troubles),
            None => arrivals
                .clone()
                .unwrap_or_else(|| vec![self.modified; rows]),
        };
        let keys = substream_keys(
            &self.input.plan.substream,
            &chunk,
            self.witness.is_some(),
            &mut troubles,
        );
        let mut events = TimedEvents {
            partitions: self
                .columns
                .partition
                .map(|column| decoded.columns[column].clone()),
            lines: decoded.lines,
            times,
            arrivals,
            keys,
            chunk: Chunk::new(Vec::new().into(), Vec::new()),
        };
        if self.input.plan.timestamp.is_some() && events.arrivals.is_none() {
            self.show_reached(&mut chunk, &events.times, &troubles);
        }
        self.leave_behind(&mut chunk);
        events.chunk = chunk;
        if troubles.any() {
            self.note(&troubles, &events);
            events = events.keep(&troubles.good());
        }
        if self.witness.is_some() || self.dead.is_some() {
            let origins = events.lines.iter().map(|line| origin(self.number, *line));
            events.chunk.origins = Some(origins.collect());
        }
        events
    }

    /// What only the clock looks at has served its purpose, and need not be put in order.
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

    fn chunk(&self, decoded: &Events, arrivals: Option<&[Instant]>) -> Chunk {
        let rows = decoded.rows;
        let same = |value: ValueRef<'_>| Column::repeat(value, rows);
        let columns = self.columns.reads.iter().map(|serve| match serve {
            Serve::Decoded(column) => decoded.columns[*column].clone(),
            Serve::Arrival => match arrivals {
                Some(arrivals) => times_column(arrivals),
                None => same(ValueRef::Time(self.modified)),
            },
            Serve::Partition => match self.columns.partition {
                Some(column) => decoded.columns[column].clone(),
                None => same(self.partitions[0].id.shown.view()),
            },
            Serve::FileName => same(ValueRef::Text(&self.name)),
            Serve::FileTime => same(ValueRef::Time(self.modified)),
            Serve::Nothing => Column::Null(rows),
            Serve::EventId => self.event_ids(&decoded.lines),
        });
        Chunk::new(vec![0; rows].into(), columns.collect())
    }

    fn event_ids(&self, lines: &[u64]) -> Column {
        let mut ids = ColumnBuilder::with_capacity(lines.len());
        let file = self
            .partitions
            .first()
            .map_or(0, |partition| partition.id.number as u64);
        for line in lines {
            ids.push_text(&event_id(&self.input.plan.name, file, *line));
        }
        ids.finish()
    }

    /// Where arrivals are unknown, an event's arrival is shown as the latest event time up to it.
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
            if let Serve::Arrival = serve {
                *column = times_column(&arrivals);
            }
        }
    }

    fn note(&mut self, troubles: &RowTroubles, events: &TimedEvents) {
        for (row, kind, reason) in troubles.iter() {
            let arrivals = events.arrivals.as_ref();
            let arrival = arrivals.filter(|_| kind != TroubleKind::Arrival);
            let arrival = arrival.map(|arrivals| arrivals[row]);
            self.lose((kind, arrival), events.lines[row], reason, "");
        }
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
                self.partitions
                    .iter()
                    .position(|partition| partition.key == key)
                    .unwrap_or(0)
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

    fn order(&mut self, index: usize, events: TimedEvents, out: &mut Vec<Delivery>) {
        let partition = &mut self.partitions[index];
        let arrivals = match (&events.arrivals, &self.input.plan.timestamp) {
            (Some(arrivals), _) => Arrivals::Each(arrivals),
            (None, None) => Arrivals::All(self.modified),
            (None, Some(_)) => Arrivals::Unknown,
        };
        let offsets = events.keys.as_ref().map(|keys| &keys.offsets[..]);
        let keys = offsets
            .zip(events.keys.as_ref())
            .map(|(offsets, keys)| Keys {
                offsets,
                bytes: &keys.bytes,
            });
        let mut fates = self.witness.as_ref().map(|_| Vec::new());
        if let (Some(origins), true) = (&events.chunk.origins, self.witness.is_some()) {
            partition.origins.extend_from_slice(origins);
        }
        let incoming = Incoming {
            chunk: events.chunk,
            times: &events.times,
            arrivals,
            keys,
        };
        let mut items = Vec::new();
        partition.orderer.push(incoming, fates.as_mut(), &mut items);
        if let Some(witness) = &mut self.witness {
            let number = partition.id.number;
            let first = partition.origins.len() - events.times.len();
            let shown = events.keys.as_ref().and_then(|keys| keys.shown.as_ref());
            witness
                .fates
                .extend(fates.into_iter().flatten().map(|fate| EventFate {
                    origin: partition.origins[fate.row as usize],
                    partition: number,
                    key: shown.map(|shown| shown[fate.row as usize - first].clone()),
                    fate,
                }));
        }
        self.run(index, &mut items, out);
    }

    /// The file is in order of arrival, so what one partition shows of time holds for the others: they will send
    /// nothing older than the late bound any more. Verdicts do not depend on this, only how soon results come.
    fn punctuate(&mut self, out: &mut Vec<Delivery>) {
        // With a clock for every key, this would show in the order of rows, and so would the size of blocks.
        let per_key = !self.input.plan.substream.is_empty();
        let apart = self.partitions.len() < 2 || self.columns.arrival.is_none();
        if apart || per_key || self.witness.is_some() {
            return;
        }
        let mut items = Vec::new();
        for index in 0..self.partitions.len() {
            self.partitions[index]
                .orderer
                .punctuate(self.arrived, &mut items);
            self.run(index, &mut items, out);
        }
    }

    fn run(&mut self, index: usize, items: &mut Vec<Item>, out: &mut Vec<Delivery>) {
        let partition = &mut self.partitions[index];
        let mut exits = Vec::new();
        for item in items.drain(..) {
            partition
                .pipeline
                .push(Physical::LOCAL_ENTRY, item, &mut exits);
        }
        let number = partition.id.number;
        out.extend(exits.into_iter().map(|(exit, item)| Delivery {
            exit,
            partition: number,
            item,
        }));
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

fn orderer(input: &InputPlan) -> Orderer {
    if !input.plan.substream.is_empty() {
        return Orderer::per_key(input.policy, input.linger);
    }
    let clock = if input.plan.timestamp.is_some() {
        Clock::Application
    } else {
        Clock::Arrival
    };
    Orderer::new(input.policy, clock)
}

/// The event of that line as JSON, if it is still at hand.
fn event_of(recent: &VecDeque<(Vec<u64>, Column)>, line: u64) -> Option<String> {
    recent.iter().rev().find_map(|(lines, events)| {
        let row = lines.binary_search(&line).ok()?;
        let mut text = String::new();
        eval::write_json(events.get(row), &mut text);
        Some(text)
    })
}

/// A file as the job file calls it, so that what is shown does not depend on where it was run.
pub(crate) fn shown_file(file: &str, folder: &Path) -> String {
    let path = Path::new(file);
    path.strip_prefix(folder)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// As much of an event as a person wants to see.
fn shortened(text: &str) -> &str {
    const BYTES_MAX: usize = 200;
    start_of(text, BYTES_MAX)
}

/// The distinct partitions in a file, found by reading it once. Sorted, so that their order is that of their values.
pub(crate) fn discover_partitions(
    path: &Path,
    column: &str,
    how: &HowToRead,
) -> Result<Vec<highwater_engine::Value>, ReadError> {
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
    let kind = |value: &highwater_engine::Value| match value.view() {
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
