//! Sessions and heartbeats of single groups of the consumer protocol, which precede those of all groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

/// What a group has of its own. `None`: as all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTimeouts {
    pub session: Option<Duration>,
    pub heartbeat: Option<Duration>,
}

/// The groups with timeouts of their own, by name. Clones share them; a member learns of a change by its next
/// heartbeat.
#[derive(Clone, Debug, Default)]
pub struct OwnTimeouts(Arc<RwLock<BTreeMap<String, GroupTimeouts>>>);

impl OwnTimeouts {
    pub fn set(&self, groups: BTreeMap<String, GroupTimeouts>) {
        *self.0.write() = groups;
    }

    pub(super) fn of(&self, group: &str) -> GroupTimeouts {
        self.0.read().get(group).copied().unwrap_or_default()
    }
}
