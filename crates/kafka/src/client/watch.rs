//! Waits for partitions to grow, many with one request.
//!
//! All waiters for partitions of one broker share a long-poll Fetch, which the broker answers when the first
//! partition has data, or after a timeout. A waiter that arrives while a poll is in flight starts another, up to a
//! limit; the others share the next one. The batches of the response are cached for the read that follows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use highwater_log::{HubId, Isolation, Offset};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::PartitionData;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::cluster::{Cluster, Destination, UNKNOWN_MAX};
use super::connection::{CallError, CallOptions};
use super::dial::Address;
use super::errors::{Failure, is_unknown};
use super::fetch::{self, FetchPartitionRequest};
use super::lock;
use super::partition::RemotePartition;
use super::retry::Retry;

/// The limit of polls in flight to one broker. More would help only with many busy partitions.
const POLLS_MAX: usize = 4;
/// The bytes that a poll returns of each partition.
const POLL_BYTES: usize = 64 << 10;

pub(crate) struct Watch {
    cluster: Arc<Cluster>,
    polls: Mutex<HashMap<PollKey, Queue>>,
}

/// Partitions that can share a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PollKey {
    address: Address,
    committed: bool,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiter>,
    polls: usize,
}

struct Waiter {
    partition: RemotePartition,
    offset: Offset,
    done: oneshot::Sender<Result<PollOutcome, Failure>>,
}

/// The result of a poll for one waiter.
enum PollOutcome {
    Grown,
    /// The data is corrupt, which the next read reports.
    Damaged,
}

impl PollKey {
    fn isolation(&self) -> Isolation {
        match self.committed {
            true => Isolation::Committed,
            false => Isolation::Uncommitted,
        }
    }
}

impl Waiter {
    fn is_served(&self, isolation: Isolation) -> bool {
        self.partition.cache.bounds().visible(isolation) > self.offset
    }
}

impl Watch {
    pub(super) fn new(cluster: Arc<Cluster>) -> Watch {
        let polls = Mutex::default();
        Watch { cluster, polls }
    }

    /// Completes when the partition grows past `offset`, is deleted, or is corrupt there.
    pub(super) async fn wait_past(
        self: Arc<Self>,
        partition: RemotePartition,
        offset: Offset,
        isolation: Isolation,
    ) {
        let to = Destination::Leader(partition.target.clone());
        let mut retry = Retry::endless(&self.cluster.options);
        let mut unknown = 0;
        while partition.cache.bounds().visible(isolation) <= offset {
            let seen = self.cluster.view().number;
            let failure = match self.wait_once(&to, &partition, offset, isolation).await {
                Ok(PollOutcome::Grown) => {
                    (retry, unknown) = (Retry::endless(&self.cluster.options), 0);
                    continue;
                }
                Ok(PollOutcome::Damaged) => return,
                Err(failure) => failure,
            };
            unknown += u32::from(failure.code().is_some_and(is_unknown));
            if unknown >= UNKNOWN_MAX {
                return;
            }
            tracing::debug!(topic_partition = %partition.target.topic_partition, %failure, "waiting for records");
            if failure.code() == Some(Code::OffsetOutOfRange) {
                // The cached bounds are wrong. If this fails, the next attempt corrects them.
                let _ = partition.list_bounds().await;
            }
            retry.pause().await;
            self.cluster.invalidate(&to, seen).await;
        }
    }

    async fn wait_once(
        self: &Arc<Self>,
        to: &Destination,
        partition: &RemotePartition,
        offset: Offset,
        isolation: Isolation,
    ) -> Result<PollOutcome, Failure> {
        let key = PollKey {
            address: self.cluster.find(to).await?,
            committed: isolation == Isolation::Committed,
        };
        let (done, result) = oneshot::channel();
        let partition = partition.clone();
        self.enqueue(
            key,
            Waiter {
                partition,
                offset,
                done,
            },
        );
        let ended = || {
            Err(Failure::Call(CallError::Lost(
                "the poll was cancelled".into(),
            )))
        };
        result.await.unwrap_or_else(|_| ended())
    }

    fn enqueue(self: &Arc<Self>, key: PollKey, waiter: Waiter) {
        let mut polls = lock(&self.polls);
        let queue = polls.entry(key.clone()).or_default();
        queue.waiting.push(waiter);
        if queue.polls < POLLS_MAX {
            queue.polls += 1;
            tokio::spawn(Arc::clone(self).poll(key));
        }
    }

    async fn poll(self: Arc<Self>, key: PollKey) {
        // Waiters that arrive together share a poll.
        tokio::task::yield_now().await;
        while let Some(waiting) = self.gather(&key) {
            let response = self.fetch(&key, &waiting).await;
            self.complete(&key, waiting, response);
        }
    }

    /// All waiters. `None` if there are none, which ends the poll.
    fn gather(&self, key: &PollKey) -> Option<Vec<Waiter>> {
        let mut polls = lock(&self.polls);
        let queue = polls.get_mut(key)?;
        queue.waiting.retain(|waiter| !waiter.done.is_closed());
        if !queue.waiting.is_empty() {
            return Some(std::mem::take(&mut queue.waiting));
        }
        queue.polls -= 1;
        if queue.polls == 0 {
            polls.remove(key);
        }
        None
    }

    async fn fetch(
        &self,
        key: &PollKey,
        waiting: &[Waiter],
    ) -> Result<Vec<PolledPartition>, Failure> {
        let isolation = key.isolation();
        let partitions = fetch_partitions(waiting, isolation);
        let pool = &self.cluster.pool;
        let connection = pool.exclusive(&key.address).await.map_err(Failure::Call)?;
        let options = &self.cluster.options;
        let wait_ms = options.poll.as_millis() as i32;
        let request = |version| fetch::request(version, &partitions, isolation, wait_ms);
        let options = CallOptions {
            version_max: fetch::version_max(&partitions),
            ..CallOptions::with_timeout(options.poll + options.request_timeout)
        };
        let response = connection.call(options, request);
        let response = response.await.map_err(Failure::Call)?;
        pool.release(&key.address, connection);
        read(response, &partitions)
    }

    fn complete(
        self: &Arc<Self>,
        key: &PollKey,
        waiting: Vec<Waiter>,
        response: Result<Vec<PolledPartition>, Failure>,
    ) {
        let isolation = key.isolation();
        let failures = match response {
            Ok(data) => observe(&waiting, data, isolation),
            Err(failure) => {
                for waiter in waiting {
                    let _ = waiter.done.send(Err(failure.clone()));
                }
                return;
            }
        };
        for waiter in waiting {
            let topic_partition = &waiter.partition.target.topic_partition;
            match failures.get(&(waiter.partition.target.id, topic_partition.partition)) {
                Some(Some(failure)) => drop(waiter.done.send(Err(failure.clone()))),
                Some(None) => drop(waiter.done.send(Ok(PollOutcome::Damaged))),
                None if waiter.is_served(isolation) => {
                    drop(waiter.done.send(Ok(PollOutcome::Grown)))
                }
                None => self.requeue(key, waiter),
            }
        }
    }

    /// Adds a waiter without a result to the next poll.
    fn requeue(&self, key: &PollKey, waiter: Waiter) {
        let mut polls = lock(&self.polls);
        polls.entry(key.clone()).or_default().waiting.push(waiter);
    }
}

/// One entry for each partition, from the lowest offset of its waiters.
fn fetch_partitions(waiting: &[Waiter], isolation: Isolation) -> Vec<FetchPartitionRequest> {
    let one = |waiter: &Waiter| {
        let bounds = waiter.partition.cache.bounds();
        let end = bounds.visible(isolation).max(bounds.start);
        FetchPartitionRequest {
            target: waiter.partition.target.clone(),
            from: waiter.offset.clamp(bounds.start, end),
            bytes_max: POLL_BYTES,
        }
    };
    let mut partitions: Vec<FetchPartitionRequest> = waiting.iter().map(one).collect();
    let order = |one: &FetchPartitionRequest| (one.target.id, one.target.topic_partition.partition);
    partitions.sort_by_key(|one| (order(one), one.from));
    partitions.dedup_by_key(|one| order(one));
    partitions
}

/// The data of a partition, and the requested offset.
struct PolledPartition {
    id: HubId,
    from: Offset,
    data: PartitionData,
}

fn read(
    response: FetchResponse,
    requested: &[FetchPartitionRequest],
) -> Result<Vec<PolledPartition>, Failure> {
    let partitions = fetch::partitions(response).map_err(Failure::Broker)?;
    let known = partitions.filter_map(|fetched| {
        let data = fetched.data;
        let requested = requested.iter().find(|one| {
            let target = &one.target;
            let same = match fetched.topic_id.is_nil() {
                true => target.topic.as_str() == fetched.topic,
                false => Uuid::from_bytes(target.id.0) == fetched.topic_id,
            };
            same && i64::from(target.topic_partition.partition) == i64::from(data.partition_index)
        })?;
        let (id, from) = (requested.target.id, requested.from);
        Some(PolledPartition { id, from, data })
    });
    Ok(known.collect())
}

type PollFailures = HashMap<(HubId, u32), Option<Failure>>;

/// Updates the caches. Returns the failures by partition; `None` is corrupt data.
fn observe(waiting: &[Waiter], data: Vec<PolledPartition>, isolation: Isolation) -> PollFailures {
    let mut failures = PollFailures::new();
    for PolledPartition { id, from, data } in data {
        let partition = data.partition_index as u32;
        let waiter = waiting.iter().find(|waiter| {
            let target = &waiter.partition.target;
            target.id == id && target.topic_partition.partition == partition
        });
        let Some(waiter) = waiter else {
            continue;
        };
        match fetch::fetch_data(data) {
            Ok(Ok(fetched)) => {
                let cache = &waiter.partition.cache;
                cache.observe(fetched.bounds);
                if !fetched.pieces.is_empty() {
                    cache.store(from, isolation, fetched);
                }
            }
            Ok(Err(_broken)) => drop(failures.insert((id, partition), None)),
            Err(error) => drop(failures.insert((id, partition), Some(Failure::Broker(error)))),
        }
    }
    failures
}
