//! A log that is elsewhere: another node, an Apache Kafka cluster, or Azure Event Hubs through its Kafka
//! endpoint.
//!
//! [`Remote`] implements the traits of `highwater-log` over the Kafka protocol, so whatever works on a log
//! in its own process works on a cluster as well. The traits are the protocol's own vocabulary, and batches
//! travel as they are: none is taken apart or put together on the way.
//!
//! A call is carried out by whoever can: the leader of a partition, the coordinator of a group, the
//! controller. Which broker that is, is found out and remembered; when it has changed, or a connection
//! has ended, the call is made again, for as long as [`Options::patience`] lasts. Appending again is safe,
//! because every batch has a number by which a broker knows a repeat.
//!
//! What the traits ask for without waiting, such as the hubs there are, is answered from what was last
//! heard; the catalogue is read every [`Options::refresh`].

mod append;
mod catalogue;
mod cluster;
mod connection;
mod dial;
mod errors;
mod fetch;
mod groups;
mod options;
mod partition;
mod pool;
mod retry;
mod transactions;
pub(crate) mod versions;
mod view;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use highwater_env::Clock;
use highwater_log::{HubName, TopicPartition};
use tokio::task::AbortHandle;

use cluster::Cluster;
use partition::RemotePartition;
use retry::Retry;
use view::Target;
use watch::Watch;

pub use dial::trust;
pub use options::{Login, Options};

/// Why there is no connection to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no broker could be reached: {0}")]
pub struct ConnectError(pub String);

/// A cluster. Clones are the same one; when the last is gone, and the partitions asked of it, its connections
/// are closed.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

struct Inner {
    cluster: Arc<Cluster>,
    watch: Arc<Watch>,
    /// One for each partition that was asked for, because all who append must share a queue.
    partitions: Mutex<HashMap<TopicPartition, RemotePartition>>,
    reading: AbortHandle,
}

impl Remote {
    /// Ready when a broker has told which hubs there are. The clock gives records their times where the
    /// log does not.
    pub async fn connect(options: Options, clock: Arc<dyn Clock>) -> Result<Remote, ConnectError> {
        let cluster = Arc::new(Cluster::new(options, clock).map_err(ConnectError)?);
        let mut retry = Retry::new(&cluster.options);
        while let Err(error) = cluster.refresh(0).await {
            let hopeless = matches!(error, connection::CallError::Refused(_));
            if hopeless || !retry.pause().await {
                return Err(ConnectError(error.to_string()));
            }
        }
        let reading = tokio::spawn(keep_reading(Arc::downgrade(&cluster)));
        Ok(Remote(Arc::new(Inner {
            watch: Arc::new(Watch::new(Arc::clone(&cluster))),
            cluster,
            partitions: Mutex::default(),
            reading: reading.abort_handle(),
        })))
    }

    /// Reads the catalogue now, for those who know that it has changed.
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
        let partitions = self.0.partitions.lock();
        let mut partitions = partitions.unwrap_or_else(PoisonError::into_inner);
        let known = partitions.get(&topic_partition);
        if let Some(known) = known.filter(|known| known.target.id == topic.info.id) {
            return Some(known.clone());
        }
        let target = Target {
            topic_partition: topic_partition.clone(),
            id: topic.info.id,
            by_id: topic.by_id,
        };
        let made = RemotePartition::new(self.cluster(), Arc::clone(&self.0.watch), target);
        partitions.insert(topic_partition, made.clone());
        Some(made)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Reads the catalogue now and then, until nobody needs it any more.
async fn keep_reading(cluster: Weak<Cluster>) {
    loop {
        let Some(pause) = cluster.upgrade().map(|cluster| cluster.options.refresh) else {
            return;
        };
        tokio::time::sleep(pause).await;
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        if let Err(error) = cluster.refresh(cluster.view().number).await {
            tracing::warn!(%error, "the catalogue of the cluster could not be read");
        }
    }
}
