//! The clusters that jobs name, through the client of `highwater-kafka`.

use std::sync::Arc;

use highwater_access::ScramHash;
use highwater_connect::{Cluster, ClusterAddress, ClusterLogin, Clusters, SaslMechanism};
use highwater_env::Clock;
use highwater_kafka::client::{Login, Mechanism, Options, Remote, TokenSource};
use highwater_log::BoxFuture;

/// Connects to clusters. The clock is that of the node.
pub(super) struct KafkaClusters(pub Arc<dyn Clock>);

impl Clusters for KafkaClusters {
    fn connect(&self, address: ClusterAddress) -> BoxFuture<Result<Cluster, String>> {
        let clock = self.0.clone();
        let mut options = Options {
            tls: address.tls,
            egress: address.egress,
            ..Options::new(address.servers)
        };
        match address.login {
            None => {}
            Some(ClusterLogin::Password {
                mechanism,
                user,
                password,
            }) => {
                options.mechanism = match mechanism {
                    SaslMechanism::Plain => Mechanism::Plain,
                    SaslMechanism::ScramSha256 => Mechanism::Scram(ScramHash::Sha256),
                    SaslMechanism::ScramSha512 => Mechanism::Scram(ScramHash::Sha512),
                };
                options.login = Some(Login { user, password });
            }
            Some(ClusterLogin::Token(token)) => {
                options.token = Some(TokenSource::new(move || token()));
            }
        }
        Box::pin(async move {
            let connected = Remote::connect(options, clock).await;
            let remote = connected.map_err(|error| error.to_string())?;
            Ok(Cluster {
                log: Arc::new(remote.clone()),
                transactions: Arc::new(remote.clone()),
                groups: Some(Arc::new(remote)),
            })
        })
    }
}
