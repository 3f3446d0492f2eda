//! Single grants of a key: a right over the names of one kind, beside the rights that hold for all names of the key.
//!
//! They are what Kafka's ACLs can say. A grant never covers more than the binding that it was made from: not the queues
//! and workflows of the same name, and not the node.

use serde::{Deserialize, Serialize};

use crate::names::pattern_covers;
use crate::{Resource, Right};

/// The kind of names that a grant is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantKind {
    Hub,
    /// Hubs that the client creates, and nothing else of them.
    NewHub,
    Group,
    TransactionalId,
}

/// A right over a name, or over all names with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub right: Right,
    pub kind: GrantKind,
    /// A prefix ends with `*`.
    pub name: String,
}

impl GrantKind {
    /// Whether a name or prefix of this kind covers the resource.
    pub(crate) fn covers(self, pattern: &str, on: Resource<'_>) -> bool {
        match (self, on) {
            (GrantKind::Hub, Resource::Hub(name) | Resource::NewHub(name))
            | (GrantKind::NewHub, Resource::NewHub(name))
            | (GrantKind::Group, Resource::Group(name))
            | (GrantKind::TransactionalId, Resource::TransactionalId(name)) => {
                pattern_covers(pattern, name)
            }
            _ => false,
        }
    }
}

impl Grant {
    /// Whether it gives this right over the resource.
    pub(crate) fn allows(&self, right: Right, on: Resource<'_>) -> bool {
        let is_any_hub = self.kind == GrantKind::Hub && on == Resource::AnyHub;
        self.right == right && (is_any_hub || self.kind.covers(&self.name, on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves G1
    #[test]
    fn a_grant_covers_its_kind_and_its_names_only() {
        let grant = |right, kind, name: &str| Grant {
            right,
            kind,
            name: name.to_owned(),
        };
        let send = grant(Right::Send, GrantKind::Hub, "log-*");
        for (right, on, expected) in [
            (Right::Send, Resource::Hub("log-1"), true),
            (Right::Send, Resource::AnyHub, true),
            (Right::Send, Resource::Hub("lo"), false),
            (Right::Listen, Resource::Hub("log-1"), false),
            (Right::Send, Resource::Queue("log-1"), false),
            (Right::Send, Resource::Group("log-1"), false),
            (Right::Send, Resource::Node, false),
        ] {
            assert_eq!(send.allows(right, on), expected, "{right} {on}");
        }
        let create = grant(Right::Manage, GrantKind::NewHub, "t");
        assert!(create.allows(Right::Manage, Resource::NewHub("t")));
        assert!(!create.allows(Right::Manage, Resource::Hub("t")));
        let manage = grant(Right::Manage, GrantKind::Hub, "t");
        assert!(manage.allows(Right::Manage, Resource::NewHub("t")));
        let group = grant(Right::Listen, GrantKind::Group, "*");
        assert!(group.allows(Right::Listen, Resource::Group("any")));
        assert!(!group.allows(Right::Listen, Resource::AnyHub));
    }
}
