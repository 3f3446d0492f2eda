//! Keys: a name, one or two secrets, rights, the names that the rights are limited to, an expiry and a quota.
//!
//! A client authenticates with name and secret, or with a signature made with the secret (see [`crate::sas`]). Comparisons
//! take constant time, and secrets are never printed.

use std::fmt;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use crate::resource::{INTERNAL_PREFIX, WORKFLOW_JOURNAL_PREFIX};
use crate::secret::{KeySecret, digest};
use crate::{Limiter, NamePatterns, Quota, Resource, Right, Rights, ScramHash, ScramVerifier};

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

/// Names and prefixes as the maker of a key lists them. `None`: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameLists<'a> {
    pub hubs: Option<&'a [String]>,
    pub groups: Option<&'a [String]>,
    pub transactional_ids: Option<&'a [String]>,
    pub deployments: Option<&'a [String]>,
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

    /// The scope of a key with these lists, and with defaults for those it does not have.
    pub fn listed(key: &str, lists: &NameLists<'_>) -> KeyScope {
        let default = match lists.hubs {
            None => KeyScope::UNLIMITED,
            Some(hubs) => KeyScope::of_hubs(key, hubs),
        };
        let patterns =
            |list: Option<&[String]>, default| list.map_or(default, NamePatterns::listed);
        KeyScope {
            hubs: default.hubs,
            groups: patterns(lists.groups, default.groups),
            transactional_ids: patterns(lists.transactional_ids, default.transactional_ids),
            deployments: patterns(lists.deployments, default.deployments),
        }
    }

    fn covers(&self, resource: Resource<'_>) -> bool {
        match resource {
            Resource::Node => *self == KeyScope::UNLIMITED,
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
    /// Milliseconds since 1970.
    pub expires_ms: Option<i64>,
    pub limiter: Arc<Limiter>,
    /// The newest first. A second one lets clients change to the first at their own time.
    pub(crate) secrets: Vec<KeySecret>,
}

impl Key {
    pub fn new(name: &str, secret: &str, rights: Rights, scope: KeyScope) -> Key {
        Key::with_secrets(name, vec![KeySecret::plain(secret)], rights, scope)
    }

    pub fn with_secrets(
        name: &str,
        secrets: Vec<KeySecret>,
        rights: Rights,
        scope: KeyScope,
    ) -> Key {
        Key {
            name: name.to_owned(),
            rights,
            scope,
            expires_ms: None,
            limiter: Arc::default(),
            secrets,
        }
    }

    pub fn expires(mut self, expires_ms: Option<i64>) -> Key {
        self.expires_ms = expires_ms;
        self
    }

    pub fn limited(mut self, quota: Quota) -> Key {
        self.limiter = Arc::new(Limiter::new(quota));
        self
    }

    fn is_valid(&self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }

    /// The verifiers of its secrets, the newest first. All of them have the salt of the first: a client learns one salt, and
    /// the server cannot know which secret the client has.
    pub fn verifiers(&self, hash: ScramHash) -> Vec<ScramVerifier> {
        let verifiers = self.secrets.iter();
        verifiers
            .map(|secret| secret.verifier(hash, &self.name).clone())
            .collect()
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

/// The keys of a node, which may change while it runs. Listeners look a key up for every request, so that a key that is
/// revoked or expires is refused at once.
#[derive(Debug, Default)]
pub struct Keys {
    keys: RwLock<Vec<Arc<Key>>>,
}

impl Keys {
    pub fn new(keys: Vec<Key>) -> Keys {
        Keys {
            keys: RwLock::new(keys.into_iter().map(Arc::new).collect()),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Key>>> {
        self.keys.read().expect("no thread panics with the lock")
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Arc<Key>>) -> T) -> T {
        change(&mut self.keys.write().expect("no thread panics with the lock"))
    }

    /// Without keys every client may do everything, and the node listens on this machine only.
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// The valid key with this name and secret. An unknown name takes as long as one whose secret was seen before.
    pub fn authenticate(&self, name: &str, secret: &[u8], now_ms: i64) -> Option<Arc<Key>> {
        let given = digest(secret);
        let key = self.get(name, now_ms)?;
        let matches = |own: &KeySecret| own.matches(secret, &given);
        key.secrets.iter().any(matches).then_some(key)
    }

    /// The key of this name, unless it has expired.
    pub fn get(&self, name: &str, now_ms: i64) -> Option<Arc<Key>> {
        let keys = self.read();
        let key = keys.iter().find(|key| key.name == name)?;
        key.is_valid(now_ms).then(|| key.clone())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.read().iter().any(|key| key.name == name)
    }

    pub fn list(&self) -> Vec<Arc<Key>> {
        self.read().clone()
    }

    /// False if there is a key of this name.
    pub fn add(&self, key: Key) -> bool {
        self.change(|keys| {
            let is_new = keys.iter().all(|known| known.name != key.name);
            if is_new {
                keys.push(Arc::new(key));
            }
            is_new
        })
    }

    /// Replaces the key of the same name, whose usage still counts.
    pub fn replace(&self, mut key: Key) {
        self.change(|keys| {
            if let Some(at) = keys.iter().position(|known| known.name == key.name) {
                key.limiter = keys.remove(at).limiter.clone();
            }
            keys.push(Arc::new(key));
        });
    }

    pub fn remove(&self, name: &str) {
        self.change(|keys| keys.retain(|known| known.name != name));
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
        assert!(keys.authenticate("app", b"s3cret", 0).is_some());
        assert!(keys.authenticate("app", b"s3cre", 0).is_none());
        assert!(keys.authenticate("apq", b"s3cret", 0).is_none());
    }

    // proves G4
    #[test]
    fn a_key_may_have_two_secrets_expires_and_can_be_revoked() {
        let secrets = vec![KeySecret::plain("newer!"), KeySecret::plain("older!")];
        let key = Key::with_secrets("app", secrets, Rights::ALL, KeyScope::UNLIMITED);
        let keys = Keys::new(vec![key.expires(Some(100))]);
        assert!(keys.authenticate("app", b"newer!", 99).is_some());
        assert!(keys.authenticate("app", b"older!", 99).is_some());
        assert!(keys.authenticate("app", b"newer!", 100).is_none());
        assert!(keys.get("app", 100).is_none());
        assert!(!keys.add(self::key()), "the name is taken");
        keys.remove("app");
        assert!(keys.authenticate("app", b"newer!", 99).is_none());
    }
}
