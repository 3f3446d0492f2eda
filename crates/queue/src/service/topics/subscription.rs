//! A subscription: a queue with rules and a position in its topic.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::TopicError;
use crate::filter::Rule;
use crate::journal::split_subscription_path;
use crate::machine::{Refusal, TopicPosition};
use crate::service::error::Error;
use crate::service::handle::Queue;

/// The rules that are in force, by name.
pub(super) type Rules = Arc<[Arc<Rule>]>;

pub struct Subscription {
    queue: Queue,
    /// Those of the queue, where they are durable.
    rules: RwLock<Rules>,
    /// The topic's messages up to here are in the queue.
    position: Mutex<TopicPosition>,
    /// Held while rules are changed.
    changing: tokio::sync::Mutex<()>,
}

impl Subscription {
    pub(super) async fn open(queue: Queue, position: TopicPosition) -> Result<Subscription, Error> {
        Ok(Subscription {
            rules: RwLock::new(queue.rules().await?.into()),
            queue,
            position: Mutex::new(position),
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

    /// Adds a rule, which counts for every message that is sent after this returns.
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
            }
        }
        Ok(self.reload_rules().await?)
    }

    async fn reload_rules(&self) -> Result<(), Error> {
        let rules = self.queue.rules().await?;
        *self.rules.write() = rules.into();
        Ok(())
    }

    pub(super) fn position(&self) -> TopicPosition {
        *self.position.lock()
    }

    pub(super) fn set_position(&self, position: TopicPosition) {
        *self.position.lock() = position;
    }
}
