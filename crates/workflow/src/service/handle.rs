//! The handle of a running workflow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_log::partition_for_key;
use tokio::sync::oneshot;

use super::Supervision;
use super::failed_instances::LocalFailedInstances;
use super::input_memory::InputMemory;
use super::list::{self, InstancePage, ListFilter};
use super::shard::{Message, ShardSender};
use crate::core::{Input, OperatorCommand, OperatorCommandError, StartOutcome};
use crate::definition::{Definition, Version};
use crate::history::History;
use crate::journal::JournalError;
use crate::machine::View;
use crate::supervise::FailedInstanceError;
use crate::versions::Versions;

/// A running workflow. Clones refer to the same one.
#[derive(Clone)]
pub struct Handle(Arc<Parts>);

pub(super) struct Parts {
    pub name: Arc<str>,
    pub version: Version,
    pub partitions: u32,
    pub supervision: Supervision,
    pub schedulers: Vec<ShardSender>,
    pub supervisors: Vec<ShardSender>,
    pub histories: Vec<Arc<History>>,
    pub running: Arc<AtomicUsize>,
    pub failed: Arc<AtomicUsize>,
    pub running_max: usize,
    /// For the inputs of instances in progress.
    pub input_memory: InputMemory,
    pub versions: Versions,
}

/// Why an instance was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("`{0}` is not a valid instance id: use 1 to {ID_LEN_MAX} visible characters")]
    Id(String),
    #[error("the input has {0} bytes, and the limit is {INPUT_BYTES_MAX}")]
    TooLarge(usize),
    /// Try again later.
    #[error("{0} instances are in progress, and no more are accepted for now")]
    Full(usize),
    /// Try again later.
    #[error("the inputs of instances in progress have {0} bytes, and no more are accepted for now")]
    FullOfInputs(usize),
    #[error("the workflow has stopped")]
    Stopped,
}

pub(crate) const ID_LEN_MAX: usize = 250;
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 20;

impl Handle {
    pub(super) fn new(parts: Parts) -> Handle {
        Handle(Arc::new(parts))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn version(&self) -> Version {
        self.0.version
    }

    /// The definition of new instances.
    pub fn definition(&self) -> Option<Arc<Definition>> {
        self.0.versions.get(self.0.version)
    }

    pub fn partitions(&self) -> u32 {
        self.0.partitions
    }

    /// Where failed instances are undone.
    pub fn supervision(&self) -> Supervision {
        self.0.supervision
    }

    /// The failed instances of a partition, for remote supervisors.
    pub fn failed_instances(
        &self,
        partition: u32,
    ) -> Result<LocalFailedInstances, FailedInstanceError> {
        let sender = self.0.supervisors.get(partition as usize);
        let is_remote = self.0.supervision == Supervision::Elsewhere;
        Ok(LocalFailedInstances {
            sender: sender
                .filter(|_| is_remote)
                .ok_or(FailedInstanceError::Closed)?
                .clone(),
            versions: self.0.versions.clone(),
        })
    }

    /// Instances in progress, including those with the supervisor.
    pub fn running(&self) -> usize {
        self.0.running.load(Ordering::Relaxed)
    }

    /// Instances with the supervisor: being undone, or parked.
    pub fn failed(&self) -> usize {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Ended instances that are still kept.
    pub fn ended(&self) -> usize {
        self.0.histories.iter().map(|history| history.len()).sum()
    }

    /// Starts an instance, unless one with this id exists or existed. Completes when it would survive a crash.
    pub async fn start(&self, id: &str, input: &[u8]) -> Result<StartOutcome, StartError> {
        let visible = |c: char| !c.is_control();
        if id.is_empty() || id.len() > ID_LEN_MAX || !id.chars().all(visible) {
            return Err(StartError::Id(id.chars().take(ID_LEN_MAX).collect()));
        }
        if input.len() > INPUT_BYTES_MAX {
            return Err(StartError::TooLarge(input.len()));
        }
        let running = self.running();
        if running >= self.0.running_max {
            return Err(StartError::Full(running));
        }
        let accepted = self.0.input_memory.accept(input);
        let input = accepted.map_err(|exhausted| StartError::FullOfInputs(exhausted.taken))?;
        let (reply, answer) = oneshot::channel();
        let sender = self.0.schedulers.get(self.partition(id));
        let message = Message::Start {
            id: Arc::from(id),
            input,
            reply,
        };
        let sent = sender.ok_or(StartError::Stopped)?.send(message);
        sent.map_err(|_| StartError::Stopped)?;
        answer.await.map_err(|_| StartError::Stopped)
    }

    pub async fn show(&self, id: &str) -> Result<Option<View>, JournalError> {
        let partition = self.partition(id);
        let senders = [&self.0.schedulers, &self.0.supervisors];
        for sender in senders
            .into_iter()
            .filter_map(|senders| senders.get(partition))
        {
            let (reply, answer) = oneshot::channel();
            let id = Arc::from(id);
            if sender.send(Message::Show { id, reply }).is_ok()
                && let Ok(Some(view)) = answer.await
            {
                return Ok(Some(view));
            }
        }
        let found = self.0.histories[partition].find(id).await?;
        Ok(found.map(|instance| instance.view()))
    }

    /// A page of instances: those in progress, then ended ones, each the newest first. The instance whose id is that of
    /// the filter comes before the others.
    pub async fn list(&self, filter: &ListFilter) -> Result<InstancePage, JournalError> {
        let exact = match (&filter.id, &filter.after) {
            (Some(id), None) => self.show(id).await?,
            _ => None,
        };
        let mut in_progress = Vec::new();
        let filter = Arc::new(filter.clone());
        let shards = self.0.schedulers.iter().chain(&self.0.supervisors);
        for sender in shards.filter(|_| filter.wants_in_progress()) {
            let (reply, answer) = oneshot::channel();
            let filter = Arc::clone(&filter);
            if sender.send(Message::List { filter, reply }).is_ok() {
                in_progress.extend(answer.await.unwrap_or_default());
            }
        }
        list::page(&filter, exact, in_progress, &self.0.histories).await
    }

    /// Cancels an instance, or decides about a parked one. Returns its new state.
    pub async fn decide(
        &self,
        id: &str,
        decision: OperatorCommand,
    ) -> Result<View, OperatorCommandError> {
        let senders = match decision {
            OperatorCommand::Cancel { .. } => &self.0.schedulers,
            _ => &self.0.supervisors,
        };
        let sender = senders
            .get(self.partition(id))
            .ok_or(OperatorCommandError::Unknown)?;
        let (reply, answer) = oneshot::channel();
        let input = Input::Decide {
            id: Arc::from(id),
            decision,
            reply,
        };
        let sent = sender.send(Message::Input(input));
        sent.map_err(|_| OperatorCommandError::State("stopped"))?;
        answer
            .await
            .map_err(|_| OperatorCommandError::State("stopped"))?
    }

    fn partition(&self, id: &str) -> usize {
        partition_for_key(id.as_bytes(), self.0.partitions) as usize
    }
}
