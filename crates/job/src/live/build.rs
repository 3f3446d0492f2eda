//! Builds the parts of a live job, with empty state or the state of a checkpoint.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader};
use highwater_connect::{RowNames, ValueDecoder};
use highwater_engine::{PhysicalPlan, Value};
use highwater_env::Clock;
use highwater_log::Offset;
use highwater_query::plan::{Name, Plan};
use highwater_time::Instant;
use tokio::sync::mpsc;

use super::StartError;
use super::batch_decoder::BatchDecoder;
use super::checkpoint::Checkpoint;
use super::combiner_thread::{CombinerEvent, CombinerThread};
use super::hub_stream::HubStream;
use super::instances::{CombinerStart, ExchangeReader, StreamIdentity};
use super::output_queue::OutputQueue;
use super::partition_stream::PartitionStream;
use super::partitions::{InputPartition, InputPartitions};
use super::read_permits::ReadPermits;
use super::state_limit::StateLimit;
use super::status::{InputStatus, OutputStatus, PartitionStatus, StatusHandle};
use crate::combiner::{Combiner, OutputRouting, StatementPort};
use crate::config::OnError;
use crate::early::{EarlyPlan, PipelineCopies, output_columns};
use crate::load::Job;
use crate::output_merge::{OutputMerge, OutputMessage, RowForm};
use crate::plan::{InputPlan, PartitionId};
use crate::side_output::SideOutput;
use crate::side_row::{QueryText, StreamLocation};
use crate::stream::{Stream, StreamPlan};
use crate::timestamp_assigner::TimestampAssigner;

/// The length of the queue in front of an output, in messages.
const WAITING_MAX: usize = 16;

/// The parts of a job before its launch.
pub(super) struct JobParts {
    pub streams: Vec<PartitionStream>,
    pub combiner: CombinerThread,
    pub events: mpsc::UnboundedReceiver<CombinerEvent>,
    /// In the order of the job's outputs.
    pub outputs: Vec<PendingOutput>,
}

/// An output that is not open yet.
pub(super) struct PendingOutput {
    pub name: String,
    /// The names of the columns.
    pub columns: Vec<Name>,
    pub inbox: mpsc::Receiver<OutputMessage>,
}

/// Builds parts from a job and its physical plan.
#[derive(Clone, Copy)]
pub(super) struct JobBuilder<'a> {
    pub job: &'a Job,
    pub physical: &'a PhysicalPlan,
    pub clock: &'a Arc<dyn Clock>,
    pub status: &'a StatusHandle,
    pub state_limit: &'a StateLimit,
}

/// An output of the query, or one that takes side rows.
struct OutputSchema {
    name: String,
    columns: Vec<Name>,
    /// Indexes in `Plan::outputs`.
    statements: Vec<usize>,
    /// The columns of its statements differ, so each row becomes one record.
    is_mixed: bool,
}

/// The outputs of a job: those of the query in the order in which it names them, then those that take side rows.
struct OutputLayout {
    schemas: Vec<OutputSchema>,
    dead_letters: Option<usize>,
    late_events: Option<usize>,
}

impl OutputLayout {
    fn new(job: &Job) -> OutputLayout {
        let mut schemas = schemas(&job.plan, job.early.as_deref());
        let mut add = |name: &String| {
            schemas.push(OutputSchema {
                name: name.clone(),
                columns: vec![Name::Spread],
                statements: Vec::new(),
                is_mixed: false,
            });
            schemas.len() - 1
        };
        let dead_letters = job.file.dead_letter.as_ref();
        let dead_letters = dead_letters.filter(|_| job.file.on_error == OnError::DeadLetter);
        OutputLayout {
            dead_letters: dead_letters.map(&mut add),
            late_events: job.file.live.late.as_ref().map(add),
            schemas,
        }
    }
}

fn schemas(plan: &Plan, early: Option<&EarlyPlan>) -> Vec<OutputSchema> {
    let mut schemas: Vec<OutputSchema> = Vec::new();
    for (statement, output) in plan.outputs.iter().enumerate() {
        let columns = output_columns(plan, statement, early);
        let same = |schema: &&mut OutputSchema| schema.name.eq_ignore_ascii_case(&output.name);
        match schemas.iter_mut().find(same) {
            Some(schema) => {
                if schema.columns != columns {
                    (schema.columns, schema.is_mixed) = (vec![Name::Spread], true);
                }
                schema.statements.push(statement);
            }
            None => schemas.push(OutputSchema {
                name: output.name.clone(),
                columns,
                statements: vec![statement],
                is_mixed: false,
            }),
        }
    }
    schemas
}

impl OutputSchema {
    fn form(&self, job: &Job, statement: usize) -> RowForm {
        let early = job.early.as_deref();
        let names = || RowNames::new(output_columns(&job.plan, statement, early));
        match self.is_mixed {
            true => RowForm::Record(names()),
            false => RowForm::Columns,
        }
    }
}

impl JobBuilder<'_> {
    /// Rows before `since` are not sent.
    pub(super) fn build(
        &self,
        partitions: &InputPartitions,
        since: Instant,
    ) -> Result<JobParts, StartError> {
        let numbers = 0..partitions.all.len();
        let streams = numbers.map(|number| {
            let stream = self.own_stream(partitions, number)?;
            Ok(PartitionStream::Hub(Box::new(stream)))
        });
        let streams = streams.collect::<Result<Vec<PartitionStream>, StartError>>()?;
        Ok(self.combine(streams, partitions, since))
    }

    /// The parts of a job whose streams come from an exchange.
    pub(super) fn build_exchanged(&self, exchange: &CombinerStart, since: Instant) -> JobParts {
        let items = self.physical.item_reader();
        let partitions = &exchange.partitions;
        let streams = partitions.all.iter().zip(&exchange.starts).enumerate();
        let streams = streams.map(|(number, (partition, start))| {
            let id = StreamIdentity {
                number,
                input: partition.input,
                partition: partition.number,
                place: partition.place.clone(),
                tables: exchange.tables.version(),
            };
            let meter = self.state_limit.meter();
            let stream = ExchangeReader::new(id, items.clone(), *start, meter);
            PartitionStream::Exchange(Box::new(stream))
        });
        self.combine(streams.collect(), partitions, since)
    }

    /// A stream alone.
    pub(super) fn own_stream(
        &self,
        partitions: &InputPartitions,
        number: usize,
    ) -> Result<HubStream, StartError> {
        let query = Arc::new(QueryText::of(self.job));
        let late_events = self.job.file.live.late.is_some();
        self.stream(number, &partitions.all[number], &query, late_events)
    }

    /// The names of the outputs.
    pub(super) fn output_names(&self) -> Vec<String> {
        let layout = OutputLayout::new(self.job);
        layout
            .schemas
            .into_iter()
            .map(|schema| schema.name)
            .collect()
    }

    /// The streams with the combiner and the outputs.
    fn combine(
        &self,
        mut streams: Vec<PartitionStream>,
        partitions: &InputPartitions,
        since: Instant,
    ) -> JobParts {
        let query = Arc::new(QueryText::of(self.job));
        let layout = OutputLayout::new(self.job);
        let mut shared = self.physical.shared(&partitions.per_input);
        let steps = self.status.telemetry.steps.clone();
        shared.pipeline.count_into(steps);
        let output_max = self.state_limit.output_bytes_max();
        shared.pipeline.limit_output(output_max);
        if layout.dead_letters.is_some() {
            shared.pipeline.errors.collect_all();
        }
        let (routing, outputs) = self.route(layout, since, streams.len());
        let locations = partitions.all.iter();
        let locations = locations.map(|partition| location(self.job, partition));
        let (events, event_receiver) = mpsc::unbounded_channel();
        let mut combiner = Combiner::new(shared, routing, locations.collect(), query);
        if let Some(early) = &self.job.early {
            let copies = PipelineCopies::new(early, self.physical);
            let inputs = streams.iter().map(PartitionStream::input);
            combiner = combiner.with_early_results(&copies, &partitions.per_input, inputs);
            let stopping = streams.iter_mut();
            stopping
                .filter(|stream| early.inputs[stream.input()])
                .for_each(|stream| stream.stop_at_barriers(&copies));
        }
        JobParts {
            combiner: CombinerThread {
                combiner,
                permits: ReadPermits::new(streams.len()),
                workers: Vec::new(),
                events,
                status: self.status.clone(),
                timer: self.clock.clone(),
                errors_told: 0,
                logged_errors: 0,
                meter: self.state_limit.meter(),
                has_told_end: false,
            },
            streams,
            events: event_receiver,
            outputs,
        }
    }

    fn route(
        &self,
        layout: OutputLayout,
        since: Instant,
        streams: usize,
    ) -> (OutputRouting, Vec<PendingOutput>) {
        let plan = &self.job.plan;
        let side_output = |output, failed| SideOutput::in_time_order(output, streams, failed);
        let mut routing = OutputRouting {
            outputs: Vec::new(),
            statements: vec![StatementPort::default(); plan.outputs.len()],
            dead_letters: layout.dead_letters.map(|output| side_output(output, true)),
            late_events: layout.late_events.map(|output| side_output(output, false)),
        };
        let mut pending = Vec::new();
        for (output, schema) in layout.schemas.into_iter().enumerate() {
            for (port, statement) in schema.statements.iter().enumerate() {
                routing.statements[*statement] = StatementPort { output, port };
            }
            let statements = schema.statements.iter();
            let forms = statements.map(|statement| schema.form(self.job, *statement));
            let (to, inbox) = mpsc::channel(WAITING_MAX);
            let queue = OutputQueue {
                index: output,
                to,
                status: self.status.clone(),
            };
            let mut merge = OutputMerge::new(forms.collect(), since, Box::new(queue));
            if let Some(early) = &self.job.early {
                merge = merge.with_revisions(early, &schema.statements);
            }
            routing.outputs.push(merge);
            pending.push(PendingOutput {
                name: schema.name,
                columns: schema.columns,
                inbox,
            });
        }
        (routing, pending)
    }

    fn stream(
        &self,
        number: usize,
        partition: &InputPartition,
        query: &Arc<QueryText>,
        late_events: bool,
    ) -> Result<HubStream, StartError> {
        let (mut input, _) = InputPlan::of(self.job, partition.input);
        input.keeps_whole = input.dead_letters || late_events;
        let (format, name) = (input.format.clone(), input.plan.name.clone());
        let (is_hub, folder) = (input.hub, input.folder.clone());
        let dead_letters = input.dead_letters;
        let (assigner, fields) = TimestampAssigner::new(input, false);
        let options = format.options(fields, dead_letters);
        let decoder = match is_hub {
            true => {
                let values = ValueDecoder::new(options).ok_or(StartError::Format(name))?;
                BatchDecoder::new(values, assigner.properties())
            }
            false => BatchDecoder::of_files(options, folder),
        };
        let plan = StreamPlan {
            number,
            location: location(self.job, partition),
            name: partition.place.to_string(),
            partitions: vec![PartitionId {
                number: partition.number,
                shown: Value::Int(partition.number as i64),
            }],
            trace: false,
            late_events,
            query: query.clone(),
        };
        let mut stream = Stream::new(plan, assigner, self.physical);
        let telemetry = &self.status.telemetry;
        let sampler = telemetry.sampler(partition.input, partition.number);
        stream.observe(sampler, telemetry.errors.clone());
        let pipeline = &mut stream.partition_mut().pipeline;
        pipeline.count_into(telemetry.steps.clone());
        pipeline.limit_output(self.state_limit.output_bytes_max());
        let meter = self.state_limit.meter();
        Ok(HubStream::new(
            partition.place.clone(),
            decoder,
            stream,
            meter,
        ))
    }
}

fn location(job: &Job, partition: &InputPartition) -> StreamLocation {
    StreamLocation::Hub {
        input: job.plan.inputs[partition.input].name.clone(),
        place: partition.place.clone(),
    }
}

impl JobParts {
    /// Restores the state of a checkpoint.
    pub(super) fn restore(&mut self, saved: &Checkpoint) -> Result<(), DecodeError> {
        if saved.streams.len() != self.streams.len() || saved.outputs.len() != self.outputs.len() {
            return Err(DecodeError::Invalid("it has other streams or outputs"));
        }
        for (stream, (_, state)) in self.streams.iter_mut().zip(&saved.streams) {
            stream.restore(&mut Reader::new(state))?;
        }
        self.combiner.restore(&mut Reader::new(&saved.shared))
    }

    /// Adds new partitions from their first event on. They start at the minimum watermark of their input, because rows
    /// up to that time are sent. `false` if the query does not allow new partitions.
    pub(super) fn grow(
        &mut self,
        builder: &JobBuilder<'_>,
        partitions: &mut InputPartitions,
        new: &[InputPartition],
    ) -> Result<bool, StartError> {
        let query = Arc::new(QueryText::of(builder.job));
        let late_events = self.combiner.combiner.routing.late_events.is_some();
        for partition in new {
            let input = partition.input;
            let peers = self.streams.iter().filter(|peer| peer.input() == input);
            let passed = peers.map(PartitionStream::watermark).min();
            let passed = passed.unwrap_or(Instant::BEFORE_ALL);
            let location = location(builder.job, partition);
            if !self.combiner.add_stream(input, location, passed) {
                return Ok(false);
            }
            let number = partitions.all.len();
            let added = partitions.add(partition.clone());
            let mut stream = builder.stream(number, added, &query, late_events)?;
            let early = builder.job.early.as_ref();
            if let Some(early) = early.filter(|early| early.inputs[input]) {
                stream.stop_at_barriers(&PipelineCopies::new(early, builder.physical));
            }
            stream.begin(partition.partition.bounds().start);
            if passed > Instant::BEFORE_ALL {
                stream.begin_behind(passed);
            }
            self.streams.push(PartitionStream::Hub(Box::new(stream)));
        }
        Ok(true)
    }

    /// Lists inputs and outputs in the status and continues its counts.
    pub(super) fn show(&mut self, job: &Job, partitions: &InputPartitions, status: &StatusHandle) {
        let inputs = job.plan.inputs.iter().enumerate().map(|(index, input)| {
            let own = partitions.all.iter().filter(|other| other.input == index);
            InputStatus {
                name: input.name.clone(),
                partitions: own
                    .map(|partition| PartitionStatus::new(partition.place.clone()))
                    .collect(),
            }
        });
        let outputs = self.outputs.iter().map(|output| OutputStatus {
            name: output.name.clone(),
            ..OutputStatus::default()
        });
        let streams = partitions.all.iter();
        let streams = streams.map(|partition| (partition.input, partition.number));
        status.set_layout(inputs.collect(), outputs.collect(), streams.collect());
        for stream in &mut self.streams {
            stream.restore_counters(status.counts(stream.number()));
        }
    }

    /// The encoded state of streams and combiner.
    pub(super) fn encoded(&self) -> (Vec<(Offset, Vec<u8>)>, Vec<u8>) {
        let streams = self
            .streams
            .iter()
            .map(|stream| stream.snapshot().encoded());
        let mut shared = Vec::new();
        self.combiner.snapshot(&mut shared);
        (streams.collect(), shared)
    }

    pub(super) fn begin(&mut self, positions: &[Offset]) {
        let streams = self.streams.iter_mut().zip(positions);
        streams.for_each(|(stream, position)| stream.begin(*position));
    }
}
