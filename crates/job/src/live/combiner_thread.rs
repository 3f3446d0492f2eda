//! The thread of the combiner: it takes the output of streams from the workers, and cuts checkpoints.
//!
//! A checkpoint is cut by a barrier: every worker is asked for a snapshot of its streams, and its output behind that waits
//! until all workers have answered. Then the shared state holds exactly the output of the streams up to their snapshots.

use std::sync::Arc;
use std::time::Duration;

use highwater_codec::{DecodeError, Reader};
use highwater_connect::EndpointError;
use highwater_env::Clock;
use highwater_time::Instant;
use tokio::sync::mpsc;

use super::hub_stream::StreamSnapshot;
use super::read_permits::ReadPermits;
use super::status::{PartitionStatus, StatusHandle};
use super::worker::WorkItem;
use crate::combiner::Combiner;
use crate::output_merge::OutputMerge;
use crate::side_row::StreamLocation;
use crate::stream::StreamOutput;

pub(super) enum CombinerMessage {
    Output {
        worker: usize,
        output: Box<StreamOutput>,
        status: Box<PartitionStatus>,
    },
    /// The stream has read all there was.
    Drained {
        worker: usize,
        stream: usize,
    },
    /// The stream has come to the end that was set for it.
    Ended {
        worker: usize,
        stream: usize,
    },
    /// The worker has copied its streams.
    Copied {
        worker: usize,
        copies: Vec<(usize, StreamSnapshot)>,
        /// How long that took.
        took: Duration,
    },
    /// Take a checkpoint.
    Checkpoint(u64),
    /// A stream cannot be read any further.
    Failed(String),
    Stop,
}

impl CombinerMessage {
    fn worker(&self) -> Option<usize> {
        match self {
            CombinerMessage::Output { worker, .. }
            | CombinerMessage::Drained { worker, .. }
            | CombinerMessage::Ended { worker, .. }
            | CombinerMessage::Copied { worker, .. } => Some(*worker),
            CombinerMessage::Checkpoint(_) | CombinerMessage::Failed(_) | CombinerMessage::Stop => {
                None
            }
        }
    }
}

/// The state of the whole job at one moment.
pub(super) struct JobSnapshot {
    pub streams: Vec<StreamSnapshot>,
    pub shared: Vec<u8>,
    /// Per output, the number of the next row.
    pub next: Vec<u64>,
    pub watermark: Instant,
    /// The latest time that any stream has come to, by its events or by when they arrived.
    pub reached: Instant,
    /// For how long nothing else was done.
    pub pause: Duration,
}

/// What becomes known to whoever runs the job.
pub(super) enum CombinerEvent {
    Snapshot(Box<JobSnapshot>),
    /// Every stream has come to its end.
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
    /// Rows that failed in earlier runs of this start.
    pub errors_before: u64,
}

/// A barrier on its way.
struct Alignment {
    number: u64,
    copied: Vec<bool>,
    copies: Vec<Option<StreamSnapshot>>,
    /// What workers handed over behind the barrier.
    later: Vec<CombinerMessage>,
    /// The longest that a worker took to copy its streams.
    took: Duration,
}

impl CombinerThread {
    /// Works until it is told to stop or an output is gone.
    pub fn run(mut self, mut inbox: mpsc::UnboundedReceiver<CombinerMessage>) {
        let mut alignment: Option<Alignment> = None;
        let mut open = self.combiner.streams();
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
            CombinerMessage::Output { output, status, .. } => self.combine(*output, *status)?,
            CombinerMessage::Drained { stream, .. } => self.permits.drained(stream),
            CombinerMessage::Ended { stream, .. } => {
                self.permits.drained(stream);
                *open -= 1;
                if *open == 0 {
                    self.tell(CombinerEvent::Ended);
                }
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

    fn tell(&self, event: CombinerEvent) {
        // Nobody listens once the job is given up.
        let _ = self.events.send(event);
    }

    fn raise_barrier(&self, number: u64) -> Alignment {
        for worker in &self.workers {
            // A worker that is gone takes the job with it, which shows elsewhere.
            let _ = worker.send(WorkItem::Copy);
        }
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
        let (stream, watermark) = (output.stream, output.watermark);
        self.combiner.combine(output)?;
        self.status.update_partition(stream, |shown| {
            let backlog = shown.backlog;
            *shown = PartitionStatus { backlog, ..status };
        });
        let errors = self.errors_before + self.combiner.shared.pipeline.errors.count;
        self.status.update(|status| {
            status.watermark = self.combiner.watermark();
            status.runtime_errors = errors;
        });
        self.permits.worked(stream, watermark);
        Ok(())
    }

    /// Takes another stream behind those there are, which has come to `reached`. `false` if the query cannot have it.
    pub fn add_stream(&mut self, input: usize, location: StreamLocation, reached: Instant) -> bool {
        let Some(stream) = self.combiner.add_stream(input, location, reached) else {
            return false;
        };
        self.permits.add_stream();
        self.permits.worked_before(stream, reached);
        true
    }

    /// Everything that is not a stream's.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        self.combiner.snapshot(out);
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.combiner.restore(from)?;
        for (stream, reached) in self.combiner.watermarks().iter().enumerate() {
            self.permits.worked_before(stream, *reached);
        }
        Ok(())
    }
}
