//! The pipeline of one partition: orders its events and runs them through the local part of the query. Its items are
//! addressed to the shared pipeline.
//!
//! With early results the partition stops at a barrier (`early/clock.rs`): events from there on wait in the orderer.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{Chunk, Item, OutputOverflow, PhysicalPlan, Pipeline};
use highwater_time::{EventKeys, Instant, JudgedEvent, TimeDomain, VerdictCounts};

use crate::early::PipelineCopies;
use crate::event_trace::{EventTrace, TracedEvent};
use crate::events::TimedEvents;
use crate::order::{JudgedEvents, Orderer, OrdererSnapshot, UnorderedEvents};
use crate::plan::{InputPlan, PartitionId};
use crate::substream_key::SubstreamKeyColumn;

/// An item for `Shared::entry(input, exit, partition)`.
#[derive(Debug)]
pub(crate) struct ExitItem {
    pub exit: usize,
    pub partition: usize,
    pub item: Item,
}

/// The state of a partition, not encoded yet.
pub(crate) struct PartitionSnapshot {
    orderer: OrdererSnapshot,
    pipeline: Vec<u8>,
    /// The watermark of the pipeline, if the partition stops at barriers.
    passed: Option<Instant>,
}

impl PartitionSnapshot {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.orderer.write(out);
        out.blob(&self.pipeline);
        if let Some(passed) = self.passed {
            out.i64(passed.ticks());
        }
    }
}

pub(crate) struct PartitionPipeline {
    pub id: PartitionId,
    orderer: Orderer,
    pub pipeline: Pipeline,
    /// The origins of its events by their number in the partition; only if the run traces events.
    origins: Vec<u64>,
    /// A reused buffer for ordered items.
    items: Vec<Item>,
    /// Set if the partition stops at barriers.
    stops: Option<BarrierStops>,
}

/// The context of a partition's early results.
struct BarrierStops {
    copies: Arc<PipelineCopies>,
    input: usize,
    /// Events were released since the last report.
    has_events: bool,
}

impl PartitionPipeline {
    pub(crate) fn new(
        input: &InputPlan,
        physical: &PhysicalPlan,
        id: PartitionId,
        trace: bool,
    ) -> PartitionPipeline {
        let mut pipeline = physical.local(input.index);
        if trace {
            pipeline.trace_windows();
        }
        if input.dead_letters {
            pipeline.errors.collect_all();
        }
        PartitionPipeline {
            id,
            orderer: orderer(input),
            pipeline,
            origins: Vec::new(),
            items: Vec::new(),
            stops: None,
        }
    }

    /// From now on stops at barriers; the first one is before all events.
    pub(crate) fn stop_at_barriers(&mut self, copies: &Arc<PipelineCopies>, input: usize) {
        self.orderer.set_limit(Instant::BEFORE_ALL);
        self.stops = Some(BarrierStops {
            copies: copies.clone(),
            input,
            has_events: false,
        });
    }

    /// Continues up to `barrier`. Does nothing if the partition does not stop at barriers.
    pub(crate) fn raise_barrier(&mut self, barrier: Instant, out: &mut Vec<ExitItem>) {
        if self.stops.is_some() {
            self.orderer.set_limit(barrier);
            self.orderer.release(&mut self.items);
            self.run(out);
        }
    }

    /// Whether events were released since the last call. `None` if the partition does not stop at barriers.
    pub(crate) fn take_has_events(&mut self) -> Option<bool> {
        let stops = self.stops.as_mut()?;
        Some(std::mem::take(&mut stops.has_events))
    }

    /// The output of the local pipeline if its input ended here. Its state does not change.
    pub(crate) fn preview_end(&self, out: &mut Vec<ExitItem>) -> Result<(), OutputOverflow> {
        let Some(stops) = &self.stops else {
            return Ok(());
        };
        let exits = stops.copies.end_of_local(stops.input, &self.pipeline)?;
        out.extend(self.exit_items(exits));
        Ok(())
    }

    pub(crate) fn counts(&self) -> &VerdictCounts {
        self.orderer.counts()
    }

    /// Processes events in order of arrival.
    pub(crate) fn take(
        &mut self,
        mut events: TimedEvents,
        trace: Option<&mut EventTrace>,
        out: &mut Vec<ExitItem>,
    ) {
        let mut judged = trace.is_some().then(JudgedEvents::all);
        if let (Some(origins), true) = (&events.chunk.origins, trace.is_some()) {
            self.origins.extend_from_slice(origins);
        }
        self.order(&mut events, judged.as_mut());
        if let Some(trace) = trace {
            let number = self.id.number;
            let first = self.origins.len() - events.times.len();
            let shown = events.keys.as_ref().and_then(|keys| keys.shown.as_ref());
            trace.events.extend(
                judged
                    .into_iter()
                    .flat_map(|judged| judged.seen)
                    .map(|event| TracedEvent {
                        origin: self.origins[event.row as usize],
                        partition: number,
                        key: shown.map(|shown| shown[event.row as usize - first].clone()),
                        judged: event,
                    }),
            );
        }
        self.run(out);
    }

    /// Processes events in order of arrival. Returns those that `judged` records, with their indexes.
    pub(crate) fn take_and_report(
        &mut self,
        events: &mut TimedEvents,
        mut judged: JudgedEvents,
        out: &mut Vec<ExitItem>,
    ) -> Vec<(usize, JudgedEvent)> {
        let first = self.orderer.next();
        self.order(events, Some(&mut judged));
        self.run(out);
        let seen = judged.seen.into_iter();
        seen.map(|event| ((event.row - first) as usize, event))
            .collect()
    }

    fn order(&mut self, events: &mut TimedEvents, judged: Option<&mut JudgedEvents>) {
        let nothing = Chunk::new(Vec::new().into(), Vec::new());
        let incoming = UnorderedEvents {
            chunk: std::mem::replace(&mut events.chunk, nothing),
            arrivals: events.arrivals(),
            times: &events.times,
            keys: events.keys.as_ref().map(|keys| EventKeys {
                offsets: &keys.offsets,
                bytes: &keys.bytes,
            }),
        };
        self.orderer.push(incoming, judged, &mut self.items);
    }

    /// No later event gets an earlier timestamp; at most the barrier.
    pub(crate) fn watermark(&self) -> Instant {
        self.orderer.watermark()
    }

    /// The watermark, ignoring the barrier.
    pub(crate) fn reached(&self) -> Instant {
        self.orderer.reached()
    }

    /// No unreleased event has an earlier timestamp.
    pub(crate) fn next_release(&self) -> Instant {
        self.orderer.next_release()
    }

    /// How many events wait for their time.
    pub(crate) fn waiting(&self) -> usize {
        self.orderer.waiting()
    }

    /// About the size of the state; see `Operator::state_bytes`.
    pub(crate) fn state_bytes(&self) -> usize {
        self.orderer.state_bytes() + self.pipeline.state_bytes()
    }

    /// The state at this moment.
    pub(crate) fn snapshot(&self) -> PartitionSnapshot {
        let mut pipeline = Vec::new();
        self.pipeline.snapshot(&mut pipeline);
        PartitionSnapshot {
            orderer: self.orderer.snapshot(),
            pipeline,
            passed: self.stops.is_some().then(|| self.watermark()),
        }
    }

    /// Reads what [`PartitionSnapshot::write`] wrote.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.orderer.restore(from)?;
        let mut state = Reader::new(from.blob()?);
        self.pipeline.restore(&mut state)?;
        if self.stops.is_some() {
            self.orderer.set_limit(Instant::from_ticks(from.i64()?));
        }
        Ok(())
    }

    /// Advances time to at least this arrival without an event.
    pub(crate) fn punctuate(&mut self, arrival: Instant, out: &mut Vec<ExitItem>) {
        self.orderer.punctuate(arrival, &mut self.items);
        self.run(out);
    }

    /// Ends time: no event follows.
    pub(crate) fn end(&mut self, out: &mut Vec<ExitItem>) {
        self.orderer.end(&mut self.items);
        self.run(out);
    }

    fn run(&mut self, out: &mut Vec<ExitItem>) {
        let mut exits = Vec::new();
        if let Some(stops) = &mut self.stops {
            let is_rows = |item: &Item| matches!(item, Item::Rows(chunk) if chunk.rows() > 0);
            stops.has_events |= self.items.iter().any(is_rows);
        }
        for item in self.items.drain(..) {
            self.pipeline
                .push(PhysicalPlan::LOCAL_ENTRY, item, &mut exits);
        }
        out.extend(self.exit_items(exits));
    }

    fn exit_items(&self, exits: Vec<(usize, Item)>) -> impl Iterator<Item = ExitItem> + use<> {
        let partition = self.id.number;
        exits.into_iter().map(move |(exit, item)| ExitItem {
            exit,
            partition,
            item,
        })
    }
}

/// Orders the events of one partition of the input.
pub(crate) fn orderer(input: &InputPlan) -> Orderer {
    let width = input.plan.reads.len();
    if !input.plan.substream.is_empty() {
        let key_column = SubstreamKeyColumn::new(&input.plan);
        return Orderer::per_key(input.policy, input.linger, key_column, width);
    }
    let clock = if input.plan.timestamp.is_some() {
        TimeDomain::EventTime
    } else {
        TimeDomain::ArrivalTime
    };
    Orderer::new(input.policy, clock, width)
}
