//! An assignment through a consumer group of the cluster, with a protocol of its own: members send their shards, and
//! the leader assigns all of them (`assignment.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_env::Clock;
use highwater_log::{GroupCoordinator, GroupError, GroupSession, JoinResponseMember, Membership};
use tokio::sync::{mpsc, oneshot, watch};

use super::assignment::{
    ShardAssignment, ShardAssignor, ShardMembership, ShardNumber, ShardOwner, assign,
};

const PROTOCOL_TYPE: &str = "highwater-job";
const PROTOCOL: &str = "sticky-1";
const VERSION: u8 = 1;

/// The protocol is what instances of different versions agree on: the group takes a member that knows one of its
/// protocols.
const OTHER_VERSION: &str = "the instances that share the job are of a version of Highwater that this one does not understand, so it \
     takes no part; run the same version on all, or stop the others";

/// Pause after an error.
const PAUSE: Duration = Duration::from_millis(500);

/// How long members may take to join again in a rebalance.
const REBALANCE: Duration = Duration::from_secs(30);

/// How long a rebalance waits for checkpoints.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(5);

/// The group of a job's instances.
#[derive(Clone)]
pub(super) struct InstanceGroup {
    pub groups: Arc<dyn GroupCoordinator>,
    pub group: String,
    /// The group removes an instance after this long without a heartbeat.
    pub session: Duration,
    pub clock: Arc<dyn Clock>,
}

impl ShardAssignor for InstanceGroup {
    fn join(&self, shards: usize) -> ShardMembership {
        let (assigned, assignment) = watch::channel(ShardAssignment::None);
        let (to_checkpoint, rebalances) = mpsc::channel(1);
        let (leave, left) = oneshot::channel();
        let member = GroupMember {
            session: self.session(),
            clock: self.clock.clone(),
            shards,
            owned: BTreeSet::new(),
            assigned,
            to_checkpoint,
        };
        tokio::spawn(member.run(left));
        ShardMembership {
            assignment,
            rebalances,
            leave: Some(leave),
        }
    }
}

impl InstanceGroup {
    fn session(&self) -> GroupSession {
        GroupSession {
            groups: self.groups.clone(),
            group: self.group.clone(),
            instance: None,
            client: "highwater".into(),
            protocol_type: PROTOCOL_TYPE,
            protocol: PROTOCOL,
            session_timeout: self.session,
            rebalance_timeout: REBALANCE,
            member: String::new(),
        }
    }
}

struct GroupMember {
    session: GroupSession,
    clock: Arc<dyn Clock>,
    shards: usize,
    owned: BTreeSet<ShardNumber>,
    assigned: watch::Sender<ShardAssignment>,
    to_checkpoint: mpsc::Sender<oneshot::Sender<()>>,
}

impl GroupMember {
    /// Runs until it leaves, or until the receiver is dropped.
    async fn run(mut self, mut left: oneshot::Receiver<oneshot::Sender<()>>) {
        let listening = self.assigned.clone();
        let answer = tokio::select! {
            () = self.stay() => None,
            () = listening.closed() => None,
            answer = &mut left => answer.ok(),
        };
        if let Some(answer) = answer {
            self.leave().await;
            // The instance may have ended meanwhile.
            let _ = answer.send(());
        }
    }

    async fn stay(&mut self) {
        loop {
            match self.join().await {
                Ok(membership) => self.heartbeats(&membership).await,
                Err(error) => {
                    tracing::debug!(group = self.session.group, %error, "joining again");
                    self.give_up_if_out(&error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// A member that the group has removed, or does not take, has nothing any more.
    fn give_up_if_out(&mut self, error: &GroupError) {
        match error {
            GroupError::UnknownMember(_) => {
                self.session.member.clear();
                self.lose();
            }
            GroupError::InconsistentProtocol => {
                self.owned.clear();
                let reason = ShardAssignment::Refused(OTHER_VERSION.into());
                self.assigned.send_replace(reason);
            }
            _ => {}
        }
    }

    fn lose(&mut self) {
        self.owned.clear();
        self.assigned.send_replace(ShardAssignment::None);
    }

    async fn join(&mut self) -> Result<Membership, GroupError> {
        let (shards, metadata) = (self.shards, write_shards(&self.owned));
        let assign = |members: &[_]| assignments(members, shards);
        let (membership, assignment) = self.session.join(metadata, assign).await?;
        let shards = read_shards(&assignment).map_err(|_| GroupError::InconsistentProtocol)?;
        self.owned.clone_from(&shards);
        self.assigned.send_replace(ShardAssignment::Shards(shards));
        Ok(membership)
    }

    /// Completes when a rejoin is needed.
    async fn heartbeats(&mut self, membership: &Membership) {
        let pause = (self.session.session_timeout / 10).max(Duration::from_millis(100));
        let mut heard = self.clock.elapsed();
        loop {
            tokio::time::sleep(pause).await;
            match self.session.groups.heartbeat(membership.clone()).await {
                Ok(()) => heard = self.clock.elapsed(),
                Err(GroupError::Loading | GroupError::Storage(_)) => {
                    if self.clock.elapsed() - heard > self.session.session_timeout {
                        // The group has removed it, though it cannot say so.
                        self.lose();
                    }
                }
                Err(GroupError::Rebalancing) => return self.checkpoint().await,
                Err(error) => {
                    tracing::debug!(group = self.session.group, %error, "joining again");
                    self.give_up_if_out(&error);
                    return;
                }
            }
        }
    }

    /// Lets the instance take checkpoints, for a while.
    async fn checkpoint(&self) {
        let (answer, answered) = oneshot::channel();
        let taken = async {
            if self.to_checkpoint.send(answer).await.is_ok() {
                // Dropped if there is nothing to store.
                let _ = answered.await;
            }
        };
        let _ = tokio::time::timeout(CHECKPOINT_PATIENCE, taken).await;
    }

    async fn leave(&mut self) {
        if let Err(error) = self.session.leave().await {
            tracing::debug!(%error, "leaving the group failed");
        }
    }
}

/// The assignments of all members.
fn assignments(members: &[JoinResponseMember], shards: usize) -> Vec<(String, Bytes)> {
    // A member that cannot be understood would not understand what it gets.
    let owners = members.iter().filter_map(|member| {
        Some(ShardOwner {
            member: member.member.clone(),
            owned: read_shards(&member.metadata).ok()?,
        })
    });
    let owners: Vec<ShardOwner> = owners.collect();
    let assigned = assign(&owners, shards).into_iter();
    assigned
        .map(|(member, shards)| (member, write_shards(&shards)))
        .collect()
}

fn write_shards(shards: &BTreeSet<ShardNumber>) -> Bytes {
    let mut out = Vec::new();
    out.u8(VERSION);
    out.count_be(shards.len());
    shards.iter().for_each(|shard| out.u32_be(*shard as u32));
    out.into()
}

fn read_shards(bytes: &[u8]) -> Result<BTreeSet<ShardNumber>, DecodeError> {
    if bytes.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut from = Reader::new(bytes);
    from.version(VERSION)?;
    let shards = from.list_be(Reader::u32_be)?;
    from.end()?;
    Ok(shards
        .into_iter()
        .map(|shard| shard as ShardNumber)
        .collect())
}

#[cfg(test)]
mod tests {
    use highwater_env::{RealClock, random::Random};
    use highwater_hub::groups;
    use highwater_log::{JoinRequest, JoinResponse, Log, MemoryLog};

    use super::*;

    /// What version 0.1 sends. Instances of different versions share a group during an upgrade.
    #[test]
    fn messages_of_released_versions_are_read_and_still_sent() {
        assert_eq!((PROTOCOL_TYPE, PROTOCOL), ("highwater-job", "sticky-1"));
        let recorded = [1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 1, 2];
        let shards: BTreeSet<ShardNumber> = [0, 3, 258].into();
        assert_eq!(write_shards(&shards), recorded[..]);
        assert_eq!(read_shards(&recorded), Ok(shards));
    }

    fn group() -> InstanceGroup {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new(|| 0));
        let options = groups::Options::default();
        let clock = Arc::new(RealClock::new());
        let service = groups::Service::new(log, clock.clone(), Random::seeded(1), options);
        let handle = service.handle();
        tokio::spawn(service.run(std::future::pending()));
        InstanceGroup {
            groups: Arc::new(handle),
            group: "job".into(),
            session: Duration::from_secs(10),
            clock,
        }
    }

    /// A member of a later version joins and tells this of itself.
    async fn join_later(
        group: &InstanceGroup,
        protocol: &str,
        metadata: &'static [u8],
    ) -> Result<JoinResponse, GroupError> {
        let request = JoinRequest {
            group: group.group.clone(),
            member: String::new(),
            instance: None,
            client_id: "later".into(),
            client_host: String::new(),
            session_timeout: group.session,
            rebalance_timeout: group.session,
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: vec![(protocol.into(), Bytes::from_static(metadata))],
            expects_member_id: false,
        };
        loop {
            match group.groups.join(request.clone()).await {
                Err(GroupError::Loading) => tokio::task::yield_now().await,
                joined => return joined,
            }
        }
    }

    // proves X1
    #[tokio::test]
    async fn an_instance_that_the_others_do_not_understand_says_so_and_has_nothing() {
        let group = group();
        join_later(&group, "sticky-2", b"\x02").await.unwrap();
        let mut membership = group.join(3);
        let is_refused = |assignment: &ShardAssignment| match assignment {
            ShardAssignment::Refused(reason) => reason.contains("run the same version"),
            _ => false,
        };
        let assignment = &mut membership.assignment;
        let refused = assignment.wait_for(is_refused);
        let refused = tokio::time::timeout(Duration::from_secs(30), refused).await;
        assert!(!refused.unwrap().unwrap().has(0));
    }

    // proves X1
    #[tokio::test]
    async fn a_member_that_is_not_understood_gets_nothing() {
        let group = group();
        let mut membership = group.join(3);
        let all = ShardAssignment::Shards((0..3).collect());
        let has_all = |assignment: &ShardAssignment| *assignment == all;
        let assignment = &mut membership.assignment;
        assignment.wait_for(has_all).await.unwrap();
        assignment.mark_unchanged();
        // The rebalance, in which it answers with a checkpoint.
        let answer = async {
            let answer = membership.rebalances.recv().await.unwrap();
            let _ = answer.send(());
        };
        let (joined, ()) = tokio::join!(join_later(&group, PROTOCOL, b"\x02later"), answer);
        joined.unwrap();
        assignment.changed().await.unwrap();
        assert_eq!(*assignment.borrow(), all);
    }
}
