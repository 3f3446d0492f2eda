//! Keys: a name, a secret, rights, and the names that the rights are limited to.
//!
//! A client authenticates with name and secret, or with a signature made with the secret (see [`crate::sas`]). Comparisons
//! take constant time, and secrets are never printed.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::resource::{INTERNAL_PREFIX, WORKFLOW_JOURNAL_PREFIX};
use crate::{NamePatterns, Resource, Right, Rights};

pub const SECRET_LEN_MIN: usize = 6;

/// The names that a key's rights are limited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScope {
    /// Hubs and queues; workflows by the name of their journal.
    pub hubs: NamePatterns,
    pub groups: NamePatterns,
    pub transactional_ids: NamePatterns,
    /// Jobs and processors.
    pub deployments: NamePatterns,
}

impl KeyScope {
    pub const UNLIMITED: KeyScope = KeyScope {
        hubs: NamePatterns::All,
        groups: NamePatterns::All,
        transactional_ids: NamePatterns::All,
        deployments: NamePatterns::All,
    };

    /// The scope of a key that is limited to hubs and says nothing else. Groups, transactional ids and deployments share one
    /// namespace per node, so the key gets the names that begin with its own: `app`, `app-..` and `app.…`.
    pub fn of_hubs<T: Into<String>>(key: &str, hubs: impl IntoIterator<Item = T>) -> KeyScope {
        let own = NamePatterns::listed([key.to_owned(), format!("{key}-*"), format!("{key}.*")]);
        KeyScope {
            hubs: NamePatterns::listed(hubs),
            groups: own.clone(),
            transactional_ids: own.clone(),
            deployments: own,
        }
    }

    fn covers(&self, resource: Resource<'_>) -> bool {
        match resource {
            Resource::Node => self.hubs == NamePatterns::All,
            Resource::AnyHub => true,
            Resource::Hub(name) | Resource::Queue(name) => self.hubs.cover(name),
            Resource::Workflow(name) => self.hubs.cover_joined(WORKFLOW_JOURNAL_PREFIX, name),
            Resource::Group(name) => self.groups.cover(name),
            Resource::TransactionalId(name) => self.transactional_ids.cover(name),
            Resource::Deployment(name) => self.deployments.cover(name),
        }
    }
}

#[derive(Clone)]
pub struct Key {
    pub name: String,
    pub rights: Rights,
    pub scope: KeyScope,
    pub(crate) secret: Vec<u8>,
    digest: [u8; 32],
}

impl Key {
    pub fn new(name: &str, secret: &str, rights: Rights, scope: KeyScope) -> Key {
        Key {
            name: name.to_owned(),
            rights,
            scope,
            secret: secret.as_bytes().to_vec(),
            digest: Sha256::digest(secret).into(),
        }
    }

    /// Whether the key has the right over the resource. Hubs of the node itself need `manage` for everything: they hold the
    /// offsets of all groups and the inputs of all workflows.
    pub fn may(&self, right: Right, on: Resource<'_>) -> bool {
        let right = match on {
            Resource::Hub(name) if name.starts_with(INTERNAL_PREFIX) => Right::Manage,
            _ => right,
        };
        self.rights.has(right) && self.scope.covers(on)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Key")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// The keys of a node.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    keys: Vec<Arc<Key>>,
}

impl Keys {
    pub fn new(keys: Vec<Key>) -> Keys {
        Keys {
            keys: keys.into_iter().map(Arc::new).collect(),
        }
    }

    /// Without keys every client may do everything, and the node listens on this machine only.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key with this name and secret. An unknown name takes as long as a known one.
    pub fn authenticate(&self, name: &str, secret: &[u8]) -> Option<Arc<Key>> {
        let given: [u8; 32] = Sha256::digest(secret).into();
        let key = self.get(name);
        let digest = key.map_or([0; 32], |key| key.digest);
        let same = bool::from(digest.ct_eq(&given));
        key.filter(|_| same).cloned()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Key>> {
        self.keys.iter().find(|key| key.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let rights = [Right::Send, Right::Manage].into_iter().collect();
        Key::new(
            "app",
            "s3cret",
            rights,
            KeyScope::of_hubs("app", ["a", "b-*", "__workflow.w"]),
        )
    }

    #[test]
    fn a_secret_is_never_printed() {
        let shown = format!("{:?}", Keys::new(vec![key()]));
        assert!(
            shown.contains("app") && !shown.contains("s3cret"),
            "{shown}"
        );
    }

    // proves G1
    #[test]
    fn a_key_is_limited_to_its_rights_and_names() {
        let key = key();
        let may = [
            (Right::Send, Resource::Hub("a")),
            (Right::Send, Resource::Queue("a")),
            (Right::Send, Resource::Hub("b-1")),
            (Right::Send, Resource::AnyHub),
            (Right::Send, Resource::Workflow("w")),
            (Right::Manage, Resource::Group("app")),
            (Right::Manage, Resource::Group("app-readers")),
            (Right::Send, Resource::TransactionalId("app.writer")),
        ];
        let may_not = [
            (Right::Listen, Resource::Hub("a")),
            (Right::Send, Resource::Hub("c")),
            (Right::Manage, Resource::Node),
            (Right::Listen, Resource::AnyHub),
            (Right::Send, Resource::Workflow("v")),
            (Right::Manage, Resource::Group("apple")),
            (Right::Manage, Resource::Group("other")),
            (Right::Send, Resource::TransactionalId("other-writer")),
            (Right::Deploy, Resource::Deployment("app")),
        ];
        for (right, on) in may {
            assert!(key.may(right, on), "{right} {on}");
        }
        for (right, on) in may_not {
            assert!(!key.may(right, on), "{right} {on}");
        }
    }

    // proves G1
    #[test]
    fn hubs_of_the_node_need_manage() {
        let with = |rights: &[Right]| {
            Key::new(
                "k",
                "s3cret",
                rights.iter().copied().collect(),
                KeyScope::UNLIMITED,
            )
        };
        let client = with(&[Right::Send, Right::Listen, Right::Deploy]);
        let manager = with(&[Right::Manage]);
        for right in Right::ALL {
            assert!(!client.may(right, Resource::Hub("__groups")), "{right}");
        }
        assert!(manager.may(Right::Listen, Resource::Hub("__groups")));
        assert!(!manager.may(Right::Listen, Resource::Hub("a")));
    }

    #[test]
    fn name_and_secret_must_both_be_right() {
        let keys = Keys::new(vec![key()]);
        assert!(keys.authenticate("app", b"s3cret").is_some());
        assert!(keys.authenticate("app", b"s3cre").is_none());
        assert!(keys.authenticate("apq", b"s3cret").is_none());
    }
}
