//! A log whose partition 0 is full, whose partition 1 has stopped and whose partition 2 has no disk space left.

use highwater_log::testing::GatedLog;
use highwater_log::{AppendError, MemoryLog};

pub(crate) fn faulty(memory: MemoryLog) -> GatedLog {
    let log = GatedLog::new(memory);
    log.refuse(|partition, _| {
        let topic_partition = partition.clone();
        match partition.partition {
            0 => Some(AppendError::QueueFull {
                topic_partition,
                waiting: 7,
            }),
            1 => Some(AppendError::Stopped {
                topic_partition,
                reason: "the disk is on fire".into(),
            }),
            2 => Some(AppendError::DiskFull {
                topic_partition,
                reason: "quota exceeded".into(),
            }),
            _ => None,
        }
    });
    log
}
