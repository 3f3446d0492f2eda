//! One partition of a cluster: read by Fetch, looked into by ListOffsets, and what was last heard of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_log::batch::{Batch, BatchError, NewRecord};
use highwater_log::{
    AppendError, AppendInfo, Bounds, BoxFuture, EnqueueTime, FetchData, Isolation, Offset,
    Partition, Producer, ReadError, TopicPartition, TransactionMarker,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, DeleteRecordsRequest, ListOffsetsRequest};

use super::append::Appender;
use super::cluster::{Cluster, ClusterRequest, Destination};
use super::errors::{Failure, ok, out_of_range, read_error};
use super::fetch::{self, FetchPartitionRequest};
use super::pool::ConnectionClass;
use super::view::Target;
use super::watch::Watch;
use crate::handlers::topic;

/// ListOffsets for the end and for the start instead of a time.
const END: i64 = -1;
const START: i64 = -2;

/// A handle; clones and everybody who asks for the same partition share it.
#[derive(Clone)]
pub(crate) struct RemotePartition {
    pub cluster: Arc<Cluster>,
    pub target: Target,
    pub cache: Arc<PartitionCache>,
    appender: Arc<Appender>,
    watch: Arc<Watch>,
}

/// What was last heard of a partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionCache {
    bounds: Mutex<Bounds>,
    /// What came with the answer that said there is more.
    prefetched: Mutex<Option<PrefetchedData>>,
}

#[derive(Debug)]
struct PrefetchedData {
    from: Offset,
    isolation: Isolation,
    fetched: FetchData,
}

impl PartitionCache {
    pub fn bounds(&self) -> Bounds {
        *lock(&self.bounds)
    }

    /// Answers overtake each other, and a partition never goes back: the furthest counts.
    pub fn observe(&self, observed: Bounds) {
        let mut bounds = lock(&self.bounds);
        if observed.end >= bounds.end {
            bounds.last_time = observed
                .last_time
                .or(bounds.last_time.filter(|_| observed.end == bounds.end));
        }
        bounds.start = bounds.start.max(observed.start);
        bounds.stable = bounds.stable.max(observed.stable);
        bounds.end = bounds.end.max(observed.end);
    }

    /// Asked for outright, which counts even if the partition did go back: the cluster may have lost its
    /// end with a broker.
    fn correct(&self, listed: Bounds) {
        let mut bounds = lock(&self.bounds);
        let last_time = bounds.last_time.filter(|_| listed.end == bounds.end);
        *bounds = Bounds {
            last_time,
            ..listed
        };
    }

    pub fn keep(&self, from: Offset, isolation: Isolation, fetched: FetchData) {
        *lock(&self.prefetched) = Some(PrefetchedData {
            from,
            isolation,
            fetched,
        });
    }

    fn take(&self, from: Offset, isolation: Isolation, bytes_max: usize) -> Option<FetchData> {
        let prefetched = lock(&self.prefetched).take()?;
        let bytes: usize = prefetched
            .fetched
            .pieces
            .iter()
            .map(bytes::Bytes::len)
            .sum();
        let fits =
            prefetched.from == from && prefetched.isolation == isolation && bytes <= bytes_max;
        fits.then_some(prefetched.fetched)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemotePartition {
    pub fn new(cluster: Arc<Cluster>, watch: Arc<Watch>, target: Target) -> RemotePartition {
        let cache = Arc::new(PartitionCache::default());
        let appender = Appender::new(Arc::clone(&cluster), target.clone(), Arc::clone(&cache));
        RemotePartition {
            cluster,
            target,
            cache,
            appender: Arc::new(appender),
            watch,
        }
    }

    pub fn append_in(
        &self,
        transaction: &str,
        batch: Batch,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.appender.append(batch, Some(transaction.into()))
    }

    async fn fetch(
        self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<FetchData, ReadError> {
        let topic_partition = &self.target.topic_partition;
        let wanted = [FetchPartitionRequest {
            target: self.target.clone(),
            from,
            bytes_max,
        }];
        let ask = ClusterRequest {
            class: ConnectionClass::Read,
            version_max: fetch::version_max(&wanted),
            ..ClusterRequest::new(Destination::Leader(self.target.clone()))
        };
        let requested = self.cluster.ask(
            ask,
            |version| fetch::request(version, &wanted, isolation, 0),
            |answer| {
                let answer = fetch::answers(answer)?.next();
                fetch::found(answer.ok_or(Code::UnknownServerError)?.2)
            },
        );
        let fetched = match requested.await {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(broken)) => {
                return Err(ReadError::Damaged {
                    topic_partition: topic_partition.clone(),
                    file: "an answer of the cluster".into(),
                    position: broken.position as u64,
                    reason: broken.error.to_string(),
                });
            }
            Err(failure) if failure.code() == Some(Code::OffsetOutOfRange) => {
                let bounds = self.list_bounds().await?;
                return Err(out_of_range(
                    topic_partition,
                    from,
                    bounds.start,
                    bounds.end,
                ));
            }
            Err(failure) => return Err(read_error(topic_partition, failure)),
        };
        self.cache.observe(fetched.bounds);
        Ok(fetched)
    }

    /// What ListOffsets says of a time, or of one of the ends.
    async fn offset_at(
        &self,
        time: i64,
        isolation: Isolation,
    ) -> Result<(Offset, EnqueueTime), Failure> {
        let topic_partition = &self.target.topic_partition;
        let request = |_| {
            let partition = ListOffsetsPartition::default()
                .with_partition_index(topic_partition.partition as i32)
                .with_timestamp(time);
            let of_hub = ListOffsetsTopic::default()
                .with_name(topic(topic_partition.hub.as_str()))
                .with_partitions(vec![partition]);
            ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(fetch::level(isolation))
                .with_topics(vec![of_hub])
        };
        let requested = self.cluster.ask(
            ClusterRequest::new(Destination::Leader(self.target.clone())),
            request,
            |answer| {
                let answer = answer.topics.into_iter().next();
                let answer = answer.and_then(|topic| topic.partitions.into_iter().next());
                let answer = answer.ok_or(Code::UnknownServerError)?;
                ok(answer.error_code)?;
                Ok((Offset(answer.offset), EnqueueTime(answer.timestamp)))
            },
        );
        requested.await
    }

    pub async fn list_bounds(&self) -> Result<Bounds, ReadError> {
        let failed = |failure| read_error(&self.target.topic_partition, failure);
        // The end last, so that it is not before the others.
        let (start, _) = self
            .offset_at(START, Isolation::Uncommitted)
            .await
            .map_err(failed)?;
        let (stable, _) = self
            .offset_at(END, Isolation::Committed)
            .await
            .map_err(failed)?;
        let (end, _) = self
            .offset_at(END, Isolation::Uncommitted)
            .await
            .map_err(failed)?;
        let known = Bounds {
            start,
            stable,
            end,
            last_time: None,
            bytes: 0,
        };
        self.cache.correct(known);
        Ok(self.cache.bounds())
    }

    async fn forget(self, offset: Offset) -> Result<Offset, ReadError> {
        let topic_partition = &self.target.topic_partition;
        let timeout_ms = self.cluster.options.request_timeout.as_millis() as i32;
        let request = |_| {
            let partition = DeleteRecordsPartition::default()
                .with_partition_index(topic_partition.partition as i32)
                .with_offset(offset.0);
            let of_hub = DeleteRecordsTopic::default()
                .with_name(topic(topic_partition.hub.as_str()))
                .with_partitions(vec![partition]);
            DeleteRecordsRequest::default()
                .with_topics(vec![of_hub])
                .with_timeout_ms(timeout_ms)
        };
        let requested = self.cluster.ask(
            ClusterRequest::new(Destination::Leader(self.target.clone())),
            request,
            |answer| {
                let answer = answer.topics.into_iter().next();
                let answer = answer.and_then(|topic| topic.partitions.into_iter().next());
                let answer = answer.ok_or(Code::UnknownServerError)?;
                ok(answer.error_code)?;
                Ok(Offset(answer.low_watermark))
            },
        );
        match requested.await {
            Ok(start) => {
                let known = self.cache.bounds();
                self.cache.observe(Bounds { start, ..known });
                Ok(start)
            }
            Err(failure) if failure.code() == Some(Code::OffsetOutOfRange) => {
                let bounds = self.list_bounds().await?;
                match offset <= bounds.start {
                    true => Ok(bounds.start),
                    false => Err(out_of_range(
                        topic_partition,
                        offset,
                        bounds.start,
                        bounds.end,
                    )),
                }
            }
            Err(failure) => Err(read_error(topic_partition, failure)),
        }
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<T> {
    Box::pin(std::future::ready(value))
}

impl Partition for RemotePartition {
    fn topic_partition(&self) -> &TopicPartition {
        &self.target.topic_partition
    }

    /// A batch without a producer is given one, so that sending it again when the answer was lost appends it
    /// once. [`AppendInfo::duplicate`] is false even then: brokers do not say.
    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.appender.append(batch, None)
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.appender.append_records(records)
    }

    /// Only brokers write markers.
    fn append_marker(
        &self,
        _: Producer,
        _: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        ready(Err(BatchError::Control.into()))
    }

    /// A cluster has no word for it.
    fn punctuate(&self, _: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>> {
        ready(Err(BatchError::Control.into()))
    }

    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> BoxFuture<Result<FetchData, ReadError>> {
        match self.cache.take(from, isolation, bytes_max) {
            Some(fetched) => ready(Ok(fetched)),
            None => Box::pin(self.clone().fetch(from, bytes_max, isolation)),
        }
    }

    /// As every answer about the partition leaves them; nothing at all before the first.
    fn bounds(&self) -> Bounds {
        self.cache.bounds()
    }

    fn fetch_bounds(&self) -> BoxFuture<Result<Bounds, ReadError>> {
        let partition = self.clone();
        Box::pin(async move { partition.list_bounds().await })
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> BoxFuture<()> {
        let (watch, partition) = (Arc::clone(&self.watch), self.clone());
        Box::pin(watch.wait_past(partition, offset, isolation))
    }

    /// By the times of the records, which are those of the log only where it stamps them
    /// (`message.timestamp.type=LogAppendTime`), as in every hub that was made here.
    fn offset_for_time(
        &self,
        time: EnqueueTime,
    ) -> BoxFuture<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        let partition = self.clone();
        Box::pin(async move {
            let found = partition.offset_at(time.0.max(0), Isolation::Uncommitted);
            let found = found.await;
            let found =
                found.map_err(|failure| read_error(&partition.target.topic_partition, failure))?;
            Ok(Some(found).filter(|(offset, _)| offset.0 >= 0))
        })
    }

    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>> {
        Box::pin(self.clone().forget(offset))
    }
}
