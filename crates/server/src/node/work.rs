//! What works on the hubs of a node: coordinators of groups and transactions, workflows, queues, jobs and processors.
//!
//! They are started in the order in which they need each other, and stopped the other way round.

use std::fmt::Display;
use std::sync::Arc;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_hub::{groups, transactions};
use highwater_log::Log;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{NodeError, told};
use crate::config::Config;
use crate::jobs::{Around, Jobs};
use crate::processors::notify::Notifier;
use crate::processors::{NodeParts, Processors};
use crate::queues;
use crate::workflows::Workflows;

pub(super) struct Work {
    pub groups: groups::Handle,
    pub transactions: transactions::Handle,
    pub workflows: Workflows,
    pub queues: queues::Running,
    pub jobs: Jobs,
    /// `None` where there are none in the settings.
    pub processors: Option<Arc<Processors>>,
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl Work {
    /// `url` is where the node can be reached, for links in notifications.
    pub async fn start(
        config: &Config,
        log: &Arc<dyn Log>,
        clock: &Arc<dyn Clock>,
        url: Option<String>,
    ) -> Result<Work, NodeError> {
        let stop = watch::Sender::new(false);
        let positions = groups::Service::new(
            log.clone(),
            clock.clone(),
            Random::from_os(),
            groups::Options::default(),
        );
        let groups = positions.handle();
        let ends = transactions::Service::new(
            log.clone(),
            clock.clone(),
            groups.clone(),
            transactions::Options::default(),
        );
        let transactions = ends.handle();
        let mut tasks = vec![
            run("groups", positions.run(told(&stop))),
            run("transactions", ends.run(told(&stop))),
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
            tasks.push(run("workflows", service.run(told(&stop))));
        }
        let queues = queues::start(log.clone(), clock.clone(), &config.queues).await;
        let queues = queues.map_err(|(queue, error)| NodeError::Queue { queue, error })?;
        let around = Around {
            log: log.clone(),
            transactions: Arc::new(transactions.clone()),
            queues: queues.queues.clone(),
            clock: clock.clone(),
            sharded: config.sharded.clone().into(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let jobs = Jobs::open(around, config.data.join("jobs"), config.jobs.clone());
        let jobs = jobs.map_err(NodeError::Jobs)?;
        jobs.start_wanted().await;
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
        Ok(Work {
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

    pub async fn stop(self) {
        if let Some(processors) = self.processors {
            processors.stop().await;
        }
        self.jobs.stop_all().await;
        self.queues.stop().await;
        self.stop.send_replace(true);
        for task in self.tasks {
            // A task that panicked has said so, and has nothing left to stop.
            let _ = task.await;
        }
    }
}

fn run<E: Display + Send + 'static>(
    name: &'static str,
    service: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = service.await {
            tracing::error!(%error, "{name} have stopped");
        }
    })
}
