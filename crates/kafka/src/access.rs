//! Authorization: the node implements [`Authorizer`], this crate asks it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use highwater_access::Resource;
use highwater_access::{
    AccessRule, AuditEvent, Grant, Key, Limiter, Right, ScramHash, ScramVerifier, TokenError, Usage,
};
use highwater_log::BoxFuture;
use subtle::ConstantTimeEq;

/// The name of clients without a login, which no user has.
const ANONYMOUS: &str = "anonymous";

/// The authenticated user of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Arc<str>);

impl Identity {
    pub fn new(name: &str) -> Identity {
        Identity(name.into())
    }

    /// Clients of a listener without authentication.
    pub fn anonymous() -> Identity {
        Identity::new(ANONYMOUS)
    }

    pub fn is_anonymous(&self) -> bool {
        self.name() == ANONYMOUS
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

/// The user of a connection, and how long the login lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub identity: Identity,
    /// Milliseconds since 1970. `None`: as long as the user exists.
    pub expires_ms: Option<i64>,
}

impl Session {
    /// A session without an end.
    pub fn new(identity: Identity) -> Session {
        Session {
            identity,
            expires_ms: None,
        }
    }
}

/// Changes of one user that Kafka's tools ask for, all or none.
#[derive(Clone)]
pub struct UserChangeRequest {
    /// Or [`EVERYBODY`](highwater_access::EVERYBODY), who has rules only.
    pub user: String,
    pub changes: Vec<UserChange>,
    /// Whether everything is checked and nothing is changed.
    pub validate_only: bool,
}

#[derive(Clone)]
pub enum UserChange {
    Grant(Grant),
    Revoke(Grant),
    AddRule(AccessRule),
    RemoveRule(AccessRule),
    /// Replaces the credential of this hash.
    SetCredential {
        hash: ScramHash,
        verifier: ScramVerifier,
    },
    RemoveCredential(ScramHash),
    /// `None`: no limit.
    SetRate {
        usage: Usage,
        per_second: Option<u64>,
    },
}

/// Why a user is not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UserChangeError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Storage(String),
    /// It cannot be expressed, or not here.
    #[error("{0}")]
    Refused(String),
}

impl UserChangeError {
    pub fn unsupported() -> UserChangeError {
        UserChangeError::Refused("the users of this node cannot be changed".to_owned())
    }
}

pub trait Authorizer: Send + Sync {
    /// `None` if user and password do not match; compare with [`same_secret`].
    fn login(&self, user: &str, password: &str) -> BoxFuture<Option<Identity>>;

    /// The verifiers of a user's secrets, with one salt; none if there is no such user.
    fn scram_verifiers(&self, _user: &str, _hash: ScramHash) -> Vec<ScramVerifier> {
        Vec::new()
    }

    /// Whether clients may log in with tokens (OAUTHBEARER).
    fn accepts_tokens(&self) -> bool {
        false
    }

    /// The session of a valid token.
    fn verify_token(&self, _token: &str) -> BoxFuture<Result<Session, TokenError>> {
        Box::pin(std::future::ready(Err(TokenError::UnknownSigner)))
    }

    /// The session of a client with this certificate (DER), which TLS has verified. `None` if it is of no user.
    fn certificate_session(&self, _certificate: &[u8]) -> Option<Session> {
        None
    }

    /// Records a refused login. Returns the delay before it is answered.
    fn refuse_login(&self, _user: &str, _from: SocketAddr) -> Duration {
        Duration::ZERO
    }

    /// Whether there are users, so that listeners require a login unless they are anonymous.
    fn has_users(&self) -> bool {
        false
    }

    /// The users, for tools that describe rights, credentials and quotas.
    fn keys(&self) -> Vec<Arc<Key>> {
        Vec::new()
    }

    /// The rules for everybody.
    fn everybody(&self) -> Vec<AccessRule> {
        Vec::new()
    }

    /// Changes a user for a client that may change the node.
    fn change_user(
        &self,
        _who: &Identity,
        _request: UserChangeRequest,
    ) -> BoxFuture<Result<(), UserChangeError>> {
        Box::pin(std::future::ready(Err(UserChangeError::unsupported())))
    }

    /// The quota of a user; `None` if there is no such user.
    fn limiter(&self, _identity: &Identity) -> Option<Arc<Limiter>> {
        None
    }

    /// Records a change or a refusal in the audit log.
    fn audit(&self, _event: AuditEvent) {}

    fn may(&self, who: &Identity, right: Right, on: Resource<'_>) -> bool;

    /// Whether the user may know that the hub exists, which comes with every right over it.
    fn may_see(&self, who: &Identity, hub: &str) -> bool {
        let mut rights = Right::VISIBLE.iter();
        rights.any(|right| self.may(who, *right, Resource::Hub(hub)))
    }
}

/// Compares in constant time, so that the time does not reveal a secret byte by byte.
pub fn same_secret(given: &str, secret: &str) -> bool {
    given.as_bytes().ct_eq(secret.as_bytes()).into()
}

/// For a node without keys on a loopback address: there are no logins, and every client has all rights.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn login(&self, _user: &str, _password: &str) -> BoxFuture<Option<Identity>> {
        Box::pin(std::future::ready(None))
    }

    fn may(&self, _who: &Identity, _right: Right, _on: Resource<'_>) -> bool {
        true
    }
}
