//! Appending to a log that may have no room for a moment.

use std::time::Duration;

use highwater_log::batch::NewRecord;
use highwater_log::{AppendError, Appended, Partition};

/// How long to wait when the log takes nothing for now.
const FULL_WAIT: Duration = Duration::from_millis(50);

/// Appends, trying again for as long as there is only no room. What is to be appended has happened, so
/// there is nobody to be told that it did not.
pub async fn append(
    partition: &dyn Partition,
    records: &[NewRecord<'_>],
) -> Result<Appended, AppendError> {
    loop {
        match partition.append_records(records).await {
            Err(AppendError::Full { .. } | AppendError::NoRoom { .. }) => {
                tokio::time::sleep(FULL_WAIT).await;
            }
            done => return done,
        }
    }
}

/// The record of an instance.
pub fn record<'r>(id: &'r str, value: &'r [u8]) -> NewRecord<'r> {
    NewRecord {
        key: Some(id.as_bytes()),
        value: Some(value),
        headers: &[],
    }
}
