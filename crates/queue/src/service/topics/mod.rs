//! The topics of a node and their subscriptions: created, changed, listed and deleted.
//!
//! A topic is a queue of its own, so sending, scheduling and duplicate detection work as for queues. Each subscription
//! is one, too, and gets references to the topic's messages through its rules (`forward.rs`); the topic keeps a message
//! until no subscription refers to it (`trim.rs`). *Invariants:* a message that a topic has accepted reaches every
//! subscription that selects it, once, also over a crash; its body is stored once, and is deleted from the topic when
//! all have released it; a rule applies to every message that is sent after its change was confirmed.

mod declare;
mod error;
mod forward;
mod idle;
mod references;
mod subscription;
mod trim;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::Log;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use declare::{NewSubscription, NewTopic};
pub use error::TopicError;
pub use subscription::Subscription;

use super::actor::Options;
use super::handle::Queue;
use super::queues::Queues;
use super::topic_requests::SubscriptionState;
use crate::filter::{MessageProperties, PropertyChange, Rule};
use crate::journal::{EntityKind, JournalError, split_subscription_path, subscription_path};
use crate::message::Content;
use crate::settings::Settings;
use forward::Forwarder;
use references::TopicReferences;
use trim::{Releaser, Trimmer};

/// Copies of a message may be larger, because actions add properties.
const COPY_BYTES_MAX: u32 = 2 << 20;

/// How many topics and subscriptions there may be.
pub struct TopicLimits;

impl TopicLimits {
    pub const TOPICS_MAX: usize = 1000;
    /// Of one topic.
    pub const SUBSCRIPTIONS_MAX: usize = 100;
    /// The largest message of a topic: all copies that the rules of a subscription make of it are one request.
    pub const MESSAGE_BYTES_MAX: u32 = 1 << 20;
}

/// Reads and changes the properties of a message as its protocol stores them.
pub trait PropertyMap: Send + Sync {
    fn properties(&self, content: &Content) -> MessageProperties;
    fn apply(&self, content: &mut Content, changes: &[PropertyChange]);
}

/// Clones refer to the same topics.
#[derive(Clone)]
pub struct Topics {
    inner: Arc<Inner>,
}

struct Inner {
    topics: Queues,
    subscriptions: Queues,
    properties: Arc<dyn PropertyMap>,
    clock: Arc<dyn Clock>,
    running: RwLock<BTreeMap<String, RunningTopic>>,
    /// Held while a topic or subscription is created or deleted.
    changing: tokio::sync::Mutex<()>,
}

struct RunningTopic {
    topic: Arc<Topic>,
    /// `None` while subscriptions are missing that may need the messages.
    trimmer: Option<TaskGuard>,
}

/// A topic.
pub struct Topic {
    queue: Queue,
    subscriptions: RwLock<BTreeMap<String, RunningSubscription>>,
    /// The references of the subscriptions.
    references: Arc<TopicReferences>,
    /// A subscription has advanced, or has released a message.
    progress: Arc<Notify>,
}

struct RunningSubscription {
    subscription: Arc<Subscription>,
    _forwarder: TaskGuard,
    _releaser: TaskGuard,
}

/// A task that ends with its owner. Nothing is lost: positions are stored with the messages.
struct TaskGuard(JoinHandle<()>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Topic {
    pub fn name(&self) -> &str {
        self.queue.name()
    }

    /// The queue that senders send to.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub fn subscription(&self, name: &str) -> Option<Arc<Subscription>> {
        let subscriptions = self.subscriptions.read();
        let running = subscriptions.get(name)?;
        Some(running.subscription.clone())
    }

    /// By name.
    pub fn subscriptions(&self) -> Vec<Arc<Subscription>> {
        let subscriptions = self.subscriptions.read();
        let running = subscriptions.values();
        running
            .map(|running| running.subscription.clone())
            .collect()
    }
}

impl Topics {
    /// Opens all topics and subscriptions. Those that cannot be opened are returned with their errors.
    pub async fn open(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        mut random: Random,
        options: Options,
        properties: Arc<dyn PropertyMap>,
    ) -> (Topics, Vec<(String, JournalError)>) {
        let seed = Random::seeded(random.next_u64());
        let kind = EntityKind::Topic;
        let opened = Queues::open_kind(
            kind,
            None,
            log.clone(),
            clock.clone(),
            seed,
            options.clone(),
        )
        .await;
        let (topics, mut failed) = opened;
        let kind = EntityKind::Subscription;
        let source = Some(topics.clone());
        let opened = Queues::open_kind(kind, source, log, clock.clone(), random, options).await;
        let (subscriptions, more) = opened;
        failed.extend(more);
        let opened = Topics {
            inner: Arc::new(Inner {
                topics,
                subscriptions,
                properties,
                clock,
                running: RwLock::default(),
                changing: tokio::sync::Mutex::default(),
            }),
        };
        let missing = failed.iter().map(|(name, _)| name.clone()).collect();
        opened.reopen(missing).await;
        (opened, failed)
    }

    /// Runs the stored topics. A topic one of whose subscriptions is missing keeps all messages.
    async fn reopen(&self, mut missing: Vec<String>) {
        for queue in self.inner.topics.list() {
            self.run_topic(queue);
        }
        let subscriptions = self.inner.subscriptions.list();
        let reopened =
            join_all((subscriptions.iter()).map(|queue| self.reopen_subscription(queue)));
        for (queue, reopened) in subscriptions.iter().zip(reopened.await) {
            if let Err(error) = reopened {
                tracing::error!(%error, "subscription `{}` cannot be opened", queue.name());
                missing.push(queue.name().to_owned());
            }
        }
        for topic in self.list() {
            let is_own = |path: &String| {
                split_subscription_path(path).is_some_and(|(name, _)| name == topic.name())
            };
            if !missing.iter().any(is_own) {
                self.run_trimmer(&topic);
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<Arc<Topic>> {
        let running = self.inner.running.read();
        Some(running.get(name)?.topic.clone())
    }

    /// By name.
    pub fn list(&self) -> Vec<Arc<Topic>> {
        let running = self.inner.running.read();
        running
            .values()
            .map(|running| running.topic.clone())
            .collect()
    }

    /// When a topic was created, in milliseconds since 1970; `None` if there is none of this name.
    pub fn topic_created_ms(&self, name: &str) -> Option<i64> {
        self.inner.topics.created_ms(name)
    }

    /// As [`topic_created_ms`](Topics::topic_created_ms), for a subscription.
    pub fn subscription_created_ms(&self, subscription: &Subscription) -> Option<i64> {
        let path = subscription.queue().name();
        self.inner.subscriptions.created_ms(path)
    }

    /// Creates a topic. Completes when it would survive a crash.
    pub async fn create_topic(&self, name: &str, settings: Settings) -> Result<(), TopicError> {
        let _changing = self.inner.changing.lock().await;
        match self.get(name) {
            Some(_) => Err(TopicError::TopicExists(name.to_owned())),
            None => self.new_topic(name, settings).await,
        }
    }

    pub async fn change_topic(&self, name: &str, settings: Settings) -> Result<(), TopicError> {
        let _changing = self.inner.changing.lock().await;
        let topic = self.known(name)?;
        change(&self.inner.topics, &topic.queue, topic_settings(settings)).await
    }

    async fn new_topic(&self, name: &str, settings: Settings) -> Result<(), TopicError> {
        if self.inner.running.read().len() >= TopicLimits::TOPICS_MAX {
            return Err(TopicError::TooManyTopics(TopicLimits::TOPICS_MAX));
        }
        let settings = topic_settings(settings);
        let queue = self.inner.topics.create(name, settings).await?;
        let topic = self.run_topic(queue);
        self.run_trimmer(&topic);
        Ok(())
    }

    /// Creates a subscription, which receives the messages that are sent from now on. Without rules it has the rule
    /// that selects everything.
    pub async fn create_subscription(
        &self,
        topic: &str,
        name: &str,
        settings: Settings,
        rules: Vec<Rule>,
    ) -> Result<(), TopicError> {
        rules.iter().try_for_each(Rule::check)?;
        let _changing = self.inner.changing.lock().await;
        let topic = self.known(topic)?;
        match topic.subscription(name) {
            Some(known) => {
                let path = known.queue().name().to_owned();
                Err(TopicError::SubscriptionExists(path))
            }
            None => self.new_subscription(&topic, name, settings, rules).await,
        }
    }

    pub async fn change_subscription(
        &self,
        topic: &str,
        name: &str,
        settings: Settings,
    ) -> Result<(), TopicError> {
        let _changing = self.inner.changing.lock().await;
        let topic = self.known(topic)?;
        let path = || subscription_path(topic.name(), name);
        let known = topic.subscription(name);
        let known = known.ok_or_else(|| TopicError::UnknownSubscription(path()))?;
        let settings = subscription_settings(settings);
        change(&self.inner.subscriptions, known.queue(), settings).await
    }

    async fn new_subscription(
        &self,
        topic: &Topic,
        name: &str,
        settings: Settings,
        rules: Vec<Rule>,
    ) -> Result<(), TopicError> {
        if topic.subscriptions.read().len() >= TopicLimits::SUBSCRIPTIONS_MAX {
            let max = TopicLimits::SUBSCRIPTIONS_MAX;
            return Err(TopicError::TooManySubscriptions(max));
        }
        let path = subscription_path(topic.name(), name);
        let settings = subscription_settings(settings);
        let queue = self.inner.subscriptions.create(&path, settings).await?;
        self.begin_subscription(topic, queue, rules).await
    }

    /// Runs a subscription whose queue is new.
    async fn begin_subscription(
        &self,
        topic: &Topic,
        queue: Queue,
        rules: Vec<Rule>,
    ) -> Result<(), TopicError> {
        let position = topic.queue.topic_end().await?;
        queue
            .begin_subscription(self.initial_rules(rules), position)
            .await?;
        let state = SubscriptionState {
            position,
            referenced: BTreeSet::new(),
        };
        let references = topic.references.clone();
        let subscription = Subscription::open(queue, state, references).await?;
        self.run_subscription(topic, subscription);
        Ok(())
    }

    fn known(&self, topic: &str) -> Result<Arc<Topic>, TopicError> {
        let found = self.get(topic);
        found.ok_or_else(|| TopicError::UnknownTopic(topic.to_owned()))
    }

    /// Deletes a topic with its subscriptions and all their messages.
    pub async fn delete_topic(&self, name: &str) -> Result<(), TopicError> {
        let _changing = self.inner.changing.lock().await;
        let topic = self.known(name)?;
        self.remove_topic(&topic).await
    }

    async fn remove_topic(&self, topic: &Topic) -> Result<(), TopicError> {
        for subscription in topic.subscriptions() {
            self.remove_subscription(topic, subscription.name()).await?;
        }
        self.inner.running.write().remove(topic.name());
        Ok(self.inner.topics.delete(topic.name()).await?)
    }

    /// Deletes a subscription with its messages.
    pub async fn delete_subscription(&self, topic: &str, name: &str) -> Result<(), TopicError> {
        let _changing = self.inner.changing.lock().await;
        let topic = self.known(topic)?;
        self.remove_subscription(&topic, name).await
    }

    async fn remove_subscription(&self, topic: &Topic, name: &str) -> Result<(), TopicError> {
        let removed = topic.subscriptions.write().remove(name);
        let path = subscription_path(topic.name(), name);
        let Some(RunningSubscription { subscription, .. }) = removed else {
            return Err(TopicError::UnknownSubscription(path));
        };
        self.inner.subscriptions.delete(&path).await?;
        subscription.release_all().await;
        // The topic does not wait for it any more.
        topic.progress.notify_one();
        Ok(())
    }

    /// The subscriptions of all topics, by their paths.
    pub(in crate::service) fn subscriptions_as_queues(&self) -> &Queues {
        &self.inner.subscriptions
    }

    /// Stops all topics and subscriptions after the requests before are answered.
    pub async fn stop(&self) {
        drop(std::mem::take(&mut *self.inner.running.write()));
        self.inner.topics.stop().await;
        self.inner.subscriptions.stop().await;
    }

    fn initial_rules(&self, rules: Vec<Rule>) -> Vec<Rule> {
        match rules.is_empty() {
            true => vec![Rule::everything(self.inner.clock.unix_millis())],
            false => rules,
        }
    }

    fn run_topic(&self, queue: Queue) -> Arc<Topic> {
        let topic = Arc::new(Topic {
            queue,
            subscriptions: RwLock::default(),
            references: Arc::default(),
            progress: Arc::default(),
        });
        let running = RunningTopic {
            topic: topic.clone(),
            trimmer: None,
        };
        let name = topic.name().to_owned();
        self.inner.running.write().insert(name, running);
        topic
    }

    fn run_trimmer(&self, topic: &Arc<Topic>) {
        if let Some(running) = self.inner.running.write().get_mut(topic.name()) {
            let trimmer = Trimmer::new(topic.clone());
            running.trimmer = Some(TaskGuard(tokio::spawn(trimmer.run())));
        }
    }

    fn run_subscription(&self, topic: &Topic, subscription: Subscription) {
        let subscription = Arc::new(subscription);
        let forwarder = Forwarder {
            topic: topic.queue.clone(),
            subscription: subscription.clone(),
            properties: self.inner.properties.clone(),
            progress: topic.progress.clone(),
        };
        let releaser = Releaser {
            subscription: subscription.clone(),
            progress: topic.progress.clone(),
        };
        let name = subscription.name().to_owned();
        let running = RunningSubscription {
            subscription,
            _forwarder: TaskGuard(tokio::spawn(forwarder.run())),
            _releaser: TaskGuard(tokio::spawn(releaser.run())),
        };
        topic.subscriptions.write().insert(name, running);
    }

    /// Runs a stored subscription. One whose creation was not finished is deleted.
    async fn reopen_subscription(&self, queue: &Queue) -> Result<(), TopicError> {
        let path = queue.name();
        let topic = split_subscription_path(path).and_then(|(topic, _)| self.get(topic));
        let topic = topic.ok_or_else(|| TopicError::UnknownTopic(path.to_owned()))?;
        match queue.subscription_state().await? {
            Some(state) => {
                let references = topic.references.clone();
                let subscription = Subscription::open(queue.clone(), state, references).await?;
                self.run_subscription(&topic, subscription);
                Ok(())
            }
            None => Ok(self.inner.subscriptions.delete(path).await?),
        }
    }
}

async fn change(queues: &Queues, queue: &Queue, settings: Settings) -> Result<(), TopicError> {
    match queue.stats().await?.settings == settings {
        true => Ok(()),
        false => Ok(queues.change(queue.name(), settings).await?),
    }
}

/// A topic has no receivers, so it has no sessions and no dead letters.
fn topic_settings(settings: Settings) -> Settings {
    Settings {
        sessions: false,
        dead_letter_expired: false,
        forward_to: None,
        forward_dead_letters_to: None,
        message_bytes_max: settings
            .message_bytes_max
            .min(TopicLimits::MESSAGE_BYTES_MAX),
        ..settings
    }
}

/// The topic decides about the size and about duplicates.
fn subscription_settings(settings: Settings) -> Settings {
    Settings {
        duplicates_within: None,
        message_bytes_max: COPY_BYTES_MAX,
        ..settings
    }
}
