//! Rules beside the rights of keys: what they deny, and what holds for everybody.
//!
//! They are what Kafka's ACLs say that a grant cannot. A rule is over hubs, groups or transactional ids, never over the
//! node, so it takes from nobody the right to take it back. One that denies precedes all rights, grants and rules that
//! allow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use highwater_log::HubName;
use serde::{Deserialize, Serialize};

use crate::{GrantKind, Resource, Right};

/// The name that stands for every client in place of that of a key.
pub const EVERYBODY: &str = "*";

/// The prefix of every name.
const ALL_NAMES: &str = "*";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessEffect {
    Allow,
    Deny,
}

/// What a rule allows or denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// `send`, `listen` and `manage`, and to see it.
    All,
    /// To know that a hub exists, which comes with every right over it.
    See,
    Send,
    Listen,
    Manage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    pub effect: AccessEffect,
    pub access: AccessKind,
    pub kind: GrantKind,
    /// A prefix ends with `*`.
    pub name: String,
}

impl AccessRule {
    /// The rights that it is about.
    pub fn rights(&self) -> &'static [Right] {
        match self.access {
            AccessKind::All => Right::VISIBLE,
            AccessKind::See => &[],
            AccessKind::Send => &[Right::Send],
            AccessKind::Listen => &[Right::Listen],
            AccessKind::Manage => &[Right::Manage],
        }
    }

    fn is_about(&self, right: Right, on: Resource<'_>) -> bool {
        let is_covered = match on {
            // A client that is denied some hubs may have the right over others.
            Resource::AnyHub => {
                let is_enough = self.effect == AccessEffect::Allow || self.name == ALL_NAMES;
                self.kind == GrantKind::Hub && is_enough
            }
            on => self.kind.covers(&self.name, on),
        };
        is_covered && self.rights().contains(&right)
    }

    fn is_about_seeing(&self, hub: &str) -> bool {
        let sees = matches!(self.access, AccessKind::All | AccessKind::See);
        sees && self.kind == GrantKind::Hub && self.kind.covers(&self.name, Resource::Hub(hub))
    }

    /// The effect that it has on the right over the resource. Rules of everybody open no hub of the node itself.
    pub(crate) fn effect_on(&self, right: Right, on: Resource<'_>) -> Option<AccessEffect> {
        let holds = self.effect == AccessEffect::Deny || !is_internal(on);
        (holds && self.is_about(right, on)).then_some(self.effect)
    }

    /// The effect that it has on seeing a hub.
    pub(crate) fn effect_on_seeing(&self, hub: &str) -> Option<AccessEffect> {
        let holds = self.effect == AccessEffect::Deny || !HubName::is_internal_name(hub);
        (holds && self.is_about_seeing(hub)).then_some(self.effect)
    }
}

fn is_internal(on: Resource<'_>) -> bool {
    match on {
        Resource::Hub(name) | Resource::NewHub(name) => HubName::is_internal_name(name),
        _ => false,
    }
}

/// The rules for everybody. Clones share them, so a change holds at once for keys that were looked up before.
#[derive(Clone, Debug, Default)]
pub struct EverybodyRules(Arc<SharedRules>);

#[derive(Debug, Default)]
struct SharedRules {
    rules: RwLock<Vec<AccessRule>>,
    /// Whether there are any: most nodes have none, and every request asks.
    exist: AtomicBool,
}

impl EverybodyRules {
    pub fn list(&self) -> Vec<AccessRule> {
        self.with(<[AccessRule]>::to_vec)
    }

    pub(crate) fn set(&self, rules: Vec<AccessRule>) {
        let mut shared = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        self.0.exist.store(!rules.is_empty(), Ordering::Release);
        *shared = rules;
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.0.exist.load(Ordering::Acquire)
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&[AccessRule]) -> T) -> T {
        match self.is_empty() {
            true => look(&[]),
            false => look(&self.0.rules.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn denies(&self, effect: impl Fn(&AccessRule) -> Option<AccessEffect>) -> bool {
        let is_denial = |rule: &AccessRule| effect(rule) == Some(AccessEffect::Deny);
        self.with(|rules| rules.iter().any(is_denial))
    }

    /// Whether a client without a key that may do everything may do this.
    pub fn may(&self, right: Right, on: Resource<'_>) -> bool {
        !self.denies(|rule| rule.effect_on(right, on))
    }

    /// Whether a client without a key that may do everything may see the hub.
    pub fn may_see(&self, hub: &str) -> bool {
        !self.denies(|rule| rule.effect_on_seeing(hub))
    }
}
