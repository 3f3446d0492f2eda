//! Resources owned by one node of a cluster: queues and workflows.
//!
//! The nodes of a prefix are members of a group, which assigns slots to each of them (`highwater_flow::SlotSet`);
//! `holder.rs` opens and closes their resources. [`Owners`] finds the owner of a resource, for requests that must be
//! forwarded.

mod holder;
mod identity;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_flow::{Directory, NodeInfo, SlotOwner, slot_of};
use tokio::sync::watch;

use crate::http::Peers;
pub(crate) use holder::{Holder, HolderParts};
pub(crate) use identity::{instance_id, node_info};

/// The group of the nodes, after the prefix.
pub(crate) const GROUP: &str = "__nodes";

/// A kind of resource with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnedKind {
    Queue,
    Workflow,
}

impl OwnedKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OwnedKind::Queue => "queue",
            OwnedKind::Workflow => "workflow",
        }
    }

    fn slot(self, name: &str) -> u16 {
        slot_of(self.name(), name)
    }
}

/// How the nodes over a cluster find and reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// The name of this node; `None`: the host and port of its address.
    pub name: Option<String>,
    /// Where other nodes reach this one; `None`: the address of its HTTP listener.
    pub advertise: Option<String>,
    /// PEM file with the authorities of the other nodes' certificates, beside those of the system.
    pub ca: Option<std::path::PathBuf>,
    /// A node that is silent for this long has lost its resources.
    pub session: Duration,
    /// Callers' secrets may go to another machine without encryption.
    pub insecure: bool,
}

/// Why resources of this node's slots are not open.
#[derive(Clone, Default)]
pub(crate) struct Failures(Arc<Mutex<BTreeMap<(OwnedKind, String), String>>>);

impl Failures {
    fn set(&self, kind: OwnedKind, name: &str, why: String) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = failures.insert((kind, name.to_owned()), why.clone());
        if known.as_ref() != Some(&why) {
            tracing::error!("{} `{name}` cannot be opened: {why}", kind.name());
        }
    }

    fn clear(&self, kind: OwnedKind, name: &str) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(&(kind, name.to_owned()));
    }

    fn of(&self, kind: OwnedKind, name: &str) -> Option<String> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(&(kind, name.to_owned())).cloned()
    }
}

/// Where resources are. Clones are the same.
#[derive(Clone)]
pub struct Owners {
    directory: watch::Receiver<Directory>,
    failures: Failures,
    /// The workflows of the settings, which exist before any node has opened them.
    workflows: Arc<[String]>,
    peers: Arc<Peers>,
}

impl Owners {
    pub(crate) fn new(
        directory: watch::Receiver<Directory>,
        failures: Failures,
        workflows: Vec<String>,
        peers: Peers,
    ) -> Owners {
        Owners {
            directory,
            failures,
            workflows: workflows.into(),
            peers: Arc::new(peers),
        }
    }

    pub(crate) fn locate(&self, kind: OwnedKind, name: &str) -> SlotOwner {
        self.directory.borrow().owner(kind.slot(name))
    }

    /// All nodes and their slots.
    pub(crate) fn directory(&self) -> Directory {
        self.directory.borrow().clone()
    }

    /// The other nodes.
    pub(crate) fn others(&self) -> Vec<NodeInfo> {
        let directory = self.directory.borrow();
        let nodes = directory.nodes.iter().enumerate();
        nodes
            .filter(|(at, _)| *at != directory.own)
            .map(|(_, entry)| entry.node.clone())
            .collect()
    }

    /// Why a resource of this node is not open, if that is known.
    pub(crate) fn failure(&self, kind: OwnedKind, name: &str) -> Option<String> {
        self.failures.of(kind, name)
    }

    /// The connections to the other nodes.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub(crate) fn workflows(&self) -> &[String] {
        &self.workflows
    }
}
