//! Decorators of logs: a layer overrides some methods and delegates the others.

use std::sync::Arc;

use crate::batch::{Batch, NewRecord};
use crate::{
    AdminError, AppendError, AppendInfo, Bounds, BoxFuture, ClaimResult, EnqueueTime, FetchData,
    HubId, HubInfo, HubName, HubSettings, HubSpec, Isolation, Log, Offset, Partition, Producer,
    ProducerInfo, ReadError, TimestampLookup, TopicPartition, TransactionMarker,
};

/// A [`Log`] that delegates to another one, except for the methods it overrides.
pub trait LogLayer: Send + Sync {
    fn inner(&self) -> &dyn Log;

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        self.inner().partition(hub, partition)
    }

    /// See [`Log::claim`].
    fn claim(&self, hub: &str, partition: u32) -> BoxFuture<ClaimResult> {
        Box::pin(std::future::ready(Ok(LogLayer::partition(
            self, hub, partition,
        ))))
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.inner().create(spec)
    }

    fn create_automatically(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.inner().create_automatically(spec)
    }
}

impl<T: LogLayer> Log for T {
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        self.inner().hubs()
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        self.inner().hub(name)
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        self.inner().hub_by_id(id)
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        LogLayer::partition(self, hub, partition)
    }

    fn claim(&self, hub: &str, partition: u32) -> BoxFuture<ClaimResult> {
        LogLayer::claim(self, hub, partition)
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        LogLayer::create(self, spec)
    }

    fn create_automatically(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        LogLayer::create_automatically(self, spec)
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>> {
        self.inner().delete(name)
    }

    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.inner().grow(name, partitions)
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.inner().change(name, settings)
    }
}

/// A [`Partition`] that delegates to another one, except for the appends it overrides.
pub trait PartitionLayer: Send + Sync {
    fn inner(&self) -> &dyn Partition;

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.inner().append(batch)
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.inner().append_records(records)
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.inner().append_marker(producer, marker)
    }

    fn punctuate(&self, end: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>> {
        self.inner().punctuate(end)
    }
}

impl<T: PartitionLayer> Partition for T {
    fn topic_partition(&self) -> &TopicPartition {
        self.inner().topic_partition()
    }

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        PartitionLayer::append(self, batch)
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        PartitionLayer::append_records(self, records)
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        PartitionLayer::append_marker(self, producer, marker)
    }

    fn punctuate(&self, end: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>> {
        PartitionLayer::punctuate(self, end)
    }

    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> BoxFuture<Result<FetchData, ReadError>> {
        self.inner().read(from, bytes_max, isolation)
    }

    fn bounds(&self) -> Bounds {
        self.inner().bounds()
    }

    fn stored_bytes(&self) -> Option<u64> {
        self.inner().stored_bytes()
    }

    fn producers(&self) -> Option<Vec<ProducerInfo>> {
        self.inner().producers()
    }

    fn fetch_bounds(&self) -> BoxFuture<Result<Bounds, ReadError>> {
        self.inner().fetch_bounds()
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> BoxFuture<()> {
        self.inner().wait_past(offset, isolation)
    }

    fn has_enqueue_times(&self) -> bool {
        self.inner().has_enqueue_times()
    }

    fn offset_for_time(
        &self,
        time: EnqueueTime,
    ) -> BoxFuture<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        self.inner().offset_for_time(time)
    }

    fn offset_for_timestamp(
        &self,
        lookup: TimestampLookup,
    ) -> BoxFuture<Result<Option<(Offset, i64)>, ReadError>> {
        self.inner().offset_for_timestamp(lookup)
    }

    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>> {
        self.inner().trim(offset)
    }
}
