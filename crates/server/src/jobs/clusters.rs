//! The clusters of jobs, through the client of `highwater-kafka`: those that job files name, and the log of the node.
//!
//! Every input and output has connections of its own, so that a busy job delays neither another one nor the node.

use std::sync::Arc;

use highwater_access::ScramHash;
use highwater_connect::{Cluster, ClusterAddress, ClusterLogin, Clusters, SaslMechanism};
use highwater_env::Clock;
use highwater_kafka::client::{Login, Mechanism, Options, Remote, TokenSource};
use highwater_log::BoxFuture;

use crate::cluster::ClusterSettings;

/// Connects to clusters.
pub(super) struct KafkaClusters {
    pub clock: Arc<dyn Clock>,
    /// The log of the node, if it is a cluster.
    pub node: Option<ClusterSettings>,
}

async fn connect(options: Options, clock: Arc<dyn Clock>) -> Result<Cluster, String> {
    let connected = Remote::connect(options, clock).await;
    let remote = connected.map_err(|error| error.to_string())?;
    Ok(Cluster {
        log: Arc::new(remote.clone()),
        transactions: Arc::new(remote.clone()),
        groups: Some(Arc::new(remote)),
    })
}

impl Clusters for KafkaClusters {
    fn connect(&self, address: ClusterAddress) -> BoxFuture<Result<Cluster, String>> {
        let clock = self.clock.clone();
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
        Box::pin(connect(options, clock))
    }

    fn connect_node(&self) -> BoxFuture<Result<Cluster, String>> {
        let (node, clock) = (self.node.clone(), self.clock.clone());
        Box::pin(async move {
            let node = node.ok_or("the log of the node is no cluster")?;
            connect(node.client_options()?, clock).await
        })
    }
}
