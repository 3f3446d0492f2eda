//! Logs in front of logs: a layer says what it does differently, and everything else goes through.

use std::sync::Arc;

use crate::batch::{Batch, NewRecord};
use crate::{
    AdminError, AppendError, Appended, Bounds, EnqueueTime, Fetched, HubId, HubInfo, HubName,
    HubSettings, HubSpec, Isolation, Log, Marker, Offset, Partition, Pending, Place, Producer,
    ReadError,
};

/// A [`Log`] that is another one but for the methods it writes itself.
pub trait LogLayer: Send + Sync {
    fn inner(&self) -> &dyn Log;

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        self.inner().partition(hub, partition)
    }

    fn create(&self, spec: HubSpec) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.inner().create(spec)
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

    fn create(&self, spec: HubSpec) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        LogLayer::create(self, spec)
    }

    fn delete(&self, name: &HubName) -> Pending<Result<(), AdminError>> {
        self.inner().delete(name)
    }

    fn grow(&self, name: &HubName, partitions: u32) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.inner().grow(name, partitions)
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.inner().change(name, settings)
    }
}

/// A [`Partition`] that is another one but for how it appends.
pub trait PartitionLayer: Send + Sync {
    fn inner(&self) -> &dyn Partition;

    fn append(&self, batch: Batch) -> Pending<Result<Appended, AppendError>>;

    fn append_records(&self, records: &[NewRecord<'_>]) -> Pending<Result<Appended, AppendError>>;

    fn append_marker(
        &self,
        producer: Producer,
        marker: Marker,
    ) -> Pending<Result<Appended, AppendError>>;

    fn punctuate(&self, end: Offset) -> Pending<Result<Option<Appended>, AppendError>> {
        self.inner().punctuate(end)
    }
}

impl<T: PartitionLayer> Partition for T {
    fn place(&self) -> &Place {
        self.inner().place()
    }

    fn append(&self, batch: Batch) -> Pending<Result<Appended, AppendError>> {
        PartitionLayer::append(self, batch)
    }

    fn append_records(&self, records: &[NewRecord<'_>]) -> Pending<Result<Appended, AppendError>> {
        PartitionLayer::append_records(self, records)
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: Marker,
    ) -> Pending<Result<Appended, AppendError>> {
        PartitionLayer::append_marker(self, producer, marker)
    }

    fn punctuate(&self, end: Offset) -> Pending<Result<Option<Appended>, AppendError>> {
        PartitionLayer::punctuate(self, end)
    }

    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Pending<Result<Fetched, ReadError>> {
        self.inner().read(from, bytes_max, isolation)
    }

    fn bounds(&self) -> Bounds {
        self.inner().bounds()
    }

    fn bounds_now(&self) -> Pending<Result<Bounds, ReadError>> {
        self.inner().bounds_now()
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> Pending<()> {
        self.inner().wait_past(offset, isolation)
    }

    fn find(&self, time: EnqueueTime) -> Pending<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        self.inner().find(time)
    }

    fn trim(&self, offset: Offset) -> Pending<Result<Offset, ReadError>> {
        self.inner().trim(offset)
    }
}
