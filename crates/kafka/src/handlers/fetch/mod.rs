//! Fetch: reads several partitions, and waits for more data up to the client's minimum.
//!
//! Fetch sessions are declined: the response always has session 0, which every client accepts.

mod encode;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_env::MemoryShare;
use highwater_log::batch::without_frames;
use highwater_log::{AbortedTransaction, Bounds, Isolation, Offset, Partition};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::list_offsets::isolation;
use super::{hub_id, uuid_of};
use crate::access::Resource;
use crate::codes::{ErrorCode, OK};
use crate::request::{ProtocolError, RequestContext};
use crate::response::EncodedResponse;
use wait::Waits;

/// The first version that names topics by id.
pub(crate) const BY_ID: i16 = 13;
/// The longest wait that a client may request.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The contents of a response.
#[derive(Debug, Default)]
pub(crate) struct FetchBody {
    pub throttle_ms: i32,
    pub code: i16,
    pub topics: Vec<FetchedTopic>,
}

#[derive(Debug)]
pub(crate) struct FetchedTopic {
    pub name: StrBytes,
    pub id: Uuid,
    pub partitions: Vec<FetchedPartition>,
}

/// A partition of a response.
#[derive(Debug)]
pub(crate) struct FetchedPartition {
    pub index: i32,
    pub code: i16,
    /// `None` if the partition cannot be read.
    pub bounds: Option<Bounds>,
    pub aborted: Vec<AbortedTransaction>,
    pub pieces: Vec<Bytes>,
}

impl FetchedPartition {
    fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

pub(crate) async fn fetch(
    context: &RequestContext,
    request: FetchRequest,
) -> Result<EncodedResponse, ProtocolError> {
    // No session is ever created, so none can be continued.
    if context.version >= 7 && request.session_id != 0 && request.session_epoch > 0 {
        let code = context.error_code(&Code::FetchSessionIdNotFound);
        return encode_response(context, code, Vec::new());
    }
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let mut fetch = PendingFetch::new(context, &request);
    fetch.read_all(context).await;
    let enough = usize::try_from(request.min_bytes).unwrap_or(0);
    fetch.wait_for(context, enough, wait.min(WAIT_MAX)).await;
    fetch.refresh_bounds();
    let share = std::mem::take(&mut fetch.share);
    let response = encode_response(context, OK, fetch.finish(context))?;
    Ok(EncodedResponse { share, ..response })
}

fn encode_response(
    context: &RequestContext,
    code: i16,
    topics: Vec<FetchedTopic>,
) -> Result<EncodedResponse, ProtocolError> {
    let body = FetchBody {
        throttle_ms: context.quota_delay_ms(),
        code,
        topics,
    };
    encode::encode(context.version, context.correlation, body)
}

/// The state of a request.
struct PendingFetch {
    topics: Vec<FetchedTopic>,
    /// In the order of the request, in which the byte limit is used up.
    partitions: Vec<PartitionRead>,
    isolation: Isolation,
    bytes_max: usize,
    /// The memory for the fetched batches.
    share: MemoryShare,
}

/// The read of one partition.
struct PartitionRead {
    topic: usize,
    from: Offset,
    bytes_max: usize,
    partition: Result<Arc<dyn Partition>, Code>,
    fetched: FetchedPartition,
}

impl PendingFetch {
    fn new(context: &RequestContext, request: &FetchRequest) -> PendingFetch {
        let requested = usize::try_from(request.max_bytes).unwrap_or(0);
        let mut fetch = PendingFetch {
            topics: Vec::with_capacity(request.topics.len()),
            partitions: Vec::new(),
            isolation: isolation(request.isolation_level),
            bytes_max: requested.min(context.broker.options.fetch_bytes_max),
            share: MemoryShare::default(),
        };
        for topic in &request.topics {
            fetch.add(context, topic);
        }
        fetch
    }

    fn add(&mut self, context: &RequestContext, topic: &FetchTopic) {
        let hub = readable_hub(context, topic);
        for read in &topic.partitions {
            let partition = hub
                .as_ref()
                .map_err(|code| *code)
                .and_then(|(name, _)| context.partition(name, read.partition));
            self.partitions
                .push(PartitionRead::new(self.topics.len(), read, partition));
        }
        self.topics.push(FetchedTopic {
            name: topic.topic.0.clone(),
            id: hub.map_or(topic.topic_id, |(_, id)| id),
            partitions: Vec::with_capacity(topic.partitions.len()),
        });
    }

    async fn read_all(&mut self, context: &RequestContext) {
        self.share = context.broker.fetch_memory.take_up_to(self.bytes_max);
        let mut left = self.bytes_max.min(self.share.bytes());
        let mut first = true;
        for read in &mut self.partitions {
            read.read(left, first, self.isolation).await;
            let bytes = read.fetched.bytes();
            first &= bytes == 0;
            left = left.saturating_sub(bytes);
        }
        self.share.shrink_to(self.bytes());
    }

    /// Waits until there is enough data, a partition fails, or time is up.
    async fn wait_for(&mut self, context: &RequestContext, enough: usize, wait: Duration) {
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
                // All partitions have stopped. An immediate response would make the client spin.
                tokio::time::sleep_until(deadline).await;
                return;
            };
            let others = have - self.partitions[index].fetched.bytes();
            let more = self.bytes_max.saturating_sub(self.share.bytes());
            self.share.add(context.broker.fetch_memory.take_up_to(more));
            let left = self.bytes_max.min(self.share.bytes());
            let left = left.saturating_sub(others);
            let read = &mut self.partitions[index];
            let seen = read.visible(self.isolation);
            read.read(left, others == 0, self.isolation).await;
            have = others + read.fetched.bytes();
            self.share.shrink_to(have);
            if read.fetched.code != 0 {
                return;
            }
            // A partition that has stopped wakes immediately and never grows.
            if read.visible(self.isolation) > seen {
                waits.again(index, read, self.isolation);
            }
        }
    }

    /// Partitions without data get their current bounds: they may have grown by less than the reader waited for.
    fn refresh_bounds(&mut self) {
        for read in &mut self.partitions {
            if let (Ok(partition), true) = (&read.partition, read.fetched.pieces.is_empty())
                && read.fetched.code == OK
            {
                read.fetched.bounds = Some(partition.bounds());
            }
        }
    }

    fn bytes(&self) -> usize {
        self.partitions
            .iter()
            .map(|read| read.fetched.bytes())
            .sum()
    }

    fn failed(&self) -> bool {
        self.partitions.iter().any(|read| read.fetched.code != 0)
    }

    fn finish(mut self, context: &RequestContext) -> Vec<FetchedTopic> {
        for read in self.partitions {
            context.count_error(read.fetched.code);
            self.topics[read.topic].partitions.push(read.fetched);
        }
        self.topics
    }
}

impl PartitionRead {
    fn new(
        topic: usize,
        read: &FetchPartition,
        partition: Result<Arc<dyn Partition>, Code>,
    ) -> PartitionRead {
        PartitionRead {
            topic,
            from: Offset(read.fetch_offset),
            bytes_max: usize::try_from(read.partition_max_bytes).unwrap_or(0),
            fetched: FetchedPartition {
                index: read.partition,
                code: partition.as_ref().err().map_or(0, |code| code.code()),
                bounds: None,
                aborted: Vec::new(),
                pieces: Vec::new(),
            },
            partition,
        }
    }

    fn visible(&self, isolation: Isolation) -> Option<Offset> {
        self.fetched.bounds.map(|bounds| bounds.visible(isolation))
    }

    /// The first partition with data returns at least one batch, whatever its size, so that a large batch cannot
    /// block a reader.
    async fn read(&mut self, left: usize, first: bool, isolation: Isolation) {
        let Ok(partition) = &self.partition else {
            return;
        };
        if left == 0 && !first {
            self.fetched.bounds = Some(partition.bounds());
            return;
        }
        let bytes_max = self.bytes_max.min(left);
        match partition.read(self.from, bytes_max, isolation).await {
            Ok(fetched) => {
                self.fetched.bounds = Some(fetched.bounds);
                let pieces: Vec<Bytes> = fetched.pieces.iter().flat_map(without_frames).collect();
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                if first || bytes <= left {
                    self.fetched.pieces = pieces;
                    self.fetched.aborted = fetched.aborted;
                }
            }
            Err(error) => {
                self.fetched.code = error.code();
                self.fetched.bounds = None;
                self.fetched.pieces = Vec::new();
            }
        }
    }
}

/// Name and id of a hub that the client may read.
fn readable_hub(context: &RequestContext, topic: &FetchTopic) -> Result<(StrBytes, Uuid), Code> {
    if context.version < BY_ID {
        context.allow(Resource::Hub(&topic.topic))?;
        return Ok((topic.topic.0.clone(), Uuid::nil()));
    }
    let hub = context.log().hub_by_id(hub_id(topic.topic_id));
    let hub = hub.ok_or(Code::UnknownTopicId)?;
    context.allow(Resource::Hub(hub.name.as_str()))?;
    Ok((super::text(hub.name.as_str()), uuid_of(&hub)))
}
