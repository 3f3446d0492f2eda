//! Authentication of AMQP clients: by tokens for addresses (CBS), by a login of the connection (SASL), or anonymous on
//! a node without keys.
//!
//! A client puts a token for each address that it uses. Rights are looked up for every message and every read, so that
//! a key that is revoked or a token that expires ends the link at its next use.

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_access::sas::{self, SignedGrant};
use highwater_access::{
    AuditEvent, AuditLog, ConnectionPermit, Key, Keys, Principal, RefusalLog, Resource, Right,
};
use highwater_amqp::AmqpError;
use highwater_env::Clock;

use super::error::unauthorized;
use crate::tokens::Tokens;

/// Tokens of a connection; clients put one for each address.
const GRANTS_MAX: usize = 1024;

/// The longest token, and the longest address that one is put for: they are kept as long as the connection.
const TOKEN_BYTES_MAX: usize = 16 << 10;
const AUDIENCE_BYTES_MAX: usize = 2 << 10;

/// The scheme in front of a signature. A token without it is one of an identity provider, whatever type is claimed.
const SAS_SCHEME: &str = "SharedAccessSignature ";

pub(super) struct Credentials {
    keys: Arc<Keys>,
    clock: Arc<dyn Clock>,
    /// Clients of the listener need no key.
    anonymous: bool,
    /// The key of the whole connection, and when that ends.
    login: Option<(Arc<Key>, Option<i64>)>,
    grants: Vec<PutToken>,
    /// A permit for each key with a quota.
    permits: Vec<(String, ConnectionPermit)>,
    refusals: RefusalAudit,
}

/// Records the refusals of a client.
pub(super) struct RefusalAudit {
    audit: Arc<dyn AuditLog>,
    from: SocketAddr,
    log: RefusalLog,
}

impl RefusalAudit {
    pub(super) fn new(audit: Arc<dyn AuditLog>, from: SocketAddr) -> RefusalAudit {
        RefusalAudit {
            audit,
            from,
            log: RefusalLog::default(),
        }
    }
}

/// A right that no login or token of the client grants.
pub(super) struct Denial {
    pub(super) error: AmqpError,
    /// The key that lacks the right, or that the client has shown otherwise.
    who: String,
}

/// A token that a client has put.
pub(super) struct PutToken {
    /// The path that the client has put it for.
    audience: String,
    kind: TokenKind,
}

enum TokenKind {
    /// The token is kept, to be verified again when its key changes.
    Signature { grant: SignedGrant, token: String },
    /// A token of an identity provider, which is for the whole node.
    Bearer { key: Arc<Key>, expires_ms: i64 },
}

/// The key has as many connections as it may have.
pub(super) struct TooManyConnections;

impl Credentials {
    pub(super) fn new(
        keys: Arc<Keys>,
        clock: Arc<dyn Clock>,
        refusals: RefusalAudit,
        anonymous: bool,
    ) -> Credentials {
        Credentials {
            keys,
            clock,
            anonymous,
            login: None,
            grants: Vec::new(),
            permits: Vec::new(),
            refusals,
        }
    }

    /// A node without keys listens on this machine only, and trusts its clients.
    pub(super) fn is_trusted(&self) -> bool {
        self.anonymous || self.keys.is_empty()
    }

    /// Whether the client has presented a credential.
    pub(super) fn is_known(&self) -> bool {
        self.is_trusted() || self.login.is_some() || !self.grants.is_empty()
    }

    /// Sets the key of the whole connection.
    pub(super) fn log_in(
        &mut self,
        key: Arc<Key>,
        expires_ms: Option<i64>,
    ) -> Result<(), TooManyConnections> {
        self.count_connection(&key)?;
        self.login = Some((key, expires_ms));
        Ok(())
    }

    /// Adds a token; a newer one for the same address replaces the old.
    pub(super) fn add(&mut self, grant: PutToken) -> Result<(), TooManyConnections> {
        self.count_connection(grant.key())?;
        self.grants.retain(|known| known.audience != grant.audience);
        if self.grants.len() >= GRANTS_MAX {
            self.grants.remove(0);
        }
        self.grants.push(grant);
        Ok(())
    }

    fn count_connection(&mut self, key: &Key) -> Result<(), TooManyConnections> {
        let is_counted = self.permits.iter().any(|(name, _)| *name == key.name);
        if key.limiter.is_limited() && !is_counted {
            let permit = key.limiter.connect().ok_or(TooManyConnections)?;
            self.permits.push((key.name.clone(), permit));
        }
        Ok(())
    }

    /// The principal that has one of the rights over the resource, by a token for `path`.
    pub(super) fn authorize(
        &self,
        path: &str,
        rights: &[Right],
        on: Resource<'_>,
    ) -> Result<Principal, Denial> {
        if self.is_trusted() {
            let caller = Principal::Trusted(self.keys.anonymous().clone());
            return match caller.may_any(rights, on) {
                true => Ok(caller),
                false => {
                    let error = unauthorized(format!("A rule denies {on} to everybody."));
                    let who = caller.name().to_owned();
                    Err(Denial { error, who })
                }
            };
        }
        let now_ms = self.clock.unix_millis();
        let login = self
            .login
            .as_ref()
            .filter(|(_, expires_ms)| expires_ms.is_none_or(|expires_ms| now_ms < expires_ms));
        let login = login.and_then(|(key, _)| self.keys.get(&key.name, now_ms));
        let grants = self.grants.iter();
        let granted = grants.filter_map(|grant| grant.key_for(path, &self.keys, now_ms));
        let mut known = None;
        for key in login.into_iter().chain(granted) {
            let caller = Principal::Key(key.clone());
            if caller.may_any(rights, on) {
                return Ok(caller);
            }
            known = Some(key);
        }
        let wanted = rights.first().map_or("", |right| right.name());
        let error = unauthorized(match known {
            Some(_) => format!("The key has no right to {wanted} for {on}."),
            None => format!("No valid token covers '{path}'."),
        });
        let key = known.or_else(|| self.shown_key());
        let caller = key.map_or(Principal::Anonymous, Principal::Key);
        let who = caller.name().to_owned();
        Err(Denial { error, who })
    }

    /// A key that the client has shown, which may be revoked by now, or for another address.
    fn shown_key(&self) -> Option<Arc<Key>> {
        let login = self.login.iter().map(|(key, _)| key);
        let granted = self.grants.iter().map(PutToken::key);
        login.chain(granted).next().cloned()
    }

    /// Records a denial, once for the connection.
    pub(super) fn record(&self, denial: &Denial, operation: &str, on: Resource<'_>) {
        let event = self.refusals.log.admit(AuditEvent {
            who: denial.who.clone(),
            from: Some(self.refusals.from),
            operation: operation.to_owned(),
            resource: on.name().to_owned(),
            outcome: denial.error.condition.to_string(),
        });
        if let Some(event) = event {
            self.refusals.audit.record(event);
        }
    }
}

impl PutToken {
    /// The key at the time when the token was put.
    fn key(&self) -> &Arc<Key> {
        match &self.kind {
            TokenKind::Signature { grant, .. } => &grant.key,
            TokenKind::Bearer { key, .. } => key,
        }
    }

    /// The key of the token, if the token is still valid and covers the path.
    fn key_for(&self, path: &str, keys: &Keys, now_ms: i64) -> Option<Arc<Key>> {
        match &self.kind {
            TokenKind::Signature { grant, token } => {
                let is_current = grant.expires_seconds.saturating_mul(1000) > now_ms;
                if !is_current || !grant.covers_ignoring_case(path) {
                    return None;
                }
                let key = keys.get(&grant.key.name, now_ms)?;
                let is_same = Arc::ptr_eq(&key, &grant.key)
                    || sas::verify_signature(keys, token, now_ms / 1000).is_ok();
                is_same.then_some(key)
            }
            TokenKind::Bearer { key, expires_ms } => {
                let key = keys.get(&key.name, now_ms)?;
                (now_ms < *expires_ms).then_some(key)
            }
        }
    }
}

/// Verifies a token for an address. The error is safe to send to the client.
pub(super) async fn verify_token(
    keys: Arc<Keys>,
    tokens: Option<Arc<Tokens>>,
    token: String,
    audience: String,
    now_ms: i64,
) -> Result<PutToken, String> {
    if token.len() > TOKEN_BYTES_MAX || audience.len() > AUDIENCE_BYTES_MAX {
        return Err("the token or its address is too long".to_owned());
    }
    let kind = match token.strip_prefix(SAS_SCHEME) {
        Some(signature) => {
            let grant = sas::verify_signature(&keys, signature.trim(), now_ms / 1000);
            TokenKind::Signature {
                grant: grant.map_err(|error| error.to_string())?,
                token: signature.trim().to_owned(),
            }
        }
        None => {
            let tokens = tokens.ok_or("the node accepts no such tokens")?;
            let login = tokens.verify(&token, now_ms).await;
            let login = login.map_err(|error| error.to_string())?;
            TokenKind::Bearer {
                key: login.key,
                expires_ms: login.expires_ms,
            }
        }
    };
    Ok(PutToken { audience, kind })
}

/// The name of the key that a token claims, for the audit log.
pub(super) fn claimed_name(token: &str) -> String {
    let fields = token.trim_start_matches(SAS_SCHEME).split('&');
    let mut names = fields.filter_map(|field| field.strip_prefix("skn="));
    let name = names.next().unwrap_or_default();
    crate::text::percent_decode(name).chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_access::{AccessRule, KeyScope, NoAudit, Rights};
    use highwater_env::SimClock;
    use std::time::Duration;

    const SECRET: &str = "s3cret";

    fn keys() -> Arc<Keys> {
        let listen = [Right::Listen].into_iter().collect();
        Arc::new(Keys::new(vec![
            Key::new("root", SECRET, Rights::ALL, KeyScope::UNLIMITED),
            Key::new("reader", SECRET, listen, KeyScope::of_hubs("reader", ["a"])),
        ]))
    }

    fn credentials(keys: Arc<Keys>, clock: Arc<SimClock>) -> Credentials {
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let refusals = RefusalAudit::new(Arc::new(NoAudit), from);
        Credentials::new(keys, clock, refusals, false)
    }

    async fn put(credentials: &mut Credentials, name: &str, resource: &str, expiry: i64) {
        let token = sas::sign(name, SECRET.as_bytes(), resource, expiry);
        let grant = verify_token(credentials.keys.clone(), None, token, resource.into(), 0).await;
        assert!(credentials.add(grant.unwrap()).is_ok());
    }

    // proves G1, A1
    #[tokio::test]
    async fn a_token_gives_the_rights_of_its_key_for_its_address_until_it_expires() {
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let mut credentials = credentials(keys(), clock.clone());
        assert!(!credentials.is_known());
        put(&mut credentials, "reader", "sb://h/a", 100).await;
        let may = |credentials: &Credentials, path: &str, right, hub| {
            credentials
                .authorize(path, &[right], Resource::Hub(hub))
                .is_ok()
        };
        let path = "a/ConsumerGroups/$Default/Partitions/0";
        assert!(may(&credentials, path, Right::Listen, "a"));
        assert!(!may(&credentials, path, Right::Send, "a"));
        assert!(!may(&credentials, "b", Right::Listen, "b"));
        // The token of another key is for another address.
        put(&mut credentials, "root", "sb://h/b", 200).await;
        assert!(may(&credentials, "b", Right::Send, "b"));
        assert!(!may(&credentials, "a", Right::Send, "a"));
        clock.advance(Duration::from_secs(100));
        assert!(!may(&credentials, path, Right::Listen, "a"));
        assert!(may(&credentials, "b", Right::Send, "b"));
    }

    // proves G1
    #[tokio::test]
    async fn a_revoked_key_and_a_changed_secret_end_the_grant() {
        let keys = keys();
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let mut credentials = credentials(keys.clone(), clock);
        put(&mut credentials, "root", "sb://h/a", 100).await;
        let may = |credentials: &Credentials| {
            credentials
                .authorize("a", &[Right::Send], Resource::Hub("a"))
                .is_ok()
        };
        assert!(may(&credentials));
        keys.replace(Key::new("root", "other1", Rights::ALL, KeyScope::UNLIMITED));
        assert!(!may(&credentials));
        keys.replace(Key::new("root", SECRET, Rights::ALL, KeyScope::UNLIMITED));
        assert!(may(&credentials));
        keys.remove("root");
        assert!(!may(&credentials));
    }

    #[tokio::test]
    async fn a_wrong_token_is_refused_and_its_claimed_name_is_known() {
        let token = sas::sign("root", b"guess", "sb://h/a", 100);
        assert_eq!(claimed_name(&token), "root");
        let refused = verify_token(keys(), None, token, "a".into(), 0).await;
        assert!(refused.is_err());
        let refused = verify_token(keys(), None, "eyJhbGciOi".into(), "a".into(), 0).await;
        assert!(refused.is_err());
        // A token is kept, so it must not be padded.
        let token = sas::sign("root", SECRET.as_bytes(), "sb://h/a", 100);
        let padded = format!("{token}&x={}", "x".repeat(TOKEN_BYTES_MAX));
        for (token, audience) in [
            (padded, "a".into()),
            (token, "a".repeat(AUDIENCE_BYTES_MAX + 1)),
        ] {
            let refused = verify_token(keys(), None, token, audience, 0).await;
            assert_eq!(
                refused.err().as_deref(),
                Some("the token or its address is too long")
            );
        }
    }

    // proves G1, A1
    #[tokio::test]
    async fn what_is_denied_to_everybody_is_denied_to_open_connections() {
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let keys = keys();
        let mut reader = credentials(keys.clone(), clock.clone());
        put(&mut reader, "reader", "sb://h/a", 100).await;
        let mut root = credentials(keys.clone(), clock.clone());
        put(&mut root, "root", "sb://h/a", 100).await;
        let anonymous = Credentials {
            anonymous: true,
            ..credentials(keys.clone(), clock)
        };
        let listens = |client: &Credentials| {
            let read = client.authorize("a", &[Right::Listen], Resource::Hub("a"));
            let seen = client.authorize("a", Right::VISIBLE, Resource::Hub("a"));
            (read.is_ok(), seen.is_ok())
        };
        for client in [&reader, &root, &anonymous] {
            assert_eq!(listens(client), (true, true));
        }
        let denial: AccessRule = serde_json::from_str(
            r#"{"effect": "deny", "access": "all", "kind": "hub", "name": "a"}"#,
        )
        .unwrap();
        keys.set_everybody(vec![denial]);
        assert_eq!(listens(&reader), (false, false));
        assert_eq!(listens(&anonymous), (false, false));
        assert_eq!(listens(&root), (true, true), "it manages the node");
        let denied = anonymous.authorize("a", &[Right::Send], Resource::Hub("a"));
        assert_eq!(denied.err().unwrap().who, "anonymous");
        assert!(
            anonymous
                .authorize("b", &[Right::Send], Resource::Hub("b"))
                .is_ok()
        );
    }

    #[test]
    fn a_node_without_keys_trusts_its_clients() {
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let credentials = credentials(Arc::default(), clock);
        let principal = credentials.authorize("a", &[Right::Manage], Resource::Hub("a"));
        assert!(matches!(principal, Ok(Principal::Trusted(_))));
    }
}
