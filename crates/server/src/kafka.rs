//! The Kafka side of a node: its listeners from the settings, and keys as Kafka clients show them.

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_kafka::{
    Authorizer, BindError, Doors, Handle, Identity, Listener, Options, Resource, Services,
};
use tokio::task::JoinHandle;

use crate::config::{Config, KafkaListener};
use crate::keys::{Keys, Right};
use crate::tls::{self, TlsError};

/// Why Kafka clients cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{error} (for Kafka clients){}", hint(error))]
    Bind { error: BindError },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn hint(error: &BindError) -> &'static str {
    let BindError::Address { source, .. } = error;
    match source.kind() {
        std::io::ErrorKind::AddrInUse => {
            "\n  something else listens there: stop it, or set kafka.listen to another port, or `off`"
        }
        _ => "",
    }
}

/// A server that accepts.
pub struct Running {
    handle: Handle,
    pub task: JoinHandle<()>,
}

impl Running {
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        self.handle.addresses()
    }
}

/// Takes the addresses that the settings say; nothing if they say nothing.
pub async fn bind(config: &Config) -> Result<Option<Doors>, ListenError> {
    if config.kafka.is_empty() {
        return Ok(None);
    }
    let defaults = Options::default();
    let options = Options {
        listeners: config
            .kafka
            .iter()
            .map(listener)
            .collect::<Result<_, _>>()?,
        auto_create: config.auto_create.is_some(),
        partitions_default: config.auto_create.unwrap_or(defaults.partitions_default),
        ..defaults
    };
    let doors = Doors::bind(options).await;
    Ok(Some(doors.map_err(|error| ListenError::Bind { error })?))
}

/// Lets those in who wait at the doors.
pub fn open(
    doors: Doors,
    services: Services,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Running {
    let server = doors.lead_to(services);
    Running {
        handle: server.handle(),
        task: tokio::spawn(server.run(shutdown)),
    }
}

fn listener(wanted: &KafkaListener) -> Result<Listener, TlsError> {
    Ok(Listener {
        address: wanted.listen,
        advertised: wanted.advertised.clone(),
        tls: wanted.tls.as_ref().map(tls::config).transpose()?,
        sasl: wanted.sasl,
    })
}

/// Lets the holders of keys in. Whoever comes to a listener that asks for none is on this machine, as
/// the settings make sure, and may do everything.
pub struct Gate {
    keys: Arc<Keys>,
}

impl Gate {
    pub fn new(keys: Arc<Keys>) -> Gate {
        Gate { keys }
    }
}

impl Authorizer for Gate {
    fn login(&self, user: &str, password: &str) -> Option<Identity> {
        let (name, secret) = match user {
            "$ConnectionString" => connection_string(password)?,
            _ => (user, password),
        };
        let key = self.keys.prove(name, secret.as_bytes())?;
        Some(Identity::new(&key.name))
    }

    fn may(&self, who: &Identity, right: highwater_kafka::Right, on: Resource<'_>) -> bool {
        if *who == Identity::anonymous() {
            return true;
        }
        let Some(key) = self.keys.named(who.name()) else {
            return false;
        };
        let right = match right {
            highwater_kafka::Right::Send => Right::Send,
            highwater_kafka::Right::Listen => Right::Listen,
            highwater_kafka::Right::Manage => Right::Manage,
        };
        match on {
            Resource::Hub(hub) => key.may(right, Some(hub)),
            Resource::Node => key.may(right, None),
            // Groups and transactions belong to no hub; what they touch is asked for by itself.
            Resource::Group(_) | Resource::Transaction(_) => key.rights.has(right),
        }
    }
}

/// Name and secret out of `Endpoint=..;SharedAccessKeyName=n;SharedAccessKey=s`, which is how clients of
/// Event Hubs log in.
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
    use crate::keys::{Key, Rights};

    fn gate() -> Gate {
        let some = [Right::Listen].into_iter().collect();
        let keys = vec![
            Key::new("root".into(), "s3cret=", Rights::ALL, None),
            Key::new("reader".into(), "secret", some, Some(vec!["a".into()])),
        ];
        Gate::new(Arc::new(Keys::new(keys)))
    }

    #[test]
    fn a_connection_string_is_a_name_and_a_secret() {
        let text = "Endpoint=sb://h/;SharedAccessKeyName=root;SharedAccessKey=s3cret=";
        let who = gate().login("$ConnectionString", text);
        assert_eq!(who.unwrap().name(), "root");
        assert!(gate().login("root", "s3cret=").is_some());
        assert!(gate().login("root", "s3cret").is_none());
        assert!(gate().login("$ConnectionString", "Endpoint=x").is_none());
    }

    #[test]
    fn a_key_for_some_hubs_may_use_groups_but_not_the_node() {
        use highwater_kafka::Right::{Listen, Send};
        let (gate, reader) = (gate(), Identity::new("reader"));
        assert!(gate.may(&reader, Listen, Resource::Hub("a")));
        assert!(!gate.may(&reader, Listen, Resource::Hub("b")));
        assert!(!gate.may(&reader, Send, Resource::Hub("a")));
        assert!(gate.may(&reader, Listen, Resource::Group("g")));
        assert!(!gate.may(&reader, Listen, Resource::Node));
        assert!(gate.may(&Identity::anonymous(), Send, Resource::Node));
        assert!(!gate.may(&Identity::new("stranger"), Listen, Resource::Node));
    }
}
