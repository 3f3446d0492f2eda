//! The authenticated caller of a request.

use std::sync::Arc;

use crate::{EverybodyRules, Key, Limiter, Resource, Right};

#[derive(Clone, Debug)]
pub enum Principal {
    /// The caller of a public operation, without rights.
    Anonymous,
    /// A client of a node without keys, or of a listener that is declared anonymous. It has all rights, except those
    /// that a rule denies to everybody ([`Keys::anonymous`](crate::Keys::anonymous)).
    Trusted(EverybodyRules),
    Key(Arc<Key>),
}

impl Principal {
    pub fn may(&self, right: Right, on: Resource<'_>) -> bool {
        match self {
            Principal::Anonymous => false,
            Principal::Trusted(rules) => rules.may(right, on),
            Principal::Key(key) => key.may(right, on),
        }
    }

    /// Whether the client has one of the rights. Those of [`Right::VISIBLE`] over a hub ask whether it may see the hub.
    pub fn may_any(&self, any_of: &[Right], on: Resource<'_>) -> bool {
        match on {
            Resource::Hub(hub) if any_of == Right::VISIBLE => self.may_see(hub),
            _ => any_of.iter().any(|right| self.may(*right, on)),
        }
    }

    /// Whether the client may know that the hub exists.
    pub fn may_see(&self, hub: &str) -> bool {
        match self {
            Principal::Anonymous => false,
            Principal::Trusted(rules) => rules.may_see(hub),
            Principal::Key(key) => key.may_see(hub),
        }
    }

    /// The limits of its key, if it has any.
    pub fn limiter(&self) -> Option<&Arc<Limiter>> {
        match self {
            Principal::Key(key) if key.limiter.is_limited() => Some(&key.limiter),
            _ => None,
        }
    }

    /// The name in messages and in the audit log.
    pub fn name(&self) -> &str {
        match self {
            Principal::Anonymous | Principal::Trusted(_) => "anonymous",
            Principal::Key(key) => &key.name,
        }
    }
}
