//! The pipeline of one partition: its events are put in order and run through the part of the query that sees one partition
//! alone. Its items are addressed to the shared pipeline.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{Chunk, Item, PhysicalPlan, Pipeline};
use highwater_time::{EventKeys, Instant, JudgedEvent, TimeDomain, VerdictCounts};

use crate::events::TimedEvents;
use crate::order::{Fates, Incoming, Orderer, OrdererSnapshot};
use crate::plan::{InputPlan, PartitionId};
use crate::substream_key::SubstreamKeyColumn;
use crate::witness::{EventFate, Witness};

/// An item on its way to `Shared::entry(input, exit, partition)`.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub exit: usize,
    pub partition: usize,
    pub item: Item,
}

/// The state of a partition at one moment, not yet encoded.
pub(crate) struct PartitionSnapshot {
    orderer: OrdererSnapshot,
    pipeline: Vec<u8>,
}

impl PartitionSnapshot {
    pub fn write(&self, out: &mut Vec<u8>) {
        self.orderer.write(out);
        out.blob(&self.pipeline);
    }
}

pub(crate) struct PartitionPipeline {
    pub id: PartitionId,
    orderer: Orderer,
    pub pipeline: Pipeline,
    /// The origins of its events, by their number in the partition; only with a witness.
    origins: Vec<u64>,
    /// Reused for the items in order.
    items: Vec<Item>,
}

impl PartitionPipeline {
    pub fn new(
        input: &InputPlan,
        physical: &PhysicalPlan,
        id: PartitionId,
        witness: bool,
    ) -> PartitionPipeline {
        let mut pipeline = physical.local(input.index);
        if witness {
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
        }
    }

    pub fn counts(&self) -> &VerdictCounts {
        self.orderer.counts()
    }

    /// Takes events in order of arrival.
    pub fn take(
        &mut self,
        mut events: TimedEvents,
        witness: Option<&mut Witness>,
        out: &mut Vec<Delivery>,
    ) {
        let mut fates = witness.is_some().then(|| Fates {
            all: true,
            seen: Vec::new(),
        });
        if let (Some(origins), true) = (&events.chunk.origins, witness.is_some()) {
            self.origins.extend_from_slice(origins);
        }
        self.order(&mut events, fates.as_mut());
        if let Some(witness) = witness {
            let number = self.id.number;
            let first = self.origins.len() - events.times.len();
            let shown = events.keys.as_ref().and_then(|keys| keys.shown.as_ref());
            witness
                .fates
                .extend(
                    fates
                        .into_iter()
                        .flat_map(|fates| fates.seen)
                        .map(|fate| EventFate {
                            origin: self.origins[fate.row as usize],
                            partition: number,
                            key: shown.map(|shown| shown[fate.row as usize - first].clone()),
                            fate,
                        }),
                );
        }
        self.run(out);
    }

    /// Takes events in order of arrival, and answers with those that a policy moved or dropped: their index among these
    /// events, and their fate.
    pub fn take_and_report(
        &mut self,
        mut events: TimedEvents,
        out: &mut Vec<Delivery>,
    ) -> Vec<(usize, JudgedEvent)> {
        let first = self.orderer.next();
        let mut fates = Fates::default();
        self.order(&mut events, Some(&mut fates));
        self.run(out);
        let seen = fates.seen.into_iter();
        seen.map(|fate| ((fate.row - first) as usize, fate))
            .collect()
    }

    fn order(&mut self, events: &mut TimedEvents, fates: Option<&mut Fates>) {
        let nothing = Chunk::new(Vec::new().into(), Vec::new());
        let incoming = Incoming {
            chunk: std::mem::replace(&mut events.chunk, nothing),
            arrivals: events.arrivals(),
            times: &events.times,
            keys: events.keys.as_ref().map(|keys| EventKeys {
                offsets: &keys.offsets,
                bytes: &keys.bytes,
            }),
        };
        self.orderer.push(incoming, fates, &mut self.items);
    }

    /// No event that follows will be given an earlier time than this.
    pub fn watermark(&self) -> Instant {
        self.orderer.watermark()
    }

    /// How many events wait for their time.
    pub fn waiting(&self) -> usize {
        self.orderer.waiting()
    }

    /// The state at this moment.
    pub fn snapshot(&self) -> PartitionSnapshot {
        let mut pipeline = Vec::new();
        self.pipeline.snapshot(&mut pipeline);
        PartitionSnapshot {
            orderer: self.orderer.snapshot(),
            pipeline,
        }
    }

    /// Reads what [`PartitionSnapshot::write`] wrote.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.orderer.restore(from)?;
        let mut state = Reader::new(from.blob()?);
        self.pipeline.restore(&mut state)
    }

    /// Advances time to at least this arrival without an event.
    pub fn punctuate(&mut self, arrival: Instant, out: &mut Vec<Delivery>) {
        self.orderer.punctuate(arrival, &mut self.items);
        self.run(out);
    }

    /// No event will follow.
    pub fn end(&mut self, out: &mut Vec<Delivery>) {
        self.orderer.end(&mut self.items);
        self.run(out);
    }

    fn run(&mut self, out: &mut Vec<Delivery>) {
        let mut exits = Vec::new();
        for item in self.items.drain(..) {
            self.pipeline
                .push(PhysicalPlan::LOCAL_ENTRY, item, &mut exits);
        }
        let partition = self.id.number;
        out.extend(exits.into_iter().map(|(exit, item)| Delivery {
            exit,
            partition,
            item,
        }));
    }
}

fn orderer(input: &InputPlan) -> Orderer {
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
