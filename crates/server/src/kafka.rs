//! The Kafka side of a node: listeners from the settings, and authorisation by keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::{
    AccessRule, AuditEvent, AuditLog, ClientCertificate, Key, Keys, Limiter, Resource, Right,
    Rights, ScramHash, ScramVerifier, TokenError,
};
use highwater_env::Clock;
use highwater_kafka::{
    Authorizer, BindError, BoundListeners, ClusterId, Handle, Identity, Listener, Options,
    Services, Session, TopicDefaults, UserChangeError, UserChangeRequest,
};
use highwater_log::BoxFuture;
use tokio::task::JoinHandle;

use crate::config::{Config, KafkaListener};
use crate::stored_keys::{KeyError, StoredKeys, UserUpdate};
use crate::text::taken_hint;
use crate::tls::{self, TlsError};
use crate::tokens::{TokenLogin, Tokens};

/// Why Kafka clients cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{error} (for Kafka clients){}", hint(error))]
    Bind { error: BindError },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn hint(error: &BindError) -> String {
    let BindError::Address { source, .. } = error;
    taken_hint(source, "kafka.listen")
}

/// A running Kafka server.
pub(crate) struct KafkaServer {
    handle: Handle,
    pub(crate) task: JoinHandle<()>,
}

impl KafkaServer {
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.handle.addresses()
    }
}

/// Binds the listeners of the settings; `None` if there are none.
pub(crate) async fn bind(
    config: &Config,
    connections_max: usize,
    has_keys: bool,
) -> Result<Option<BoundListeners>, ListenError> {
    if config.kafka.is_empty() {
        return Ok(None);
    }
    if has_keys {
        for listener in config.kafka.iter().filter(|listener| listener.anonymous) {
            tracing::warn!(
                address = %listener.listen,
                "anonymous = true: Kafka clients need no key here and have all rights"
            );
        }
    }
    let defaults = Options::default();
    let groups = highwater_hub::groups::Options::default();
    let options = Options {
        listeners: config
            .kafka
            .iter()
            .map(listener)
            .collect::<Result<_, _>>()?,
        cluster_id: ClusterId::OfHub(highwater_hub::groups::HUB),
        connections_max,
        node_id: i32::try_from(config.kafka_node_id).unwrap_or(i32::MAX),
        auto_create: config.auto_create.is_some(),
        partitions_default: config.auto_create.unwrap_or(defaults.partitions_default),
        topics: topic_defaults(config),
        maintenance: highwater_hub::Options::default().maintenance,
        consumer_session: groups.consumer_session,
        consumer_heartbeat: groups.consumer_heartbeat,
        ..defaults
    };
    let listeners = BoundListeners::bind(options).await;
    Ok(Some(
        listeners.map_err(|error| ListenError::Bind { error })?,
    ))
}

fn topic_defaults(config: &Config) -> TopicDefaults {
    let hub = highwater_hub::Options::default();
    TopicDefaults {
        timestamp_type: config.kafka_timestamps,
        segment_bytes: hub.segment_bytes,
        segment_age: hub.segment_age,
        tombstone_age: hub.tombstone_age,
    }
}

/// Serves the clients of the listeners.
pub(crate) fn serve(
    listeners: BoundListeners,
    services: Services,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> KafkaServer {
    let server = listeners.into_server(services);
    KafkaServer {
        handle: server.handle(),
        task: tokio::spawn(server.run(shutdown)),
    }
}

fn listener(settings: &KafkaListener) -> Result<Listener, TlsError> {
    Ok(Listener {
        address: settings.listen,
        advertised: settings.advertised.clone(),
        tls: settings.tls.as_ref().map(tls::server_config).transpose()?,
        sasl: settings.sasl,
        anonymous: settings.anonymous,
    })
}

/// Authorises clients by keys. A client of a listener without SASL may do everything that no rule denies to everybody:
/// the settings allow such listeners on this machine only.
pub(crate) struct KeyAuthorizer {
    keys: Arc<Keys>,
    /// `None`: no key can be changed.
    stored_keys: Option<Arc<StoredKeys>>,
    /// `None`: no tokens are accepted.
    tokens: Option<Arc<Tokens>>,
    clock: Arc<dyn Clock>,
    audit: Arc<dyn AuditLog>,
}

impl KeyAuthorizer {
    pub(crate) fn new(
        keys: Arc<Keys>,
        stored_keys: Option<Arc<StoredKeys>>,
        tokens: Option<Arc<Tokens>>,
        clock: Arc<dyn Clock>,
        audit: Arc<dyn AuditLog>,
    ) -> KeyAuthorizer {
        KeyAuthorizer {
            keys,
            stored_keys,
            tokens,
            clock,
            audit,
        }
    }

    fn key(&self, who: &Identity) -> Option<Arc<Key>> {
        self.keys.get(who.name(), self.clock.unix_millis())
    }
}

impl Authorizer for KeyAuthorizer {
    fn login(&self, user: &str, password: &str) -> BoxFuture<Option<Identity>> {
        let pair = match user {
            "$ConnectionString" => connection_string(password),
            _ => Some((user, password)),
        };
        let pair = pair.map(|(name, secret)| (name.to_owned(), secret.to_owned()));
        let (keys, now_ms) = (self.keys.clone(), self.clock.unix_millis());
        Box::pin(async move {
            let (name, secret) = pair?;
            let key = keys.authenticate(&name, secret.as_bytes(), now_ms).await?;
            Some(Identity::new(&key.name))
        })
    }

    fn scram_verifiers(&self, user: &str, hash: ScramHash) -> Vec<ScramVerifier> {
        let key = self.keys.get(user, self.clock.unix_millis());
        key.map_or_else(Vec::new, |key| key.verifiers(hash))
    }

    fn accepts_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    fn verify_token(&self, token: &str) -> BoxFuture<Result<Session, TokenError>> {
        let now_ms = self.clock.unix_millis();
        let (tokens, token) = (self.tokens.clone(), token.to_owned());
        Box::pin(async move {
            let tokens = tokens.ok_or(TokenError::UnknownSigner)?;
            tokens.verify(&token, now_ms).await.map(session)
        })
    }

    fn certificate_session(&self, certificate: &[u8]) -> Option<Session> {
        let certificate = ClientCertificate::parse(certificate)?;
        let now_ms = self.clock.unix_millis();
        let key = self.keys.of_certificate(&certificate, now_ms);
        if key.is_none() {
            tracing::debug!(names = ?certificate.names, "no key lists the certificate of a client");
        }
        Some(Session {
            identity: Identity::new(&key?.name),
            expires_ms: Some(certificate.expires_ms),
        })
    }

    fn refuse_login(&self, user: &str, from: SocketAddr) -> Duration {
        self.audit.record(AuditEvent {
            who: user.to_owned(),
            from: Some(from),
            operation: "login".into(),
            resource: String::new(),
            outcome: "refused".into(),
        });
        self.keys.login_failed(from.ip(), self.clock.elapsed())
    }

    fn has_users(&self) -> bool {
        !self.keys.is_empty()
    }

    fn keys(&self) -> Vec<Arc<Key>> {
        self.keys.list()
    }

    fn limiter(&self, who: &Identity) -> Option<Arc<Limiter>> {
        let key = self.keys.get(who.name(), self.clock.unix_millis())?;
        // Also without a limit: one that is set later holds for open connections.
        Some(key.limiter.clone())
    }

    fn change_user(
        &self,
        who: &Identity,
        request: UserChangeRequest,
    ) -> BoxFuture<Result<(), UserChangeError>> {
        let now_ms = self.clock.unix_millis();
        let key = self.keys.get(who.name(), now_ms);
        let update = UserUpdate {
            user: request.user,
            changes: request.changes,
            client_rights: match who.is_anonymous() {
                true => Rights::ALL,
                // A right over some names is no right to give it over others.
                false => key.map_or_else(Rights::default, |key| key.rights),
            },
            now_ms,
            validate_only: request.validate_only,
        };
        let stored = self.stored_keys.clone();
        Box::pin(async move {
            let stored = stored.ok_or_else(UserChangeError::unsupported)?;
            Ok(stored.update_user(update).await?)
        })
    }

    fn audit(&self, event: AuditEvent) {
        self.audit.record(event);
    }

    fn everybody(&self) -> Vec<AccessRule> {
        self.keys.everybody().list()
    }

    fn may(&self, who: &Identity, right: Right, on: Resource<'_>) -> bool {
        match who.is_anonymous() {
            true => self.keys.anonymous().may(right, on),
            false => self.key(who).is_some_and(|key| key.may(right, on)),
        }
    }

    fn may_see(&self, who: &Identity, hub: &str) -> bool {
        match who.is_anonymous() {
            true => self.keys.anonymous().may_see(hub),
            false => self.key(who).is_some_and(|key| key.may_see(hub)),
        }
    }
}

impl From<KeyError> for UserChangeError {
    fn from(error: KeyError) -> UserChangeError {
        let reason = error.to_string();
        match error {
            KeyError::Unknown(_) | KeyError::NoCredential(_) => UserChangeError::NotFound(reason),
            KeyError::Forbidden(..) => UserChangeError::Forbidden(reason),
            KeyError::Storage(_) => UserChangeError::Storage(reason),
            KeyError::InSettings(_) => {
                let how = "change it there ([[keys]]), and restart the node";
                UserChangeError::Refused(format!("{reason}: {how}"))
            }
            _ => UserChangeError::Refused(reason),
        }
    }
}

fn session(login: TokenLogin) -> Session {
    Session {
        identity: Identity::new(&login.key.name),
        expires_ms: Some(login.expires_ms),
    }
}

/// Name and secret of `Endpoint=..;SharedAccessKeyName=n;SharedAccessKey=s`, the login of Event Hubs clients.
fn connection_string(text: &str) -> Option<(&str, &str)> {
    let field = |name: &str| {
        let mut parts = text.split(';').filter_map(|part| part.split_once('='));
        parts.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    Some((field("SharedAccessKeyName")?, field("SharedAccessKey")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_access::{KeyScope, NoAudit};
    use highwater_env::SimClock;

    fn authorizer() -> KeyAuthorizer {
        let some = [Right::Listen].into_iter().collect();
        let keys = vec![
            Key::new("root", "s3cret=", Rights::ALL, KeyScope::UNLIMITED),
            Key::new("reader", "secret", some, KeyScope::of_hubs("reader", ["a"])),
        ];
        KeyAuthorizer::new(
            Arc::new(Keys::new(keys)),
            None,
            None,
            Arc::new(SimClock::at_unix_nanos(0)),
            Arc::new(NoAudit),
        )
    }

    #[tokio::test]
    async fn a_connection_string_is_a_name_and_a_secret() {
        let text = "Endpoint=sb://h/;SharedAccessKeyName=root;SharedAccessKey=s3cret=";
        let who = authorizer().login("$ConnectionString", text).await;
        assert_eq!(who.unwrap().name(), "root");
        assert!(authorizer().login("root", "s3cret=").await.is_some());
        assert!(authorizer().login("root", "s3cret").await.is_none());
        assert!(
            authorizer()
                .login("$ConnectionString", "Endpoint=x")
                .await
                .is_none()
        );
    }

    #[test]
    fn a_key_for_some_hubs_may_use_groups_of_its_name_but_not_the_node() {
        use Right::{Listen, Send};
        let (authorizer, reader) = (authorizer(), Identity::new("reader"));
        assert!(authorizer.may(&reader, Listen, Resource::Hub("a")));
        assert!(!authorizer.may(&reader, Listen, Resource::Hub("b")));
        assert!(!authorizer.may(&reader, Send, Resource::Hub("a")));
        assert!(authorizer.may(&reader, Listen, Resource::Group("reader-1")));
        assert!(!authorizer.may(&reader, Listen, Resource::Group("g")));
        assert!(!authorizer.may(&reader, Listen, Resource::Node));
        assert!(authorizer.may(&Identity::anonymous(), Send, Resource::Node));
        assert!(!authorizer.may(&Identity::new("stranger"), Listen, Resource::Node));
    }
}
