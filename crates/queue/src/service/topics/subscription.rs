//! A subscription: a queue with rules, a position in its topic and references to the messages of the topic.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::TopicError;
use super::references::TopicReferences;
use crate::filter::Rule;
use crate::journal::split_subscription_path;
use crate::machine::{PublishedCopy, Refusal, TakeResult, TopicPosition};
use crate::service::error::Error;
use crate::service::handle::Queue;
use crate::service::topic_requests::SubscriptionState;

/// The rules that are in force, by name.
pub(super) type Rules = Arc<[Arc<Rule>]>;

pub struct Subscription {
    queue: Queue,
    /// Those of the queue, where they are durable.
    rules: RwLock<Rules>,
    /// The topic's messages up to here are in the queue.
    position: Mutex<TopicPosition>,
    /// The messages of the topic that the queue refers to durably. Held while that is changed, so that the changes of
    /// the queue and of this set have the same order.
    referenced: tokio::sync::Mutex<BTreeSet<u64>>,
    /// Those of all subscriptions of the topic.
    references: Arc<TopicReferences>,
    /// Held while rules are changed.
    changing: tokio::sync::Mutex<()>,
}

impl Subscription {
    pub(super) async fn open(
        queue: Queue,
        state: SubscriptionState,
        references: Arc<TopicReferences>,
    ) -> Result<Subscription, Error> {
        let rules = RwLock::new(queue.rules().await?.into());
        references.add(&state.referenced);
        Ok(Subscription {
            rules,
            queue,
            position: Mutex::new(state.position),
            referenced: tokio::sync::Mutex::new(state.referenced),
            references,
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// The name within the topic.
    pub fn name(&self) -> &str {
        let parts = split_subscription_path(self.queue.name());
        parts.map_or("", |(_, name)| name)
    }

    /// The queue that receivers receive from, named by the path of the subscription.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// By name.
    pub fn rules(&self) -> Rules {
        self.rules.read().clone()
    }

    /// Adds a rule, which applies to every message that is sent after this returns.
    pub async fn add_rule(&self, rule: Rule) -> Result<(), TopicError> {
        rule.check()?;
        let _changing = self.changing.lock().await;
        let added = self.queue.add_rule(rule).await;
        self.reload_rules().await?;
        Ok(added?)
    }

    pub async fn remove_rule(&self, name: &str) -> Result<(), TopicError> {
        let _changing = self.changing.lock().await;
        let removed = self.queue.remove_rule(name.to_owned()).await;
        self.reload_rules().await?;
        Ok(removed?)
    }

    /// Replaces a rule by one with the same name, for every message that is sent after this returns.
    pub async fn change_rule(&self, rule: Rule) -> Result<(), TopicError> {
        rule.check()?;
        let _changing = self.changing.lock().await;
        if !self.rules().iter().any(|known| known.name == rule.name) {
            return Err(Error::from(Refusal::NoSuchRule(rule.name)).into());
        }
        let changed = self.queue.put_rule(rule).await;
        self.reload_rules().await?;
        Ok(changed?)
    }

    /// Adds rules, in the place of those with the same names. The time of a rule that stays the same does not change.
    pub(super) async fn put_rules(&self, rules: Vec<Rule>) -> Result<(), TopicError> {
        let _changing = self.changing.lock().await;
        let mut changed = false;
        for rule in rules {
            let known = self.rules();
            let is_known = known.iter().any(|known| {
                let created_ms = known.created_ms;
                **known
                    == Rule {
                        created_ms,
                        ..rule.clone()
                    }
            });
            if !is_known {
                self.queue.put_rule(rule).await?;
                changed = true;
            }
        }
        if changed {
            self.reload_rules().await?;
        }
        Ok(())
    }

    async fn reload_rules(&self) -> Result<(), Error> {
        let rules = self.queue.rules().await?;
        *self.rules.write() = rules.into();
        Ok(())
    }

    pub(super) fn position(&self) -> TopicPosition {
        *self.position.lock()
    }

    /// Gives the queue messages of the topic up to a position.
    pub(super) async fn take(
        &self,
        copies: Vec<PublishedCopy>,
        to: TopicPosition,
    ) -> Result<(), Error> {
        let mut referenced = self.referenced.lock().await;
        let taken = self
            .queue
            .take_published(copies, self.position(), to)
            .await?;
        match taken {
            TakeResult::Taken { referenced: new } => {
                self.references.add(&new);
                referenced.extend(new);
                *self.position.lock() = to;
                Ok(())
            }
            TakeResult::Elsewhere => self.reload(&mut referenced).await,
        }
    }

    /// Removes messages that the queue no longer refers to.
    pub(super) async fn release(&self, released: Vec<u64>) {
        let mut referenced = self.referenced.lock().await;
        let known = released.into_iter().filter(|seq| referenced.remove(seq));
        self.references.release(known.collect());
    }

    /// The subscription was deleted.
    pub(super) async fn release_all(&self) {
        let referenced = std::mem::take(&mut *self.referenced.lock().await);
        self.references.release(referenced.into_iter().collect());
    }

    /// Reads the references of the queue, after a request whose outcome is unknown.
    pub(super) async fn reload_references(&self) -> Result<(), Error> {
        self.reload(&mut *self.referenced.lock().await).await
    }

    async fn reload(&self, referenced: &mut BTreeSet<u64>) -> Result<(), Error> {
        let Some(state) = self.queue.subscription_state().await? else {
            return Ok(());
        };
        let new = state.referenced.difference(referenced).copied().collect();
        self.references.add(&new);
        let gone = referenced.difference(&state.referenced).copied();
        self.references.release(gone.collect());
        *referenced = state.referenced;
        // Last: a reader of the position sees the references before it.
        *self.position.lock() = state.position;
        Ok(())
    }
}
