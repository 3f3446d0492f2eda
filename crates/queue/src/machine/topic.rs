//! Topics and subscriptions: both are queues. A topic keeps a message until every subscription has released it; a
//! subscription keeps its rules, its position in the topic and references to the messages (`reference.rs`).
//!
//! Messages of a topic become ready in the order of (enqueue time, sequence number), the scheduled ones when their time
//! comes: timers fire before anything later is sent, and time never goes back. So that pair is a position, and a
//! subscription that stores it together with its copies receives every message once.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use super::{ContentMap, Event, Machine, ReceiveLimit, Refusal, RemovalReason};
use crate::filter::Rule;
use crate::message::{Content, Message};

/// Rules of a subscription.
const RULES_MAX: usize = 100;
/// Rules of a subscription that have an action: each makes a copy of its own, and all copies of a message are one
/// request.
const ACTIONS_MAX: usize = 10;

/// A position in a topic: after the message with this time and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopicPosition {
    pub enqueued_ms: i64,
    pub seq: u64,
}

impl TopicPosition {
    /// Before every message.
    pub(crate) const START: TopicPosition = TopicPosition {
        enqueued_ms: i64::MIN,
        seq: 0,
    };

    fn key(self) -> (i64, u64) {
        (self.enqueued_ms, self.seq)
    }
}

/// A message of a topic as the rules of a subscription give it.
#[derive(Clone, Debug)]
pub(crate) struct PublishedCopy {
    pub topic_seq: u64,
    pub content: Arc<Content>,
    /// An action has changed something besides the body.
    pub is_changed: bool,
    pub expires_ms: Option<i64>,
}

/// Whether messages of the topic were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TakeResult {
    /// The subscription refers to these; the others had expired.
    Taken { referenced: BTreeSet<u64> },
    /// The subscription is at another position: an earlier request succeeded whose answer was lost.
    Elsewhere,
}

/// A message of a topic that is due, and the position after it.
#[derive(Clone, Debug)]
pub(crate) struct PublishedMessage {
    pub position: TopicPosition,
    pub message: Message,
}

impl Machine {
    /// The messages of a topic after a position.
    pub(crate) fn published(
        &self,
        after: TopicPosition,
        limit: ReceiveLimit,
    ) -> Vec<PublishedMessage> {
        let keys = self.ready.range((Excluded(after.key()), Unbounded));
        let messages = keys.filter_map(|&(enqueued_ms, seq)| {
            Some(PublishedMessage {
                position: TopicPosition { enqueued_ms, seq },
                message: self.messages.get(&seq)?.clone(),
            })
        });
        let size = |published: &PublishedMessage| published.message.content.size();
        limit.take(messages, size).collect()
    }

    pub(crate) fn has_published(&self, after: TopicPosition) -> bool {
        let mut keys = self.ready.range((Excluded(after.key()), Unbounded));
        keys.next().is_some()
    }

    /// The position after everything that is due now.
    pub(crate) fn topic_end(&self) -> TopicPosition {
        TopicPosition {
            enqueued_ms: self.now_ms,
            seq: self.next_seq - 1,
        }
    }

    /// The messages after one position and up to another, in order.
    pub(crate) fn published_positions(
        &self,
        after: TopicPosition,
        until: TopicPosition,
        count_max: usize,
    ) -> Vec<TopicPosition> {
        if after >= until {
            return Vec::new();
        }
        let bounds = (Excluded(after.key()), Included(until.key()));
        let keys = self.ready.range(bounds).take(count_max);
        keys.map(|&(enqueued_ms, seq)| TopicPosition { enqueued_ms, seq })
            .collect()
    }

    /// Removes messages that no subscription needs any more, as far as they are not after a position.
    pub(crate) fn remove_published(&mut self, mut seqs: Vec<u64>, until: TopicPosition) {
        seqs.retain(|seq| {
            let message = self.messages.get(seq);
            message.is_some_and(|message| {
                let key = (message.enqueued_ms, *seq);
                key <= until.key() && self.ready.contains(&key)
            })
        });
        if !seqs.is_empty() {
            let why = RemovalReason::Published;
            self.commit(Event::Removed { seqs, why });
        }
    }

    /// The contents of all messages of a topic.
    pub(crate) fn contents(&self) -> ContentMap {
        let messages = self.messages.iter();
        messages
            .map(|(seq, message)| (*seq, message.content.clone()))
            .collect()
    }

    /// The position of a subscription in its topic.
    pub(crate) fn topic_position(&self) -> TopicPosition {
        self.topic_position.unwrap_or(TopicPosition::START)
    }

    /// Enqueues the topic's messages between two positions that the rules select. It changes nothing unless the
    /// subscription is at `from`, so a repetition is harmless. A message that the queue rejects becomes a dead letter;
    /// otherwise it would block all later ones.
    pub(crate) fn take_published(
        &mut self,
        copies: Vec<PublishedCopy>,
        from: TopicPosition,
        to: TopicPosition,
    ) -> Result<TakeResult, Refusal> {
        if self.topic_position() != from {
            return Ok(TakeResult::Elsewhere);
        }
        self.check_room(copies.iter().map(|copy| &*copy.content))?;
        let mut referenced: BTreeSet<u64> = copies.iter().map(|copy| copy.topic_seq).collect();
        for copy in copies {
            self.reference(copy);
        }
        self.commit(Event::TopicPosition(to));
        referenced.retain(|topic_seq| self.refers_to(*topic_seq));
        Ok(TakeResult::Taken { referenced })
    }

    /// The rules of a subscription, by name.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.values()
    }

    pub(crate) fn add_rule(&mut self, rule: Rule) -> Result<(), Refusal> {
        if self.rules.contains_key(&rule.name) {
            return Err(Refusal::RuleExists(rule.name));
        }
        self.put_rule(rule)
    }

    /// Adds a rule, in the place of one with the same name.
    pub(crate) fn put_rule(&mut self, rule: Rule) -> Result<(), Refusal> {
        let others = self.rules.values().filter(|known| known.name != rule.name);
        if others.clone().count() >= RULES_MAX {
            return Err(Refusal::TooManyRules(RULES_MAX));
        }
        let actions = others.filter(|known| known.action.is_some()).count();
        if rule.action.is_some() && actions >= ACTIONS_MAX {
            return Err(Refusal::TooManyActions(ACTIONS_MAX));
        }
        self.commit(Event::RuleAdded(Arc::new(rule)));
        Ok(())
    }

    pub(crate) fn remove_rule(&mut self, name: String) -> Result<(), Refusal> {
        match self.rules.contains_key(&name) {
            true => self.commit(Event::RuleRemoved { name }),
            false => return Err(Refusal::NoSuchRule(name)),
        }
        Ok(())
    }

    /// Initialises a new subscription.
    pub(crate) fn begin_subscription(&mut self, rules: Vec<Rule>, position: TopicPosition) {
        for rule in rules {
            self.commit(Event::RuleAdded(Arc::new(rule)));
        }
        self.commit(Event::TopicPosition(position));
    }

    /// Whether the subscription was initialised; a crash may have happened before.
    pub(crate) fn has_topic_position(&self) -> bool {
        self.topic_position.is_some()
    }

    pub(super) fn snapshot_rules(&self) -> impl Iterator<Item = Event> {
        let rules = self.rules.values().cloned().map(Event::RuleAdded);
        rules.chain(self.topic_position.map(Event::TopicPosition))
    }
}
