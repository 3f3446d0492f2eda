//! Topics and subscriptions: both are queues. A topic keeps a message until every subscription has it; a subscription keeps
//! its rules and its position in the topic.
//!
//! Messages of a topic become ready in the order of (enqueue time, sequence number), the scheduled ones when their time comes:
//! timers fire before anything later is sent, and time never goes back. So that pair is a position, and a subscription that
//! stores it together with its copies gets every message once.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use super::{Event, Machine, ReceiveLimit, Refusal, RemovalReason};
use crate::filter::Rule;
use crate::message::{Message, NewMessage};

/// Rules of a subscription.
const RULES_MAX: usize = 100;
/// Rules of a subscription that have an action: each makes a copy of its own, and all copies of a message are one request.
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

    /// Removes messages up to a position, at most `count_max`, and returns how many.
    pub(crate) fn remove_published(&mut self, until: TopicPosition, count_max: usize) -> usize {
        let keys = self.ready.range((Unbounded, Included(until.key())));
        let seqs: Vec<u64> = keys.map(|(_, seq)| *seq).take(count_max).collect();
        let count = seqs.len();
        if count > 0 {
            let why = RemovalReason::Published;
            self.commit(Event::Removed { seqs, why });
        }
        count
    }

    /// The position of a subscription in its topic.
    pub(crate) fn topic_position(&self) -> TopicPosition {
        self.topic_position.unwrap_or(TopicPosition::START)
    }

    /// Enqueues the copies of the topic's messages between two positions, and returns the position of the subscription. It
    /// changes nothing unless the subscription is at `from`, so a repetition is harmless. A copy that the queue rejects
    /// becomes a dead letter; otherwise it would block all later ones.
    pub(crate) fn take_published(
        &mut self,
        copies: Vec<NewMessage>,
        from: TopicPosition,
        to: TopicPosition,
    ) -> Result<TopicPosition, Refusal> {
        if self.topic_position() != from {
            return Ok(self.topic_position());
        }
        self.check_room(&copies)?;
        for copy in copies {
            self.send_or_dead_letter(copy);
        }
        self.commit(Event::TopicPosition(to));
        Ok(to)
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

    /// Whether the subscription was initialised; a crash may have come before.
    pub(crate) fn has_topic_position(&self) -> bool {
        self.topic_position.is_some()
    }

    pub(super) fn snapshot_rules(&self) -> impl Iterator<Item = Event> {
        let rules = self.rules.values().cloned().map(Event::RuleAdded);
        rules.chain(self.topic_position.map(Event::TopicPosition))
    }
}
