//! Forwarding: queues and subscriptions whose messages, or dead letters, go to another queue or topic of the node.
//!
//! One task for each such sub-queue moves messages (`task.rs`); this file starts and ends the tasks as settings change,
//! and refuses settings that would move a message in a circle (`edges.rs`). *Invariants:* a message is in the source or
//! in the target, also over a crash: it leaves the source when the target has it, and the target takes it once.

mod edges;
mod task;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::error::{Error, ForwardError};
use super::handle::Queue;
use super::queues::Queues;
use super::topics::Topics;
use crate::machine::SubQueue;
use crate::settings::Settings;
use edges::Edges;
use task::ForwardTask;

/// Timeout for a task to finish its current work.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Forwards messages as long as it exists.
pub struct Forwarding {
    router: Arc<Router>,
    supervisor: JoinHandle<()>,
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// Knows all queues and topics, and the graph of forwarding.
pub(super) struct Router {
    queues: Queues,
    topics: Topics,
    edges: Mutex<Edges>,
    changed: mpsc::UnboundedSender<Queue>,
}

/// The forwarding of one queue, and its task.
struct RunningForward {
    source: Queue,
    target: String,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Aborting is safe: in-flight messages are numbered in the source.
impl Drop for RunningForward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Forwarding {
    /// Forwards according to the settings of all queues and subscriptions, now and when they change.
    pub fn start(queues: &Queues, topics: &Topics) -> Forwarding {
        let (changed, changes) = mpsc::unbounded_channel();
        let router = Arc::new(Router {
            queues: queues.clone(),
            topics: topics.clone(),
            edges: Mutex::default(),
            changed,
        });
        for owner in [queues, topics.subscriptions_as_queues()] {
            owner.set_router(Arc::downgrade(&router));
            for queue in owner.list() {
                router.settings_changed(queue);
            }
        }
        let supervisor = Supervisor {
            router: Arc::downgrade(&router),
            changes,
            running: BTreeMap::new(),
        };
        let supervisor = tokio::spawn(supervisor.run());
        Forwarding { router, supervisor }
    }

    /// Checks stored settings before forwarding starts.
    pub async fn check(&self, queue: &Queue) -> Result<(), ForwardError> {
        match queue.stats().await {
            Ok(stats) => self.router.check(queue.name(), &stats.settings),
            Err(_) => Ok(()),
        }
    }
}

impl Router {
    /// Refuses settings that forward to nothing, in a circle or too far.
    pub(super) fn check(&self, name: &str, settings: &Settings) -> Result<(), ForwardError> {
        let targets = targets(settings);
        if let Some(unknown) = targets.iter().find(|name| self.target(name).is_none()) {
            return Err(ForwardError::UnknownTarget((*unknown).clone()));
        }
        let targets: Vec<String> = targets.into_iter().cloned().collect();
        self.edges.lock().set_checked(name, targets)
    }

    /// A queue is deleted.
    pub(super) fn forget(&self, name: &str) {
        self.edges.lock().set(name, Vec::new());
    }

    /// The settings of a queue are new or others.
    pub(super) fn settings_changed(&self, queue: Queue) {
        // Without a supervisor nothing is forwarded any more.
        let _ = self.changed.send(queue);
    }

    /// The queue or topic of a name.
    fn target(&self, name: &str) -> Option<Queue> {
        let topic = || self.topics.get(name).map(|topic| topic.queue().clone());
        self.queues.get(name).or_else(topic)
    }
}

fn targets(settings: &Settings) -> Vec<&String> {
    let (main, dead) = (&settings.forward_to, &settings.forward_dead_letters_to);
    main.iter().chain(dead).collect()
}

/// Starts and ends tasks.
struct Supervisor {
    router: Weak<Router>,
    changes: mpsc::UnboundedReceiver<Queue>,
    running: BTreeMap<(String, bool), RunningForward>,
}

impl Supervisor {
    async fn run(mut self) {
        while let Some(queue) = self.changes.recv().await {
            // A queue that does not answer was deleted, or tells its settings when it is created again.
            if let Ok(stats) = queue.stats().await {
                let settings = stats.settings;
                if let Some(router) = self.router.upgrade() {
                    let targets = targets(&settings).into_iter().cloned().collect();
                    router.edges.lock().set(queue.name(), targets);
                }
                let of = |sub_queue| (queue.clone(), sub_queue);
                let (main, dead) = (of(SubQueue::Main), of(SubQueue::DeadLetters));
                for ((queue, sub_queue), target) in [
                    (main, settings.forward_to),
                    (dead, settings.forward_dead_letters_to),
                ] {
                    if let Err(error) = self.apply(&queue, sub_queue, target).await {
                        tracing::warn!(%error, "queue `{}` cannot be forwarded", queue.name());
                    }
                }
            }
        }
    }

    async fn apply(
        &mut self,
        queue: &Queue,
        sub_queue: SubQueue,
        target: Option<String>,
    ) -> Result<(), Error> {
        let key = (queue.name().to_owned(), sub_queue == SubQueue::DeadLetters);
        let is_running = |running: &RunningForward| {
            Some(&running.target) == target.as_ref() && running.source.is_same(queue)
        };
        if self.running.get(&key).is_some_and(is_running) {
            return Ok(());
        }
        if let Some(mut running) = self.running.remove(&key) {
            running.stop.send_replace(true);
            let _ = tokio::time::timeout(STOP_TIMEOUT, &mut running.task).await;
        }
        let Some(target) = target else {
            return queue.stop_forward(sub_queue).await;
        };
        let (stop, stopped) = watch::channel(false);
        let task = ForwardTask {
            source: queue.clone(),
            sub_queue,
            target: target.clone(),
            router: self.router.clone(),
            stopped,
        };
        let running = RunningForward {
            source: queue.clone(),
            target,
            stop,
            task: tokio::spawn(task.run()),
        };
        self.running.insert(key, running);
        Ok(())
    }
}
