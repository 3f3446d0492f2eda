//! The fate of one event of a live job: as the job sampled it, or recomputed from the partition.
//!
//! A verdict depends on the watermark that the event met, which the events before it moved. Events that arrived long
//! before cannot have raised it above the late bound, so a replay of the others is exact. It is bounded, because there
//! may be any number of them.

use highwater_connect::ValueDecoder;
use highwater_engine::{PhysicalPlan, Value};
use highwater_log::{EnqueueTime, Isolation, Offset, Partition, ReadError, TopicPartition};
use highwater_query::plan::{Node, NodeId, Plan, Window};
use highwater_time::{Duration, EventKeys, Instant, JudgedEvent};

use super::batch_decoder::{BatchDecoder, DecodedItem, OffsetRange};
use super::session_replay::{EventSessions, SessionQuestion, SourcePartition};
use crate::events::TimedEvents;
use crate::load::Job;
use crate::order::{JudgedEvents, Orderer, UnorderedEvents};
use crate::partition_pipeline::orderer;
use crate::plan::{InputPlan, PartitionId};
use crate::timestamp_assigner::{BlockOrigin, TimestampAssigner};

/// The size of one read of a replay.
const READ_BYTES: usize = 1 << 20;

/// How many offsets before the event a replay begins at most, and how many bytes it reads.
const REPLAY_OFFSETS_MAX: i64 = 20_000;
const REPLAY_BYTES_MAX: usize = 16 << 20;

/// How many offsets before the event a replay begins at least.
const REPLAY_OFFSETS_MIN: i64 = 100;

/// How many windows are listed.
const WINDOWS_MAX: usize = 100;

/// The verdict and windows of one event.
#[derive(Clone, Debug)]
pub struct LiveEventFate {
    pub place: TopicPartition,
    pub offset: Offset,
    /// `None` if it has no time, or if there is no event at the offset.
    pub judged: Option<JudgedEvent>,
    pub substream: Option<String>,
    /// Why it got no time.
    pub reason: Option<String>,
    /// The windows (start, end] that its timestamp lies in; for a sliding window, the time that it stays inside. A
    /// WHERE is not applied.
    pub windows: Vec<(Instant, Instant)>,
    /// The query has session windows over its input.
    pub has_sessions: bool,
    /// The session windows that it entered; `None` if there are none in the query, or if a hub is gone.
    pub sessions: Option<EventSessions>,
    pub basis: FateBasis,
}

/// The source of a fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FateBasis {
    /// The job sampled the event.
    Sample,
    /// Recomputed from all events that matter.
    Replay,
    /// Recomputed from some of them: the watermark may be lower than the one that the event met.
    PartialReplay,
}

#[derive(Debug, thiserror::Error)]
pub enum FateError {
    #[error("the job has no such input or partition")]
    NoPartition,
    #[error("there is no event at this offset yet")]
    NotYet,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the records cannot be decoded: {0}")]
    Damaged(String),
}

/// A partition of a job's input.
pub(super) struct FateQuestion<'a> {
    pub job: &'a Job,
    pub input: usize,
    /// Its number among the partitions of the input.
    pub number: usize,
    pub partition: &'a dyn Partition,
    pub offset: Offset,
    pub sample: Option<JudgedEvent>,
    /// The plan that the job runs, with its reference data.
    pub physical: PhysicalPlan,
    /// All partitions of the job, for session windows; `None` if a hub is gone.
    pub partitions: Option<Vec<SourcePartition>>,
    /// The watermark of the job.
    pub watermark: Instant,
}

impl FateQuestion<'_> {
    pub(super) async fn answer(&self) -> Result<LiveEventFate, FateError> {
        let bounds = self.partition.bounds();
        if self.offset >= bounds.visible(Isolation::Committed) {
            return Err(FateError::NotYet);
        }
        let mut fate = LiveEventFate {
            place: self.partition.topic_partition().clone(),
            offset: self.offset,
            judged: self.sample,
            substream: None,
            reason: None,
            windows: Vec::new(),
            has_sessions: false,
            sessions: None,
            basis: FateBasis::Sample,
        };
        if self.sample.is_none() {
            self.replay(&mut fate).await?;
        }
        if let Some(judged) = fate.judged
            && let Some(timestamp) = judged.timestamp
        {
            fate.windows = windows_of(&self.job.plan, self.input, timestamp);
            fate.has_sessions = windows_over(&self.job.plan, self.input)
                .any(|window| matches!(window, Window::Session { .. }));
            if fate.has_sessions {
                let arrival = judged.arrival.unwrap_or(timestamp);
                fate.sessions = self.sessions(arrival, timestamp).await?;
            }
        }
        Ok(fate)
    }

    async fn sessions(
        &self,
        arrival: Instant,
        timestamp: Instant,
    ) -> Result<Option<EventSessions>, FateError> {
        let Some(partitions) = self.partitions.clone() else {
            return Ok(None);
        };
        let question = SessionQuestion {
            job: self.job,
            physical: &self.physical,
            input: self.input,
            number: self.number,
            offset: self.offset,
            arrival,
            timestamp,
            partitions,
            watermark: self.watermark,
        };
        question.answer().await
    }

    async fn replay(&self, fate: &mut LiveEventFate) -> Result<(), FateError> {
        let (mut next, is_exact) = self.first().await?;
        fate.basis = match is_exact {
            true => FateBasis::Replay,
            false => FateBasis::PartialReplay,
        };
        let mut replay = Replay::new(self)?;
        let mut bytes = 0;
        while next <= self.offset {
            let read = self.partition.read(next, READ_BYTES, Isolation::Committed);
            let fetched = read.await?;
            bytes += fetched
                .pieces
                .iter()
                .map(|piece| piece.len())
                .sum::<usize>();
            let range = OffsetRange {
                from: next,
                until: Some(Offset(self.offset.0 + 1)),
            };
            let mut items = Vec::new();
            let decoder = &mut replay.decoder;
            let decoded = decoder.decode(&fetched, &[], &range, &mut |item| items.push(item));
            let after = decoded.map_err(|error| FateError::Damaged(error.to_string()))?;
            for item in items {
                replay.take(item, self.offset, fate);
            }
            if after <= next {
                return Ok(());
            }
            next = after;
            if bytes > REPLAY_BYTES_MAX && next < self.offset {
                // Too much to read it all: the rest begins shortly before the event.
                next = next.max(Offset(self.offset.0 - 1));
                fate.basis = FateBasis::PartialReplay;
            }
        }
        Ok(())
    }

    /// Where a replay begins, and whether all events that matter are from there on.
    async fn first(&self) -> Result<(Offset, bool), FateError> {
        let start = self.partition.bounds().start;
        let nearest = Offset((self.offset.0 - REPLAY_OFFSETS_MAX).max(start.0));
        let policy = &self.job.file.time;
        let timed = self.job.plan.inputs[self.input].timestamp.is_some();
        let (Some(early), true) = (policy.early_arrival, timed) else {
            // By arrival there is no bound to be before; without an early bound, any event may have moved the
            // watermark.
            return Ok((nearest, !timed || nearest == start));
        };
        let read = self.partition.read(self.offset, 1, Isolation::Committed);
        let fetched = read.await?;
        let Some(arrival) = first_arrival(&fetched) else {
            return Ok((nearest, nearest == start));
        };
        let oldest = arrival - policy.late_arrival - early - Duration::from_millis(1);
        let found = self
            .partition
            .offset_for_time(EnqueueTime(oldest.to_unix_millis()));
        let found = found.await?.map_or(start, |(offset, _)| offset);
        // A few events more, so that there is a watermark to meet after a long silence.
        let some = Offset((self.offset.0 - REPLAY_OFFSETS_MIN).max(start.0));
        Ok((found.min(some).max(nearest), found >= nearest))
    }
}

/// The arrival of the first batch.
fn first_arrival(fetched: &highwater_log::FetchData) -> Option<Instant> {
    let piece = fetched.pieces.first()?;
    let batch = highwater_log::batch::Batches::new(piece).next()?.ok()?;
    Some(Instant::from_unix_millis(batch.enqueue_time().0))
}

/// Decodes the events of an input again, and gives them their times and origins.
pub(super) fn replay_decoder(
    input: InputPlan,
) -> Result<(BatchDecoder, TimestampAssigner), FateError> {
    let (format, folder, is_hub) = (input.format.clone(), input.folder.clone(), input.hub);
    let (assigner, fields) = TimestampAssigner::new(input, true);
    let options = format.options(fields, false);
    let decoder = match is_hub {
        true => {
            let values = ValueDecoder::new(options);
            let missing = || FateError::Damaged("the format has no single events".into());
            BatchDecoder::new(values.ok_or_else(missing)?, assigner.properties())
        }
        false => BatchDecoder::of_files(options, folder),
    };
    Ok((decoder, assigner))
}

/// Judges the events of a partition again.
struct Replay {
    decoder: BatchDecoder,
    assigner: TimestampAssigner,
    orderer: Orderer,
    partition: PartitionId,
}

impl Replay {
    fn new(question: &FateQuestion<'_>) -> Result<Replay, FateError> {
        let (input, _) = InputPlan::of(question.job, question.input);
        let orderer = orderer(&input);
        let (decoder, assigner) = replay_decoder(input)?;
        Ok(Replay {
            decoder,
            assigner,
            orderer,
            partition: PartitionId {
                number: question.number,
                shown: Value::Int(question.number as i64),
            },
        })
    }

    /// Judges the events of an item and records the verdict of the one at `offset`.
    fn take(&mut self, item: DecodedItem, offset: Offset, fate: &mut LiveEventFate) {
        let mut released = Vec::new();
        let (events, arrivals, file) = match item {
            DecodedItem::Punctuation(arrival) => {
                return self.orderer.punctuate(arrival, &mut released);
            }
            DecodedItem::Events {
                events,
                arrivals,
                file,
                ..
            } => (events, arrivals, file),
        };
        let line = offset.0 as u64;
        if let Some(bad) = events.bad.iter().find(|bad| bad.line == line) {
            fate.reason = Some(bad.reason.clone());
        }
        let file = file.as_deref();
        let origin = BlockOrigin {
            number: 0,
            name: file.map_or("", |file| &file.name),
            modified: file.map_or(Instant::BEFORE_ALL, |file| file.modified),
            partition: &self.partition,
        };
        let reject = &mut |event: crate::timestamp_assigner::UntimedEvent<'_>| {
            if event.line == line {
                fate.reason = Some(format!("{}: {}", event.kind.name(), event.reason));
            }
        };
        let timed = self
            .assigner
            .assign(events, &origin, Some(arrivals), reject);
        let mut judged = JudgedEvents::all();
        let first = self.orderer.next();
        let TimedEvents { lines, keys, .. } = &timed;
        let incoming = UnorderedEvents {
            chunk: timed.chunk.clone(),
            times: &timed.times,
            arrivals: timed.arrivals(),
            keys: keys.as_ref().map(|keys| EventKeys {
                offsets: &keys.offsets,
                bytes: &keys.bytes,
            }),
        };
        self.orderer
            .push(incoming, Some(&mut judged), &mut released);
        let row_of = |judged: &JudgedEvent| (judged.row - first) as usize;
        let mut seen = judged.seen.iter();
        if let Some(found) = seen.find(|judged| lines[row_of(judged)] == line) {
            let shown = keys.as_ref().and_then(|keys| keys.shown.as_ref());
            fate.substream = shown.map(|shown| shown[row_of(found)].clone());
            fate.judged = Some(*found);
        }
    }
}

/// The windows over rows with the timestamps of an input.
fn windows_over(plan: &Plan, input: usize) -> impl Iterator<Item = &Window> {
    plan.nodes.iter().filter_map(move |node| match node {
        Node::Window(window) if has_times_of(plan, window.from, input) => Some(&window.window),
        _ => None,
    })
}

/// The windows that a timestamp of an input lies in, as far as it alone determines them.
fn windows_of(plan: &Plan, input: usize, timestamp: Instant) -> Vec<(Instant, Instant)> {
    let mut windows = Vec::new();
    let tick = Duration::from_ticks(1);
    for window in windows_over(plan, input) {
        let (size, hop, offset) = match *window {
            Window::Tumbling { size, offset } => (size, size, offset),
            Window::Hopping { size, hop, offset } => (size, hop, offset),
            Window::Snapshot => (tick, tick, Duration::ZERO),
            Window::Sliding { size } => {
                windows.push((timestamp, timestamp + size));
                continue;
            }
            Window::Session { .. } => continue,
        };
        let mut end = timestamp.ceil_to(hop, offset);
        while end - size < timestamp && windows.len() < WINDOWS_MAX {
            windows.push((end - size, end));
            end = end + hop;
        }
    }
    windows.sort_unstable();
    windows.dedup();
    windows
}

/// Whether rows of the node have the timestamps of events of the input.
pub(super) fn has_times_of(plan: &Plan, node: NodeId, input: usize) -> bool {
    match &plan.nodes[node.0] {
        Node::Source { input: of } => *of == input,
        Node::Filter { .. }
        | Node::Project { .. }
        | Node::Apply { .. }
        | Node::Lookup(_)
        | Node::Analytic(_)
        | Node::Union { .. } => {
            let below = plan.nodes[node.0].below();
            below
                .into_iter()
                .any(|below| has_times_of(plan, below, input))
        }
        Node::Window(_) | Node::Join(_) | Node::Match(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use highwater_query::{Catalog, compile};

    use super::*;

    fn at(clock: &str) -> Instant {
        Instant::parse_iso(format!("2026-03-02T{clock}Z").as_bytes()).unwrap()
    }

    #[test]
    fn a_timestamp_lies_in_the_windows_of_its_own_input() {
        let query = "WITH busy AS (SELECT * FROM a TIMESTAMP BY t WHERE n > 1) \
            SELECT COUNT(*) AS n INTO x FROM busy GROUP BY HoppingWindow(Duration(minute, 10), Hop(minute, 5)) \
            SELECT COUNT(*) AS n INTO y FROM b TIMESTAMP BY t GROUP BY TumblingWindow(hour, 1) \
            SELECT COUNT(*) AS n INTO z FROM a TIMESTAMP BY t GROUP BY SessionWindow(minute, 5, 60) \
            SELECT COUNT(*) AS n INTO s FROM c TIMESTAMP BY t GROUP BY SlidingWindow(minute, 3) \
            SELECT COUNT(*) AS n INTO v FROM c TIMESTAMP BY t GROUP BY k, System.Timestamp()";
        let compiled = compile(query, &Catalog::streams(["a", "b", "c"])).unwrap();
        let input = |name: &str| {
            let mut inputs = compiled.plan.inputs.iter();
            inputs.position(|input| input.name == name).unwrap()
        };
        let windows = |name, clock| windows_of(&compiled.plan, input(name), at(clock));
        let hopping = [
            (at("12:00:00"), at("12:10:00")),
            (at("12:05:00"), at("12:15:00")),
        ];
        assert_eq!(windows("a", "12:07:00"), hopping);
        assert_eq!(
            windows("a", "12:10:00"),
            hopping,
            "the end belongs to a window"
        );
        assert_eq!(windows("b", "12:07:00"), [(at("12:00:00"), at("13:00:00"))]);
        let tick = Duration::from_ticks(1);
        assert_eq!(
            windows("c", "12:07:00"),
            [
                (at("12:07:00") - tick, at("12:07:00")),
                (at("12:07:00"), at("12:10:00"))
            ],
            "a snapshot and a sliding window"
        );
        let has_sessions = |name| {
            let mut windows = windows_over(&compiled.plan, input(name));
            windows.any(|window| matches!(window, Window::Session { .. }))
        };
        assert!(has_sessions("a") && !has_sessions("b"));
    }
}
