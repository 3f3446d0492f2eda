//! Forwarding: messages in transfer to another queue of the node.
//!
//! A message is locked during its transfer. Its lock number tells the target whether it has the
//! message already: numbers only grow, and the target stores the last one together with the message.

use super::{Event, LockToken, Machine, ReceiveLimit, RemovalReason, SubQueue};
use crate::message::{LockExpiry, Message, MessageState};

/// A message in transfer, under the number that the target stores.
#[derive(Clone, Debug)]
pub(crate) struct ForwardedMessage {
    pub token: LockToken,
    pub message: Message,
}

impl Machine {
    /// Whether [`Machine::forward`] would return a message.
    pub(crate) fn has_forwardable(&self, sub_queue: SubQueue) -> bool {
        let has_ready = self.forwards(sub_queue) && self.has_ready(sub_queue);
        has_ready || self.under_way(sub_queue).next().is_some()
    }

    /// Whether the settings have a target for messages: without one, no transfer begins.
    fn forwards(&self, sub_queue: SubQueue) -> bool {
        let settings = &self.settings;
        match sub_queue {
            SubQueue::Main => settings.forward_to.is_some(),
            SubQueue::DeadLetters => settings.forward_dead_letters_to.is_some(),
        }
    }

    /// The messages in transfer, in the order of their numbers. If there are none, the oldest ready ones are locked for
    /// it.
    pub(crate) fn forward(
        &mut self,
        sub_queue: SubQueue,
        limit: ReceiveLimit,
    ) -> Vec<ForwardedMessage> {
        if self.forwards(sub_queue) && self.under_way(sub_queue).next().is_none() {
            let seqs = self.first_ready(sub_queue, limit);
            if !seqs.is_empty() {
                let (first_lock, until) = (self.next_lock, LockExpiry::Forwarded);
                self.commit(Event::Delivered {
                    seqs,
                    first_lock,
                    until,
                });
            }
        }
        let under_way = self.under_way(sub_queue);
        let under_way = under_way.map(|(token, message)| ForwardedMessage {
            token,
            message: message.clone(),
        });
        under_way.collect()
    }

    /// Removes messages that the target has.
    pub(crate) fn finish_forward(&mut self, tokens: &[LockToken]) {
        let is_under_way =
            |token: &&LockToken| self.forwarding.contains(&(token.number, token.seq));
        let seqs = tokens.iter().filter(is_under_way).map(|token| token.seq);
        let (seqs, why): (Vec<u64>, _) = (seqs.collect(), RemovalReason::Forwarded);
        if !seqs.is_empty() {
            self.commit(Event::Removed { seqs, why });
        }
    }

    /// Releases the messages in transfer, because nothing is forwarded any more.
    pub(crate) fn stop_forward(&mut self, sub_queue: SubQueue) {
        let seqs: Vec<u64> = (self.under_way(sub_queue))
            .map(|(token, _)| token.seq)
            .collect();
        if !seqs.is_empty() {
            self.commit(Event::Returned { seqs });
        }
    }

    /// The number of the next lock: larger than that of every message that was ever forwarded.
    pub(crate) fn next_lock(&self) -> u64 {
        self.next_lock
    }

    fn under_way(&self, sub_queue: SubQueue) -> impl Iterator<Item = (LockToken, &Message)> {
        let messages = self.forwarding.iter().filter_map(|&(number, seq)| {
            let message = self.messages.get(&seq)?;
            debug_assert!(matches!(message.state, MessageState::Locked(_)));
            Some((LockToken { seq, number }, message))
        });
        messages.filter(move |(_, message)| message.sub_queue() == sub_queue)
    }
}
