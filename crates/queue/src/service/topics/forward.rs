//! From a topic to its subscriptions: one task for each subscription copies what its rules select, and one for each topic
//! removes what all have.
//!
//! The position of a subscription is an event of its own journal, in the same batch as the copies before it, so a crash
//! neither loses nor repeats a copy. A subscription that is full delays only itself: the topic keeps the messages for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::subscription::{Rules, Subscription};
use super::{PropertyMap, Topic};
use crate::filter::{MessageProperties, Rule};
use crate::machine::{PublishedMessage, ReceiveLimit, TopicPosition};
use crate::message::NewMessage;
use crate::service::error::Error;
use crate::service::handle::Queue;

/// What is copied at once.
const LIMIT: ReceiveLimit = ReceiveLimit {
    count: 256,
    bytes: 1 << 20,
};

/// A wait that is longer is repeated.
const WAIT: Duration = Duration::from_secs(60);

/// The delay after a failure, such as a full subscription.
const PAUSE: Duration = Duration::from_millis(500);

/// Copies the messages of a topic into a subscription.
pub(super) struct Forwarder {
    pub(super) topic: Queue,
    pub(super) subscription: Arc<Subscription>,
    pub(super) properties: Arc<dyn PropertyMap>,
    pub(super) progress: Arc<Notify>,
}

impl Forwarder {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        loop {
            if let Err(error) = self.forward().await {
                if !error.is_over_limit() {
                    let name = self.subscription.queue().name();
                    tracing::warn!(%error, "subscription `{name}` gets no messages for now");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Copies the next messages, in smaller requests if the subscription does not accept them at once.
    async fn forward(&self) -> Result<(), Error> {
        let position = self.subscription.position();
        let messages = self.topic.published(position, LIMIT, WAIT).await?;
        // Rules that were changed before a message was sent count for it.
        let rules = self.subscription.rules();
        let (mut rest, mut count) = (&messages[..], messages.len());
        loop {
            let (piece, behind) = rest.split_at(count.min(rest.len()));
            let Some(last) = piece.last() else {
                return Ok(());
            };
            match self.copy(&rules, piece, last.position).await {
                Ok(()) => rest = behind,
                Err(error) if error.is_over_limit() && piece.len() > 1 => count = piece.len() / 2,
                Err(error) => return Err(error),
            }
        }
    }

    async fn copy(
        &self,
        rules: &Rules,
        messages: &[PublishedMessage],
        to: TopicPosition,
    ) -> Result<(), Error> {
        let copies = messages
            .iter()
            .flat_map(|message| self.copies(rules, message));
        let (queue, from) = (self.subscription.queue(), self.subscription.position());
        let position = queue.take_published(copies.collect(), from, to).await?;
        self.subscription.set_position(position);
        self.progress.notify_one();
        Ok(())
    }

    /// The copies of one message that the rules make.
    fn copies(&self, rules: &Rules, published: &PublishedMessage) -> Vec<NewMessage> {
        let (message, rules) = (&published.message, rules.iter().map(|rule| &**rule));
        let properties = match rules.clone().all(Rule::ignores_properties) {
            true => MessageProperties::default(),
            false => self.properties.properties(&message.content),
        };
        let copies = Rule::copies(rules, &properties).into_iter();
        let copy = |changes: Vec<_>| {
            let mut content = (*message.content).clone();
            if !changes.is_empty() {
                self.properties.apply(&mut content, &changes);
            }
            let time_to_live = message.expires_ms.map(|at| at - message.enqueued_ms);
            NewMessage {
                content,
                scheduled_ms: None,
                time_to_live_ms: time_to_live,
            }
        };
        copies.map(copy).collect()
    }
}

/// Removes messages from a topic when every subscription has them.
pub(super) struct Trimmer {
    topic: Arc<Topic>,
    trimmed: TopicPosition,
}

impl Trimmer {
    pub(super) fn new(topic: Arc<Topic>) -> Trimmer {
        let trimmed = TopicPosition::START;
        Trimmer { topic, trimmed }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        loop {
            if self.trim().await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn trim(&mut self) -> Result<(), Error> {
        let topic = &self.topic;
        let next = topic.queue.published(self.trimmed, 1.into(), WAIT).await?;
        if next.is_empty() {
            return Ok(());
        }
        let subscriptions = topic.subscriptions();
        let positions = subscriptions.iter().map(|one| one.position());
        let until = match positions.min() {
            Some(position) => position,
            // Nobody wants the messages.
            None => topic.queue.topic_end().await?,
        };
        if until > self.trimmed {
            topic.queue.remove_published(until).await?;
            self.trimmed = until;
        } else {
            topic.progress.notified().await;
        }
        Ok(())
    }
}
