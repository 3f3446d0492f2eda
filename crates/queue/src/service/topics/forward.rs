//! From a topic to its subscriptions: one task for each subscription appends references to the messages that its rules
//! select.
//!
//! The position of a subscription is an event of its own journal, in the same batch as the references before it, so a
//! crash neither loses nor repeats a message. A subscription that is full delays only itself: the topic keeps the
//! messages for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::PropertyMap;
use super::subscription::{Rules, Subscription};
use crate::filter::{MessageProperties, Rule};
use crate::machine::{PublishedCopy, PublishedMessage, ReceiveLimit, TopicPosition};
use crate::service::error::Error;
use crate::service::handle::Queue;

/// The size of one copy.
const LIMIT: ReceiveLimit = ReceiveLimit {
    count: 256,
    bytes: 1 << 20,
};

/// A wait that is longer is repeated.
pub(super) const WAIT: Duration = Duration::from_secs(60);

/// The delay after a failure, such as a full subscription.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// Gives a subscription the messages of its topic.
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
                    tracing::warn!(%error, "subscription `{name}` receives no messages for now");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Copies the next messages, in smaller requests if the subscription does not accept them at once.
    async fn forward(&self) -> Result<(), Error> {
        let position = self.subscription.position();
        let messages = self.topic.published(position, LIMIT, WAIT).await?;
        // Rules that were changed before a message was sent apply to it.
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
        self.subscription.take(copies.collect(), to).await?;
        self.progress.notify_one();
        Ok(())
    }

    /// The copies of one message that the rules make.
    fn copies(&self, rules: &Rules, published: &PublishedMessage) -> Vec<PublishedCopy> {
        let (message, rules) = (&published.message, rules.iter().map(|rule| &**rule));
        let properties = match rules.clone().all(Rule::ignores_properties) {
            true => MessageProperties::default(),
            false => self.properties.properties(&message.content),
        };
        let copies = Rule::copies(rules, &properties).into_iter();
        let copy = |changes: Vec<_>| {
            let (mut content, is_changed) = (message.content.clone(), !changes.is_empty());
            if is_changed {
                let changed = Arc::make_mut(&mut content);
                self.properties.apply(changed, &changes);
            }
            PublishedCopy {
                topic_seq: published.position.seq,
                content,
                is_changed,
                expires_ms: message.expires_ms,
            }
        };
        copies.map(copy).collect()
    }
}
