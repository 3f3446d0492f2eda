//! The requests of topics and subscriptions to their queues. Only `topics/` makes them.

use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::handle::{Queue, check_size};
use super::waiting::WaitCondition;
use crate::filter::Rule;
use crate::machine::{Machine, PublishedMessage, ReceiveLimit, TopicPosition};
use crate::message::NewMessage;

/// Messages that one request removes.
const REMOVED_MAX: usize = 10_000;

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
        self.wait(condition, wait, None, |_| (), read).await
    }

    /// The position after everything that is due now.
    pub(super) async fn topic_end(&self) -> Result<TopicPosition, Error> {
        self.call(|machine| Ok(machine.topic_end())).await
    }

    /// Removes the messages of a topic up to a position.
    pub(super) async fn remove_published(&self, until: TopicPosition) -> Result<(), Error> {
        loop {
            let remove =
                move |machine: &mut Machine| Ok(machine.remove_published(until, REMOVED_MAX));
            if self.call(remove).await? < REMOVED_MAX {
                return Ok(());
            }
        }
    }

    /// Enqueues copies of a topic's messages, see `Machine::take_published`.
    pub(super) async fn take_published(
        &self,
        copies: Vec<NewMessage>,
        from: TopicPosition,
        to: TopicPosition,
    ) -> Result<TopicPosition, Error> {
        check_size(copies.iter().map(|copy| &copy.content))?;
        self.call(move |machine| machine.take_published(copies, from, to))
            .await
    }

    /// The position of a subscription; `None` if its creation was not finished.
    pub(super) async fn topic_position(&self) -> Result<Option<TopicPosition>, Error> {
        let position = |machine: &mut Machine| {
            let has_position = machine.has_topic_position();
            Ok(has_position.then(|| machine.topic_position()))
        };
        self.call(position).await
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
        self.call(|machine| Ok(machine.rules().cloned().collect()))
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
