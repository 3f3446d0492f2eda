//! The thread of the combiner: receives stream outputs from workers and takes snapshots.
//!
//! A snapshot is aligned by a barrier: every worker copies its streams, and its later output is held back until all
//! workers have copied theirs. Then the shared state covers exactly the streams' output up to their copies.

use std::sync::Arc;
use std::time::Duration;

use highwater_codec::{DecodeError, Reader};
use highwater_connect::EndpointError;
use highwater_env::Clock;
use highwater_time::Instant;
use tokio::sync::mpsc;

use super::hub_stream::StreamSnapshot;
use super::read_permits::ReadPermits;
use super::state_limit::{BytesInFlight, MeasuredState, StateMeter};
use super::status::{PartitionStatus, StatusHandle};
use super::worker::WorkItem;
use crate::combiner::Combiner;
use crate::early::{EndPreview, RevisionStep};
use crate::error_log::DataErrorSample;
use crate::output_merge::OutputMerge;
use crate::side_row::StreamLocation;
use crate::stream::StreamOutput;

pub(super) enum CombinerMessage {
    Output {
        worker: usize,
        output: Box<StreamOutput>,
        status: Box<PartitionStatus>,
        /// Released when the output has been combined.
        in_flight: BytesInFlight,
        /// The stream has gone on because its barrier was raised, not because of a fetch.
        answers_barrier: bool,
    },
    /// The rows of a stream if the input ended at its barrier.
    Previewed {
        worker: usize,
        preview: EndPreview,
    },
    /// The stream has read all available events.
    Drained {
        worker: usize,
        stream: usize,
    },
    /// The stream has reached its configured end.
    Ended {
        worker: usize,
        stream: usize,
    },
    /// The worker has copied its streams.
    Copied {
        worker: usize,
        copies: Vec<(usize, StreamSnapshot)>,
        /// The duration of the copy.
        took: Duration,
    },
    /// Take the snapshot of this checkpoint.
    Checkpoint(u64),
    /// A stream cannot be read any further.
    Failed(String),
    Stop,
}

impl CombinerMessage {
    fn worker(&self) -> Option<usize> {
        match self {
            CombinerMessage::Output { worker, .. }
            | CombinerMessage::Previewed { worker, .. }
            | CombinerMessage::Drained { worker, .. }
            | CombinerMessage::Ended { worker, .. }
            | CombinerMessage::Copied { worker, .. } => Some(*worker),
            CombinerMessage::Checkpoint(_) | CombinerMessage::Failed(_) | CombinerMessage::Stop => {
                None
            }
        }
    }
}

/// A snapshot of the whole job.
pub(super) struct JobSnapshot {
    pub streams: Vec<StreamSnapshot>,
    pub shared: Vec<u8>,
    /// Per output, the number of the next row.
    pub next: Vec<u64>,
    pub watermark: Instant,
    /// The latest event or arrival time of any stream.
    pub reached: Instant,
    /// How long the snapshot held up the job.
    pub pause: Duration,
}

/// Sent to the task that runs the job.
pub(super) enum CombinerEvent {
    Snapshot(Box<JobSnapshot>),
    /// Every stream has ended.
    Ended,
    Failed(String),
}

pub(super) struct CombinerThread {
    pub combiner: Combiner,
    pub permits: ReadPermits,
    pub workers: Vec<mpsc::UnboundedSender<WorkItem>>,
    pub events: mpsc::UnboundedSender<CombinerEvent>,
    pub status: StatusHandle,
    pub timer: Arc<dyn Clock>,
    /// How many failed rows are in the status.
    pub errors_told: u64,
    /// How many failed rows are in the log of data errors.
    pub logged_errors: usize,
    pub meter: StateMeter,
    /// [`CombinerEvent::Ended`] was sent.
    pub has_told_end: bool,
}

/// A barrier that not all workers have passed.
struct Alignment {
    number: u64,
    copied: Vec<bool>,
    copies: Vec<Option<StreamSnapshot>>,
    /// Messages of workers that have passed the barrier.
    later: Vec<CombinerMessage>,
    /// The longest copy of a worker.
    took: Duration,
}

impl MeasuredState for Combiner {
    fn estimated_bytes(&self) -> u64 {
        self.state_bytes() as u64
    }

    fn encoded_bytes(&self) -> u64 {
        let mut state = Vec::new();
        self.snapshot(&mut state);
        state.len() as u64
    }
}

impl CombinerThread {
    /// Runs until [`CombinerMessage::Stop`] or until an output is closed.
    pub(super) fn run(mut self, mut inbox: mpsc::UnboundedReceiver<CombinerMessage>) {
        let mut alignment: Option<Alignment> = None;
        let mut open = self.combiner.streams();
        if let Some(clock) = self.combiner.revision_clock() {
            // Streams of a checkpoint go on from where they were.
            clock.expect_acknowledgements();
            let barrier = clock.barrier();
            self.send_all(|| WorkItem::RaiseBarrier(barrier));
        }
        while let Some(message) = inbox.blocking_recv() {
            if let Some(waiting) = &mut alignment
                && message
                    .worker()
                    .is_some_and(|worker| waiting.copied[worker])
            {
                waiting.later.push(message);
                continue;
            }
            match self.take(message, &mut alignment, &mut open) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    fn take(
        &mut self,
        message: CombinerMessage,
        alignment: &mut Option<Alignment>,
        open: &mut usize,
    ) -> Result<bool, EndpointError> {
        match message {
            CombinerMessage::Output {
                output,
                status,
                in_flight,
                answers_barrier,
                ..
            } => {
                let (stream, reached) = (output.stream, output.reached);
                self.combine(*output, *status)?;
                drop(in_flight);
                match (answers_barrier, self.combiner.revision_clock()) {
                    (true, Some(clock)) => clock.acknowledge(),
                    _ => self.permits.processed(stream, reached),
                }
                self.pass_barrier(*open)?;
            }
            CombinerMessage::Previewed { preview, .. } => {
                if let Some(clock) = self.combiner.revision_clock() {
                    clock.take_preview(preview);
                }
                self.pass_barrier(*open)?;
            }
            CombinerMessage::Drained { stream, .. } => self.permits.drained(stream),
            CombinerMessage::Ended { stream, .. } => {
                self.permits.drained(stream);
                *open -= 1;
                self.tell_end(*open);
            }
            CombinerMessage::Checkpoint(number) => *alignment = Some(self.raise_barrier(number)),
            CombinerMessage::Copied {
                worker,
                copies,
                took,
            } => {
                let Some(mut waiting) = alignment.take() else {
                    return Ok(true);
                };
                waiting.took = waiting.took.max(took);
                waiting.copied[worker] = true;
                for (stream, copy) in copies {
                    waiting.copies[stream] = Some(copy);
                }
                if waiting.copied.contains(&false) {
                    *alignment = Some(waiting);
                    return Ok(true);
                }
                let later = std::mem::take(&mut waiting.later);
                self.take_snapshot(waiting)?;
                for message in later {
                    if !self.take(message, alignment, open)? {
                        return Ok(false);
                    }
                }
            }
            CombinerMessage::Failed(reason) => self.tell(CombinerEvent::Failed(reason)),
            CombinerMessage::Stop => return Ok(false),
        }
        Ok(true)
    }

    /// Sends the revision that is due, and raises the barrier if all streams have reached it.
    fn pass_barrier(&mut self, open: usize) -> Result<(), EndpointError> {
        let step = self.combiner.revision_step();
        if let Some(reason) = self.combiner.overflow() {
            self.tell(CombinerEvent::Failed(reason));
        }
        match step? {
            RevisionStep::Preview => self.send_all(|| WorkItem::Preview),
            RevisionStep::Raise(barrier) => self.send_all(|| WorkItem::RaiseBarrier(barrier)),
            RevisionStep::Wait | RevisionStep::Revise => self.tell_end(open),
        }
        Ok(())
    }

    fn send_all(&self, work: impl Fn() -> WorkItem) {
        for worker in &self.workers {
            // A worker that panicked has sent `Failed`.
            let _ = worker.send(work());
        }
    }

    /// Reports once that every stream has ended and none continues to a later barrier.
    fn tell_end(&mut self, open: usize) {
        let clock = self.combiner.revision_clock();
        let is_settled = clock.is_none_or(|clock| clock.is_settled());
        if open == 0 && is_settled && !std::mem::replace(&mut self.has_told_end, true) {
            self.tell(CombinerEvent::Ended);
        }
    }

    fn tell(&self, event: CombinerEvent) {
        // The receiver is dropped when the job is killed.
        let _ = self.events.send(event);
    }

    fn raise_barrier(&self, number: u64) -> Alignment {
        self.send_all(|| WorkItem::Copy);
        Alignment {
            number,
            copied: vec![false; self.workers.len()],
            copies: (0..self.combiner.streams()).map(|_| None).collect(),
            later: Vec::new(),
            took: Duration::ZERO,
        }
    }

    fn take_snapshot(&mut self, alignment: Alignment) -> Result<(), EndpointError> {
        let began = self.timer.elapsed();
        let mut shared = Vec::new();
        self.snapshot(&mut shared);
        let estimated = self.combiner.estimated_bytes();
        self.meter.size_report(estimated).encoded(shared.len());
        let streams: Vec<StreamSnapshot> = alignment.copies.into_iter().flatten().collect();
        let times = streams.iter().map(|stream| stream.arrived);
        let reached = times
            .chain(self.combiner.watermarks().iter().copied())
            .max();
        let snapshot = JobSnapshot {
            streams,
            shared,
            next: self
                .combiner
                .routing
                .outputs
                .iter()
                .map(OutputMerge::next)
                .collect(),
            watermark: self.combiner.watermark(),
            reached: reached.unwrap_or(Instant::BEFORE_ALL),
            pause: alignment.took + (self.timer.elapsed() - began),
        };
        self.tell(CombinerEvent::Snapshot(Box::new(snapshot)));
        self.combiner.settle(alignment.number)
    }

    fn combine(
        &mut self,
        output: StreamOutput,
        status: PartitionStatus,
    ) -> Result<(), EndpointError> {
        let stream = output.stream;
        let input = output.size();
        let combined = self.combiner.combine(output);
        if let Some(reason) = self.combiner.overflow() {
            self.tell(CombinerEvent::Failed(reason));
        }
        combined?;
        self.measure(input);
        self.status.update_partition(stream, |shown| {
            let backlog = shown.backlog;
            *shown = PartitionStatus { backlog, ..status };
        });
        self.log_errors();
        let errors = self.combiner.shared.pipeline.errors.count;
        // Includes the other combiners of a shared job.
        let new_errors = errors - std::mem::replace(&mut self.errors_told, errors);
        self.status.update(|status| {
            status.watermark = self.combiner.watermark();
            status.runtime_errors += new_errors;
        });
        Ok(())
    }

    fn log_errors(&mut self) {
        let samples = &self.combiner.shared.pipeline.errors.samples;
        for error in &samples[self.logged_errors..] {
            let sample = DataErrorSample::of_row(error, String::new());
            self.status.telemetry.errors.add(sample);
        }
        self.logged_errors = samples.len();
    }

    fn measure(&mut self, input: u64) {
        if let Err(reason) = self.meter.processed(input, &self.combiner) {
            self.tell(CombinerEvent::Failed(reason));
        }
    }

    /// Adds a stream with the watermark `reached`. `false` if the query does not allow it.
    pub(super) fn add_stream(
        &mut self,
        input: usize,
        location: StreamLocation,
        reached: Instant,
    ) -> bool {
        let Some(stream) = self.combiner.add_stream(input, location, reached) else {
            return false;
        };
        self.permits.add_stream();
        self.permits.restore(stream, reached);
        true
    }

    /// The state outside of streams.
    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        self.combiner.snapshot(out);
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.combiner.restore(from)?;
        for (stream, reached) in self.combiner.watermarks().iter().enumerate() {
            self.permits.restore(stream, *reached);
        }
        Ok(())
    }
}
