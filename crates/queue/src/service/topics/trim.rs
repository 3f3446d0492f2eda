//! The end of a topic's messages: one task for each subscription collects its released references, and one for each
//! topic removes messages that all subscriptions have passed and none refers to.
//!
//! A subscription reports a release when it is durable in its journal, so a topic never removes a message that a
//! subscription would need after a crash.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Topic;
use super::forward::{PAUSE, WAIT};
use super::subscription::Subscription;
use crate::machine::TopicPosition;
use crate::service::error::Error;

/// Messages that one request looks at.
const SCAN_MESSAGES_MAX: usize = 10_000;

/// Collects the released references of a subscription.
pub(super) struct Releaser {
    pub(super) subscription: Arc<Subscription>,
    pub(super) progress: Arc<Notify>,
}

impl Releaser {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        loop {
            match self.subscription.queue().released(WAIT).await {
                Ok(released) if released.is_empty() => {}
                Ok(released) => {
                    self.subscription.release(released).await;
                    self.progress.notify_one();
                }
                Err(_) => self.recover().await,
            }
        }
    }

    /// After a failed request the released references are unknown.
    async fn recover(&self) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if self.subscription.reload_references().await.is_ok() {
                return self.progress.notify_one();
            }
        }
    }
}

/// Removes messages from a topic when every subscription has released them.
pub(super) struct Trimmer {
    topic: Arc<Topic>,
    /// Every message up to here was removed, or a subscription referred to it.
    passed: TopicPosition,
}

impl Trimmer {
    pub(super) fn new(topic: Arc<Topic>) -> Trimmer {
        let passed = TopicPosition::START;
        Trimmer { topic, passed }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        loop {
            match self.trim().await {
                Ok(true) => {}
                Ok(false) => self.wait().await,
                Err(_) => {
                    // Messages of the failed trim may still exist.
                    self.passed = TopicPosition::START;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits until a subscription has made progress. Without subscriptions there is none, and messages have no
    /// receiver.
    async fn wait(&self) {
        let progress = self.topic.progress.notified();
        match self.topic.subscriptions().is_empty() {
            false => progress.await,
            true => {
                let next = self.topic.queue.published(self.passed, 1.into(), WAIT);
                tokio::select! {
                    () = progress => {}
                    published = next => if published.is_err() {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    /// Removes all removable messages, and returns whether there may be more.
    async fn trim(&mut self) -> Result<bool, Error> {
        let topic = &self.topic;
        let subscriptions = topic.subscriptions();
        let positions = subscriptions.iter().map(|one| one.position());
        let until = match positions.min() {
            Some(position) => position,
            // No subscription refers to the messages.
            None => topic.queue.topic_end().await?,
        };
        // Messages after `until` are checked again when it has passed them.
        let mut seqs = topic.references.take_done();
        let passed = topic
            .queue
            .published_positions(self.passed, until, SCAN_MESSAGES_MAX)
            .await?;
        let has_more = passed.len() == SCAN_MESSAGES_MAX;
        let next = match passed.last().filter(|_| has_more) {
            Some(last) => *last,
            None => until.max(self.passed),
        };
        let passed = passed.into_iter().map(|position| position.seq);
        seqs.extend(topic.references.unreferenced(passed));
        if !seqs.is_empty() {
            topic.queue.remove_published(seqs, until).await?;
        }
        self.passed = next;
        Ok(has_more)
    }
}
