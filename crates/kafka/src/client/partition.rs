//! One partition of a cluster: reads, offsets by time, trimming, and its cached bounds.

use std::sync::{Arc, Mutex, Weak};

use highwater_log::batch::{Batch, BatchError, NewRecord, TimestampType};
use highwater_log::{
    AppendError, AppendInfo, Bounds, BoxFuture, EnqueueTime, FetchData, Isolation, Offset,
    Partition, Producer, ReadError, TimestampLookup, TopicPartition, TransactionMarker,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, DeleteRecordsRequest, ListOffsetsRequest};

use super::append::Appender;
use super::cluster::{Cluster, Destination, Route};
use super::errors::{ok, out_of_range, read_error, single};
use super::fetch::{self, FetchPartitionRequest};
use super::lock;
use super::pool::ConnectionClass;
use super::view::Target;
use super::watch::Watch;
use crate::handlers::list_offsets::NEWEST;

/// Timestamps of ListOffsets that stand for the end and the start.
pub(super) const END: i64 = -1;
pub(super) const START: i64 = -2;

/// A handle. Clones share the partition's queue and cache.
#[derive(Clone)]
pub(crate) struct RemotePartition {
    pub cluster: Arc<Cluster>,
    pub target: Target,
    pub cache: Arc<PartitionCache>,
    appender: Arc<Appender>,
    watch: Arc<Watch>,
}

/// The last known state of a partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionCache {
    bounds: Mutex<Bounds>,
    /// Batches that a poll returned.
    prefetched: Mutex<Option<PrefetchedData>>,
}

#[derive(Debug)]
struct PrefetchedData {
    from: Offset,
    isolation: Isolation,
    fetched: FetchData,
}

impl PartitionCache {
    pub(super) fn bounds(&self) -> Bounds {
        *lock(&self.bounds)
    }

    /// Responses may arrive out of order and bounds never decrease, so the maximum counts.
    pub(super) fn observe(&self, observed: Bounds) {
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

    /// Sets the bounds that ListOffsets returned, even if they decreased: the cluster may have lost its end with a
    /// broker.
    fn correct(&self, listed: Bounds) {
        let mut bounds = lock(&self.bounds);
        let last_time = bounds.last_time.filter(|_| listed.end == bounds.end);
        *bounds = Bounds {
            last_time,
            ..listed
        };
    }

    pub(super) fn store(&self, from: Offset, isolation: Isolation, fetched: FetchData) {
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

impl RemotePartition {
    pub(super) fn new(cluster: Arc<Cluster>, watch: Arc<Watch>, target: Target) -> RemotePartition {
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

    /// The same partition for its only writer, with a queue of its own.
    pub(super) fn claimed(&self, producer: Producer) -> RemotePartition {
        let (cluster, target) = (Arc::clone(&self.cluster), self.target.clone());
        let appender = Appender::claimed(cluster, target, Arc::clone(&self.cache), producer);
        RemotePartition {
            appender: Arc::new(appender),
            ..self.clone()
        }
    }

    /// The queue of a claimed partition, which lives as long as the claim is used.
    pub(super) fn owner(&self) -> Weak<Appender> {
        Arc::downgrade(&self.appender)
    }

    pub(super) fn append_in(
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
        let partitions = [FetchPartitionRequest {
            target: self.target.clone(),
            from,
            bytes_max,
        }];
        let route = Route {
            class: ConnectionClass::Read,
            version_max: fetch::version_max(&partitions),
            ..Route::new(Destination::Leader(self.target.clone()))
        };
        let requested = self.cluster.call(
            route,
            |version| fetch::request(version, &partitions, isolation, 0),
            |response| {
                let fetched = single(fetch::partitions(response)?.collect())?;
                fetch::fetch_data(fetched.data)
            },
        );
        let fetched = match requested.await {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(broken)) => {
                return Err(ReadError::Damaged {
                    topic_partition: topic_partition.clone(),
                    file: "a response of the cluster".into(),
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

    /// ListOffsets for a time, or for the start or end.
    async fn offset_at(
        &self,
        time: i64,
        isolation: Isolation,
    ) -> Result<(Offset, EnqueueTime), ReadError> {
        let topic_partition = &self.target.topic_partition;
        let request = |_| {
            let partition = ListOffsetsPartition::default()
                .with_partition_index(topic_partition.partition as i32)
                .with_timestamp(time);
            let of_hub = ListOffsetsTopic::default()
                .with_name(self.target.topic.clone())
                .with_partitions(vec![partition]);
            ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(fetch::level(isolation))
                .with_topics(vec![of_hub])
        };
        let requested = self.cluster.call(
            Route::new(Destination::Leader(self.target.clone())),
            request,
            |response| {
                let partition = single(single(response.topics)?.partitions)?;
                ok(partition.error_code)?;
                Ok((Offset(partition.offset), EnqueueTime(partition.timestamp)))
            },
        );
        let requested = requested.await;
        requested.map_err(|failure| read_error(topic_partition, failure))
    }

    pub(super) async fn list_bounds(&self) -> Result<Bounds, ReadError> {
        // The end comes last, so that it is not below the others.
        let (start, _) = self.offset_at(START, Isolation::Uncommitted).await?;
        let (stable, _) = self.offset_at(END, Isolation::Committed).await?;
        let (end, _) = self.offset_at(END, Isolation::Uncommitted).await?;
        let listed = Bounds {
            start,
            stable,
            end,
            last_time: None,
            bytes: 0,
        };
        self.cache.correct(listed);
        Ok(self.cache.bounds())
    }

    async fn delete_records(self, offset: Offset) -> Result<Offset, ReadError> {
        let topic_partition = &self.target.topic_partition;
        let timeout_ms = self.cluster.options.request_timeout.as_millis() as i32;
        let request = |_| {
            let partition = DeleteRecordsPartition::default()
                .with_partition_index(topic_partition.partition as i32)
                .with_offset(offset.0);
            let of_hub = DeleteRecordsTopic::default()
                .with_name(self.target.topic.clone())
                .with_partitions(vec![partition]);
            DeleteRecordsRequest::default()
                .with_topics(vec![of_hub])
                .with_timeout_ms(timeout_ms)
        };
        let requested = self.cluster.call(
            Route::new(Destination::Leader(self.target.clone())),
            request,
            |response| {
                let partition = single(single(response.topics)?.partitions)?;
                ok(partition.error_code)?;
                Ok(Offset(partition.low_watermark))
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

    /// A batch without a producer gets one, so that a retry after a lost response appends it once.
    /// [`AppendInfo::duplicate`] is always false: brokers do not return it.
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

    /// Clusters have no punctuation.
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

    /// Cached from the last response; empty before the first.
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

    /// `false` in a topic with `message.timestamp.type=CreateTime`, unless the options say that its times count.
    fn has_enqueue_times(&self) -> bool {
        let hub = self.cluster.hub(self.target.topic_partition.hub.as_str());
        let kind = hub.map(|hub| hub.settings.timestamps.kind);
        self.cluster.options.create_time_counts || kind != Some(TimestampType::Create)
    }

    /// By the timestamps of the records. These are append times only with `message.timestamp.type=LogAppendTime`, as
    /// in every hub that this client creates.
    fn offset_for_time(
        &self,
        time: EnqueueTime,
    ) -> BoxFuture<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        let partition = self.clone();
        Box::pin(async move {
            let found = partition.offset_at(time.0.max(0), Isolation::Uncommitted);
            let found = found.await;
            Ok(Some(found?).filter(|(offset, _)| offset.0 >= 0))
        })
    }

    fn offset_for_timestamp(
        &self,
        lookup: TimestampLookup,
    ) -> BoxFuture<Result<Option<(Offset, i64)>, ReadError>> {
        let partition = self.clone();
        let timestamp = match lookup {
            TimestampLookup::AtLeast(timestamp) => timestamp.max(0),
            TimestampLookup::Latest => NEWEST,
        };
        Box::pin(async move {
            let found = partition.offset_at(timestamp, Isolation::Uncommitted);
            let (offset, time) = found.await?;
            Ok((offset.0 >= 0).then_some((offset, time.0)))
        })
    }

    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>> {
        Box::pin(self.clone().delete_records(offset))
    }
}
