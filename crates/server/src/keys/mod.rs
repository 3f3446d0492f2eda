//! Keys and their rights, and how callers authenticate.
//!
//! A key is a name and a secret. A caller authenticates with both, or with a signature made with the secret (see [`sas`]).
//! Comparisons take constant time, and secrets are never printed.

pub mod sas;

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub const SECRET_LEN_MIN: usize = 6;

/// A right of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Send,
    Listen,
    Manage,
}

impl Right {
    pub fn parse(word: &str) -> Option<Right> {
        match word {
            "send" => Some(Right::Send),
            "listen" => Some(Right::Listen),
            "manage" => Some(Right::Manage),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Right::Send => "send",
            Right::Listen => "listen",
            Right::Manage => "manage",
        }
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    pub const ALL: Rights = Rights(0b111);

    pub fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Rights {
        let bits = rights.into_iter().map(|right| 1 << right as u8);
        Rights(bits.fold(0, |all, bit| all | bit))
    }
}

#[derive(Clone)]
pub struct Key {
    pub name: String,
    pub rights: Rights,
    /// `None`: no limit.
    pub hubs: Option<Vec<String>>,
    secret: Vec<u8>,
    digest: [u8; 32],
}

impl Key {
    pub fn new(name: String, secret: &str, rights: Rights, hubs: Option<Vec<String>>) -> Key {
        Key {
            name,
            rights,
            hubs,
            secret: secret.as_bytes().to_vec(),
            digest: Sha256::digest(secret).into(),
        }
    }

    /// The right over a hub or queue; with `None`, over the whole node.
    pub fn may(&self, right: Right, hub: Option<&str>) -> bool {
        let in_scope = match (&self.hubs, hub) {
            (None, _) => true,
            (Some(hubs), Some(hub)) => hubs.iter().any(|known| known == hub),
            (Some(_), None) => false,
        };
        in_scope && self.rights.has(right)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Key")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .field("hubs", &self.hubs)
            .finish_non_exhaustive()
    }
}

/// The keys of a node.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    keys: Vec<Key>,
}

impl Keys {
    pub fn new(keys: Vec<Key>) -> Keys {
        Keys { keys }
    }

    /// Without keys every caller may do everything, and the node listens on this machine only.
    pub fn is_open(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key with this name and secret. An unknown name takes as long as a known one.
    pub fn authenticate(&self, name: &str, secret: &[u8]) -> Option<&Key> {
        let given: [u8; 32] = Sha256::digest(secret).into();
        let key = self.get(name);
        let digest = key.map_or([0; 32], |key| key.digest);
        let same = bool::from(digest.ct_eq(&given));
        key.filter(|_| same)
    }

    pub fn get(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let rights = [Right::Send, Right::Manage].into_iter().collect();
        Key::new("app".into(), "s3cret", rights, Some(vec!["a".into()]))
    }

    #[test]
    fn a_secret_is_never_printed() {
        let shown = format!("{:?}", Keys::new(vec![key()]));
        assert!(
            shown.contains("app") && !shown.contains("s3cret"),
            "{shown}"
        );
    }

    #[test]
    fn a_key_is_limited_to_its_rights_and_hubs() {
        let key = key();
        assert!(key.may(Right::Send, Some("a")));
        assert!(!key.may(Right::Listen, Some("a")));
        assert!(!key.may(Right::Send, Some("b")));
        assert!(
            !key.may(Right::Manage, None),
            "a key for some hubs is none for the node"
        );
    }

    #[test]
    fn name_and_secret_must_both_be_right() {
        let keys = Keys::new(vec![key()]);
        assert!(keys.authenticate("app", b"s3cret").is_some());
        assert!(keys.authenticate("app", b"s3cre").is_none());
        assert!(keys.authenticate("apq", b"s3cret").is_none());
    }
}
