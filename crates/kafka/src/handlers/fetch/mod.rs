//! Fetch: reads several partitions at once, and waits for more when there is too little.
//!
//! Sessions are declined by always answering with session 0, which every client accepts.

mod encode;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{AbortedTransaction, Bounds, Isolation, Offset, Partition};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::list_offsets::isolation;
use super::{hub_id, uuid_of};
use crate::access::{Resource, Right};
use crate::answer::Outcome;
use crate::broker::Broker;
use crate::call::{Call, ProtocolError};
use crate::codes::ErrorCode;
use crate::memory_budget::Share;
use wait::Waits;

/// From this version on topics are named by their ids.
pub(crate) const BY_ID: i16 = 13;
/// The longest that a client may have us wait.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Everything an answer says.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub code: i16,
    pub topics: Vec<Topic>,
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub name: StrBytes,
    pub id: Uuid,
    pub partitions: Vec<Found>,
}

/// What a partition has to say.
#[derive(Debug)]
pub(crate) struct Found {
    pub index: i32,
    pub code: i16,
    /// `None` when the partition could not be read.
    pub bounds: Option<Bounds>,
    pub aborted: Vec<AbortedTransaction>,
    pub pieces: Vec<Bytes>,
}

impl Found {
    fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

pub(crate) async fn fetch(
    broker: &Broker,
    call: &Call,
    request: FetchRequest,
) -> Result<Outcome, ProtocolError> {
    // Nobody was ever given a session to go on with.
    if call.version >= 7 && request.session_id != 0 && request.session_epoch > 0 {
        let code = broker.fail(&Code::FetchSessionIdNotFound);
        let topics = Vec::new();
        return encode::encode(call, Answer { code, topics });
    }
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let mut reading = Reading::new(broker, call, &request);
    reading.read_all(broker).await;
    let enough = usize::try_from(request.min_bytes).unwrap_or(0);
    reading.wait_for(broker, enough, wait.min(WAIT_MAX)).await;
    let share = std::mem::take(&mut reading.share);
    let outcome = encode::encode(call, reading.answer(broker))?;
    Ok(Outcome { share, ..outcome })
}

/// A fetch under way.
struct Reading {
    topics: Vec<Topic>,
    /// In the order asked for, which is the order in which bytes are given out.
    partitions: Vec<Wanted>,
    isolation: Isolation,
    bytes_max: usize,
    /// The memory for what has been found.
    share: Share,
}

/// One partition to read.
struct Wanted {
    topic: usize,
    from: Offset,
    bytes_max: usize,
    partition: Result<Arc<dyn Partition>, Code>,
    found: Found,
}

impl Reading {
    fn new(broker: &Broker, call: &Call, request: &FetchRequest) -> Reading {
        let requested = usize::try_from(request.max_bytes).unwrap_or(0);
        let mut reading = Reading {
            topics: Vec::with_capacity(request.topics.len()),
            partitions: Vec::new(),
            isolation: isolation(request.isolation_level),
            bytes_max: requested.min(broker.options.fetch_bytes_max),
            share: Share::default(),
        };
        for topic in &request.topics {
            reading.add(broker, call, topic);
        }
        reading
    }

    fn add(&mut self, broker: &Broker, call: &Call, topic: &FetchTopic) {
        let hub = readable_hub(broker, call, topic);
        for wanted in &topic.partitions {
            let partition = hub
                .as_ref()
                .map_err(|code| *code)
                .and_then(|(name, _)| broker.partition(name, wanted.partition));
            self.partitions
                .push(Wanted::new(self.topics.len(), wanted, partition));
        }
        self.topics.push(Topic {
            name: topic.topic.0.clone(),
            id: hub.map_or(topic.topic_id, |(_, id)| id),
            partitions: Vec::with_capacity(topic.partitions.len()),
        });
    }

    async fn read_all(&mut self, broker: &Broker) {
        self.share = broker.fetch_memory.take_up_to(self.bytes_max);
        let mut left = self.bytes_max.min(self.share.bytes());
        let mut first = true;
        for wanted in &mut self.partitions {
            wanted.read(left, first, self.isolation).await;
            let bytes = wanted.found.bytes();
            first &= bytes == 0;
            left = left.saturating_sub(bytes);
        }
        self.share.keep(self.bytes());
    }

    /// Waits until there is enough, or something failed, or time is up.
    async fn wait_for(&mut self, broker: &Broker, enough: usize, wait: Duration) {
        let mut have = self.bytes();
        if have >= enough || wait.is_zero() || self.partitions.is_empty() || self.failed() {
            return;
        }
        let deadline = Instant::now() + wait;
        let mut waits = Waits::new(self);
        while have < enough {
            let Ok(woken) = tokio::time::timeout_at(deadline, waits.next()).await else {
                return;
            };
            let Some(index) = woken else {
                // Every partition has stopped. Answering at once would make the client spin.
                tokio::time::sleep_until(deadline).await;
                return;
            };
            let others = have - self.partitions[index].found.bytes();
            let more = self.bytes_max.saturating_sub(self.share.bytes());
            self.share.add(broker.fetch_memory.take_up_to(more));
            let left = self.bytes_max.min(self.share.bytes());
            let left = left.saturating_sub(others);
            let wanted = &mut self.partitions[index];
            let seen = wanted.visible(self.isolation);
            wanted.read(left, others == 0, self.isolation).await;
            have = others + wanted.found.bytes();
            self.share.keep(have);
            if wanted.found.code != 0 {
                return;
            }
            // A partition that has stopped wakes at once and never grows.
            if wanted.visible(self.isolation) > seen {
                waits.again(index, wanted, self.isolation);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.partitions
            .iter()
            .map(|wanted| wanted.found.bytes())
            .sum()
    }

    fn failed(&self) -> bool {
        self.partitions.iter().any(|wanted| wanted.found.code != 0)
    }

    fn answer(mut self, broker: &Broker) -> Answer {
        for wanted in self.partitions {
            broker.noted(wanted.found.code);
            self.topics[wanted.topic].partitions.push(wanted.found);
        }
        Answer {
            code: 0,
            topics: self.topics,
        }
    }
}

impl Wanted {
    fn new(
        topic: usize,
        wanted: &FetchPartition,
        partition: Result<Arc<dyn Partition>, Code>,
    ) -> Wanted {
        Wanted {
            topic,
            from: Offset(wanted.fetch_offset),
            bytes_max: usize::try_from(wanted.partition_max_bytes).unwrap_or(0),
            found: Found {
                index: wanted.partition,
                code: partition.as_ref().err().map_or(0, |code| code.code()),
                bounds: None,
                aborted: Vec::new(),
                pieces: Vec::new(),
            },
            partition,
        }
    }

    fn visible(&self, isolation: Isolation) -> Option<Offset> {
        self.found.bounds.map(|bounds| bounds.visible(isolation))
    }

    /// At least one batch comes from the first partition that has any, however large, so that a
    /// large batch cannot stop a reader for ever.
    async fn read(&mut self, left: usize, first: bool, isolation: Isolation) {
        let Ok(partition) = &self.partition else {
            return;
        };
        if left == 0 && !first {
            self.found.bounds = Some(partition.bounds());
            return;
        }
        let bytes_max = self.bytes_max.min(left);
        match partition.read(self.from, bytes_max, isolation).await {
            Ok(fetched) => {
                self.found.bounds = Some(fetched.bounds);
                let bytes: usize = fetched.pieces.iter().map(Bytes::len).sum();
                if first || bytes <= left {
                    self.found.pieces = fetched.pieces;
                    self.found.aborted = fetched.aborted;
                }
            }
            Err(error) => {
                self.found.code = error.code();
                self.found.bounds = None;
                self.found.pieces = Vec::new();
            }
        }
    }
}

/// Name and id of a hub that the caller may read.
fn readable_hub(
    broker: &Broker,
    call: &Call,
    topic: &FetchTopic,
) -> Result<(StrBytes, Uuid), Code> {
    if call.version < BY_ID {
        broker.allow(call, Right::Listen, Resource::Hub(&topic.topic))?;
        return Ok((topic.topic.0.clone(), Uuid::nil()));
    }
    let hub = broker.services.log.hub_by_id(hub_id(topic.topic_id));
    let hub = hub.ok_or(Code::UnknownTopicId)?;
    broker.allow(call, Right::Listen, Resource::Hub(hub.name.as_str()))?;
    Ok((super::text(hub.name.as_str()), uuid_of(&hub)))
}
