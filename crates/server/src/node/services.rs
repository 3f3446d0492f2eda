//! The services on top of a node's hubs: coordinators of groups and transactions, workflows, queues, jobs and processors.
//!
//! They start in the order of their dependencies, and stop in reverse.

use std::fmt::Display;
use std::sync::Arc;

use highwater_env::random::Random;
use highwater_env::{Clock, shutdown_signal};
use highwater_hub::{groups, transactions};
use highwater_log::Log;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::NodeError;
use crate::config::Config;
use crate::jobs::{JobResources, Jobs};
use crate::processors::notify::Notifier;
use crate::processors::{NodeParts, Processors};
use crate::queues;
use crate::workflows::Workflows;

pub(super) struct Services {
    pub(super) groups: groups::Handle,
    pub(super) transactions: transactions::Handle,
    pub(super) workflows: Workflows,
    pub(super) queues: queues::RunningQueues,
    pub(super) jobs: Jobs,
    /// `None` if the settings have none.
    pub(super) processors: Option<Arc<Processors>>,
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Services {
    /// `url` is the base of links in notifications, unless the settings have one.
    pub(super) async fn start(
        config: &Config,
        log: &Arc<dyn Log>,
        clock: &Arc<dyn Clock>,
        url: Option<String>,
    ) -> Result<Services, NodeError> {
        let stop = watch::Sender::new(false);
        let group_service = groups::Service::new(
            log.clone(),
            clock.clone(),
            Random::from_os(),
            groups::Options::default(),
        );
        let groups = group_service.handle();
        let transaction_service = transactions::Service::new(
            log.clone(),
            clock.clone(),
            groups.clone(),
            transactions::Options::default(),
        );
        let transactions = transaction_service.handle();
        let mut tasks = vec![
            spawn(
                "groups",
                group_service.run(shutdown_signal(stop.subscribe())),
            ),
            spawn(
                "transactions",
                transaction_service.run(shutdown_signal(stop.subscribe())),
            ),
        ];
        let mut notify = config.notify.clone();
        notify.public_url = notify.public_url.or(url);
        let notifier = Notifier::new(notify, clock.clone()).map_err(NodeError::Notify)?;
        let mut workflows = Workflows::default();
        for workflow in &config.workflows {
            let name = workflow.definition.name.clone();
            let (groups, notifier) = (Arc::new(groups.clone()), notifier.clone());
            let service = workflow.clone().open(log, groups, clock, notifier).await;
            let service = service.map_err(|error| NodeError::Workflow { name, error })?;
            workflows.add(service.handle());
            tasks.push(spawn(
                "workflows",
                service.run(shutdown_signal(stop.subscribe())),
            ));
        }
        let queues = queues::start(log.clone(), clock.clone(), &config.queues).await;
        let queues = queues.map_err(|(queue, error)| NodeError::Queue { queue, error })?;
        let resources = JobResources {
            log: log.clone(),
            transactions: Arc::new(transactions.clone()),
            queues: queues.queues.clone(),
            clock: clock.clone(),
            sharded: config.sharded.clone().into(),
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
                    groups: Arc::new(groups.clone()),
                    clock: clock.clone(),
                };
                let specs = config.processors.clone();
                Some(Processors::start(specs, notifier, &config.data, parts).await?)
            }
        };
        Ok(Services {
            groups,
            transactions,
            workflows,
            queues,
            jobs,
            processors,
            tasks,
            stop,
        })
    }

    pub(super) async fn stop(self) {
        if let Some(processors) = self.processors {
            processors.stop().await;
        }
        self.jobs.stop_all().await;
        self.queues.stop().await;
        self.stop.send_replace(true);
        for task in self.tasks {
            // A panic has been reported, and leaves nothing to stop.
            let _ = task.await;
        }
    }
}

/// Runs a service in a task that reports its error.
fn spawn<E: Display + Send + 'static>(
    name: &'static str,
    service: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = service.await {
            tracing::error!(%error, "{name} have stopped");
        }
    })
}
