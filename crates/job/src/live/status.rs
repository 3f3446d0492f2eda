//! The status of a live job.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_engine::PhysicalPlan;
use highwater_env::Clock;
use highwater_log::{Offset, TopicPartition};
use highwater_time::{Instant, VerdictCounts};

use super::instances::is_shared;
use super::telemetry::Telemetry;
use crate::load::Job;

/// How many log lines the status holds.
const LOG_LINES_MAX: usize = 200;

/// A job at one moment.
#[derive(Clone, Debug)]
pub struct JobStatus {
    pub name: String,
    pub state: JobState,
    /// Problems that do not stop the job, such as an output that does not answer.
    pub alarms: Vec<String>,
    pub inputs: Vec<InputStatus>,
    pub outputs: Vec<OutputStatus>,
    /// The minimum watermark over all partitions.
    pub watermark: Instant,
    /// The wall clock less the largest watermark of a partition.
    pub watermark_delay: Option<Duration>,
    /// Rows that the shared part of the query failed on.
    pub runtime_errors: u64,
    pub checkpoint: CheckpointStatus,
    /// What this instance runs, if several may share the job.
    pub share: Option<JobShare>,
    /// The latest lines, oldest first.
    pub log: Vec<LogLine>,
}

/// The part of a shared job that one instance runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobShare {
    /// Partitions of the inputs.
    pub streams: usize,
    pub combiners: usize,
}

impl JobStatus {
    /// How many partitions of the inputs this instance reads.
    pub fn partitions_here(&self) -> usize {
        let all = || self.partitions().count();
        self.share.map_or_else(all, |share| share.streams)
    }

    /// How many events this instance has not read yet.
    pub fn backlog(&self) -> u64 {
        self.partitions().map(|partition| partition.backlog).sum()
    }

    fn partitions(&self) -> impl Iterator<Item = &PartitionStatus> {
        self.inputs.iter().flat_map(|input| &input.partitions)
    }

    fn watermark_delay_at(&self, now: Instant) -> Option<Duration> {
        let largest = self.partitions().map(|partition| partition.watermark).max();
        let known = largest.filter(|time| time.is_in_calendar());
        known.map(|largest| {
            let nanos = now.to_unix_nanos() - largest.to_unix_nanos();
            Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It determines where to begin.
    Starting,
    /// It processes the events that lay in its hubs when it started.
    Replaying {
        events: u64,
        of: u64,
    },
    Running,
    /// It takes its last checkpoint.
    Stopping,
    Stopped,
    /// It has reached its configured end.
    Finished,
    Failed {
        reason: String,
    },
}

impl JobState {
    pub fn is_over(&self) -> bool {
        matches!(
            self,
            JobState::Stopped | JobState::Finished | JobState::Failed { .. }
        )
    }
}

#[derive(Clone, Debug, Default)]
pub struct InputStatus {
    pub name: String,
    pub partitions: Vec<PartitionStatus>,
}

/// Counts since the job was started, except for `time`, which is since its first start.
#[derive(Clone, Debug)]
pub struct PartitionStatus {
    pub place: TopicPartition,
    pub events: u64,
    pub bytes: u64,
    /// Verdicts of the time policies.
    pub time: VerdictCounts,
    pub deserialization_errors: u64,
    pub conversion_errors: u64,
    /// Rows that the query failed on before the combiner.
    pub runtime_errors: u64,
    /// The latest event that was lost, and why.
    pub last_error: Option<String>,
    /// The offset that is read next.
    pub next: Offset,
    /// How many offsets lie between `next` and the end.
    pub backlog: u64,
    pub watermark: Instant,
    /// Events that wait for their time.
    pub waiting: u64,
}

#[derive(Clone, Debug, Default)]
pub struct OutputStatus {
    pub name: String,
    /// The number that the next row will have.
    pub next: u64,
    /// Rows sent to it since the job was started.
    pub rows: u64,
    /// Rows that it has not accepted yet.
    pub waiting: u64,
    pub dropped: u64,
    pub retries: u64,
    /// Why it accepts no rows at the moment.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct CheckpointStatus {
    /// The number of the last stored one.
    pub number: u64,
    pub at: Option<Instant>,
    /// The size of the state at that time.
    pub bytes: u64,
    /// For how long it held up the job.
    pub pause: Duration,
    /// Why the last one could not be stored or used. Cleared by the next one.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub time: Instant,
    pub text: String,
}

/// The figures of a job that are charted, summed over its partitions and outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobFigures {
    pub events: u64,
    pub rows: u64,
    /// Events that a policy adjusted or dropped.
    pub moved: u64,
    pub backlog: u64,
    pub watermark_delay: Option<Duration>,
    /// At the last checkpoint.
    pub state_bytes: u64,
}

impl PartitionStatus {
    pub(super) fn new(place: TopicPartition) -> PartitionStatus {
        PartitionStatus {
            place,
            events: 0,
            bytes: 0,
            time: VerdictCounts::default(),
            deserialization_errors: 0,
            conversion_errors: 0,
            runtime_errors: 0,
            last_error: None,
            next: Offset(0),
            backlog: 0,
            watermark: Instant::BEFORE_ALL,
            waiting: 0,
        }
    }
}

/// The status of a job, which all of its parts update.
#[derive(Clone)]
pub(super) struct StatusHandle {
    clock: Arc<dyn Clock>,
    pub telemetry: Telemetry,
    inner: Arc<Mutex<Inner>>,
    /// Others tell of the partitions.
    is_of_outputs: bool,
}

struct Inner {
    status: JobStatus,
    /// The plan with the reference data in use, if there is any.
    physical: Option<PhysicalPlan>,
    /// Per stream, its input and its index among the partitions of that input.
    streams: Vec<(usize, usize)>,
    /// Problems, by the part of the job that reports them.
    alarms: BTreeMap<String, String>,
    /// Per stream, its start offset and the end of its partition at the start.
    targets: Vec<(Offset, Offset)>,
    log: VecDeque<LogLine>,
}

impl StatusHandle {
    pub(super) fn new(job: &Job, clock: Arc<dyn Clock>) -> StatusHandle {
        let status = JobStatus {
            name: job.file.name.clone(),
            state: JobState::Starting,
            alarms: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            watermark: Instant::BEFORE_ALL,
            watermark_delay: None,
            runtime_errors: 0,
            checkpoint: CheckpointStatus::default(),
            share: is_shared(job).then(JobShare::default),
            log: Vec::new(),
        };
        StatusHandle {
            clock,
            telemetry: Telemetry::new(job),
            inner: Arc::new(Mutex::new(Inner {
                status,
                physical: None,
                streams: Vec::new(),
                targets: Vec::new(),
                alarms: BTreeMap::new(),
                log: VecDeque::new(),
            })),
            is_of_outputs: false,
        }
    }

    /// The status for a part of the job that has the outputs alone.
    pub(super) fn of_outputs(&self) -> StatusHandle {
        StatusHandle {
            is_of_outputs: true,
            ..self.clone()
        }
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_unix_nanos(self.clock.unix_nanos())
    }

    /// Sets inputs and outputs, and per stream its input and its index among the partitions of that. Known ones keep
    /// their counts.
    pub(super) fn set_layout(
        &self,
        mut inputs: Vec<InputStatus>,
        mut outputs: Vec<OutputStatus>,
        streams: Vec<(usize, usize)>,
    ) {
        let mut inner = self.lock();
        for input in &mut inputs {
            let mut before = inner.status.inputs.iter();
            let before = before.find(|before| before.name == input.name);
            for partition in &mut input.partitions {
                let mut known = before.iter().flat_map(|before| &before.partitions);
                if let Some(known) = known.find(|known| known.place == partition.place) {
                    *partition = known.clone();
                }
            }
        }
        for output in &mut outputs {
            let mut before = inner.status.outputs.iter();
            if let Some(before) = before.find(|before| before.name == output.name) {
                *output = OutputStatus {
                    waiting: 0,
                    ..before.clone()
                };
            }
        }
        inner.streams = streams;
        (inner.status.inputs, inner.status.outputs) = (inputs, outputs);
    }

    /// The counts of a stream.
    pub(super) fn counts(&self, stream: usize) -> PartitionStatus {
        let inner = self.lock();
        let (input, partition) = inner.streams[stream];
        inner.status.inputs[input].partitions[partition].clone()
    }

    /// Sets the start of each stream and the offset at which its replay ends.
    pub(super) fn replay_to(&self, targets: Vec<(Offset, Offset)>) {
        if !self.is_of_outputs {
            self.lock().targets = targets;
        }
    }

    /// Ends the replay of a stream at `end`, if that is earlier.
    pub(super) fn replay_only_to(&self, stream: usize, end: Offset) {
        if let Some((_, target)) = self.lock().targets.get_mut(stream) {
            *target = end.min(*target);
        }
    }

    pub(super) fn log(&self, text: impl Into<String>) {
        let line = LogLine {
            time: self.now(),
            text: text.into(),
        };
        let mut inner = self.lock();
        if inner.log.len() == LOG_LINES_MAX {
            inner.log.pop_front();
        }
        inner.log.push_back(line);
    }

    /// Sets or clears the problem of a part of the job. A new problem is logged as well.
    pub(super) fn set_alarm(&self, who: &str, what: Option<String>) {
        let mut inner = self.lock();
        let before = match &what {
            Some(what) => inner.alarms.insert(who.to_owned(), what.clone()),
            None => inner.alarms.remove(who),
        };
        drop(inner);
        if let Some(what) = what.filter(|what| before.as_ref() != Some(what)) {
            self.log(what);
        }
    }

    pub(super) fn update(&self, how: impl FnOnce(&mut JobStatus)) {
        how(&mut self.lock().status);
    }

    pub(super) fn set_state(&self, state: JobState) {
        self.update(|status| status.state = state);
    }

    pub(super) fn update_partition(&self, stream: usize, how: impl FnOnce(&mut PartitionStatus)) {
        if self.is_of_outputs {
            return;
        }
        let mut inner = self.lock();
        let (input, partition) = inner.streams[stream];
        how(&mut inner.status.inputs[input].partitions[partition]);
    }

    pub(super) fn update_output(&self, output: usize, how: impl FnOnce(&mut OutputStatus)) {
        how(&mut self.lock().status.outputs[output]);
    }

    /// Sets the plan with the reference data in use.
    pub(super) fn set_physical(&self, physical: Option<PhysicalPlan>) {
        self.lock().physical = physical;
    }

    pub(super) fn physical(&self) -> Option<PhysicalPlan> {
        self.lock().physical.clone()
    }

    /// The hub and partition of an input's partition.
    pub(super) fn place(&self, input: usize, partition: usize) -> Option<TopicPartition> {
        let inner = self.lock();
        let partitions = &inner.status.inputs.get(input)?.partitions;
        Some(partitions.get(partition)?.place.clone())
    }

    pub(super) fn figures(&self) -> JobFigures {
        let now = self.now();
        let inner = self.lock();
        let status = &inner.status;
        let mut figures = JobFigures {
            rows: status.outputs.iter().map(|output| output.rows).sum(),
            state_bytes: status.checkpoint.bytes,
            watermark_delay: status.watermark_delay_at(now),
            ..JobFigures::default()
        };
        for partition in status.partitions() {
            figures.events += partition.events;
            figures.backlog += partition.backlog;
            let time = &partition.time;
            figures.moved += time.early() + time.late() + time.out_of_order();
        }
        figures
    }

    /// The job at this moment.
    pub(super) fn current(&self) -> JobStatus {
        let inner = self.lock();
        let mut status = inner.status.clone();
        status.log = inner.log.iter().cloned().collect();
        status.alarms = inner.alarms.values().cloned().collect();
        if let (JobState::Running, Some((events, of))) = (&status.state, inner.replayed()) {
            status.state = JobState::Replaying { events, of };
        }
        drop(inner);
        status.watermark_delay = status.watermark_delay_at(self.now());
        let outputs = status.outputs.iter().filter_map(|output| {
            let problem = output.problem.as_ref()?;
            Some(format!("output \"{}\": {problem}", output.name))
        });
        let saving = status.checkpoint.problem.iter();
        let saving = saving.map(|problem| format!("checkpoint: {problem}"));
        status.alarms = outputs.chain(saving).chain(status.alarms.clone()).collect();
        status
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// How many of the events that lay in the partitions at the start have been read; `None` if all.
    fn replayed(&self) -> Option<(u64, u64)> {
        let (mut read, mut of) = (0, 0);
        for ((from, to), (input, partition)) in self.targets.iter().zip(&self.streams) {
            let next = self.status.inputs[*input].partitions[*partition].next;
            read += (next.0.min(to.0) - from.0).max(0) as u64;
            of += (to.0 - from.0).max(0) as u64;
        }
        (read < of).then_some((read, of))
    }
}
