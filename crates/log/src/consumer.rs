//! The consumer protocol (KIP-848): one request, with which members join, report their partitions and leave.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::HubId;

/// Partitions by hub.
pub type HubPartitions = Vec<(HubId, Vec<u32>)>;

/// The hubs that a member may read, by the names that it knows them by, for subscriptions by regular expression.
#[derive(Clone)]
pub struct HubView(Arc<View>);

type View = dyn Fn(&str) -> Option<&str> + Send + Sync;

impl HubView {
    /// `view` returns the name that the member knows a hub by; `None` if the member may not read it.
    pub fn new(view: impl Fn(&str) -> Option<&str> + Send + Sync + 'static) -> HubView {
        HubView(Arc::new(view))
    }

    pub fn name<'a>(&self, hub: &'a str) -> Option<&'a str> {
        (self.0)(hub)
    }
}

impl fmt::Debug for HubView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HubView")
    }
}

/// A field that is `None` has not changed since the last heartbeat.
#[derive(Clone, Debug)]
pub struct ConsumerHeartbeat {
    pub group: String,
    /// Empty for a new member that has not chosen an id.
    pub member: String,
    /// 0 to join, -1 to leave, -2 for a static member that leaves for a short time.
    pub epoch: i32,
    pub instance: Option<String>,
    pub rack: Option<String>,
    /// How long the member may take to revoke partitions.
    pub rebalance_timeout: Option<Duration>,
    /// The hubs to subscribe to.
    pub names: Option<Vec<String>>,
    /// A regular expression for the names of further hubs; empty for none.
    pub pattern: Option<String>,
    pub assignor: Option<String>,
    /// The partitions that the member has.
    pub owned: Option<HubPartitions>,
    pub client_id: String,
    pub client_host: String,
    /// The hubs that the pattern may match.
    pub visible: HubView,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerHeartbeatResponse {
    pub member: String,
    pub epoch: i32,
    /// The time until the next heartbeat.
    pub interval: Duration,
    /// The assigned partitions of the member: it revokes others. `None` if that has not changed.
    pub assignment: Option<HubPartitions>,
}

/// The additional state of a group of the consumer protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupInfo {
    pub epoch: i32,
    pub assignment_epoch: i32,
    /// In the order of the members of the group.
    pub members: Vec<ConsumerMemberInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerMemberInfo {
    pub epoch: i32,
    pub rack: Option<String>,
    pub names: Vec<String>,
    pub pattern: Option<String>,
    pub assigned: HubPartitions,
    /// Its partitions after all revocations.
    pub target: HubPartitions,
}

impl ConsumerMemberInfo {
    pub(crate) fn memory(&self) -> usize {
        let texts = self.names.iter().chain(&self.rack).chain(&self.pattern);
        let texts = texts.map(|text| size_of::<String>() + text.len());
        let hubs = self.assigned.iter().chain(&self.target);
        let hubs = hubs.map(|hub| size_of_val(hub) + size_of_val(hub.1.as_slice()));
        size_of::<ConsumerMemberInfo>() + texts.sum::<usize>() + hubs.sum::<usize>()
    }
}
