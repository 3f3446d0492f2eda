//! Reads the instances that schedulers append to the hub of failed instances.

use std::sync::Arc;

use highwater_log::{Isolation, Offset, Partition};

use super::shard::{Message, ShardSender};
use crate::journal::{self, JournalError, Record, read_from};
use crate::versions::Versions;

pub(crate) struct Tail {
    pub partition: Arc<dyn Partition>,
    pub next: Offset,
    pub versions: Versions,
    pub sender: ShardSender,
}

impl Tail {
    pub(crate) async fn run(
        mut self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), JournalError> {
        let mut stop = std::pin::pin!(stop);
        loop {
            let more = self.partition.wait_past(self.next, Isolation::Uncommitted);
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = more => {}
            }
            self.read().await?;
        }
    }

    /// Reads to the current end.
    async fn read(&mut self) -> Result<(), JournalError> {
        let mut failed = Vec::new();
        let versions = &self.versions;
        let partition = &self.partition;
        let next = read_from(&**partition, self.next, |record| {
            // Other records are the supervisor's own.
            if record.value.is_some_and(journal::is_failed)
                && let Some((_, Record::Failed(instance))) =
                    journal::read_record(&**partition, record, versions)?
            {
                failed.push(*instance);
            }
            Ok(())
        })
        .await?;
        self.next = next;
        // A closed shard has stopped, and this task will too.
        let _ = self.sender.send(Message::Failed(failed, next));
        Ok(())
    }
}
