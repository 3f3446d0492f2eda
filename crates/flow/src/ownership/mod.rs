//! Assigns resources that have one owner, such as the journals of queues, to the nodes of a group.
//!
//! Resources are hashed into [`SLOTS`] slots. The nodes are members of one group of the classic protocol, as the
//! workers of Kafka Connect are: each sends its address and its slots, the leader assigns, and the assignment has the
//! slots of all nodes. The group decides only who *should* own a slot. The claims of the journals fence a former owner,
//! so a node that was thought dead does no harm when it wakes up.

mod assign;
mod slots;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use highwater_log::{
    BoxFuture, GroupCoordinator, GroupError, GroupSession, JoinResponseMember, Membership,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::group::GroupTimeouts;
use assign::Candidate;
pub use slots::{SLOTS, SlotSet, slot_of};

/// The protocol type and the name of the protocol in the group.
const PROTOCOL_TYPE: &str = "highwater";
const PROTOCOL: &str = "slots";

/// A node as the others know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    pub name: String,
    /// Where the others reach it over HTTP; empty if nowhere.
    pub url: String,
    /// Of the software.
    pub version: String,
}

/// A node and its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSlots {
    pub node: NodeInfo,
    pub slots: SlotSet,
}

/// The owners of all slots, as of the last assignment. Without nodes, nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    pub nodes: Vec<NodeSlots>,
    /// The position of this node among them.
    pub own: usize,
}

/// The owner of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOwner {
    Here,
    Elsewhere(NodeInfo),
    /// It is being handed over, or this node is not in the group.
    Nobody,
}

impl Directory {
    pub fn owner(&self, slot: u16) -> SlotOwner {
        let at = self
            .nodes
            .iter()
            .position(|entry| entry.slots.contains(slot));
        match at {
            Some(at) if at == self.own => SlotOwner::Here,
            Some(at) => SlotOwner::Elsewhere(self.nodes[at].node.clone()),
            None => SlotOwner::Nobody,
        }
    }

    fn own_slots(&self) -> SlotSet {
        self.nodes
            .get(self.own)
            .map_or_else(SlotSet::default, |entry| entry.slots)
    }
}

/// Serves the resources of slots.
pub trait SlotHolder: Send + Sync {
    /// Serves these slots and no others from now on. Completes when nothing outside of them is served any more; new
    /// slots are opened after that.
    fn hold(&self, slots: SlotSet) -> BoxFuture<()>;

    /// The coordinator has just confirmed that this node is still in the group, so its slots are its own.
    fn confirmed(&self);

    /// The slot of every resource, here or elsewhere.
    fn resources(&self) -> Vec<u16>;
}

/// A node's membership.
pub struct OwnershipMember {
    pub groups: Arc<dyn GroupCoordinator>,
    pub group: String,
    /// Shown in descriptions of the group.
    pub client: String,
    /// The static member id: with it, a node that restarts within the session gets its slots back at once.
    pub instance: Option<String>,
    pub node: NodeInfo,
    pub timeouts: GroupTimeouts,
    pub holder: Arc<dyn SlotHolder>,
    /// Receives the owners after every assignment.
    pub directory: watch::Sender<Directory>,
}

/// The membership from one join to the next.
struct MemberState {
    session: GroupSession,
    owned: SlotSet,
    /// When the coordinator last confirmed the membership.
    confirmed: Instant,
}

impl OwnershipMember {
    /// Takes part until `shutdown`, then closes everything and leaves, so that the others take over at once.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut state = MemberState {
            session: self.session(),
            owned: SlotSet::default(),
            confirmed: Instant::now(),
        };
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = self.run_generation(&mut state) => {}
            }
        }
        self.directory.send_replace(Directory::default());
        self.holder.hold(SlotSet::default()).await;
        self.leave(state.session).await;
    }

    /// Joins and stays until the group must be joined again.
    async fn run_generation(&self, state: &mut MemberState) {
        let patience = self.timeouts.rebalance + self.timeouts.session;
        let joined = match timeout(patience, self.join(state)).await {
            Ok(joined) => joined,
            Err(_) => Err(GroupError::Storage(
                "the coordinator does not answer".into(),
            )),
        };
        match joined {
            Ok((membership, directory)) => {
                state.confirmed = Instant::now();
                let slots = directory.own_slots();
                let lost = state.owned.without(&slots);
                self.directory.send_replace(directory);
                // Heartbeats must not wait longer. Slow closes continue in the background; their claims are fenced.
                let _ = timeout(self.timeouts.session / 2, self.holder.hold(slots)).await;
                state.owned = slots;
                // Revoked slots are assigned when their owner has joined without them.
                if lost.is_empty() {
                    self.heartbeat_until_rejoin(state, &membership).await;
                }
            }
            Err(GroupError::Rebalancing) => {}
            Err(error) => {
                tracing::warn!(group = self.group, %error, "the group of nodes cannot be joined");
                self.check(state, &error).await;
                sleep(self.timeouts.pause).await;
            }
        }
    }

    /// Joins the group and returns the assignment.
    async fn join(&self, state: &mut MemberState) -> Result<(Membership, Directory), GroupError> {
        let metadata = wire::metadata(&self.node, &state.owned);
        let assign = |members: &[_]| self.assignments(members);
        let (membership, assignment) = state.session.join(metadata, assign).await?;
        let directory = wire::read_assignment(&assignment).unwrap_or_else(|error| {
            tracing::warn!(%error, "the assignment of the nodes cannot be read; nothing is served");
            Directory::default()
        });
        Ok((membership, directory))
    }

    /// The assignments of all members.
    fn assignments(&self, members: &[JoinResponseMember]) -> Vec<(String, Bytes)> {
        let readable = members.iter().filter_map(|member| {
            let node = wire::read_metadata(&member.metadata);
            let node = node.inspect_err(|error| {
                tracing::warn!(member = member.member, %error, "cannot decode the metadata of a member; it gets no slots");
            });
            Some((member.member.clone(), node.ok()?))
        });
        let (members, mut nodes): (Vec<String>, Vec<NodeSlots>) = readable.unzip();
        let candidates: Vec<Candidate> = nodes
            .iter()
            .zip(&members)
            .map(|(entry, member)| Candidate {
                name: format!("{} {member}", entry.node.name),
                owned: entry.slots,
            })
            .collect();
        let given = assign::assign(&candidates, &self.holder.resources());
        for (entry, slots) in nodes.iter_mut().zip(given) {
            entry.slots = slots;
        }
        let assignment = |(at, member)| (member, wire::assignment(&nodes, at));
        members.into_iter().enumerate().map(assignment).collect()
    }

    fn session(&self) -> GroupSession {
        GroupSession {
            groups: Arc::clone(&self.groups),
            group: self.group.clone(),
            instance: self.instance.clone(),
            client: self.client.clone(),
            protocol_type: PROTOCOL_TYPE,
            protocol: PROTOCOL,
            session_timeout: self.timeouts.session,
            rebalance_timeout: self.timeouts.rebalance,
            member: String::new(),
        }
    }

    /// Sends heartbeats until the group must be joined again.
    async fn heartbeat_until_rejoin(&self, state: &mut MemberState, membership: &Membership) {
        loop {
            sleep(self.timeouts.heartbeat).await;
            let until = state.confirmed + self.timeouts.session;
            let beat = timeout_at(until, self.groups.heartbeat(membership.clone()));
            match beat.await {
                Ok(Ok(())) => {
                    state.confirmed = Instant::now();
                    self.holder.confirmed();
                }
                Ok(Err(GroupError::Rebalancing)) => return,
                Ok(Err(GroupError::Loading | GroupError::Storage(_))) if Instant::now() < until => {
                }
                Ok(Err(error)) => return self.check(state, &error).await,
                Err(_) => {
                    let silent = GroupError::Storage("the coordinator does not answer".into());
                    return self.check(state, &silent).await;
                }
            }
        }
    }

    /// Releases all slots when the membership is lost: other members have them, or will.
    async fn check(&self, state: &mut MemberState, error: &GroupError) {
        let is_member = matches!(
            error,
            GroupError::Loading | GroupError::Storage(_) | GroupError::Rebalancing
        );
        if is_member && state.confirmed.elapsed() < self.timeouts.session {
            return;
        }
        if !is_member {
            state.session.member.clear();
        }
        if !state.owned.is_empty() {
            tracing::warn!(group = self.group, %error, "this node lost its membership; it closes what it owned");
        }
        self.directory.send_replace(Directory::default());
        let _ = timeout(
            self.timeouts.session / 2,
            self.holder.hold(SlotSet::default()),
        )
        .await;
        state.owned = SlotSet::default();
    }

    async fn leave(&self, mut session: GroupSession) {
        let left = timeout(self.timeouts.session, session.leave());
        match left.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "leaving the group of nodes failed"),
            Err(_) => tracing::warn!("leaving the group of nodes took too long"),
        }
    }
}
