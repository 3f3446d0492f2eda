//! Assigns partitions of a hub to an instance, by consumer group or by ordinal, and runs the work on them.
//!
//! [`GroupMember`] joins a consumer group: within a group one instance owns a partition, and a rebalance reassigns
//! partitions when instances join, leave or crash. Kafka clients may be in the same group. Work on revoked
//! partitions is stopped and awaited before the next join, so that its last checkpoint is still accepted.

mod protocol;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::shutdown_signal;
use highwater_log::{
    BoxFuture, GroupCoordinator, GroupError, GroupSession, HubName, Log, Membership, TopicPartition,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::positions::GroupPositions;

/// How partitions are assigned to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// By the consumer group. `instance` is the static member id (`group.instance.id`) that keeps its partitions over a
    /// restart.
    Shared { instance: Option<String> },
    /// By number, without coordination: with `of`, every `of`-th partition from `ordinal` on; without it, partition
    /// `ordinal`. The group must have no other members.
    Numbered { ordinal: u32, of: Option<u32> },
}

/// The number at the end of an instance name: 3 for `reader-3`, as Kubernetes names the pods of a StatefulSet.
pub fn ordinal(instance: &str) -> Option<u32> {
    instance.rsplit_once('-')?.1.parse().ok()
}

/// Timeouts of a group member.
#[derive(Clone, Debug)]
pub struct GroupTimeouts {
    /// The group removes a member after this long without a heartbeat.
    pub session: Duration,
    pub heartbeat: Duration,
    /// How long members may take to stop their work in a rebalance.
    pub rebalance: Duration,
    /// Delay after an error.
    pub pause: Duration,
}

impl Default for GroupTimeouts {
    fn default() -> GroupTimeouts {
        GroupTimeouts {
            session: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            rebalance: Duration::from_secs(60),
            pause: Duration::from_secs(1),
        }
    }
}

/// An instance that reads a hub.
#[derive(Clone)]
pub struct GroupMember {
    pub log: Arc<dyn Log>,
    pub groups: Arc<dyn GroupCoordinator>,
    pub hub: HubName,
    pub group: String,
    /// Shown in descriptions of the group.
    pub client: String,
    pub assignment: Assignment,
    pub timeouts: GroupTimeouts,
}

/// An assigned partition and its position store.
pub struct AssignedPartition {
    pub topic_partition: TopicPartition,
    pub positions: GroupPositions,
    stop: watch::Receiver<bool>,
}

impl AssignedPartition {
    /// Completes when the work must stop.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        shutdown_signal(self.stop.clone())
    }
}

/// The assignment of one generation of the group.
struct Generation {
    membership: Membership,
    assigned: Vec<TopicPartition>,
    /// The hub's partition count at the assignment.
    partitions: u32,
}

impl GroupMember {
    /// Runs `work` on every assigned partition until `shutdown`, and then until all work has stopped.
    pub async fn run<F, W>(self, work: F, shutdown: impl Future<Output = ()>)
    where
        F: Fn(AssignedPartition) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let mut shutdown = std::pin::pin!(shutdown);
        match self.assignment.clone() {
            Assignment::Numbered { ordinal, of } => {
                self.run_by_ordinal(ordinal, of, &work, shutdown).await;
            }
            Assignment::Shared { .. } => {
                let mut session = self.session();
                while !(self.run_generation(&mut session, &work, &mut shutdown)).await {}
                self.leave(session).await;
            }
        }
    }

    async fn run_by_ordinal<F, W>(
        &self,
        ordinal: u32,
        of: Option<u32>,
        work: &F,
        mut shutdown: impl Future<Output = ()> + Unpin,
    ) where
        F: Fn(AssignedPartition) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let membership = Membership {
            group: self.group.clone(),
            generation: -1,
            member: String::new(),
            instance: None,
        };
        let mine = |partition: &u32| match of {
            Some(of) => partition % of.max(1) == ordinal,
            None => *partition == ordinal,
        };
        let mut tasks = PartitionTasks::default();
        let mut known = 0;
        loop {
            let partitions = self.partitions();
            for partition in (known..partitions).filter(mine) {
                let hub = self.hub.clone();
                self.begin(
                    &mut tasks,
                    &membership,
                    TopicPartition { hub, partition },
                    work,
                );
            }
            known = partitions.max(known);
            // Checks for added partitions.
            tokio::select! {
                () = &mut shutdown => return tasks.stop(self.timeouts.rebalance).await,
                () = tokio::time::sleep(self.timeouts.heartbeat) => {}
            }
        }
    }

    /// Runs one generation of the group. Returns true at shutdown.
    async fn run_generation<F, W>(
        &self,
        session: &mut GroupSession,
        work: &F,
        mut shutdown: impl Future<Output = ()> + Unpin,
    ) -> bool
    where
        F: Fn(AssignedPartition) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let generation = tokio::select! {
            () = &mut shutdown => return true,
            generation = self.join(session) => generation,
        };
        let generation = match generation {
            Ok(generation) => generation,
            Err(error) => {
                tracing::debug!(group = self.group, %error, "joining again");
                tokio::select! {
                    () = &mut shutdown => return true,
                    () = tokio::time::sleep(self.timeouts.pause) => return false,
                }
            }
        };
        let mut tasks = PartitionTasks::default();
        for topic_partition in generation.assigned {
            self.begin(&mut tasks, &generation.membership, topic_partition, work);
        }
        let over = tokio::select! {
            () = &mut shutdown => true,
            error = self.heartbeat_until_rejoin(&generation.membership, generation.partitions) => {
                if matches!(error, Some(GroupError::UnknownMember(_))) {
                    session.member.clear();
                }
                false
            }
        };
        tasks.stop(self.timeouts.rebalance).await;
        over
    }

    fn begin<F, W>(
        &self,
        tasks: &mut PartitionTasks,
        membership: &Membership,
        topic_partition: TopicPartition,
        work: &F,
    ) where
        F: Fn(AssignedPartition) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let positions = GroupPositions {
            groups: Arc::clone(&self.groups),
            member: membership.clone(),
        };
        let stop = tasks.stop.subscribe();
        tasks.set.spawn(work(AssignedPartition {
            topic_partition,
            positions,
            stop,
        }));
    }

    /// Joins the group and returns the assignment.
    async fn join(&self, session: &mut GroupSession) -> Result<Generation, GroupError> {
        let partitions = self.partitions();
        let subscription = protocol::subscription([&self.hub]);
        let count = |hub: &str| self.log.hub(hub).map_or(0, |hub| hub.partitions);
        let assign = |members: &[_]| protocol::assign(members, count);
        let (membership, assignment) = session.join(subscription, assign).await?;
        let mut assigned = protocol::read_assignment(&assignment);
        assigned.retain(|partition| partition.hub == self.hub);
        Ok(Generation {
            membership,
            assigned,
            partitions,
        })
    }

    fn session(&self) -> GroupSession {
        GroupSession {
            groups: Arc::clone(&self.groups),
            group: self.group.clone(),
            instance: self.instance(),
            client: self.client.clone(),
            protocol_type: "consumer",
            protocol: "range",
            session_timeout: self.timeouts.session,
            rebalance_timeout: self.timeouts.rebalance,
            member: String::new(),
        }
    }

    /// Ready when the group is to be joined again: because it says so, or because the hub has grown.
    async fn heartbeat_until_rejoin(
        &self,
        membership: &Membership,
        partitions: u32,
    ) -> Option<GroupError> {
        loop {
            tokio::time::sleep(self.timeouts.heartbeat).await;
            match self.groups.heartbeat(membership.clone()).await {
                Err(GroupError::Loading | GroupError::Storage(_)) => {}
                Err(error) => return Some(error),
                Ok(()) if self.partitions() != partitions => return None,
                Ok(()) => {}
            }
        }
    }

    async fn leave(&self, mut session: GroupSession) {
        // A static member keeps its partitions.
        if session.instance.is_some() {
            return;
        }
        if let Err(error) = session.leave().await {
            tracing::debug!(group = self.group, %error, "leaving the group failed");
        }
    }

    fn instance(&self) -> Option<String> {
        match &self.assignment {
            Assignment::Shared { instance } => instance.clone(),
            Assignment::Numbered { .. } => None,
        }
    }

    fn partitions(&self) -> u32 {
        self.log
            .hub(self.hub.as_str())
            .map_or(0, |hub| hub.partitions)
    }
}

/// The tasks of one generation.
struct PartitionTasks {
    set: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Default for PartitionTasks {
    fn default() -> PartitionTasks {
        PartitionTasks {
            set: JoinSet::new(),
            stop: watch::Sender::new(false),
        }
    }
}

impl PartitionTasks {
    /// Stops all work and waits up to `patience`. Work that takes longer is aborted, which loses nothing: its events
    /// are handled again.
    async fn stop(mut self, patience: Duration) {
        self.stop.send_replace(true);
        let ended: BoxFuture<()> =
            Box::pin(async move { while self.set.join_next().await.is_some() {} });
        let _ = tokio::time::timeout(patience, ended).await;
    }
}
