//! Runs a job over its files: each file is a stream, the combiner is called in place, and time ends with the input.
//!
//! Work is pulled. The loop steps the reader with the minimum event time, because only that one advances results; the
//! others wait with a bounded number of blocks ahead. With one thread the reader is stepped in place; with more, each
//! reader has a thread and a bounded channel. The results do not depend on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use highwater_connect::{EndpointError, ReadError};
use highwater_engine::{DataErrors, Item, PhysicalPlan, SharedPipeline, Value};
use highwater_time::Instant;

use crate::combiner::Combiner;
use crate::config::{Input, OnError};
use crate::early::{PipelineCopies, RevisionStep};
use crate::event_trace::EventTrace;
use crate::file_reader::{FileBlock, FilePlan, FileReader, discover_partitions};
use crate::load::{Job, LoadError};
use crate::outputs::{OutputNames, Outputs};
use crate::plan::{InputFormat, InputPlan, PartitionId};
use crate::reference::{self, ReferenceError};
use crate::report::{InputReport, Report};
use crate::side_row::QueryText;
use crate::stream::StreamOutput;

/// With more files than this, all are read in one thread.
const READER_THREADS_MAX: usize = 64;

/// How many blocks a reader may be ahead.
const AHEAD_BLOCKS: usize = 4;

pub struct Options<'a> {
    /// 1 reads all files in place; with more, each file has a thread of its own.
    pub threads: usize,
    /// Records the fate of every event. Costs memory in proportion to the input.
    pub trace: bool,
    /// Called with the number of bytes read so far.
    pub progress: Option<&'a mut dyn FnMut(u64)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            threads: 1,
            trace: false,
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
    Output(#[from] EndpointError),
    #[error("error: {0}")]
    NotLocal(String),
    #[error("error: {0}")]
    Overflow(String),
    #[error("stopped at the first error, as on_error = \"stop\" asks: {0}")]
    Stopped(String),
    #[error("cannot start a thread: {0}; try --threads 1")]
    Thread(std::io::Error),
    #[error("a reader thread ended unexpectedly")]
    ReaderDied,
}

/// The result of a run.
pub struct Outcome {
    pub report: Report,
    /// With [`Options::trace`].
    pub trace: Option<EventTrace>,
    /// The files read, in the order of the numbers in origins.
    pub files: Vec<InputFile>,
}

#[derive(Clone, Debug)]
pub struct InputFile {
    pub path: PathBuf,
    /// Its index in `Plan::inputs`.
    pub input: usize,
}

/// Runs the job to the end of its inputs.
pub fn run(job: &Job, outputs: Outputs, mut options: Options<'_>) -> Result<Outcome, RunError> {
    if let Some(obstacle) = job.local_obstacle() {
        return Err(RunError::NotLocal(obstacle));
    }
    let references = reference::load_all(job)?;
    if let (OnError::Stop, Some(reason)) = (job.file.on_error, references.first_error()) {
        return Err(RunError::Stopped(reason));
    }
    let physical = references.physical.as_ref().unwrap_or(&job.physical);
    let query = Arc::new(QueryText::of(job));
    // A trace is of events and windows, which revisions do not change.
    let early = outputs.early.clone().filter(|_| !options.trace);
    let mut opened = open(job, physical, &query, options.trace)?;
    let (routing, output_names) = outputs.into_parts();
    let locations = opened
        .readers
        .iter()
        .map(|reader| reader.location().clone());
    let mut combiner = Combiner::new(
        shared_pipeline(job, physical, &opened.partitions, options.trace),
        routing,
        locations.collect(),
        query,
    );
    let mut threads = options.threads;
    if let Some(early) = &early {
        let copies = PipelineCopies::new(early, physical);
        let inputs = opened.readers.iter().map(FileReader::input);
        combiner = combiner.with_early_results(&copies, &opened.partitions, inputs);
        let readers = opened.readers.iter_mut();
        readers
            .filter(|reader| early.inputs[reader.input()])
            .for_each(|reader| reader.stop_at_barriers(&copies));
        // Readers advance together from barrier to barrier.
        threads = 1;
    }
    let mut sources = start_all(opened.readers, threads)?;
    let mut bytes = 0;
    while let Some(next) = furthest_behind(&sources) {
        let Some(block) = sources[next].pull()? else {
            continue;
        };
        bytes += block.bytes;
        combiner.combine(block.output)?;
        pass_barriers(&mut combiner, &mut sources)?;
        if let Some(progress) = &mut options.progress {
            progress(bytes);
        }
        if job.file.on_error == OnError::Stop {
            let errors = &combiner.shared.pipeline.errors;
            let failed = block.first_error.or_else(|| error_text(errors));
            failed.map_or(Ok(()), |reason| Err(RunError::Stopped(reason)))?;
        }
    }
    let read = finish_all(job, sources)?;
    let mut outcome = commit(combiner, output_names, read, opened.files)?;
    if !options.trace {
        outcome.trace = None;
    }
    outcome.report.inputs.extend(references.reports);
    let reference_errors = physical.reference_errors().clone();
    outcome.report.errors.merge(reference_errors);
    Ok(outcome)
}

/// Sends the revisions that are due, and raises the barrier as far as possible.
fn pass_barriers(combiner: &mut Combiner, sources: &mut [ReaderHandle]) -> Result<(), RunError> {
    loop {
        match combiner.revision_step()? {
            RevisionStep::Preview => {
                for reader in sources.iter().filter_map(ReaderHandle::in_place) {
                    let preview = reader.preview_end().map_err(RunError::Overflow)?;
                    if let Some(clock) = combiner.revision_clock() {
                        clock.take_preview(preview);
                    }
                }
            }
            RevisionStep::Raise(barrier) => {
                for source in sources.iter_mut() {
                    let output = source.raise_barrier(barrier);
                    output.map_or(Ok(()), |output| combiner.combine(output))?;
                }
            }
            RevisionStep::Wait | RevisionStep::Revise => return Ok(()),
        }
    }
}

fn shared_pipeline(
    job: &Job,
    physical: &PhysicalPlan,
    partitions: &[usize],
    trace: bool,
) -> SharedPipeline {
    let mut shared = physical.shared(partitions);
    if trace {
        shared.pipeline.trace_windows();
    }
    if job.file.on_error == OnError::DeadLetter {
        shared.pipeline.errors.collect_all();
    }
    shared
}

fn error_text(errors: &DataErrors) -> Option<String> {
    errors.samples.first().map(|error| error.reason.clone())
}

/// The reports of all files together.
#[derive(Default)]
struct InputTotals {
    inputs: Vec<InputReport>,
    errors: DataErrors,
    trace: EventTrace,
}

fn finish_all(job: &Job, sources: Vec<ReaderHandle>) -> Result<InputTotals, RunError> {
    let inputs = job.plan.inputs.iter().map(|input| InputReport {
        name: input.name.clone(),
        ..InputReport::default()
    });
    let mut read = InputTotals {
        inputs: inputs.collect(),
        ..InputTotals::default()
    };
    for source in sources {
        let input = source.input;
        let finished = source.finish()?.finish();
        read.inputs[input].merge(finished.input);
        read.errors.merge(finished.errors);
        if let Some(trace) = finished.trace {
            read.trace.merge(trace);
        }
    }
    Ok(read)
}

/// Ends time and makes all outputs final.
fn commit(
    mut combiner: Combiner,
    output_names: OutputNames,
    mut read: InputTotals,
    files: Vec<InputFile>,
) -> Result<Outcome, RunError> {
    let pipeline = &mut combiner.shared.pipeline;
    read.trace.windows.extend(pipeline.take_trace());
    read.errors.merge(std::mem::take(&mut pipeline.errors));
    // No output is committed before all rows are written.
    combiner.advance(Instant::AFTER_ALL)?;
    let written = output_names.report(
        &combiner.routing.outputs,
        combiner.routing.dead_letters.as_ref(),
    );
    combiner.settle(0)?;
    Ok(Outcome {
        report: Report {
            inputs: read.inputs,
            errors: read.errors,
            dead_letters: written.dead_letters,
            outputs: written.outputs,
        },
        trace: Some(read.trace),
        files,
    })
}

struct OpenInputs {
    readers: Vec<FileReader>,
    /// Per input of the plan.
    partitions: Vec<usize>,
    files: Vec<InputFile>,
}

fn open(
    job: &Job,
    physical: &PhysicalPlan,
    query: &Arc<QueryText>,
    trace: bool,
) -> Result<OpenInputs, RunError> {
    let mut opened = OpenInputs {
        readers: Vec::new(),
        partitions: Vec::new(),
        files: Vec::new(),
    };
    for index in 0..job.plan.inputs.len() {
        let (input, declared) = InputPlan::of(job, index);
        let files = declared.files().map_err(LoadError::from)?;
        let per_file = partitions_of(declared, &input.format, &files)?;
        let count: usize = per_file.iter().map(Vec::len).sum();
        opened.partitions.push(count);
        for (path, partitions) in files.into_iter().zip(per_file) {
            let plan = FilePlan {
                path: &path,
                number: opened.files.len(),
                partitions,
                trace,
                query: query.clone(),
            };
            let reader = FileReader::open(plan, input.clone(), physical)?;
            opened.readers.push(reader);
            opened.files.push(InputFile { path, input: index });
        }
    }
    Ok(opened)
}

/// The partitions that each file holds: the file itself, or the values of its partition column.
fn partitions_of(
    input: &Input,
    format: &InputFormat,
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
    let mut values = discover_partitions(file, column, format)?;
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

/// Starts readers, each on a thread of its own unless there are too many.
fn start_all(readers: Vec<FileReader>, threads: usize) -> Result<Vec<ReaderHandle>, RunError> {
    let threads = match readers.len() > READER_THREADS_MAX {
        true => 1,
        false => threads,
    };
    readers
        .into_iter()
        .map(|reader| ReaderHandle::start(reader, threads))
        .collect()
}

/// A reader, in place or on its own thread.
struct ReaderHandle {
    input: usize,
    /// The event time it has reached.
    reached: Instant,
    state: ReaderState,
}

enum ReaderState {
    InPlace(Box<FileReader>),
    Threaded {
        results: Receiver<FileBlock>,
        thread: JoinHandle<FileReader>,
    },
    Done(Box<FileReader>),
    /// During a transition.
    Moving,
}

impl ReaderHandle {
    fn start(reader: FileReader, threads: usize) -> Result<ReaderHandle, RunError> {
        let input = reader.input();
        let state = if threads > 1 {
            let (send, results) = sync_channel(AHEAD_BLOCKS);
            let thread = thread::Builder::new()
                .name("highwater-reader".into())
                .spawn(move || read_all(reader, &send));
            match thread {
                Ok(thread) => ReaderState::Threaded { results, thread },
                Err(error) => return Err(RunError::Thread(error)),
            }
        } else {
            ReaderState::InPlace(Box::new(reader))
        };
        Ok(ReaderHandle {
            input,
            reached: Instant::BEFORE_ALL,
            state,
        })
    }

    fn done(&self) -> bool {
        matches!(self.state, ReaderState::Done(_))
    }

    /// The reader, unless it has a thread.
    fn in_place(&self) -> Option<&FileReader> {
        match &self.state {
            ReaderState::InPlace(reader) | ReaderState::Done(reader) => Some(reader),
            ReaderState::Threaded { .. } | ReaderState::Moving => None,
        }
    }

    /// Continues up to `barrier`. `None` if the reader does not stop at barriers.
    fn raise_barrier(&mut self, barrier: Instant) -> Option<StreamOutput> {
        let output = match &mut self.state {
            ReaderState::InPlace(reader) | ReaderState::Done(reader) => {
                reader.raise_barrier(barrier)
            }
            ReaderState::Threaded { .. } | ReaderState::Moving => None,
        }?;
        self.reach(&output);
        Some(output)
    }

    fn reach(&mut self, output: &StreamOutput) {
        for exit_item in &output.exit_items {
            self.reached = self.reached.max(progress_of(&exit_item.item));
        }
    }

    /// The next block; `None` at the end.
    fn pull(&mut self) -> Result<Option<FileBlock>, RunError> {
        let (state, pulled) = match std::mem::replace(&mut self.state, ReaderState::Moving) {
            ReaderState::InPlace(mut reader) => match reader.step() {
                Some(pulled) => (ReaderState::InPlace(reader), Some(pulled)),
                None => (ReaderState::Done(reader), None),
            },
            ReaderState::Threaded { results, thread } => match results.recv() {
                Ok(pulled) => (ReaderState::Threaded { results, thread }, Some(pulled)),
                Err(_) => match thread.join() {
                    Ok(reader) => (ReaderState::Done(Box::new(reader)), None),
                    Err(_) => return Err(RunError::ReaderDied),
                },
            },
            other => (other, None),
        };
        self.state = state;
        if let Some(block) = &pulled {
            self.reach(&block.output);
        }
        Ok(pulled)
    }

    fn finish(self) -> Result<FileReader, RunError> {
        match self.state {
            ReaderState::Done(reader) => Ok(*reader),
            _ => Err(RunError::ReaderDied),
        }
    }
}

fn read_all(mut reader: FileReader, send: &SyncSender<FileBlock>) -> FileReader {
    while let Some(pulled) = reader.step() {
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

fn furthest_behind(sources: &[ReaderHandle]) -> Option<usize> {
    let open = sources
        .iter()
        .enumerate()
        .filter(|(_, source)| !source.done());
    open.min_by_key(|(_, source)| source.reached)
        .map(|(index, _)| index)
}
