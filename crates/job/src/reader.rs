//! Reads one file: lines become columns, columns become ordered events, and those run through the partition's share of
//! the query.
//!
//! A reader works on its own, a block of the file at a time, and knows nothing of other files. What it hands over is
//! addressed to the shared pipeline. It may run on any thread, as fast or slow as it is asked: nothing it hands over
//! depends on that.

use std::path::Path;
use std::sync::Arc;

use highwater_connect::json::{BadLine, Batch, Decoded, Decoder, Field};
use highwater_connect::{LineReader, ReadError, SourceNote};
use highwater_engine::eval;
use highwater_engine::{Chunk, Column, Item, Physical, Pipeline, ValueRef, WindowEntry};
use highwater_query::plan::{Input, Read};
use highwater_time::{Arrivals, Clock, Duration, Fate, Instant, Keys, Policy};

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
    lines: LineReader,
    decoder: Decoder,
    batch: Batch,
    columns: Columns,
    /// The latest arrival; later lines cannot have arrived before it.
    arrived: Instant,
    /// The latest event time, which stands for the arrival where that is unknown.
    reached: Instant,
    partitions: Vec<Partition>,
    report: InputReport,
    /// Kept only when somebody asks for the fate of events.
    witness: Option<Witness>,
    ended: bool,
}

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
                Read::Metadata(_) => Serve::Nothing,
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
        (
            Columns {
                reads,
                arrival,
                partition,
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
        let lines = LineReader::open(path)?;
        let modified = Instant::from_unix_nanos(lines.modified());
        let (columns, fields) = Columns::plan(&input);
        let partitions = partitions
            .into_iter()
            .map(|id| {
                let mut pipeline = physical.local(input.index);
                if witness {
                    pipeline.trace_windows();
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
            lines,
            batch: Batch::tracking_lines(fields.len()),
            decoder: Decoder::new(fields),
            columns,
            arrived: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            partitions,
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
            .flat_map(|(_, _, samples)| samples)
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
        match self.lines.next_block() {
            Ok(Some(block)) => {
                self.report.bytes += block.bytes.len() as u64;
                let too_long = block.bad;
                self.decoder
                    .decode(block.bytes, block.first_line, &mut self.batch);
                let decoded = self.batch.finish();
                too_long
                    .iter()
                    .chain(&decoded.bad)
                    .for_each(|bad| self.bad_line(bad));
                self.take(decoded, out);
            }
            Ok(None) => self.end(out),
            Err(error) => {
                self.file_trouble(error.to_string());
                self.end(out);
            }
        }
        true
    }

    fn file_trouble(&mut self, reason: String) {
        let file = self.name.to_string();
        self.report.troubles.add(TroubleKind::File, || Trouble {
            file,
            line: 0,
            reason,
            sample: String::new(),
        });
    }

    fn bad_line(&mut self, bad: &BadLine) {
        let reason = format!("column {}: {}", bad.column, bad.reason);
        self.lose(TroubleKind::Json, bad.line, &reason, &bad.sample);
    }

    fn lose(&mut self, kind: TroubleKind, line: u64, reason: &str, sample: &str) {
        let file = &self.name;
        self.report.troubles.add(kind, || Trouble {
            file: file.to_string(),
            line,
            reason: reason.into(),
            sample: sample.into(),
        });
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
        match self.lines.note() {
            Some(note @ SourceNote::CutShort { .. }) => self.file_trouble(note.to_string()),
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

    fn take(&mut self, decoded: Decoded, out: &mut Vec<Delivery>) {
        if decoded.rows == 0 {
            return;
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
    fn timed(&mut self, decoded: Decoded) -> TimedEvents {
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
        events.chunk = chunk;
        if troubles.any() {
            self.note(&troubles, &events);
            events = events.keep(&troubles.good());
        }
        if self.witness.is_some() {
            let origins = events.lines.iter().map(|line| origin(self.number, *line));
            events.chunk.origins = Some(origins.collect());
        }
        events
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

    fn chunk(&self, decoded: &Decoded, arrivals: Option<&[Instant]>) -> Chunk {
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
        });
        Chunk::new(vec![0; rows].into(), columns.collect())
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
            self.lose(kind, events.lines[row], reason, "");
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
        if let Some(origins) = &events.chunk.origins {
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
        if self.partitions.len() < 2 || self.columns.arrival.is_none() || self.witness.is_some() {
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

/// The distinct partitions in a file, found by reading it once. Sorted, so that their order is that of their values.
pub(crate) fn discover_partitions(
    path: &Path,
    column: &str,
) -> Result<Vec<highwater_engine::Value>, ReadError> {
    let mut lines = LineReader::open(path)?;
    let fields = vec![Field::Path(vec![column.to_string()])];
    let mut decoder = Decoder::new(fields);
    let mut batch = Batch::new(1);
    let mut found = std::collections::BTreeMap::new();
    while let Some(block) = lines.next_block()? {
        decoder.decode(block.bytes, block.first_line, &mut batch);
        let decoded = batch.finish();
        for row in 0..decoded.rows {
            let mut key = Vec::new();
            eval::encode_key(decoded.columns[0].get(row), &mut key);
            found
                .entry(key)
                .or_insert_with(|| decoded.columns[0].get(row).to_value());
        }
    }
    let mut values: Vec<_> = found.into_values().collect();
    values.sort_by(|a, b| match eval::compare(a.view(), b.view()) {
        Ok(Some(order)) => order,
        _ => a.view().type_name().cmp(b.view().type_name()),
    });
    Ok(values)
}
