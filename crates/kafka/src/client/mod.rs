//! A remote log: another node, an Apache Kafka cluster, or Azure Event Hubs through its Kafka endpoint.
//!
//! [`Remote`] implements the traits of `highwater-log` over the Kafka protocol, so code that works on an embedded log
//! works on a cluster too. The traits follow the protocol, and batches are sent unchanged.
//!
//! A request goes to the leader of a partition, the coordinator of a group, or the controller. Their addresses are
//! cached; when one has moved or a connection has ended, the request is retried within [`Options::patience`].
//! Retrying an append is safe, because brokers recognise a duplicate by its sequence number.
//!
//! Synchronous calls, such as the list of hubs, return cached state; the catalogue is read every
//! [`Options::refresh`].

mod append;
mod bounds;
mod catalogue;
mod claims;
mod cluster;
mod connection;
mod dial;
mod errors;
mod fetch;
mod groups;
mod names;
mod options;
mod partition;
mod pool;
mod retry;
mod sasl;
mod throttle;
mod transactions;
pub(crate) mod versions;
mod view;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use highwater_env::Clock;
use highwater_log::{HubName, TopicPartition};
use tokio::task::AbortHandle;

use cluster::Cluster;
use partition::RemotePartition;
use retry::Retry;
use view::Target;
use watch::Watch;

pub use names::ClusterNames;
pub use options::{Login, Mechanism, Options, Profile, TokenSource};

/// The cluster cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no broker could be reached: {0}")]
pub struct ConnectError(pub String);

/// A cluster. Clones share it; its connections are closed when the last clone and the last partition are dropped.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

struct Inner {
    cluster: Arc<Cluster>,
    watch: Arc<Watch>,
    /// The partitions in use: all appends to a partition must share one queue.
    partitions: Mutex<HashMap<TopicPartition, RemotePartition>>,
    catalogue_reader: AbortHandle,
}

impl Remote {
    /// Completes when the catalogue has been read. The clock gives records their timestamps where the log does not.
    pub async fn connect(options: Options, clock: Arc<dyn Clock>) -> Result<Remote, ConnectError> {
        let cluster = Arc::new(Cluster::new(options, clock).map_err(ConnectError)?);
        let mut retry = Retry::new(&cluster.options);
        while let Err(error) = cluster.refresh(0).await {
            let is_final = matches!(error, connection::CallError::Refused(_));
            if is_final || !retry.pause().await {
                return Err(ConnectError(error.to_string()));
            }
        }
        let reader = tokio::spawn(refresh_periodically(Arc::downgrade(&cluster)));
        Ok(Remote(Arc::new(Inner {
            watch: Arc::new(Watch::new(Arc::clone(&cluster))),
            cluster,
            partitions: Mutex::default(),
            catalogue_reader: reader.abort_handle(),
        })))
    }

    /// Reads the catalogue now.
    pub async fn refresh(&self) -> Result<(), ConnectError> {
        let seen = self.0.cluster.view().number;
        let read = self.0.cluster.refresh(seen).await;
        read.map_err(|error| ConnectError(error.to_string()))
    }

    fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.0.cluster)
    }

    fn remote_partition(&self, hub: &str, partition: u32) -> Option<RemotePartition> {
        let view = self.0.cluster.view();
        let topic = view.hubs.get(hub)?;
        let topic_partition = TopicPartition {
            hub: HubName::new(hub).ok()?,
            partition,
        };
        if partition >= topic.info.partitions {
            return None;
        }
        let mut partitions = lock(&self.0.partitions);
        let known = partitions.get(&topic_partition);
        if let Some(known) = known.filter(|known| known.target.id == topic.info.id) {
            return Some(known.clone());
        }
        let target = Target {
            topic_partition: topic_partition.clone(),
            topic: self.0.cluster.options.names.topic(hub),
            id: topic.info.id,
            by_id: topic.by_id,
        };
        let created = RemotePartition::new(self.cluster(), Arc::clone(&self.0.watch), target);
        partitions.insert(topic_partition, created.clone());
        Some(created)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.catalogue_reader.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the catalogue periodically, until the cluster is dropped.
async fn refresh_periodically(cluster: Weak<Cluster>) {
    loop {
        let Some(pause) = cluster.upgrade().map(|cluster| cluster.options.refresh) else {
            return;
        };
        tokio::time::sleep(pause).await;
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        if let Err(error) = cluster.refresh(cluster.view().number).await {
            tracing::warn!(%error, "cannot read the catalogue of the cluster");
        }
    }
}
