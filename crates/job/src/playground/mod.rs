//! Runs a query over a few given events in memory: its rows, and the fate of each event.
//!
//! Events run through the live job's code: they have arrival times and partitions, and are ordered, judged and
//! processed; then time ends. Nothing is read and nothing is stored. Query and events are untrusted, so a [`WorkLimit`]
//! bounds the run and the caller bounds its input.

mod collect;
mod row_sources;
#[cfg(test)]
mod tests;

pub use row_sources::RowSources;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use highwater_connect::{Format, Level, ValueDecoder};
use highwater_engine::{DataErrors, PhysicalPlan, Value, WorkLimit};
use highwater_query::plan::{Node, Window};
use highwater_query::{Diagnostic, TextPosition};
use highwater_time::{Instant, JudgedEvent, TimePolicy};

use crate::combiner::{Combiner, OutputRouting};
use crate::config::{Input, JobFile, Live, OnError, QuerySource};
use crate::event_trace::{EventTrace, origin_file, origin_line};
use crate::load::{Job, LoadError};
use crate::plan::{InputPlan, PartitionId};
use crate::reference;
use crate::side_row::{QueryText, StreamLocation};
use crate::stream::{EventBlock, Stream, StreamPlan};
use crate::timestamp_assigner::TimestampAssigner;
use collect::{collect_rows, collect_sources, lock};
use row_sources::NumberedPlan;

/// How many events are processed between two checks of the limit.
const BLOCK_EVENTS: usize = 32;

/// How many windows of an event are returned, the earliest first.
const WINDOWS_MAX: usize = 100;

/// How many failed rows are returned.
const ERRORS_MAX: usize = 50;

/// How many hopping windows an event may be in.
const OVERLAP_MAX: i64 = 1_000;

/// The limit on memberships of events in windows, if row sources are requested.
const SOURCE_ENTRIES_MAX: usize = 100_000;

/// The most events of a query with a pattern, if row sources are requested: each may begin a match that lists all that
/// follow.
const PATTERN_EVENTS_MAX: usize = 1_000;

/// A query and its events.
#[derive(Clone, Debug)]
pub struct Playground {
    pub query: String,
    pub time: TimePolicy,
    pub inputs: Vec<PlaygroundInput>,
}

#[derive(Clone, Debug)]
pub struct PlaygroundInput {
    pub name: String,
    /// A table without times; partitions and arrivals of its events do not count.
    pub is_reference: bool,
    /// In order of arrival.
    pub events: Vec<PlaygroundEvent>,
}

#[derive(Clone, Debug)]
pub struct PlaygroundEvent {
    /// JSON.
    pub value: Vec<u8>,
    /// Never decreases within a partition.
    pub arrival: Instant,
    pub partition: usize,
}

/// The result of a query.
#[derive(Debug, Default)]
pub struct PlaygroundResult {
    /// Errors of the query, or warnings of one that ran.
    pub diagnostics: Vec<Diagnostic>,
    /// Why a query without errors gave nothing.
    pub problem: Option<String>,
    /// `None` for a query with errors.
    pub job: Option<Job>,
    /// Per input of the plan, how many partitions and events it has.
    pub inputs: Vec<InputSize>,
    pub outputs: Vec<PlaygroundOutput>,
    /// In the order of inputs and events.
    pub fates: Vec<EventFate>,
    pub failed_rows: Vec<FailedRowReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputSize {
    pub partitions: usize,
    pub events: usize,
}

#[derive(Clone, Debug, Default)]
pub struct PlaygroundOutput {
    pub name: String,
    /// All rows.
    pub count: u64,
    /// The first rows, as JSON objects.
    pub rows: Vec<String>,
    /// The events of each row, in the order of `rows`; empty if they are unknown.
    pub sources: Vec<Option<RowSources>>,
}

/// The verdict and windows of one event.
#[derive(Clone, Debug)]
pub struct EventFate {
    /// Its input in the plan.
    pub input: usize,
    /// Its index among the events of the input.
    pub event: usize,
    pub partition: usize,
    pub substream: Option<String>,
    pub outcome: EventOutcome,
    /// The windows (start, end] that it entered.
    pub windows: Vec<(Instant, Instant)>,
}

#[derive(Clone, Debug)]
pub enum EventOutcome {
    Judged(JudgedEvent),
    /// It got no time, for this reason.
    Lost(String),
}

/// A row that an expression failed on.
#[derive(Clone, Debug)]
pub struct FailedRowReport {
    /// Its event, if it is of one: input and index.
    pub event: Option<(usize, usize)>,
    pub reason: String,
    /// The expression.
    pub position: TextPosition,
}

/// The streams of a run, and the event of each input that a stream's lines are.
struct PlaygroundStream {
    stream: Stream,
    decoder: ValueDecoder,
    input: usize,
    partition: usize,
    /// Indexes among the events of the input.
    events: Vec<usize>,
}

/// Runs the query over the events.
pub fn run_playground(playground: &Playground, limit: &Arc<WorkLimit>) -> PlaygroundResult {
    let job = match Job::new(job_file(playground)) {
        Ok(job) => job,
        Err(LoadError::Query { diagnostics, .. }) => {
            return PlaygroundResult {
                diagnostics,
                ..PlaygroundResult::default()
            };
        }
        Err(error) => {
            return PlaygroundResult {
                problem: Some(error.to_string()),
                ..PlaygroundResult::default()
            };
        }
    };
    let mut result = PlaygroundResult {
        diagnostics: job.warnings.clone(),
        ..PlaygroundResult::default()
    };
    let run = PlaygroundRun::new(&job, playground, limit);
    if let Err(problem) = run.collect(&mut result) {
        result.problem = Some(problem);
    }
    if limit.is_reached() {
        (result.outputs, result.fates) = (Vec::new(), Vec::new());
        result.failed_rows.clear();
        result.problem = Some(match limit.is_over_bytes() {
            true => "the query makes too many or too large rows for the playground".to_owned(),
            false => "the query takes too long for the playground".to_owned(),
        });
    }
    if result.problem.is_none() {
        run.find_sources(&mut result);
    }
    result.job = Some(job);
    result
}

fn job_file(playground: &Playground) -> JobFile {
    let inputs = playground.inputs.iter().map(|input| Input {
        name: input.name.clone(),
        paths: Vec::new(),
        // Its events have the metadata of a hub.
        hubs: match input.is_reference {
            true => Vec::new(),
            false => vec![input.name.clone()],
        },
        kafka: None,
        arrival: None,
        partition: None,
        reference: input.is_reference,
        refresh: None,
        format: Some(Format::Json),
        compression: Default::default(),
    });
    JobFile {
        name: "playground".to_owned(),
        query: QuerySource::Inline(playground.query.clone()),
        folder: Default::default(),
        compatibility: Level::default(),
        ignore_case: false,
        strict_types: false,
        time: playground.time,
        inputs: inputs.collect(),
        outputs: Vec::new(),
        on_error: OnError::Drop,
        dead_letter: None,
        remarks: Vec::new(),
        functions: Vec::new(),
        live: Live::default(),
        expect: None,
        project: false,
        remote_inputs: Vec::new(),
    }
}

/// A compiled query with its events.
struct PlaygroundRun<'a> {
    job: &'a Job,
    playground: &'a Playground,
    /// Per input of the plan.
    inputs: Vec<&'a PlaygroundInput>,
    limit: &'a Arc<WorkLimit>,
}

/// The streams of a finished run, with its traces.
struct EndedRun {
    streams: Vec<PlaygroundStream>,
    combiner: Combiner,
}

impl<'a> PlaygroundRun<'a> {
    fn new(
        job: &'a Job,
        playground: &'a Playground,
        limit: &'a Arc<WorkLimit>,
    ) -> PlaygroundRun<'a> {
        let planned = job.plan.inputs.iter();
        PlaygroundRun {
            job,
            playground,
            inputs: planned.map(|of| playground.input(&of.name)).collect(),
            limit,
        }
    }

    /// Runs the query and collects rows, fates and failed rows.
    fn collect(&self, result: &mut PlaygroundResult) -> Result<(), String> {
        let job = self.job;
        result.inputs = self.inputs.iter().map(|input| input.size()).collect();
        for (index, size) in result.inputs.iter().enumerate() {
            let checked = job.physical.check_partitions(index, size.partitions > 1);
            checked.map_err(|error| error.to_string())?;
        }
        if job
            .plan
            .nodes
            .iter()
            .any(|node| overlap(node) > OVERLAP_MAX)
        {
            return Err(format!(
                "an event is in more than {OVERLAP_MAX} windows: choose a longer hop for the playground"
            ));
        }
        let (routing, collected) = collect_rows(job, self.limit);
        let EndedRun { streams, combiner } = self.run(job, routing, true)?;
        let mut pipeline = combiner.shared.pipeline;
        let mut errors = std::mem::take(&mut pipeline.errors);
        let mut trace = EventTrace {
            windows: pipeline.take_trace(),
            ..EventTrace::default()
        };
        let places: Vec<(usize, usize)> =
            streams.iter().map(|of| (of.input, of.partition)).collect();
        for of in streams {
            let finished = of.stream.finish();
            errors.merge(finished.errors);
            if let Some(of_stream) = finished.trace {
                trace.merge(of_stream);
            }
        }
        result.fates = fates(&trace, &places);
        result.failed_rows = failed_rows(job, &errors, &places);
        result.outputs = std::mem::take(&mut *lock(&collected));
        Ok(())
    }

    /// Runs the query again to find the events of each row. They stay unknown if that takes too long or too much
    /// memory.
    fn find_sources(&self, result: &mut PlaygroundResult) {
        let nodes = self.job.plan.nodes.iter();
        let overlaps: i64 = nodes.map(overlap).sum();
        let events: usize = self.inputs.iter().map(|input| input.events.len()).sum();
        let mut nodes = self.job.plan.nodes.iter();
        let has_pattern = nodes.any(|node| matches!(node, Node::Match(_)));
        if events.saturating_mul(overlaps as usize) > SOURCE_ENTRIES_MAX
            || has_pattern && events > PATTERN_EVENTS_MAX
        {
            return;
        }
        let mut first = Vec::with_capacity(self.inputs.len());
        let mut next = 0;
        for input in &self.inputs {
            first.push(next);
            next += input.events.len();
        }
        let numbered = NumberedPlan::new(&self.job.plan, &first);
        let Ok(job) = self.job.with_plan(numbered.plan) else {
            return;
        };
        let (routing, collected) = collect_sources(&job, &numbered.columns, first, self.limit);
        let ran = self.run(&job, routing, false).is_ok();
        let collected = std::mem::take(&mut *lock(&collected));
        if !ran || self.limit.is_reached() {
            return;
        }
        for (output, sources) in result.outputs.iter_mut().zip(collected) {
            // Both runs give the same rows; this one may keep more of them, because it does not write them.
            if sources.len() >= output.rows.len() {
                output.sources = sources;
                output.sources.truncate(output.rows.len());
            }
        }
    }

    /// Processes all events to the end of time.
    fn run(&self, job: &Job, routing: OutputRouting, trace: bool) -> Result<EndedRun, String> {
        let physical = physical_plan(job, self.playground)?;
        let query = Arc::new(QueryText::of(job));
        let mut streams = self.open_streams(job, &physical, &query, trace)?;
        let partitions = self.inputs.iter().map(|input| input.size().partitions);
        let mut shared = physical.shared(&partitions.collect::<Vec<usize>>());
        if trace {
            shared.pipeline.trace_windows();
        }
        shared.pipeline.limit_work(self.limit.clone());
        let locations = streams
            .iter()
            .map(|of| of.stream.account.location().clone());
        let mut combiner = Combiner::new(shared, routing, locations.collect(), query);
        for of in &mut streams {
            of.run(&self.inputs, &mut combiner, self.limit)?;
        }
        Ok(EndedRun { streams, combiner })
    }

    fn open_streams(
        &self,
        job: &Job,
        physical: &PhysicalPlan,
        query: &Arc<QueryText>,
        trace: bool,
    ) -> Result<Vec<PlaygroundStream>, String> {
        let mut streams: Vec<PlaygroundStream> = Vec::new();
        for (index, input) in self.inputs.iter().enumerate() {
            for partition in 0..input.size().partitions {
                let (plan, _) = InputPlan::of(job, index);
                let format = plan.format.clone();
                let (assigner, fields) = TimestampAssigner::new(plan, trace);
                let decoder = ValueDecoder::new(format.options(fields, false));
                let plan = StreamPlan {
                    number: streams.len(),
                    location: StreamLocation::File {
                        input: input.name.clone(),
                        file: input.name.clone(),
                    },
                    name: input.name.clone(),
                    partitions: vec![PartitionId {
                        number: partition,
                        shown: Value::Int(partition as i64),
                    }],
                    trace,
                    late_events: false,
                    query: query.clone(),
                };
                let mut stream = Stream::new(plan, assigner, physical);
                let pipeline = &mut stream.partition_mut().pipeline;
                pipeline.limit_work(self.limit.clone());
                let events = input.events.iter().enumerate();
                let events = events.filter(|(_, event)| event.partition == partition);
                streams.push(PlaygroundStream {
                    stream,
                    decoder: decoder.ok_or("the format has no single events")?,
                    input: index,
                    partition,
                    events: events.map(|(event, _)| event).collect(),
                });
            }
        }
        Ok(streams)
    }
}

/// How many windows of a node an event is in.
fn overlap(node: &Node) -> i64 {
    match node {
        Node::Window(window) => match window.window {
            Window::Hopping { size, hop, .. } => size.ticks() / hop.ticks(),
            _ => 1,
        },
        _ => 0,
    }
}

impl Playground {
    /// The query is bound against these inputs.
    fn input(&self, name: &str) -> &PlaygroundInput {
        let mut inputs = self.inputs.iter();
        let exact = inputs.find(|input| input.name == name);
        let alike = || {
            let mut inputs = self.inputs.iter();
            inputs.find(|input| input.name.eq_ignore_ascii_case(name))
        };
        match exact.or_else(alike) {
            Some(input) => input,
            None => unreachable!("the query was bound against the inputs of the playground"),
        }
    }
}

impl PlaygroundInput {
    fn size(&self) -> InputSize {
        let most = self.events.iter().map(|event| event.partition + 1).max();
        InputSize {
            partitions: most.unwrap_or(1),
            events: self.events.len(),
        }
    }
}

fn physical_plan(job: &Job, playground: &Playground) -> Result<PhysicalPlan, String> {
    let references = job.plan.references.iter().map(|planned| {
        let values = playground.input(&planned.name).events.iter();
        let table = reference::table_of_values(planned, values.map(|event| &event.value[..]))?;
        Ok(Arc::new(table))
    });
    let tables = references.collect::<Result<Vec<_>, String>>()?;
    let physical = match tables.is_empty() {
        true => PhysicalPlan::new(job.plan.clone()),
        false => PhysicalPlan::with_references(job.plan.clone(), &tables),
    };
    let physical = physical.map_err(|error| error.to_string())?;
    Ok(physical.with_scripts(job.scripts.clone()))
}

impl PlaygroundStream {
    /// Processes all events of the stream and ends its time.
    fn run(
        &mut self,
        inputs: &[&PlaygroundInput],
        combiner: &mut Combiner,
        limit: &WorkLimit,
    ) -> Result<(), String> {
        let given = &inputs[self.input].events;
        for block in self.events.chunks(BLOCK_EVENTS) {
            if limit.is_reached() {
                return Ok(());
            }
            for &event in block {
                self.decoder.push(&given[event].value, event as u64);
            }
            let events = self.decoder.finish();
            let arrival = |line: &u64| given[*line as usize].arrival;
            let block = EventBlock {
                arrivals: Some(events.lines.iter().map(arrival).collect()),
                bad_arrivals: events.bad.iter().map(|bad| arrival(&bad.line)).collect(),
                events,
                file: None,
                modified: Instant::BEFORE_ALL,
            };
            let mut output = self.stream.new_output();
            self.stream.push(block, &mut output);
            self.stream.complete(&mut output);
            combiner
                .combine(output)
                .map_err(|error| error.to_string())?;
        }
        let mut output = self.stream.new_output();
        self.stream.end(&mut output);
        self.stream.complete(&mut output);
        combiner.combine(output).map_err(|error| error.to_string())
    }
}

fn fates(trace: &EventTrace, streams: &[(usize, usize)]) -> Vec<EventFate> {
    let mut windows: HashMap<u64, BTreeSet<(Instant, Instant)>> = HashMap::new();
    for entry in &trace.windows {
        let of_event = windows.entry(entry.origin).or_default();
        of_event.insert((entry.start, entry.end));
    }
    let fate = |origin: u64, substream, outcome| {
        let (input, partition) = streams[origin_file(origin)];
        let windows = windows.get(&origin).into_iter().flatten();
        EventFate {
            input,
            event: origin_line(origin) as usize,
            partition,
            substream,
            outcome,
            windows: windows.take(WINDOWS_MAX).copied().collect(),
        }
    };
    let judged = trace.events.iter().map(|event| {
        let outcome = EventOutcome::Judged(event.judged);
        fate(event.origin, event.key.clone(), outcome)
    });
    let lost = trace.lost.iter().map(|lost| {
        let reason = format!("{}: {}", lost.kind.name(), lost.reason);
        fate(lost.origin, None, EventOutcome::Lost(reason))
    });
    let mut fates: Vec<EventFate> = judged.chain(lost).collect();
    fates.sort_by_key(|fate| (fate.input, fate.event));
    fates
}

fn failed_rows(job: &Job, errors: &DataErrors, streams: &[(usize, usize)]) -> Vec<FailedRowReport> {
    let samples = errors.samples.iter().take(ERRORS_MAX);
    let reports = samples.map(|error| FailedRowReport {
        event: error
            .origin
            .map(|origin| (streams[origin_file(origin)].0, origin_line(origin) as usize)),
        reason: error.reason.clone(),
        position: TextPosition::of(&job.query, error.span),
    });
    reports.collect()
}
