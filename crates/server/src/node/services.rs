//! The services on top of a node's log: coordinators of groups and transactions, workflows, queues, jobs and processors.
//!
//! They start in the order of their dependencies, and stop in reverse.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use highwater_access::{AuditLog, Keys};
use highwater_env::{Clock, shutdown_signal};
use highwater_queue::{CreateError, Forwarding, Queues, TopicError, Topics, Transactions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::NodeError;
use super::log::{Coordinators, NodeLog};
use crate::config::Config;
use crate::jobs::{JobResources, Jobs};
use crate::processors::notify::Notifier;
use crate::processors::{NodeParts, Processors};
use crate::queues;
use crate::topics;
use crate::workflows::Workflows;

pub(super) struct Services {
    pub(super) coordinators: Coordinators,
    pub(super) workflows: Workflows,
    pub(super) queues: queues::RunningQueues,
    pub(super) topics: Topics,
    pub(super) queue_transactions: Transactions,
    forwarding: Forwarding,
    pub(super) jobs: Jobs,
    /// `None` if the settings have none.
    pub(super) processors: Option<Arc<Processors>>,
    tasks: Tasks,
}

impl Services {
    /// `url` is the base of links in notifications, unless the settings have one.
    pub(super) async fn start(
        config: &Config,
        keys: &Arc<Keys>,
        node_log: &NodeLog,
        clock: &Arc<dyn Clock>,
        url: Option<String>,
    ) -> Result<Services, NodeError> {
        let mut tasks = Tasks::default();
        let log = &node_log.log();
        let coordinators = node_log.coordinators(clock, &mut tasks);
        let mut notify = config.notify.clone();
        notify.public_url = notify.public_url.or(url);
        let notifier = Notifier::new(notify, config.egress.clone(), clock.clone());
        let notifier = notifier.map_err(NodeError::Notify)?;
        let mut workflows = Workflows::default();
        for workflow in &config.workflows {
            let name = workflow.definition.name.clone();
            let (groups, notifier) = (coordinators.groups.clone(), notifier.clone());
            let workflow = workflow.clone();
            let egress = config.egress.clone();
            let service = workflow.open(log, groups, clock, egress, notifier).await;
            let service = service.map_err(|error| NodeError::Workflow { name, error })?;
            workflows.add(service.handle());
            tasks.spawn("workflows", |shutdown| service.run(shutdown));
        }
        let queues = queues::start(log.clone(), clock.clone(), &config.queues).await;
        let queues = queues.map_err(|(queue, error)| NodeError::Queue { queue, error })?;
        let topics = topics::start(log.clone(), clock.clone(), &config.topics).await;
        let topics = topics.map_err(|(topic, error)| NodeError::Topic { topic, error })?;
        let transactions = Transactions::open(log.clone(), &queues.queues, &topics).await;
        let queue_transactions = transactions.map_err(NodeError::QueueTransactions)?;
        let forwarding = start_forwarding(&queues.queues, &topics, config).await?;
        let resources = JobResources {
            log: log.clone(),
            transactions: coordinators.transactions.clone(),
            on_cluster: node_log.hub().is_none(),
            queues: queues.queues.clone(),
            clock: clock.clone(),
            sharded: config.sharded.clone().into(),
            egress: config.egress.clone(),
            deployed_access: config.deployed_access.clone(),
            keys: keys.clone(),
            state_bytes_max: config.job_state_bytes_max,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let jobs = Jobs::open(resources, config.data.join("jobs"), config.jobs.clone());
        let jobs = jobs.map_err(NodeError::Jobs)?;
        jobs.start_desired().await;
        let processors = match config.processors.is_empty() {
            true => None,
            false => {
                let parts = NodeParts {
                    log: log.clone(),
                    groups: coordinators.groups.clone(),
                    clock: clock.clone(),
                    egress: config.egress.clone(),
                };
                let specs = config.processors.clone();
                Some(Processors::start(specs, notifier, &config.data, parts).await?)
            }
        };
        Ok(Services {
            coordinators,
            workflows,
            queues,
            topics,
            queue_transactions,
            forwarding,
            jobs,
            processors,
            tasks,
        })
    }

    /// Stops the jobs of keys that are revoked, expire or lose a right.
    pub(super) fn watch_keys(&mut self, changes: watch::Receiver<()>, audit: Arc<dyn AuditLog>) {
        let jobs = self.jobs.clone();
        self.tasks.spawn("checks of the keys of jobs", |shutdown| {
            jobs.watch_keys(changes, audit, shutdown)
        });
    }

    pub(super) async fn stop(self) {
        if let Some(processors) = self.processors {
            processors.stop().await;
        }
        self.jobs.stop_all().await;
        drop(self.forwarding);
        self.queues.stop().await;
        self.topics.stop().await;
        self.tasks.stop().await;
    }
}

/// Forwards messages. What the settings forward must be possible.
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

/// The tasks of services, which stop together.
#[derive(Default)]
pub(super) struct Tasks {
    running: Vec<JoinHandle<()>>,
    shutdown: watch::Sender<bool>,
}

impl Tasks {
    /// Runs a service in a task that reports its error.
    pub(super) fn spawn<E: Display, S: Future<Output = Result<(), E>> + Send + 'static>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(ShutdownSignal) -> S,
    ) {
        let service = run(Box::pin(shutdown_signal(self.shutdown.subscribe())));
        self.running.push(tokio::spawn(async move {
            if let Err(error) = service.await {
                tracing::error!(%error, "{name} have stopped");
            }
        }));
    }

    async fn stop(self) {
        self.shutdown.send_replace(true);
        for task in self.running {
            // A panic has been reported, and leaves nothing to stop.
            let _ = task.await;
        }
    }
}

pub(super) type ShutdownSignal = Pin<Box<dyn Future<Output = ()> + Send>>;
