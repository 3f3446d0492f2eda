//! Waits for partitions to grow, many with one request.
//!
//! Everybody who waits for a partition of the same broker waits in one Fetch that the broker answers when
//! the first of them has something, or after a while. Who comes while such a poll is under way is not made
//! to wait for its end but begins another, up to a few; whatever then still waits goes into the next one
//! together. What comes back with the answer is kept for the read that follows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
use super::partition::RemotePartition;
use super::retry::Retry;

/// Polls under way to one broker. More would only be needed if partitions were busy and many.
const POLLS_MAX: usize = 4;
/// As much is brought along of each partition.
const POLL_BYTES: usize = 64 << 10;

pub(crate) struct Watch {
    cluster: Arc<Cluster>,
    polls_by_key: Mutex<HashMap<PollKey, Queue>>,
}

/// What can be asked for in one request.
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

/// What a poll has to say to one who waits.
enum PollOutcome {
    Grown,
    /// What there is cannot be trusted. Whoever reads it is told so.
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
    pub fn new(cluster: Arc<Cluster>) -> Watch {
        let polls_by_key = Mutex::default();
        Watch {
            cluster,
            polls_by_key,
        }
    }

    fn polls_by_key(&self) -> MutexGuard<'_, HashMap<PollKey, Queue>> {
        self.polls_by_key
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when the partition is seen past `offset`, is gone, or is damaged there.
    pub async fn wait_past(
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
                // It does not begin or end where we thought; if this fails, the next try will not.
                let _ = partition.list_bounds().await;
            }
            retry.pause().await;
            self.cluster.look_again(&to, seen).await;
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
        let (done, word) = oneshot::channel();
        let partition = partition.clone();
        self.enqueue(
            key,
            Waiter {
                partition,
                offset,
                done,
            },
        );
        let ended = || Err(Failure::Call(CallError::Lost("the poll has ended".into())));
        word.await.unwrap_or_else(|_| ended())
    }

    fn enqueue(self: &Arc<Self>, key: PollKey, waiter: Waiter) {
        let mut polls_by_key = self.polls_by_key();
        let queue = polls_by_key.entry(key.clone()).or_default();
        queue.waiting.push(waiter);
        if queue.polls < POLLS_MAX {
            queue.polls += 1;
            tokio::spawn(Arc::clone(self).poll(key));
        }
    }

    async fn poll(self: Arc<Self>, key: PollKey) {
        // Those who come together shall go together.
        tokio::task::yield_now().await;
        while let Some(waiting) = self.gather(&key) {
            let answer = self.ask(&key, &waiting).await;
            self.complete(&key, waiting, answer);
        }
    }

    /// Everybody who waits; with nobody, the poll is over.
    fn gather(&self, key: &PollKey) -> Option<Vec<Waiter>> {
        let mut polls_by_key = self.polls_by_key();
        let queue = polls_by_key.get_mut(key)?;
        queue.waiting.retain(|waiter| !waiter.done.is_closed());
        if !queue.waiting.is_empty() {
            return Some(std::mem::take(&mut queue.waiting));
        }
        queue.polls -= 1;
        if queue.polls == 0 {
            polls_by_key.remove(key);
        }
        None
    }

    async fn ask(
        &self,
        key: &PollKey,
        waiting: &[Waiter],
    ) -> Result<Vec<PolledPartition>, Failure> {
        let isolation = key.isolation();
        let wanted = wanted(waiting, isolation);
        let pool = &self.cluster.pool;
        let connection = pool.exclusive(&key.address).await.map_err(Failure::Call)?;
        let options = &self.cluster.options;
        let wait_ms = options.poll.as_millis() as i32;
        let request = |version| fetch::request(version, &wanted, isolation, wait_ms);
        let options = CallOptions {
            version_max: fetch::version_max(&wanted),
            ..CallOptions::with_timeout(options.poll + options.request_timeout)
        };
        let answer = connection.call(options, request);
        let answer = answer.await.map_err(Failure::Call)?;
        pool.release(&key.address, connection);
        read(answer, &wanted)
    }

    fn complete(
        self: &Arc<Self>,
        key: &PollKey,
        waiting: Vec<Waiter>,
        answer: Result<Vec<PolledPartition>, Failure>,
    ) {
        let isolation = key.isolation();
        let failures = match answer {
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

    /// The poll that did not bring it goes on with it.
    fn requeue(&self, key: &PollKey, waiter: Waiter) {
        let mut polls_by_key = self.polls_by_key();
        polls_by_key
            .entry(key.clone())
            .or_default()
            .waiting
            .push(waiter);
    }
}

/// One entry for each partition, from where the first of its readers is.
fn wanted(waiting: &[Waiter], isolation: Isolation) -> Vec<FetchPartitionRequest> {
    let one = |waiter: &Waiter| {
        let bounds = waiter.partition.cache.bounds();
        let end = bounds.visible(isolation).max(bounds.start);
        FetchPartitionRequest {
            target: waiter.partition.target.clone(),
            from: waiter.offset.clamp(bounds.start, end),
            bytes_max: POLL_BYTES,
        }
    };
    let mut wanted: Vec<FetchPartitionRequest> = waiting.iter().map(one).collect();
    let order = |wanted: &FetchPartitionRequest| {
        (wanted.target.id, wanted.target.topic_partition.partition)
    };
    wanted.sort_by_key(|wanted| (order(wanted), wanted.from));
    wanted.dedup_by_key(|wanted| order(wanted));
    wanted
}

/// What was said of a partition, and from where on it was asked for.
struct PolledPartition {
    id: HubId,
    from: Offset,
    data: PartitionData,
}

fn read(
    answer: FetchResponse,
    wanted: &[FetchPartitionRequest],
) -> Result<Vec<PolledPartition>, Failure> {
    let answers = fetch::answers(answer).map_err(Failure::Broker)?;
    let known = answers.filter_map(|(id, name, data)| {
        let requested = wanted.iter().find(|wanted| {
            let target = &wanted.target;
            let same = match id.is_nil() {
                true => target.topic_partition.hub.as_str() == name,
                false => Uuid::from_bytes(target.id.0) == id,
            };
            same && i64::from(target.topic_partition.partition) == i64::from(data.partition_index)
        })?;
        let (id, from) = (requested.target.id, requested.from);
        Some(PolledPartition { id, from, data })
    });
    Ok(known.collect())
}

type PollFailures = HashMap<(HubId, u32), Option<Failure>>;

/// Notes what was said; answers with what is wrong with which partition, `None` being damage.
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
        match fetch::found(data) {
            Ok(Ok(fetched)) => {
                let cache = &waiter.partition.cache;
                cache.observe(fetched.bounds);
                if !fetched.pieces.is_empty() {
                    cache.keep(from, isolation, fetched);
                }
            }
            Ok(Err(_broken)) => drop(failures.insert((id, partition), None)),
            Err(error) => drop(failures.insert((id, partition), Some(Failure::Broker(error)))),
        }
    }
    failures
}
