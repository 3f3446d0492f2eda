//! The clusters that jobs name, through the client of `highwater-kafka`.

use std::sync::Arc;

use highwater_connect::{Cluster, ClusterAddress, Clusters};
use highwater_env::Clock;
use highwater_kafka::client::{Login, Options, Remote};
use highwater_log::BoxFuture;

/// Connects to clusters. The clock is that of the node.
pub(super) struct KafkaClusters(pub Arc<dyn Clock>);

impl Clusters for KafkaClusters {
    fn connect(&self, address: ClusterAddress) -> BoxFuture<Result<Cluster, String>> {
        let clock = self.0.clone();
        let login = address.login;
        let options = Options {
            tls: address.tls,
            login: login.map(|(user, password)| Login { user, password }),
            egress: address.egress,
            ..Options::new(address.servers)
        };
        Box::pin(async move {
            let connected = Remote::connect(options, clock).await;
            let remote = connected.map_err(|error| error.to_string())?;
            Ok(Cluster {
                log: Arc::new(remote.clone()),
                transactions: Arc::new(remote),
            })
        })
    }
}
