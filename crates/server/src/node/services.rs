//! The services on top of a node's hubs: coordinators of groups and transactions, workflows, queues, jobs and processors.
//!
//! They start in the order of their dependencies, and stop in reverse.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use highwater_access::Keys;
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
    tasks: Tasks,
}

impl Services {
    /// `url` is the base of links in notifications, unless the settings have one.
    pub(super) async fn start(
        config: &Config,
        keys: &Arc<Keys>,
        log: &Arc<dyn Log>,
        clock: &Arc<dyn Clock>,
        url: Option<String>,
    ) -> Result<Services, NodeError> {
        let mut tasks = Tasks::default();
        let (groups, transactions) = start_coordinators(log, clock, &mut tasks);
        let mut notify = config.notify.clone();
        notify.public_url = notify.public_url.or(url);
        let notifier = Notifier::new(notify, config.egress.clone(), clock.clone());
        let notifier = notifier.map_err(NodeError::Notify)?;
        let mut workflows = Workflows::default();
        for workflow in &config.workflows {
            let name = workflow.definition.name.clone();
            let (groups, notifier) = (Arc::new(groups.clone()), notifier.clone());
            let workflow = workflow.clone();
            let egress = config.egress.clone();
            let service = workflow.open(log, groups, clock, egress, notifier).await;
            let service = service.map_err(|error| NodeError::Workflow { name, error })?;
            workflows.add(service.handle());
            tasks.spawn("workflows", |shutdown| service.run(shutdown));
        }
        let queues = queues::start(log.clone(), clock.clone(), &config.queues).await;
        let queues = queues.map_err(|(queue, error)| NodeError::Queue { queue, error })?;
        let resources = JobResources {
            log: log.clone(),
            transactions: Arc::new(transactions.clone()),
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
                    groups: Arc::new(groups.clone()),
                    clock: clock.clone(),
                    egress: config.egress.clone(),
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
        })
    }

    pub(super) async fn stop(self) {
        if let Some(processors) = self.processors {
            processors.stop().await;
        }
        self.jobs.stop_all().await;
        self.queues.stop().await;
        self.tasks.stop().await;
    }
}

fn start_coordinators(
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
    tasks: &mut Tasks,
) -> (groups::Handle, transactions::Handle) {
    let options = groups::Options::default();
    let groups = groups::Service::new(log.clone(), clock.clone(), Random::from_os(), options);
    let group_handle = groups.handle();
    let options = transactions::Options::default();
    let transactions =
        transactions::Service::new(log.clone(), clock.clone(), group_handle.clone(), options);
    let transaction_handle = transactions.handle();
    tasks.spawn("groups", |shutdown| groups.run(shutdown));
    tasks.spawn("transactions", |shutdown| transactions.run(shutdown));
    (group_handle, transaction_handle)
}

/// The tasks of services, which stop together.
#[derive(Default)]
struct Tasks {
    running: Vec<JoinHandle<()>>,
    shutdown: watch::Sender<bool>,
}

impl Tasks {
    /// Runs a service in a task that reports its error.
    fn spawn<E: Display, S: Future<Output = Result<(), E>> + Send + 'static>(
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

type ShutdownSignal = Pin<Box<dyn Future<Output = ()> + Send>>;
