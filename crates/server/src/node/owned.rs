//! Workflows, queues and topics of a node. On a log of its own the node has them all; over a cluster the nodes of the
//! prefix share queues and workflows, and this one opens the resources that the group assigns to it.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, shutdown_signal};
use highwater_flow::{GroupTimeouts, OwnershipMember, SlotHolder};
use highwater_kafka::client::{Profile, Remote};
use highwater_log::Log;
use highwater_queue::{CreateError, Forwarding, Queues, TopicError, Topics, Transactions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::NodeError;
use super::log::{Coordinators, NodeLog};
use super::services::Tasks;
use crate::cluster::ClusterSettings;
use crate::config::Config;
use crate::http::Peers;
use crate::owners::{self, Holder, HolderParts, Owners, instance_id, node_info};
use crate::processors::notify::Notifier;
use crate::queues::{self, RunningQueues};
use crate::topics;
use crate::workflows::Workflows;

/// How many heartbeats fit into a session.
const HEARTBEATS: u32 = 10;
/// How long nodes may take to close revoked resources.
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);

/// Resources owned by exactly one node.
pub(super) struct OwnedServices {
    pub(super) workflows: Workflows,
    pub(super) queues: RunningQueues,
    /// `None` over a cluster.
    pub(super) local: Option<LocalServices>,
    membership: Option<RunningMembership>,
}

/// Services of a node with a log of its own: it uses several queues at once.
pub(super) struct LocalServices {
    pub(super) topics: Topics,
    pub(super) transactions: Transactions,
    forwarding: Forwarding,
}

/// The membership in the group of nodes.
struct RunningMembership {
    owners: Owners,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The parts of a node that these services use.
pub(super) struct OwnedParts<'a> {
    pub config: &'a Config,
    pub coordinators: &'a Coordinators,
    pub clock: &'a Arc<dyn Clock>,
    pub notifier: Notifier,
    /// The URL of the HTTP listener.
    pub url: Option<String>,
}

impl OwnedServices {
    pub(super) async fn start(
        node_log: &NodeLog,
        parts: OwnedParts<'_>,
        tasks: &mut Tasks,
    ) -> Result<OwnedServices, NodeError> {
        match (node_log.remote(), &parts.config.cluster) {
            (Some(remote), Some(cluster)) => share(remote, cluster, parts, tasks).await,
            _ => open_all(&node_log.log(), parts, tasks).await,
        }
    }

    /// `None` for a node that has everything.
    pub(super) fn owners(&self) -> Option<Owners> {
        self.membership
            .as_ref()
            .map(|membership| membership.owners.clone())
    }

    /// Closes everything and leaves the group, so that other nodes take over at once.
    pub(super) async fn stop(self) {
        if let Some(RunningMembership { stop, task, .. }) = self.membership {
            stop.send_replace(true);
            // A panic has been reported.
            let _ = task.await;
        }
        let topics = self.local.map(|local| {
            drop(local.forwarding);
            local.topics
        });
        self.queues.stop().await;
        if let Some(topics) = topics {
            topics.stop().await;
        }
    }
}

async fn open_all(
    log: &Arc<dyn Log>,
    parts: OwnedParts<'_>,
    tasks: &mut Tasks,
) -> Result<OwnedServices, NodeError> {
    let OwnedParts { config, clock, .. } = parts;
    let workflows = Workflows::default();
    for workflow in &config.workflows {
        let name = workflow.definition.name.clone();
        let groups = parts.coordinators.groups.clone();
        let (egress, notifier) = (config.egress.clone(), parts.notifier.clone());
        let service = workflow
            .clone()
            .open(log, groups, clock, egress, notifier)
            .await;
        let service = service.map_err(|error| NodeError::Workflow { name, error })?;
        workflows.add(service.handle());
        tasks.spawn("workflows", |shutdown| service.run(shutdown));
    }
    let queues = queues::start(log.clone(), clock.clone(), &config.queues).await;
    let queues = queues.map_err(|(queue, error)| NodeError::Queue { queue, error })?;
    let topics = topics::start(log.clone(), clock.clone(), &config.topics).await;
    let topics = topics.map_err(|(topic, error)| NodeError::Topic { topic, error })?;
    let transactions = Transactions::open(log.clone(), &queues.queues, &topics).await;
    let transactions = transactions.map_err(NodeError::QueueTransactions)?;
    let forwarding = start_forwarding(&queues.queues, &topics, config).await?;
    Ok(OwnedServices {
        workflows,
        queues,
        local: Some(LocalServices {
            topics,
            transactions,
            forwarding,
        }),
        membership: None,
    })
}

/// Forwards messages. Forwarding targets of the settings must be valid.
async fn start_forwarding(
    queues: &Queues,
    topics: &Topics,
    config: &Config,
) -> Result<Forwarding, NodeError> {
    let forwarding = Forwarding::start(queues, topics);
    for declared in &config.queues {
        if let Some(queue) = queues.get(&declared.name) {
            let checked = forwarding.check(&queue).await;
            checked.map_err(|error| NodeError::Queue {
                queue: declared.name.clone(),
                error: CreateError::Forward(error),
            })?;
        }
    }
    for declared in &config.topics {
        let topic = topics.get(&declared.name);
        for subscription in topic.iter().flat_map(|topic| topic.subscriptions()) {
            let checked = forwarding.check(subscription.queue()).await;
            checked.map_err(|error| NodeError::Topic {
                topic: declared.name.clone(),
                error: TopicError::Create(CreateError::Forward(error)),
            })?;
        }
    }
    Ok(forwarding)
}

/// Joins the nodes of the prefix. Completes when all assigned resources are open.
async fn share(
    remote: &Remote,
    cluster: &ClusterSettings,
    parts: OwnedParts<'_>,
    tasks: &mut Tasks,
) -> Result<OwnedServices, NodeError> {
    let OwnedParts { config, clock, .. } = parts;
    let log: Arc<dyn Log> = Arc::new(remote.clone());
    let queues = queues::share(&log, clock, &config.queues);
    let workflows = Workflows::default();
    let mut services = OwnedServices {
        workflows: workflows.clone(),
        queues,
        local: None,
        membership: None,
    };
    // It has no transactions, so nothing there can have an owner.
    if cluster.profile == Profile::EventHubs {
        return Ok(services);
    }
    let failures = owners::Failures::default();
    let (holder, reconciler) = Holder::new(HolderParts {
        remote: remote.clone(),
        queues: services.queues.queues.clone(),
        declared_queues: config.queues.clone(),
        workflows,
        declared_workflows: config.workflows.clone(),
        groups: parts.coordinators.groups.clone(),
        clock: clock.clone(),
        egress: config.egress.clone(),
        notifier: parts.notifier.clone(),
        failures: failures.clone(),
    });
    tasks.spawn("queues and workflows", |shutdown| reconciler.run(shutdown));
    let opened = holder.opened();
    let names = config.workflows.iter();
    let names = names
        .map(|workflow| workflow.definition.name.clone())
        .collect();
    let (directory, known) = watch::channel(highwater_flow::Directory::default());
    let peers = Peers::new(&cluster.peers).map_err(NodeError::Cluster)?;
    let owners = Owners::new(known, failures, names, peers);
    let member = member(&parts, cluster, Arc::new(holder), directory)?;
    let stop = watch::Sender::new(false);
    let task = tokio::spawn(member.run(shutdown_signal(stop.subscribe())));
    services.membership = Some(RunningMembership { owners, stop, task });
    opened.await;
    Ok(services)
}

fn member(
    parts: &OwnedParts<'_>,
    cluster: &ClusterSettings,
    holder: Arc<dyn SlotHolder>,
    directory: watch::Sender<highwater_flow::Directory>,
) -> Result<OwnershipMember, NodeError> {
    let instance = instance_id(&parts.config.data);
    let instance = instance.map_err(|error| NodeError::Cluster(error.to_string()))?;
    let node = node_info(&cluster.peers, parts.url.as_deref(), &instance);
    if node.url.is_empty() {
        tracing::warn!("other nodes cannot reach this one: set cluster.advertise to its URL");
    }
    tracing::info!(
        node = node.name,
        url = node.url,
        "joining the nodes of the prefix"
    );
    Ok(OwnershipMember {
        groups: parts.coordinators.groups.clone(),
        group: owners::GROUP.to_owned(),
        client: cluster.client_id.clone(),
        instance: Some(instance),
        node,
        timeouts: GroupTimeouts {
            session: cluster.peers.session,
            heartbeat: cluster.peers.session / HEARTBEATS,
            rebalance: REBALANCE_TIMEOUT,
            pause: PAUSE,
        },
        holder,
        directory,
    })
}
