//! A log whose partition 0 is full, whose partition 1 has stopped and whose partition 2 has no disk left.

use std::sync::Arc;

use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, Log, LogLayer, MemoryLog, Partition, PartitionLayer,
    Producer, TransactionMarker,
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
    fn fail(&self) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let topic_partition = self.inner.topic_partition().clone();
        Box::pin(std::future::ready(Err(match topic_partition.partition {
            0 => AppendError::QueueFull {
                topic_partition,
                waiting: 7,
            },
            1 => AppendError::Stopped {
                topic_partition,
                reason: "the disk is on fire".into(),
            },
            _ => AppendError::DiskFull {
                topic_partition,
                reason: "quota exceeded".into(),
            },
        })))
    }
}

impl PartitionLayer for Failing {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
    }

    fn append(&self, _: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.fail()
    }

    fn append_records(&self, _: &[NewRecord<'_>]) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.fail()
    }

    fn append_marker(
        &self,
        _: Producer,
        _: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.fail()
    }
}
