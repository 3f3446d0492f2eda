//! Where partitions meet: the shared part of the query, and the numbering of its rows.
//!
//! A thread of its own, which is handed work by the threads of the streams. The order in which they hand it over is
//! chance; the order of rows is not, because whatever combines streams waits until all of them have passed a time.
//!
//! A checkpoint is cut by a barrier: every worker is told to copy the state of its streams and to say so, and what it
//! hands over after that waits until all have. Then the shared state holds exactly what the copies have handed over.

use std::sync::Arc;
use std::time::Duration;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{DataError, SharedPipeline};
use highwater_env::Clock;
use highwater_log::TopicPartition;
use highwater_time::{CombinedWatermark, Instant};
use tokio::sync::mpsc;

use super::destination::{Destination, OutputClosed, OutputMessage};
use super::read_permits::ReadPermits;
use super::side_output::SideOutput;
use super::side_row::{EventLocation, SideRow};
use super::status::StatusHandle;
use super::stream::{SideOutputOptions, StreamOutput, StreamSnapshot};
use super::worker::WorkItem;
use crate::witness::{origin_file, origin_line};

pub(super) enum CombinerMessage {
    StreamOutput {
        worker: usize,
        handed: Box<StreamOutput>,
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
            CombinerMessage::StreamOutput { worker, .. }
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
    JobSnapshot(Box<JobSnapshot>),
    /// Every stream has come to its end.
    Ended,
    Failed(String),
}

pub(super) struct Combiner {
    pub shared: SharedPipeline,
    /// In the order of the job's outputs.
    pub destinations: Vec<Destination>,
    /// Per statement, its destination and its place among the statements of that.
    pub statements: Vec<(usize, usize)>,
    /// EndpointRequest destination takes letters, and those that wait.
    pub dead: Option<(usize, SideOutput)>,
    pub late: Option<(usize, SideOutput)>,
    pub clock: CombinedWatermark,
    pub facts: StreamFacts,
    pub pace: ReadPermits,
    pub workers: Vec<mpsc::UnboundedSender<WorkItem>>,
    pub events: mpsc::UnboundedSender<CombinerEvent>,
    pub board: StatusHandle,
    /// Rows that failed in earlier runs of this start.
    pub errors_before: u64,
}

/// What letters and checkpoints need to know.
pub(super) struct StreamFacts {
    pub wants: SideOutputOptions,
    /// Per stream, the name of its input and its place.
    pub streams: Vec<(String, TopicPartition)>,
    pub timer: Arc<dyn Clock>,
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

impl Combiner {
    /// Works until it is told to stop or an output is gone.
    pub fn run(mut self, mut inbox: mpsc::UnboundedReceiver<CombinerMessage>) {
        let mut alignment: Option<Alignment> = None;
        let mut open = self.facts.streams.len();
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
                Ok(false) | Err(OutputClosed) => return,
            }
        }
    }

    fn take(
        &mut self,
        message: CombinerMessage,
        alignment: &mut Option<Alignment>,
        open: &mut usize,
    ) -> Result<bool, OutputClosed> {
        match message {
            CombinerMessage::StreamOutput { handed, .. } => self.combine(*handed)?,
            CombinerMessage::Drained { stream, .. } => self.pace.drained(stream),
            CombinerMessage::Ended { stream, .. } => {
                self.pace.drained(stream);
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
                self.cut(waiting)?;
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
            copies: self.facts.streams.iter().map(|_| None).collect(),
            later: Vec::new(),
            took: Duration::ZERO,
        }
    }

    fn cut(&mut self, alignment: Alignment) -> Result<(), OutputClosed> {
        let began = self.facts.timer.elapsed();
        let mut shared = Vec::new();
        self.snapshot(&mut shared);
        let streams: Vec<StreamSnapshot> = alignment.copies.into_iter().flatten().collect();
        let times = streams.iter().map(|stream| stream.arrived);
        let reached = times.chain(self.clock.members().iter().copied()).max();
        let cut = JobSnapshot {
            streams,
            shared,
            next: self.destinations.iter().map(Destination::next).collect(),
            watermark: self.clock.watermark(),
            reached: reached.unwrap_or(Instant::BEFORE_ALL),
            pause: alignment.took + (self.facts.timer.elapsed() - began),
        };
        self.tell(CombinerEvent::JobSnapshot(Box::new(cut)));
        let mut destinations = self.destinations.iter();
        let settle = OutputMessage::Settle;
        destinations.try_for_each(|destination| destination.tell(settle(alignment.number)))
    }

    fn combine(&mut self, handed: StreamOutput) -> Result<(), OutputClosed> {
        let mut exits = Vec::new();
        for delivery in handed.deliveries {
            let entry = self
                .shared
                .entry(handed.input, delivery.exit, delivery.partition);
            self.shared.pipeline.push(entry, delivery.item, &mut exits);
            for (statement, item) in exits.drain(..) {
                let (destination, port) = self.statements[statement];
                self.destinations[destination].take(port, item)?;
            }
        }
        let risen = self.clock.advance(handed.stream, handed.watermark);
        let failed = self.failed_rows();
        let everywhere = self.clock.watermark();
        if let Some((destination, side_output)) = &mut self.dead {
            let mut chunks = side_output.take_events(handed.stream, handed.lost, handed.arrived);
            let stream = Some(handed.stream);
            chunks.extend(side_output.take_rows(stream, handed.failed, handed.watermark));
            chunks.extend(side_output.take_rows(None, failed, everywhere));
            let destination = &mut self.destinations[*destination];
            chunks
                .into_iter()
                .try_for_each(|chunk| destination.hand_over(chunk))?;
        }
        if let Some((destination, side_output)) = &mut self.late {
            let chunks = side_output.take_events(handed.stream, handed.late, handed.arrived);
            let destination = &mut self.destinations[*destination];
            chunks
                .into_iter()
                .try_for_each(|chunk| destination.hand_over(chunk))?;
        }
        if let Some(watermark) = risen {
            for destination in &self.destinations {
                destination.tell(OutputMessage::Advance(watermark))?;
            }
        }
        let errors = self.errors_before + self.shared.pipeline.errors.count;
        self.board.update_partition(handed.stream, |status| {
            let backlog = status.backlog;
            *status = handed.status;
            status.backlog = backlog;
        });
        self.board.update(|status| {
            status.watermark = everywhere;
            status.runtime_errors = errors;
        });
        self.pace.worked(handed.stream, handed.watermark);
        Ok(())
    }

    /// The rows that failed in the shared part of the query.
    fn failed_rows(&mut self) -> Vec<SideRow> {
        let failed = self.shared.pipeline.errors.take_collected();
        let letter = |error: &DataError| {
            let spot = error.origin.and_then(|origin| {
                let (input, place) = self.facts.streams.get(origin_file(origin))?;
                Some(EventLocation {
                    input,
                    place,
                    file: None,
                    offset: origin_line(origin),
                })
            });
            let (name, text) = &*self.facts.wants.query;
            SideRow::of_row(error, (name, text), spot.as_ref())
        };
        failed.iter().map(letter).collect()
    }

    /// Takes another stream behind those there are, which has come to `reached`. `false` if the query cannot have it.
    pub fn add_stream(
        &mut self,
        input: usize,
        named: (String, TopicPartition),
        reached: Instant,
    ) -> bool {
        if !self.shared.grow(input) {
            return false;
        }
        let stream = self.clock.add(reached);
        self.pace.add_stream();
        self.pace.worked_before(stream, reached);
        let side_outputs = self.dead.iter_mut().chain(&mut self.late);
        side_outputs.for_each(|(_, side_output)| side_output.add_stream());
        self.facts.streams.push(named);
        true
    }

    /// Everything that is not a stream's.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let mut pipeline = Vec::new();
        self.shared.pipeline.snapshot(&mut pipeline);
        out.blob(&pipeline);
        let members = self.clock.members().iter();
        members.for_each(|member| out.i64(member.ticks()));
        self.destinations
            .iter()
            .for_each(|destination| destination.snapshot(out));
        let side_outputs = self.dead.iter().chain(&self.late);
        side_outputs.for_each(|(_, side_output)| side_output.snapshot(out));
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.shared
            .pipeline
            .restore(&mut Reader::new(from.blob()?))?;
        for stream in 0..self.facts.streams.len() {
            let reached = Instant::from_ticks(from.i64()?);
            self.clock.advance(stream, reached);
            self.pace.worked_before(stream, reached);
        }
        for destination in &mut self.destinations {
            destination.restore(from)?;
        }
        for (_, side_output) in self.dead.iter_mut().chain(&mut self.late) {
            side_output.restore(from)?;
        }
        from.end()
    }
}
