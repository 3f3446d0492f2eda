//! The requests of topics and subscriptions to their queues. Only `topics/` makes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::handle::{Queue, check_size};
use super::waiting::WaitCondition;
use crate::filter::Rule;
use crate::machine::{
    ContentMap, Machine, PublishedCopy, PublishedMessage, ReceiveLimit, TakeResult, TopicPosition,
};

/// The topic's messages up to a position are in a subscription or were not selected; it still refers to some.
pub(super) struct SubscriptionState {
    pub(super) position: TopicPosition,
    pub(super) referenced: BTreeSet<u64>,
}

impl Queue {
    /// The messages of a topic after a position, as soon as there are any. Returns none if the wait ends first.
    pub(super) async fn published(
        &self,
        after: TopicPosition,
        limit: ReceiveLimit,
        wait: Duration,
    ) -> Result<Vec<PublishedMessage>, Error> {
        let condition = WaitCondition::Published(after);
        let read = move |machine: &mut Machine, ()| Ok(machine.published(after, limit));
        self.wait_unused(condition, wait, None, |_| (), read).await
    }

    /// The position after everything that is due now.
    pub(super) async fn topic_end(&self) -> Result<TopicPosition, Error> {
        self.ask_unused(|machine| Ok(machine.topic_end())).await
    }

    /// The messages of a topic after one position and up to another, the first ones.
    pub(super) async fn published_positions(
        &self,
        after: TopicPosition,
        until: TopicPosition,
        count_max: usize,
    ) -> Result<Vec<TopicPosition>, Error> {
        self.ask_unused(move |machine| Ok(machine.published_positions(after, until, count_max)))
            .await
    }

    /// Removes messages that no subscription needs, as far as they are not after a position.
    pub(super) async fn remove_published(
        &self,
        seqs: Vec<u64>,
        until: TopicPosition,
    ) -> Result<(), Error> {
        let remove = move |machine: &mut Machine| {
            machine.remove_published(seqs, until);
            Ok(())
        };
        self.ask_unused(remove).await
    }

    /// The contents of all messages of a topic.
    pub(super) async fn contents(&self) -> Result<ContentMap, Error> {
        self.ask_unused(|machine| Ok(machine.contents())).await
    }

    /// Enqueues messages of a topic, see `Machine::take_published`.
    pub(super) async fn take_published(
        &self,
        copies: Vec<PublishedCopy>,
        from: TopicPosition,
        to: TopicPosition,
    ) -> Result<TakeResult, Error> {
        check_size(copies.iter().map(|copy| &*copy.content))?;
        self.ask_unused(move |machine| machine.take_published(copies, from, to))
            .await
    }

    /// Messages of the topic that a subscription no longer refers to, as soon as there are any. Each is returned once.
    pub(super) async fn released(&self, wait: Duration) -> Result<Vec<u64>, Error> {
        let take = |machine: &mut Machine, ()| Ok(machine.take_released());
        self.wait_unused(WaitCondition::Released, wait, None, |_| (), take)
            .await
    }

    /// The position of a subscription in its topic; `None` if its creation was not finished.
    pub(super) async fn subscription_state(&self) -> Result<Option<SubscriptionState>, Error> {
        let state = |machine: &mut Machine| {
            let has_position = machine.has_topic_position();
            Ok(has_position.then(|| SubscriptionState {
                position: machine.topic_position(),
                referenced: machine.referenced(),
            }))
        };
        self.ask_unused(state).await
    }

    pub(super) async fn begin_subscription(
        &self,
        rules: Vec<Rule>,
        position: TopicPosition,
    ) -> Result<(), Error> {
        let begin = move |machine: &mut Machine| {
            machine.begin_subscription(rules, position);
            Ok(())
        };
        self.call(begin).await
    }

    pub(super) async fn rules(&self) -> Result<Vec<Arc<Rule>>, Error> {
        self.ask_unused(|machine| Ok(machine.rules().cloned().collect()))
            .await
    }

    pub(super) async fn add_rule(&self, rule: Rule) -> Result<(), Error> {
        self.call(move |machine| machine.add_rule(rule)).await
    }

    pub(super) async fn put_rule(&self, rule: Rule) -> Result<(), Error> {
        self.call(move |machine| machine.put_rule(rule)).await
    }

    pub(super) async fn remove_rule(&self, name: String) -> Result<(), Error> {
        self.call(move |machine| machine.remove_rule(name)).await
    }
}
