//! The hub of decisions: one record for each transaction of several queues, until all of them have applied it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_codec::DecodeError;
use highwater_log::batch::{NewRecord, Record};
use highwater_log::{
    AdminError, AppendError, CleanupPolicy, HubName, HubSettings, HubSpec, Log, Offset, Partition,
    TopicPartition, replay,
};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::codec::{self, DecisionPart};
use crate::journal::{BATCH_BYTES_MAX, JournalError};
use crate::service::handle::Queue;

const HUB: &str = "__queue-transactions";

/// The hub is trimmed when this many decisions are done.
const TRIM_EVERY: usize = 1000;

/// The delay before a queue is asked again.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Decisions {
    log: Arc<dyn Log>,
    /// The hub is created with the first decision.
    partition: OnceCell<Arc<dyn Partition>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The next offset for a decision.
    end: Offset,
    /// Decisions that some queue has not applied.
    open: BTreeSet<Offset>,
    /// Appends whose offset is not known yet: by their number, the smallest offset that they may have.
    appending: BTreeMap<u64, Offset>,
    next_append: u64,
    /// How many were done since the hub was trimmed.
    done: usize,
}

impl Decisions {
    pub(super) async fn open(log: Arc<dyn Log>) -> Result<Decisions, JournalError> {
        let decisions = Decisions {
            log,
            partition: OnceCell::new(),
            state: Mutex::default(),
        };
        if let Some(partition) = decisions.log.claim(HUB, 0).await? {
            // It is new, so it is set.
            let _ = decisions.partition.set(partition);
        }
        Ok(decisions)
    }

    /// Applies the decisions that are stored.
    pub(super) async fn apply_all(
        &self,
        find: impl Fn(&str) -> Option<Queue>,
    ) -> Result<(), JournalError> {
        let Some(partition) = self.partition.get() else {
            return Ok(());
        };
        let mut stored = Vec::new();
        let add = |record: &Record<'_>| {
            let bytes = Bytes::copy_from_slice(record.value.unwrap_or_default());
            stored.push((record.offset, codec::read_decision(&bytes)?));
            Ok::<_, DecodeError>(())
        };
        replay(&**partition, BATCH_BYTES_MAX as usize, add).await?;
        self.state.lock().end = partition.bounds().end;
        let mut is_complete = true;
        for (offset, parts) in stored {
            for DecisionPart { hub, steps } in parts {
                let Some(queue) = find(&hub) else {
                    // It was deleted, or cannot be opened; in that case it applies its part when it can.
                    is_complete &= self.log.hub(&hub).is_none();
                    continue;
                };
                let applied = queue.apply_decision(offset, 0, steps).await;
                applied.map_err(|error| JournalError::Topic(error.to_string()))?;
            }
        }
        if is_complete {
            self.trim(self.end_offset()).await;
        }
        Ok(())
    }

    /// Every later decision has this offset or a larger one.
    pub(super) fn end(&self) -> u64 {
        number(self.end_offset())
    }

    fn end_offset(&self) -> Offset {
        self.state.lock().end
    }

    /// All decisions below are applied everywhere.
    pub(super) fn floor(&self) -> u64 {
        let state = self.state.lock();
        let open = state.open.first().into_iter();
        let floor = open.chain(state.appending.values()).min();
        let floor = floor.copied().unwrap_or(state.end);
        number(floor)
    }

    /// Decides a transaction, durably.
    pub(super) async fn append(&self, parts: &Vec<DecisionPart>) -> Result<Offset, AppendError> {
        let partition = self.partition.get_or_try_init(|| self.create()).await?;
        let mut bytes = Vec::new();
        codec::write_decision(parts, &mut bytes);
        let record = NewRecord {
            key: None,
            value: Some(&bytes),
            headers: &[],
        };
        let number = self.begin_append();
        let appended = partition.append_records(&[record]).await;
        let mut state = self.state.lock();
        state.appending.remove(&number);
        let offset = appended?.offset;
        state.end = state.end.max(Offset(offset.0 + 1));
        state.open.insert(offset);
        Ok(offset)
    }

    fn begin_append(&self) -> u64 {
        let state = &mut *self.state.lock();
        let number = state.next_append;
        state.next_append += 1;
        state.appending.insert(number, state.end);
        number
    }

    /// All queues have applied a decision.
    pub(super) async fn finish(&self, offset: Offset) {
        let is_due = {
            let mut state = self.state.lock();
            state.open.remove(&offset);
            state.done += 1;
            let is_due = state.done >= TRIM_EVERY;
            if is_due {
                state.done = 0;
            }
            is_due
        };
        if is_due {
            self.trim(Offset(self.floor() as i64)).await;
        }
    }

    async fn trim(&self, before: Offset) {
        let Some(partition) = self.partition.get() else {
            return;
        };
        if let Err(error) = partition.trim(before).await {
            tracing::warn!(%error, "decided transactions could not be trimmed");
        }
    }

    async fn create(&self) -> Result<Arc<dyn Partition>, AppendError> {
        let name = HubName::new(HUB).expect("the name is valid");
        let topic_partition = TopicPartition {
            hub: name.clone(),
            partition: 0,
        };
        let failed = |reason: String| AppendError::Busy {
            topic_partition: topic_partition.clone(),
            reason,
        };
        let spec = HubSpec {
            name,
            partitions: 1,
            settings: HubSettings {
                cleanup: CleanupPolicy::Delete,
                retention: None,
                retention_bytes: None,
                batch_bytes_max: BATCH_BYTES_MAX,
                ..HubSettings::default()
            },
        };
        match self.log.create(spec).await {
            Ok(_) | Err(AdminError::Exists(_)) => {}
            Err(error) => return Err(failed(error.to_string())),
        }
        let claimed = self.log.claim(HUB, 0).await?;
        claimed.ok_or_else(|| failed("it is gone".into()))
    }
}

/// An offset as queues store it.
pub(super) fn number(offset: Offset) -> u64 {
    offset.0.max(0) as u64
}
