//! Puts the parts of a live job together, empty or as a checkpoint left them.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader};
use highwater_connect::ValueDecoder;
use highwater_engine::{PhysicalPlan, Value};
use highwater_env::Clock;
use highwater_log::Offset;
use highwater_time::{CombinedWatermark, Instant};
use tokio::sync::mpsc;

use super::StartError;
use super::batch_decoder::BatchDecoder;
use super::checkpoint::Checkpoint;
use super::combiner::{Combiner, CombinerEvent, StreamFacts};
use super::destination::{Destination, OutputMessage, OutputSchema, output_schemas};
use super::partitions::{InputPartition, PartitionSet};
use super::read_permits::ReadPermits;
use super::side_output::SideOutput;
use super::status::{InputStatus, OutputStatus, PartitionStatus, StatusHandle};
use super::stream::{SideOutputOptions, Stream};
use crate::account::shown_file;
use crate::config::OnError;
use crate::intake::Intake;
use crate::load::Job;
use crate::partition_pipeline::PartitionPipeline;
use crate::plan::{InputPlan, PartitionId};

/// How many chunks of rows may wait in front of an output.
const WAITING_MAX: usize = 16;

/// A job that is about to run.
pub(super) struct JobParts {
    pub streams: Vec<Stream>,
    pub combiner: Combiner,
    pub events: mpsc::UnboundedReceiver<CombinerEvent>,
    /// In the order of the job's outputs.
    pub outputs: Vec<(OutputSchema, mpsc::Receiver<OutputMessage>)>,
}

/// The outputs of a job: those of the query, then those that take letters.
struct Layout {
    output_schemas: Vec<OutputSchema>,
    dead: Option<usize>,
    late: Option<usize>,
}

fn layout(job: &Job) -> Layout {
    let mut output_schemas = output_schemas(&job.plan);
    let mut add = |name: &str| {
        output_schemas.push(OutputSchema::of_letters(name));
        output_schemas.len() - 1
    };
    let dead = job.file.dead_letter.as_ref();
    let dead = dead.filter(|_| job.file.on_error == OnError::DeadLetter);
    Layout {
        dead: dead.map(|name| add(name)),
        late: job.file.live.late.as_ref().map(|name| add(name)),
        output_schemas,
    }
}

pub(super) fn build(
    job: &Job,
    physical: &PhysicalPlan,
    partitions: &PartitionSet,
    (since, clock): (Instant, Arc<dyn Clock>),
    board: &StatusHandle,
) -> Result<JobParts, StartError> {
    let Layout {
        output_schemas,
        dead,
        late,
    } = layout(job);
    let query_name = shown_file(&job.query_name, &job.file.folder);
    let wants = SideOutputOptions {
        dead_letters: dead.is_some(),
        late: late.is_some(),
        query: Arc::new((query_name, job.query.clone())),
    };
    let streams = partitions.all.iter().enumerate();
    let streams = streams.map(|source| stream(job, physical, source, &wants));
    let streams = streams.collect::<Result<Vec<Stream>, StartError>>()?;
    let mut shared = physical.shared(&partitions.per_input);
    if wants.dead_letters {
        shared.pipeline.errors.collect_all();
    }
    let mut statements = vec![(0, 0); job.plan.outputs.len()];
    for (destination, shape) in output_schemas.iter().enumerate() {
        for (port, statement) in shape.statements().enumerate() {
            statements[statement] = (destination, port);
        }
    }
    let (mut destinations, mut outputs) = (Vec::new(), Vec::new());
    for (index, shape) in output_schemas.into_iter().enumerate() {
        let (to, inbox) = mpsc::channel(WAITING_MAX);
        destinations.push(Destination::new((index, &shape), since, to, board.clone()));
        outputs.push((shape, inbox));
    }
    let count = streams.len();
    let named = partitions.all.iter().map(|source| {
        let input = job.plan.inputs[source.input].name.clone();
        (input, source.place.clone())
    });
    let (events, heard) = mpsc::unbounded_channel();
    let combiner = Combiner {
        shared,
        destinations,
        statements,
        dead: dead.map(|dead| (dead, SideOutput::new(count, true))),
        late: late.map(|late| (late, SideOutput::new(count, false))),
        clock: CombinedWatermark::new(count),
        facts: StreamFacts {
            streams: named.collect(),
            wants,
            timer: clock,
        },
        pace: ReadPermits::new(count),
        workers: Vec::new(),
        events,
        board: board.clone(),
        errors_before: 0,
    };
    Ok(JobParts {
        streams,
        combiner,
        events: heard,
        outputs,
    })
}

fn stream(
    job: &Job,
    physical: &PhysicalPlan,
    (number, source): (usize, &InputPartition),
    wants: &SideOutputOptions,
) -> Result<Stream, StartError> {
    let (mut input, _) = InputPlan::of(job, source.input);
    input.keeps_whole = wants.dead_letters || wants.late;
    let id = PartitionId {
        number: source.number,
        shown: Value::Int(source.number as i64),
    };
    let lane = PartitionPipeline::new(&input, physical, id, false);
    let (how, name) = (input.how.clone(), input.plan.name.clone());
    let (is_hub, folder) = (input.hub, input.folder.clone());
    let (intake, fields) = Intake::new(input, false);
    let options = how.options(fields, wants.dead_letters);
    let opener = match is_hub {
        true => BatchDecoder::new(ValueDecoder::new(options).ok_or(StartError::Format(name))?),
        false => BatchDecoder::of_files(options, folder),
    };
    Ok(Stream::new(
        (number, source.place.clone()),
        (opener, intake, lane),
        wants.clone(),
    ))
}

impl JobParts {
    /// As a checkpoint left it.
    pub fn restore(&mut self, saved: &Checkpoint) -> Result<(), DecodeError> {
        if saved.streams.len() != self.streams.len() || saved.outputs.len() != self.outputs.len() {
            return Err(DecodeError::Invalid("it has other streams or outputs"));
        }
        for (stream, (_, state)) in self.streams.iter_mut().zip(&saved.streams) {
            stream.restore(&mut Reader::new(state))?;
        }
        self.combiner.restore(&mut Reader::new(&saved.shared))
    }

    /// Takes partitions by which hubs have grown, from their first event on. They begin where those of the same input have
    /// passed, because rows up to there are out. `false` if the query cannot have them.
    pub fn grow(
        &mut self,
        (job, physical): (&Job, &PhysicalPlan),
        partitions: &mut PartitionSet,
        new: &[InputPartition],
    ) -> Result<bool, StartError> {
        for source in new {
            let input = source.input;
            let peers = self.streams.iter().filter(|stream| stream.input == input);
            let passed = peers.map(Stream::watermark).min();
            let passed = passed.unwrap_or(Instant::BEFORE_ALL);
            let named = (job.plan.inputs[input].name.clone(), source.place.clone());
            if !self.combiner.add_stream(input, named, passed) {
                return Ok(false);
            }
            partitions.add(source.clone());
            let added = partitions
                .all
                .last()
                .map(|source| (partitions.all.len() - 1, source));
            let Some(added) = added else { continue };
            let wants = self.combiner.facts.wants.clone();
            let mut stream = stream(job, physical, added, &wants)?;
            stream.begin(source.partition.bounds().start);
            if passed > Instant::BEFORE_ALL {
                stream.begin_behind(passed);
            }
            self.streams.push(stream);
        }
        Ok(true)
    }

    /// Shows what there is on the board, and goes on with what was counted there.
    pub fn lay_out(&mut self, job: &Job, partitions: &PartitionSet, board: &StatusHandle) {
        let inputs = job.plan.inputs.iter().enumerate().map(|(index, input)| {
            let mine = partitions.all.iter().filter(|source| source.input == index);
            InputStatus {
                name: input.name.clone(),
                partitions: mine
                    .map(|source| PartitionStatus::new(source.place.clone()))
                    .collect(),
            }
        });
        let outputs = self.outputs.iter().map(|(shape, _)| OutputStatus {
            name: shape.output.clone(),
            ..OutputStatus::default()
        });
        let streams = partitions.all.iter();
        let streams = streams.map(|source| (source.input, source.number));
        board.lay_out(inputs.collect(), outputs.collect(), streams.collect());
        for stream in &mut self.streams {
            let (status, shared_errors) = board.counted(stream.number);
            stream.count_on(status);
            self.combiner.errors_before = shared_errors;
        }
    }

    /// The state of streams and of what they share, as checkpoints have it.
    pub fn written(&self) -> (Vec<(Offset, Vec<u8>)>, Vec<u8>) {
        let streams = self.streams.iter().map(|stream| stream.copy().written());
        let mut shared = Vec::new();
        self.combiner.snapshot(&mut shared);
        (streams.collect(), shared)
    }

    pub fn begin(&mut self, positions: &[Offset]) {
        let streams = self.streams.iter_mut().zip(positions);
        streams.for_each(|(stream, position)| stream.begin(*position));
    }
}
