//! What a part learns from the hubs of the others: the supervisor what failed, and a scheduler that has
//! no supervisor beside it what has ended.
//!
//! Hubs are all that joins the two, so a supervisor can be another process than the schedulers.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::{Isolation, Offset, Partition};

use super::shard::{Door, Message};
use crate::core::Input;
use crate::history::History;
use crate::journal::{self, JournalError, Record, RecordError, read_from};
use crate::versions::Versions;

/// How long to wait for a definition that is missing.
const AGAIN: Duration = Duration::from_millis(200);

pub struct Tail {
    pub partition: Arc<dyn Partition>,
    pub next: Offset,
    pub versions: Versions,
    pub versions_log: Arc<dyn Partition>,
    pub door: Door,
}

impl Tail {
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Result<(), JournalError> {
        let mut stop = std::pin::pin!(stop);
        loop {
            let more = self.partition.wait_past(self.next, Isolation::Uncommitted);
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = more => {}
            }
            if self.read().await? {
                continue;
            }
            // A scheduler runs a definition that came after ours.
            let newer = Versions::load(&*self.versions_log).await?;
            self.versions.join(&newer);
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Reads to the end; false if a definition is missing, with nothing taken.
    async fn read(&mut self) -> Result<bool, JournalError> {
        let mut failed = Vec::new();
        let mut missing = false;
        let versions = &self.versions;
        let partition = &self.partition;
        let next = read_from(&**partition, self.next, |record| {
            let (Some(key), Some(value)) = (record.key, record.value) else {
                return Ok(());
            };
            // The rest is what the supervisor itself wrote.
            if !journal::is_failed(value) {
                return Ok(());
            }
            match journal::read(&String::from_utf8_lossy(key), value, versions) {
                Ok(Record::Failed(instance)) => failed.push(*instance),
                Ok(_) => {}
                Err(RecordError::Version(_)) => missing = true,
                Err(error) => {
                    return Err(JournalError::Record {
                        place: partition.place().to_string(),
                        offset: record.offset,
                        error,
                    });
                }
            }
            Ok(())
        })
        .await?;
        if missing {
            return Ok(false);
        }
        self.next = next;
        // A shard that is gone has stopped, and so will we.
        let _ = self.door.send(Message::Failed(failed, next));
        Ok(true)
    }
}

/// Tells a scheduler what has ended elsewhere.
pub struct Follow {
    pub partition: Arc<dyn Partition>,
    pub next: Offset,
    pub history: Arc<History>,
    pub door: Door,
}

impl Follow {
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Result<(), JournalError> {
        let mut stop = std::pin::pin!(stop);
        loop {
            let more = self.partition.wait_past(self.next, Isolation::Uncommitted);
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = more => {}
            }
            // Known before it is let go, so that nobody can start it again in between.
            self.history.catch_up().await?;
            let door = &self.door;
            self.next = read_from(&*self.partition, self.next, |record| {
                let id = String::from_utf8_lossy(record.key.unwrap_or_default());
                let id = Arc::from(&*id);
                // A shard that is gone has stopped, and so will we.
                let _ = door.send(Message::Input(Input::Closed { id }));
                Ok(())
            })
            .await?;
        }
    }
}
