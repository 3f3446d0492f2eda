//! Opens the resources in the slots of this node, and closes the rest.
//!
//! One task reconciles open resources with the assignment, at every assignment and every few seconds: so a queue that
//! another node created, one whose opening failed, and one whose claim was lost by mistake are opened at the next
//! reconciliation. A reconciliation that finds something first waits for two heartbeats: a node that was frozen, and
//! whose slots others have by now, learns it from them, and does not take the journals back from their owners.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use highwater_env::{Clock, EgressPolicy, shutdown_signal};
use highwater_flow::{SlotHolder, SlotSet};
use highwater_kafka::client::Remote;
use highwater_log::{BoxFuture, GroupCoordinator, Log};
use highwater_queue::Queues;
use highwater_workflow::JournalError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Failures, OwnedKind};
use crate::processors::notify::Notifier;
use crate::queues::{self, DeclaredQueue};
use crate::workflows::{Workflow, Workflows};

/// The reconcile interval.
const INTERVAL: Duration = Duration::from_secs(2);

/// Heartbeats that confirm the slots: the first one may have been in flight already.
const CONFIRMATIONS: u64 = 2;

/// Queues that are opened at the same time.
const CONCURRENCY: usize = 8;

/// The dependencies for opening resources.
pub(crate) struct HolderParts {
    pub remote: Remote,
    pub queues: Queues,
    pub declared_queues: Vec<DeclaredQueue>,
    pub workflows: Workflows,
    pub declared_workflows: Vec<Workflow>,
    pub groups: Arc<dyn GroupCoordinator>,
    pub clock: Arc<dyn Clock>,
    pub egress: EgressPolicy,
    pub notifier: Notifier,
    pub failures: Failures,
}

/// The slots that should be served. The version counts the assignments.
#[derive(Clone, Default)]
struct DesiredSlots {
    version: u64,
    slots: SlotSet,
}

/// The last reconciled versions: everything else is closed, and everything is open.
#[derive(Clone, Copy, Default)]
struct Progress {
    closed: u64,
    opened: u64,
}

/// The handle of the task.
pub(crate) struct Holder {
    desired: watch::Sender<DesiredSlots>,
    /// Counts the heartbeats.
    confirmations: watch::Sender<u64>,
    progress: watch::Receiver<Progress>,
    queues: Queues,
    workflows: Vec<String>,
}

/// The task.
pub(crate) struct Reconciler {
    parts: HolderParts,
    desired: watch::Receiver<DesiredSlots>,
    confirmations: watch::Receiver<u64>,
    progress: watch::Sender<Progress>,
    running: BTreeMap<String, RunningWorkflow>,
    /// Queues of the settings whose settings were applied since they were opened.
    ensured: BTreeSet<String>,
}

struct RunningWorkflow {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), JournalError>>,
}

impl Holder {
    pub(crate) fn new(parts: HolderParts) -> (Holder, Reconciler) {
        let (desired, wanted_receiver) = watch::channel(DesiredSlots::default());
        let (progress, progress_receiver) = watch::channel(Progress::default());
        let (confirmations, confirmations_receiver) = watch::channel(0);
        let names = parts.declared_workflows.iter();
        let holder = Holder {
            desired,
            confirmations,
            progress: progress_receiver,
            queues: parts.queues.clone(),
            workflows: names
                .map(|workflow| workflow.definition.name.clone())
                .collect(),
        };
        let reconciler = Reconciler {
            parts,
            desired: wanted_receiver,
            confirmations: confirmations_receiver,
            progress,
            running: BTreeMap::new(),
            ensured: BTreeSet::new(),
        };
        (holder, reconciler)
    }

    /// Completes when everything of the first assignment is open, or has failed to open.
    pub(crate) fn opened(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut progress = self.progress.clone();
        async move {
            // The task ends only with the node.
            let _ = progress.wait_for(|progress| progress.opened > 0).await;
        }
    }
}

impl SlotHolder for Holder {
    fn hold(&self, slots: SlotSet) -> BoxFuture<()> {
        let mut version = 0;
        self.desired.send_modify(|desired| {
            desired.version += 1;
            desired.slots = slots;
            version = desired.version;
        });
        let mut progress = self.progress.clone();
        Box::pin(async move {
            let _ = progress
                .wait_for(|progress| progress.closed >= version)
                .await;
        })
    }

    fn confirmed(&self) {
        self.confirmations.send_modify(|count| *count += 1);
    }

    fn resources(&self) -> Vec<u16> {
        let queues = self.queues.stored_names();
        let queues = queues.iter().map(|name| OwnedKind::Queue.slot(name));
        let workflows = self.workflows.iter();
        let workflows = workflows.map(|name| OwnedKind::Workflow.slot(name));
        queues.chain(workflows).collect()
    }
}

impl Reconciler {
    /// Ends at `shutdown`; [`Holder::hold`] must have closed all resources before.
    pub(crate) async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Infallible> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut changes = self.desired.clone();
        let mut seen = 0;
        loop {
            let desired = changes.borrow_and_update().clone();
            self.close_outside(&desired.slots).await;
            let version = desired.version;
            self.progress
                .send_modify(|progress| progress.closed = version);
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                _ = changes.changed() => continue,
                () = self.open_missing(&desired.slots, seen < version) => {}
            }
            seen = version;
            self.progress
                .send_modify(|progress| progress.opened = version);
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                _ = changes.changed() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    async fn close_outside(&mut self, slots: &SlotSet) {
        for queue in self.parts.queues.list() {
            if !slots.contains(OwnedKind::Queue.slot(queue.name())) {
                tracing::info!("queue `{}` is released", queue.name());
                self.ensured.remove(queue.name());
                self.parts.queues.release(queue.name()).await;
            }
        }
        let is_outside = |name: &String| !slots.contains(OwnedKind::Workflow.slot(name));
        let outside: Vec<String> = self
            .running
            .keys()
            .filter(|name| is_outside(name))
            .cloned()
            .collect();
        for name in outside {
            tracing::info!("workflow `{name}` is released");
            self.close_workflow(&name).await;
        }
    }

    async fn close_workflow(&mut self, name: &str) {
        self.parts.workflows.remove(name);
        let Some(RunningWorkflow { stop, task }) = self.running.remove(name) else {
            return;
        };
        stop.send_replace(true);
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "workflow `{name}` ended with an error"),
            // A panic has been reported.
            Err(_) => {}
        }
    }

    /// May be dropped at any time: open resources are in its list.
    async fn open_missing(&mut self, slots: &SlotSet, is_new: bool) {
        if slots.is_empty() {
            return;
        }
        if !is_new {
            if !self.lacks_something(slots) {
                return;
            }
            let needed = *self.confirmations.borrow() + CONFIRMATIONS;
            let mut confirmations = self.confirmations.clone();
            let _ = confirmations.wait_for(|count| *count >= needed).await;
        } else if let Err(error) = self.parts.remote.refresh().await {
            tracing::warn!(%error, "the catalogue of the cluster cannot be read");
        }
        self.open_queues(slots).await;
        self.ensure_queues(slots).await;
        self.open_workflows(slots).await;
    }

    /// Whether something in the slots is not open.
    fn lacks_something(&self, slots: &SlotSet) -> bool {
        let declared = self.parts.declared_queues.iter().map(|queue| &queue.name);
        let mut declared = declared.filter(|name| slots.contains(OwnedKind::Queue.slot(name)));
        let mut workflows = self.parts.declared_workflows.iter();
        let is_running = |name: &str| {
            let running = self.running.get(name);
            running.is_some_and(|running| !running.task.is_finished())
        };
        !self.missing_queues(slots).is_empty()
            || declared.any(|name| !self.ensured.contains(name))
            || workflows.any(|workflow| {
                let name = &workflow.definition.name;
                slots.contains(OwnedKind::Workflow.slot(name)) && !is_running(name)
            })
    }

    /// Stored queues in the slots that are not open, or whose claim is lost.
    fn missing_queues(&self, slots: &SlotSet) -> Vec<String> {
        let queues = &self.parts.queues;
        let is_missing = |name: &String| {
            let is_open = queues.get(name).is_some_and(|queue| !queue.is_fenced());
            slots.contains(OwnedKind::Queue.slot(name)) && !is_open
        };
        queues
            .stored_names()
            .into_iter()
            .filter(is_missing)
            .collect()
    }

    async fn open_queues(&self, slots: &SlotSet) {
        let (queues, failures) = (&self.parts.queues, &self.parts.failures);
        let missing = self.missing_queues(slots);
        let opened = stream::iter(missing).for_each_concurrent(CONCURRENCY, |name| async move {
            if queues.get(&name).is_some() {
                queues.release(&name).await;
            }
            match queues.acquire(&name).await {
                Ok(_) => failures.clear(OwnedKind::Queue, &name),
                Err(error) => failures.set(OwnedKind::Queue, &name, error.to_string()),
            }
        });
        opened.await;
    }

    /// Creates or changes the queues of the settings.
    async fn ensure_queues(&mut self, slots: &SlotSet) {
        for declared in &self.parts.declared_queues {
            let name = &declared.name;
            let is_own = slots.contains(OwnedKind::Queue.slot(name));
            if !is_own || self.ensured.contains(name) {
                continue;
            }
            match queues::ensure(&self.parts.queues, declared).await {
                Ok(()) => {
                    self.parts.failures.clear(OwnedKind::Queue, name);
                    self.ensured.insert(name.clone());
                }
                Err(error) => self
                    .parts
                    .failures
                    .set(OwnedKind::Queue, name, error.to_string()),
            }
        }
    }

    async fn open_workflows(&mut self, slots: &SlotSet) {
        let declared = self.parts.declared_workflows.clone();
        for workflow in declared {
            let name = workflow.definition.name.clone();
            if !slots.contains(OwnedKind::Workflow.slot(&name)) {
                continue;
            }
            match self.running.get(&name) {
                Some(running) if !running.task.is_finished() => continue,
                // Its journal failed, or another node has claimed it: it is opened anew.
                Some(_) => self.close_workflow(&name).await,
                None => {}
            }
            match self.open_workflow(workflow).await {
                Ok(()) => self.parts.failures.clear(OwnedKind::Workflow, &name),
                Err(error) => {
                    self.parts
                        .failures
                        .set(OwnedKind::Workflow, &name, error.to_string())
                }
            }
        }
    }

    async fn open_workflow(&mut self, workflow: Workflow) -> Result<(), JournalError> {
        let parts = &self.parts;
        let log: Arc<dyn Log> = Arc::new(parts.remote.clone());
        let (groups, notifier) = (parts.groups.clone(), parts.notifier.clone());
        let egress = parts.egress.clone();
        let service = workflow
            .open(&log, groups, &parts.clock, egress, notifier)
            .await?;
        let handle = service.handle();
        let stop = watch::Sender::new(false);
        let task = tokio::spawn(service.run(shutdown_signal(stop.subscribe())));
        let name = handle.name().to_owned();
        tracing::info!("workflow `{name}` is this node's");
        parts.workflows.add(handle);
        self.running.insert(name, RunningWorkflow { stop, task });
        Ok(())
    }
}
