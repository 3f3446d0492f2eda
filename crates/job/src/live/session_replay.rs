//! The session windows of one event of a live job.
//!
//! The bounds of a session depend on the events of its key in all partitions, before and after the event, so the
//! timestamp alone does not give them. They are recomputed: the steps below the session windows of the query run again,
//! over all partitions, from the first arrival that can matter to the last. The current contents of the hubs decide: a
//! session that the replay does not close is open and may grow. The replay is bounded, because there may be any number
//! of events; a session of a bounded replay may be longer.

use std::sync::Arc;

use highwater_connect::EndpointError;
use highwater_engine::{PhysicalPlan, Value, WindowEntry, WorkLimit};
use highwater_log::{EnqueueTime, FetchData, Isolation, Offset, Partition};
use highwater_query::lookback;
use highwater_query::plan::{Node, NodeId, Output, Plan, Window};
use highwater_time::{Duration, Instant};

use super::batch_decoder::{BatchDecoder, DecodedItem, OffsetRange};
use super::event_fate::{FateError, has_times_of, replay_decoder};
use crate::combiner::{Combiner, OutputRouting, StatementPort};
use crate::event_trace::origin;
use crate::load::Job;
use crate::output_merge::{OutputMerge, OutputMessage, OutputPort, RowForm};
use crate::plan::{InputPlan, PartitionId};
use crate::side_row::{QueryText, StreamLocation};
use crate::stream::{EventBlock, Stream, StreamOutput, StreamPlan};

/// How many offsets of all partitions together a replay reads at most, and how many bytes.
const REPLAY_OFFSETS_MAX: i64 = 20_000;
const REPLAY_BYTES_MAX: usize = 16 << 20;

/// The size of one read.
const READ_BYTES: usize = 256 << 10;

/// The rows of all steps of a replay, in bytes.
const WORK_BYTES_MAX: u64 = 256 << 20;

/// The session windows that an event entered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSessions {
    /// Empty if a condition of the query keeps the event out.
    pub windows: Vec<SessionSpan>,
    /// All events that matter were replayed. Otherwise the sessions may begin earlier or end later.
    pub is_exact: bool,
}

/// A session (start, end]. An open one ends there unless more events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSpan {
    pub start: Instant,
    pub end: Instant,
    pub is_open: bool,
}

/// A partition that the job reads.
#[derive(Clone)]
pub(super) struct SourcePartition {
    pub input: usize,
    /// Its number among the partitions of its input.
    pub number: usize,
    pub partition: Arc<dyn Partition>,
}

/// An event whose sessions are asked for.
pub(super) struct SessionQuestion<'a> {
    pub job: &'a Job,
    /// The plan that the job runs, with its reference data.
    pub physical: &'a PhysicalPlan,
    pub input: usize,
    pub number: usize,
    pub offset: Offset,
    pub arrival: Instant,
    pub timestamp: Instant,
    /// All partitions of the job.
    pub partitions: Vec<SourcePartition>,
    /// The job has sent all rows up to this time.
    pub watermark: Instant,
}

impl SessionQuestion<'_> {
    /// `None` if the query has no session windows over the input.
    pub(super) async fn answer(&self) -> Result<Option<EventSessions>, FateError> {
        let Some((plan, nodes)) = session_plan(&self.job.plan, self.input) else {
            return Ok(None);
        };
        let Ok(mut job) = self.job.with_plan(plan) else {
            return Ok(None);
        };
        let Ok(physical) = self.physical.part(job.plan.clone(), &nodes) else {
            return Ok(None);
        };
        job.physical = physical;
        let mut replay = SessionReplay::new(&job, &self.partitions)?;
        let mut sessions = EventSessions {
            windows: Vec::new(),
            is_exact: true,
        };
        let mut bytes_left = REPLAY_BYTES_MAX;
        for stream in 0..replay.streams.len() {
            let range = self.range(&job, &replay.streams[stream].source, replay.streams.len());
            let range = range.await?;
            sessions.is_exact &= range.is_complete;
            sessions.is_exact &= replay.read(stream, &range, &mut bytes_left).await?;
        }
        let origin = replay.origin_of(self);
        let closed = replay.take_windows(origin);
        replay.end();
        let open = replay.take_windows(origin);
        sessions.is_exact &= !replay.limit.is_reached();
        let span = |entry: WindowEntry, is_open| SessionSpan {
            start: entry.start,
            end: entry.end,
            is_open: is_open && self.watermark <= entry.end,
        };
        let closed = closed.into_iter().map(|entry| span(entry, false));
        let open = open.into_iter().map(|entry| span(entry, true));
        sessions.windows = closed.chain(open).collect();
        sessions
            .windows
            .sort_unstable_by_key(|span| (span.start, span.end));
        Ok(Some(sessions))
    }

    /// The offsets of a partition whose events may be in a session with the event.
    async fn range(
        &self,
        job: &Job,
        source: &SourcePartition,
        partitions: usize,
    ) -> Result<ReplayRange, FateError> {
        let (policy, reach) = (&job.file.time, lookback(&job.plan));
        let is_timed = job.plan.inputs[source.input].timestamp.is_some();
        let zero = Duration::ZERO;
        let (early, late) = match is_timed {
            true => (policy.early_arrival, policy.late_arrival),
            false => (Some(zero), zero),
        };
        let bounds = source.partition.bounds();
        let end = bounds.visible(Isolation::Committed);
        let offset_at = async |time: Instant| -> Result<Offset, FateError> {
            let time = EnqueueTime(time.to_unix_millis());
            let found = source.partition.offset_for_time(time).await?;
            Ok(found.map_or(end, |(offset, _)| offset))
        };
        let millisecond = Duration::from_millis(1);
        // Without a bound for early events, any earlier arrival may matter.
        let first = match early {
            Some(early) => offset_at(self.timestamp - reach - early - millisecond).await?,
            None => bounds.start,
        };
        let last = offset_at(self.timestamp + reach + late + millisecond).await?;
        let middle = match (source.input, source.number) == (self.input, self.number) {
            true => self.offset,
            false => offset_at(self.arrival).await?,
        };
        let half = (REPLAY_OFFSETS_MAX / 2 / partitions.max(1) as i64).max(1);
        let from = first.max(Offset(middle.0.saturating_sub(half)));
        let until = last.min(end).min(Offset(middle.0.saturating_add(half)));
        Ok(ReplayRange {
            from,
            until: until.max(from),
            is_complete: from <= first && until >= last.min(end),
        })
    }
}

/// The offsets from `from` to before `until`.
struct ReplayRange {
    from: Offset,
    until: Offset,
    is_complete: bool,
}

/// The plan of the session windows over an input, without all that comes after them; each window is an output. With the
/// node of `plan` that each of its nodes is. `None` if there are none.
fn session_plan(plan: &Plan, input: usize) -> Option<(Plan, Vec<NodeId>)> {
    let is_wanted = |node: &Node| match node {
        Node::Window(window) => {
            matches!(window.window, Window::Session { .. })
                && has_times_of(plan, window.from, input)
        }
        _ => false,
    };
    let mut is_needed: Vec<bool> = plan.nodes.iter().map(is_wanted).collect();
    for index in (0..plan.nodes.len()).rev() {
        if is_needed[index] {
            let below = plan.nodes[index].below();
            below.iter().for_each(|below| is_needed[below.0] = true);
        }
    }
    let mut sessions = Plan {
        nodes: Vec::new(),
        outputs: Vec::new(),
        ..plan.clone()
    };
    let (mut kept, mut new_ids) = (Vec::new(), vec![NodeId(0); plan.nodes.len()]);
    for (index, node) in plan.nodes.iter().enumerate() {
        if !is_needed[index] {
            continue;
        }
        let mut new = node.clone();
        let below = new.below_mut().into_iter();
        below.for_each(|below| *below = new_ids[below.0]);
        new_ids[index] = NodeId(sessions.nodes.len());
        sessions.nodes.push(new);
        kept.push(NodeId(index));
        if is_wanted(node) {
            sessions.outputs.push(Output {
                name: format!("session {index}"),
                from: new_ids[index],
            });
        }
    }
    (!sessions.outputs.is_empty()).then_some((sessions, kept))
}

/// The rows themselves are not needed.
struct DiscardedRows;

impl OutputPort for DiscardedRows {
    fn send(&mut self, _message: OutputMessage) -> Result<(), EndpointError> {
        Ok(())
    }
}

/// A partition of a replay.
struct ReplayStream {
    source: SourcePartition,
    decoder: BatchDecoder,
    stream: Stream,
}

/// Runs the steps up to the session windows again, and traces which events enter which session.
struct SessionReplay {
    streams: Vec<ReplayStream>,
    combiner: Combiner,
    limit: Arc<WorkLimit>,
}

impl SessionReplay {
    fn new(job: &Job, partitions: &[SourcePartition]) -> Result<SessionReplay, FateError> {
        let limit = Arc::new(WorkLimit::new(WORK_BYTES_MAX));
        let query = Arc::new(QueryText::of(job));
        let is_read = |input: usize| {
            let mut nodes = job.plan.nodes.iter();
            nodes.any(|node| matches!(node, Node::Source { input: of } if *of == input))
        };
        let mut streams = Vec::new();
        let read = partitions.iter().filter(|source| is_read(source.input));
        for (number, source) in read.enumerate() {
            streams.push(ReplayStream::new(job, number, source, &query, &limit)?);
        }
        let inputs = 0..job.plan.inputs.len();
        let per_input = inputs.map(|input| {
            let own = partitions.iter().filter(|source| source.input == input);
            own.count()
        });
        let mut shared = job.physical.shared(&per_input.collect::<Vec<usize>>());
        shared.pipeline.trace_windows();
        shared.pipeline.limit_work(limit.clone());
        let statements = 0..job.plan.outputs.len();
        let discard = |_| {
            let rows = Box::new(DiscardedRows);
            OutputMerge::new(vec![RowForm::Columns], Instant::BEFORE_ALL, rows)
        };
        let routing = OutputRouting {
            outputs: statements.clone().map(discard).collect(),
            statements: statements
                .map(|output| StatementPort { output, port: 0 })
                .collect(),
            dead_letters: None,
            late_events: None,
        };
        let locations = streams
            .iter()
            .map(|of| of.stream.account.location().clone());
        let combiner = Combiner::new(shared, routing, locations.collect(), query);
        Ok(SessionReplay {
            streams,
            combiner,
            limit,
        })
    }

    /// Processes a range of a partition. `false` if it was cut off.
    async fn read(
        &mut self,
        stream: usize,
        range: &ReplayRange,
        bytes_left: &mut usize,
    ) -> Result<bool, FateError> {
        let mut next = range.from;
        while next < range.until {
            if self.limit.is_reached() || *bytes_left == 0 {
                return Ok(false);
            }
            let source = self.streams[stream].source.partition.clone();
            let fetched = source.read(next, READ_BYTES, Isolation::Committed).await?;
            let bytes: usize = fetched.pieces.iter().map(|piece| piece.len()).sum();
            *bytes_left = bytes_left.saturating_sub(bytes);
            let offsets = OffsetRange {
                from: next,
                until: Some(range.until),
            };
            let (output, after) = self.streams[stream].take(&fetched, &offsets)?;
            self.combine(output);
            if after <= next {
                break;
            }
            next = after;
        }
        Ok(true)
    }

    /// Ends time, which closes all sessions.
    fn end(&mut self) {
        for stream in 0..self.streams.len() {
            let of = &mut self.streams[stream].stream;
            let mut output = of.new_output();
            of.end(&mut output);
            of.complete(&mut output);
            self.combine(output);
        }
    }

    /// Rows are discarded, so nothing can refuse them; a step that made too many rows has reached the limit.
    fn combine(&mut self, output: StreamOutput) {
        if self.combiner.combine(output).is_err() {
            self.limit.stop();
        }
    }

    /// How the trace names the event of a question.
    fn origin_of(&self, question: &SessionQuestion<'_>) -> Option<u64> {
        let mut streams = self.streams.iter();
        let place = (question.input, question.number);
        let number = streams.position(|of| (of.source.input, of.source.number) == place)?;
        Some(origin(number, question.offset.0 as u64))
    }

    /// The sessions with the event that closed since the last call.
    fn take_windows(&mut self, origin: Option<u64>) -> Vec<WindowEntry> {
        let mut windows = self.combiner.shared.pipeline.take_trace();
        for of in &mut self.streams {
            windows.extend(of.stream.partition_mut().pipeline.take_trace());
        }
        windows.retain(|entry| Some(entry.origin) == origin);
        windows
    }
}

impl ReplayStream {
    fn new(
        job: &Job,
        number: usize,
        source: &SourcePartition,
        query: &Arc<QueryText>,
        limit: &Arc<WorkLimit>,
    ) -> Result<ReplayStream, FateError> {
        let (input, _) = InputPlan::of(job, source.input);
        let name = input.plan.name.clone();
        let (decoder, assigner) = replay_decoder(input)?;
        let place = source.partition.topic_partition().clone();
        let plan = StreamPlan {
            number,
            name: place.to_string(),
            location: StreamLocation::Hub { input: name, place },
            partitions: vec![PartitionId {
                number: source.number,
                shown: Value::Int(source.number as i64),
            }],
            trace: true,
            late_events: false,
            query: query.clone(),
        };
        let mut stream = Stream::new(plan, assigner, &job.physical);
        stream.partition_mut().pipeline.limit_work(limit.clone());
        Ok(ReplayStream {
            source: source.clone(),
            decoder,
            stream,
        })
    }

    /// Processes fetched batches and returns the offset after them.
    fn take(
        &mut self,
        fetched: &FetchData,
        offsets: &OffsetRange,
    ) -> Result<(StreamOutput, Offset), FateError> {
        let mut items = Vec::new();
        let decoded = self
            .decoder
            .decode(fetched, &[], offsets, &mut |item| items.push(item));
        let after = decoded.map_err(|error| FateError::Damaged(error.to_string()))?;
        let mut output = self.stream.new_output();
        for item in items {
            match item {
                DecodedItem::Punctuation(arrival) => {
                    let partition = self.stream.partition_mut();
                    partition.punctuate(arrival, &mut output.exit_items);
                }
                DecodedItem::Events {
                    events,
                    arrivals,
                    bad_arrivals,
                    file,
                } => {
                    let block = EventBlock {
                        events,
                        arrivals: Some(arrivals),
                        bad_arrivals,
                        file: file.as_deref().map(|file| &file.name[..]),
                        modified: file
                            .as_deref()
                            .map_or(Instant::BEFORE_ALL, |file| file.modified),
                    };
                    self.stream.push(block, &mut output);
                }
            }
        }
        self.stream.complete(&mut output);
        Ok((output, after))
    }
}
