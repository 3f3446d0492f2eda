//! Appends to a log, waiting while it is full.

use std::time::Duration;

use highwater_log::batch::NewRecord;
use highwater_log::{AppendError, AppendInfo, Partition};

/// Delay between attempts while the log is full.
const FULL_WAIT: Duration = Duration::from_millis(50);

/// Appends, retrying while the log is full. The records describe facts, so there is no caller to reject.
pub(crate) async fn append(
    partition: &dyn Partition,
    records: &[NewRecord<'_>],
) -> Result<AppendInfo, AppendError> {
    loop {
        match partition.append_records(records).await {
            Err(
                AppendError::QueueFull { .. }
                | AppendError::Busy { .. }
                | AppendError::DiskFull { .. },
            ) => {
                tokio::time::sleep(FULL_WAIT).await;
            }
            done => return done,
        }
    }
}

/// The record of an instance.
pub(crate) fn record<'r>(id: &'r str, value: &'r [u8]) -> NewRecord<'r> {
    NewRecord {
        key: Some(id.as_bytes()),
        value: Some(value),
        headers: &[],
    }
}
