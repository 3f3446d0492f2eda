//! Runs a job over its files: readers hand over, the shared pipeline combines, outputs are written.
//!
//! Work is pulled. The loop always asks the reader that is furthest behind in event time, because only that one can move
//! results forward; the others wait with a bounded amount of work done ahead. With one thread the reader is stepped in
//! place; with more, each reader has a thread of its own behind a bounded channel. Which of the two it is never shows in
//! the results.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use highwater_connect::ReadError;
use highwater_connect::SinkError;
use highwater_engine::{DataErrors, Item, PhysicalPlan, SharedPipeline, Value};
use highwater_time::Instant;

use crate::account::shown_file;
use crate::config::{Input, OnError};
use crate::dead::{Cause, DeadLetter};
use crate::load::{Job, LoadError};
use crate::outputs::Outputs;
use crate::partition_pipeline::Delivery;
use crate::plan::{InputFormat, InputPlan, PartitionId};
use crate::reader::{FileReader, discover_partitions};
use crate::reference::{self, ReferenceError};
use crate::report::{InputReport, Report};
use crate::witness::{Witness, origin_file, origin_line};

/// With more files than this, reading them in turn beats a thread for each.
const READER_THREADS_MAX: usize = 64;

/// How far a reader may work ahead, in blocks.
const AHEAD_BLOCKS: usize = 4;

pub struct Options<'a> {
    /// 1 does everything in place; with more, each file is read and computed on a thread of its own.
    pub threads: usize,
    /// Keep the fate of every event. Costs memory in proportion to the input.
    pub witness: bool,
    /// SubstreamKeyColumn the bytes read so far.
    pub progress: Option<&'a mut dyn FnMut(u64)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            threads: 1,
            witness: false,
            progress: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Reference(#[from] ReferenceError),
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Sink(#[from] SinkError),
    #[error(
        "error: {0}; start the job on a node, or run it with --data over the folder of one that is stopped"
    )]
    Live(String),
    #[error("stopped at the first error, as on_error = \"stop\" asks: {0}")]
    Stopped(String),
    #[error("cannot start a thread: {0}; try --threads 1")]
    Thread(std::io::Error),
    #[error("a reader thread ended unexpectedly")]
    ReaderDied,
}

/// What a run leaves behind.
pub struct Outcome {
    pub report: Report,
    /// With [`Options::witness`].
    pub witness: Option<Witness>,
    /// The files read, in the order of the numbers in origins.
    pub files: Vec<ReadFile>,
}

#[derive(Clone, Debug)]
pub struct ReadFile {
    pub path: PathBuf,
    /// Its place in `Plan::inputs`.
    pub input: usize,
}

/// Runs the job to the end of its inputs.
pub fn run(job: &Job, mut outputs: Outputs, mut options: Options<'_>) -> Result<Outcome, RunError> {
    if let Some(reason) = job.needs_a_node() {
        return Err(RunError::Live(reason));
    }
    let references = reference::load_all(job)?;
    if let (OnError::Stop, Some(reason)) = (job.file.on_error, references.first_trouble()) {
        return Err(RunError::Stopped(reason));
    }
    let physical = references.physical.as_ref().unwrap_or(&job.physical);
    let Opened {
        readers,
        partitions,
        files,
    } = open(job, physical, options.witness)?;
    let mut shared = physical.shared(&partitions);
    if options.witness {
        shared.pipeline.trace_windows();
    }
    if job.file.on_error == OnError::DeadLetter {
        shared.pipeline.errors.collect_all();
    }
    let threads = if readers.len() > READER_THREADS_MAX {
        1
    } else {
        options.threads
    };
    let mut sources: Vec<Source> = readers
        .into_iter()
        .map(|reader| Source::start(reader, threads))
        .collect::<Result<_, _>>()?;
    let mut bytes = 0;
    while let Some(next) = furthest_behind(&sources) {
        let source = &mut sources[next];
        let input = source.input;
        let Some(batch) = source.pull()? else {
            continue;
        };
        bytes += batch.bytes;
        for delivery in batch.deliveries {
            deliver(&mut shared, &mut outputs, input, delivery)?;
        }
        if job.file.on_error == OnError::DeadLetter {
            outputs.take_dead(job, &batch.dead)?;
            outputs.take_dead(job, &failed_rows(job, &mut shared, &files))?;
        }
        if let Some(progress) = &mut options.progress {
            progress(bytes);
        }
        if job.file.on_error == OnError::Stop {
            let failed = batch
                .trouble
                .or_else(|| error_text(&shared.pipeline.errors));
            failed.map_or(Ok(()), |reason| Err(RunError::Stopped(reason)))?;
        }
    }
    let mut outcome = finish(job, shared, sources, outputs, files, options.witness)?;
    outcome.report.inputs.extend(references.reports);
    outcome
        .report
        .errors
        .merge(physical.reference_errors().clone());
    Ok(outcome)
}

fn deliver(
    shared: &mut SharedPipeline,
    outputs: &mut Outputs,
    input: usize,
    delivery: Delivery,
) -> Result<(), RunError> {
    let entry = shared.entry(input, delivery.exit, delivery.partition);
    let mut exits = Vec::new();
    shared.pipeline.push(entry, delivery.item, &mut exits);
    for (statement, item) in exits {
        outputs.take(statement, item)?;
    }
    Ok(())
}

/// The rows that failed in the shared part of the query since the last call.
fn failed_rows(job: &Job, shared: &mut SharedPipeline, files: &[ReadFile]) -> Vec<DeadLetter> {
    let failed = shared.pipeline.errors.take_collected().into_iter();
    failed
        .map(|error| {
            let file = error
                .origin
                .and_then(|origin| files.get(origin_file(origin)));
            let shown = |file: &ReadFile| file.path.display().to_string();
            DeadLetter {
                input: file.map(|file| job.plan.inputs[file.input].name.clone()),
                cause: Cause::Query(error.span),
                reason: error.reason,
                event: None,
                file: file.map(|file| shown_file(&shown(file), &job.file.folder)),
                line: error.origin.map(origin_line),
                time: Some(error.time),
            }
        })
        .collect()
}

fn error_text(errors: &DataErrors) -> Option<String> {
    errors.samples.first().map(|error| error.reason.clone())
}

fn finish(
    job: &Job,
    mut shared: SharedPipeline,
    sources: Vec<Source>,
    outputs: Outputs,
    files: Vec<ReadFile>,
    witness: bool,
) -> Result<Outcome, RunError> {
    let mut inputs: Vec<InputReport> = job
        .plan
        .inputs
        .iter()
        .map(|input| InputReport {
            name: input.name.clone(),
            ..InputReport::default()
        })
        .collect();
    let mut errors = DataErrors::default();
    let mut seen = Witness::default();
    for source in sources {
        let input = source.input;
        let (report, failed, witness) = source.finish()?.finish();
        inputs[input].merge(report);
        errors.merge(failed);
        if let Some(witness) = witness {
            seen.fates.extend(witness.fates);
            seen.windows.extend(witness.windows);
            seen.lost.extend(witness.lost);
        }
    }
    seen.windows.extend(shared.pipeline.take_trace());
    errors.merge(std::mem::take(&mut shared.pipeline.errors));
    let report = Report {
        inputs,
        errors,
        dead_letters: outputs.dead_letters(),
        outputs: outputs.commit()?,
    };
    Ok(Outcome {
        report,
        witness: witness.then_some(seen),
        files,
    })
}

struct Opened {
    readers: Vec<FileReader>,
    /// Per input of the plan.
    partitions: Vec<usize>,
    files: Vec<ReadFile>,
}

fn open(job: &Job, physical: &PhysicalPlan, witness: bool) -> Result<Opened, RunError> {
    let mut opened = Opened {
        readers: Vec::new(),
        partitions: Vec::new(),
        files: Vec::new(),
    };
    for index in 0..job.plan.inputs.len() {
        let (input, declared) = InputPlan::of(job, index);
        let files = declared.files().map_err(LoadError::from)?;
        let per_file = partitions_of(declared, &input.how, &files)?;
        let count: usize = per_file.iter().map(Vec::len).sum();
        opened.partitions.push(count);
        for (path, partitions) in files.into_iter().zip(per_file) {
            let number = opened.files.len();
            let reader =
                FileReader::open(&path, number, input.clone(), physical, partitions, witness)?;
            opened.readers.push(reader);
            opened.files.push(ReadFile { path, input: index });
        }
    }
    Ok(opened)
}

/// The partitions that each file holds: the file itself, or the values of its partition column.
fn partitions_of(
    input: &Input,
    how: &InputFormat,
    files: &[PathBuf],
) -> Result<Vec<Vec<PartitionId>>, RunError> {
    let Some(column) = &input.partition else {
        let each = (0..files.len()).map(|number| {
            vec![PartitionId {
                number,
                shown: Value::Int(number as i64),
            }]
        });
        return Ok(each.collect());
    };
    let [file] = files else {
        let (input, files) = (input.name.clone(), files.len());
        return Err(LoadError::PartitionedFiles { input, files }.into());
    };
    let mut values = discover_partitions(file, column, how)?;
    if values.is_empty() {
        values.push(Value::Null);
    }
    let partitions = values.into_iter().enumerate();
    Ok(vec![
        partitions
            .map(|(number, shown)| PartitionId { number, shown })
            .collect(),
    ])
}

/// What one step of a reader gave.
struct Pulled {
    deliveries: Vec<Delivery>,
    bytes: u64,
    /// Something was wrong with an event up to here.
    trouble: Option<String>,
    dead: Vec<DeadLetter>,
}

/// A reader, in place or on its own thread.
struct Source {
    input: usize,
    /// How far it has come in event time.
    reached: Instant,
    state: State,
}

enum State {
    Here(Box<FileReader>),
    Away {
        results: Receiver<Pulled>,
        thread: JoinHandle<FileReader>,
    },
    Done(Box<FileReader>),
    /// Between two of the others.
    Moving,
}

impl Source {
    fn start(reader: FileReader, threads: usize) -> Result<Source, RunError> {
        let input = reader.input();
        let state = if threads > 1 {
            let (send, results) = sync_channel(AHEAD_BLOCKS);
            let thread = thread::Builder::new()
                .name("highwater-reader".into())
                .spawn(move || read_all(reader, &send));
            match thread {
                Ok(thread) => State::Away { results, thread },
                Err(error) => return Err(RunError::Thread(error)),
            }
        } else {
            State::Here(Box::new(reader))
        };
        Ok(Source {
            input,
            reached: Instant::BEFORE_ALL,
            state,
        })
    }

    fn done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// What the next block gave; nothing once at the end.
    fn pull(&mut self) -> Result<Option<Pulled>, RunError> {
        let (state, pulled) = match std::mem::replace(&mut self.state, State::Moving) {
            State::Here(mut reader) => match step(&mut reader) {
                Some(pulled) => (State::Here(reader), Some(pulled)),
                None => (State::Done(reader), None),
            },
            State::Away { results, thread } => match results.recv() {
                Ok(pulled) => (State::Away { results, thread }, Some(pulled)),
                Err(_) => match thread.join() {
                    Ok(reader) => (State::Done(Box::new(reader)), None),
                    Err(_) => return Err(RunError::ReaderDied),
                },
            },
            other => (other, None),
        };
        self.state = state;
        for delivery in pulled.iter().flat_map(|pulled| &pulled.deliveries) {
            self.reached = self.reached.max(progress_of(&delivery.item));
        }
        Ok(pulled)
    }

    fn finish(self) -> Result<FileReader, RunError> {
        match self.state {
            State::Done(reader) => Ok(*reader),
            _ => Err(RunError::ReaderDied),
        }
    }
}

fn step(reader: &mut FileReader) -> Option<Pulled> {
    let mut deliveries = Vec::new();
    let before = reader.bytes();
    let more = reader.step(&mut deliveries);
    let bytes = reader.bytes() - before;
    more.then(|| Pulled {
        deliveries,
        bytes,
        trouble: reader.first_trouble(),
        dead: reader.take_dead(),
    })
}

fn read_all(mut reader: FileReader, send: &SyncSender<Pulled>) -> FileReader {
    while let Some(pulled) = step(&mut reader) {
        if send.send(pulled).is_err() {
            break;
        }
    }
    reader
}

fn progress_of(item: &Item) -> Instant {
    match item {
        Item::Watermark(watermark) if *watermark < Instant::AFTER_ALL => *watermark,
        Item::Rows(chunk) if chunk.rows() > 0 => chunk.time(chunk.rows() - 1),
        _ => Instant::BEFORE_ALL,
    }
}

fn furthest_behind(sources: &[Source]) -> Option<usize> {
    let open = sources
        .iter()
        .enumerate()
        .filter(|(_, source)| !source.done());
    open.min_by_key(|(_, source)| source.reached)
        .map(|(index, _)| index)
}
