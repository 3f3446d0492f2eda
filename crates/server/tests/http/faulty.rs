//! A log whose partition 0 is full, whose partition 1 has stopped and whose partition 2 has no disk left.

use std::sync::Arc;

use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AdminError, AppendError, Appended, Bounds, EnqueueTime, Fetched, HubId, HubInfo, HubName,
    HubSettings, HubSpec, Isolation, Log, Marker, MemoryLog, Offset, Partition, Pending, Place,
    Producer, ReadError,
};

pub struct Faulty {
    inner: MemoryLog,
}

impl Faulty {
    pub fn new(inner: MemoryLog) -> Faulty {
        Faulty { inner }
    }
}

impl Log for Faulty {
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        self.inner.hubs()
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        self.inner.hub(name)
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        self.inner.hub_by_id(id)
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.inner.partition(hub, partition)?;
        match partition {
            0..=2 => Some(Arc::new(Failing { inner })),
            _ => Some(inner),
        }
    }

    fn create(&self, spec: HubSpec) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.inner.create(spec)
    }

    fn delete(&self, name: &HubName) -> Pending<Result<(), AdminError>> {
        self.inner.delete(name)
    }

    fn grow(&self, name: &HubName, partitions: u32) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.inner.grow(name, partitions)
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.inner.change(name, settings)
    }
}

struct Failing {
    inner: Arc<dyn Partition>,
}

impl Failing {
    fn fail(&self) -> Pending<Result<Appended, AppendError>> {
        let place = self.inner.place().clone();
        Box::pin(std::future::ready(Err(match place.partition {
            0 => AppendError::Full { place, waiting: 7 },
            1 => AppendError::Stopped {
                place,
                reason: "the disk is on fire".into(),
            },
            _ => AppendError::NoRoom {
                place,
                reason: "quota exceeded".into(),
            },
        })))
    }
}

impl Partition for Failing {
    fn place(&self) -> &Place {
        self.inner.place()
    }

    fn append(&self, _: Batch) -> Pending<Result<Appended, AppendError>> {
        self.fail()
    }

    fn append_records(&self, _: &[NewRecord<'_>]) -> Pending<Result<Appended, AppendError>> {
        self.fail()
    }

    fn append_marker(&self, _: Producer, _: Marker) -> Pending<Result<Appended, AppendError>> {
        self.fail()
    }

    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Pending<Result<Fetched, ReadError>> {
        self.inner.read(from, bytes_max, isolation)
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> Pending<()> {
        self.inner.wait_past(offset, isolation)
    }

    fn find(&self, time: EnqueueTime) -> Pending<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        self.inner.find(time)
    }

    fn trim(&self, offset: Offset) -> Pending<Result<Offset, ReadError>> {
        self.inner.trim(offset)
    }
}
