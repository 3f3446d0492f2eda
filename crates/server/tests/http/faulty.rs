//! A log whose partition 0 is full, whose partition 1 has stopped and whose partition 2 has no disk left.

use std::sync::Arc;

use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AppendError, Appended, Log, LogLayer, Marker, MemoryLog, Partition, PartitionLayer, Pending,
    Producer,
};

pub struct Faulty {
    inner: MemoryLog,
}

impl Faulty {
    pub fn new(inner: MemoryLog) -> Faulty {
        Faulty { inner }
    }
}

impl LogLayer for Faulty {
    fn inner(&self) -> &dyn Log {
        &self.inner
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.inner.partition(hub, partition)?;
        match partition {
            0..=2 => Some(Arc::new(Failing { inner })),
            _ => Some(inner),
        }
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

impl PartitionLayer for Failing {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
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
}
