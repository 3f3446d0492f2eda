//! Who may do what. The node decides; this crate asks.

use std::sync::Arc;

use subtle::ConstantTimeEq;

/// Who a connection speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Arc<str>);

impl Identity {
    pub fn new(name: &str) -> Identity {
        Identity(name.into())
    }

    /// Whoever comes to a listener that asks for no authentication.
    pub fn anonymous() -> Identity {
        Identity::new("anonymous")
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Write records.
    Send,
    /// Read records, and use consumer groups.
    Listen,
    /// Make, change and delete.
    Manage,
}

/// What a right is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    Hub(&'a str),
    Group(&'a str),
    /// By transactional id.
    Transaction(&'a str),
    Node,
}

pub trait Authorizer: Send + Sync {
    /// `None` unless the password is the user's; compare with [`same_secret`].
    fn login(&self, user: &str, password: &str) -> Option<Identity>;

    fn may(&self, who: &Identity, right: Right, on: Resource<'_>) -> bool;
}

/// Takes the same time wherever the texts differ, so that nobody can find a secret byte by byte.
pub fn same_secret(given: &str, secret: &str) -> bool {
    given.as_bytes().ct_eq(secret.as_bytes()).into()
}

/// For a node without keys on a loopback address: nobody can log in, and everybody may do
/// everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn login(&self, _user: &str, _password: &str) -> Option<Identity> {
        None
    }

    fn may(&self, _who: &Identity, _right: Right, _on: Resource<'_>) -> bool {
        true
    }
}
