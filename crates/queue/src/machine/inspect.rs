//! Views of a queue for operators: its sessions, scheduled messages and dead letters. Every answer is bounded.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::timers::Timer;
use super::{Machine, PeekedMessage, ReceiveLimit};
use crate::message::{Message, MessageState};

/// A session of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    pub session: String,
    /// Messages that are ready to be received.
    pub ready: usize,
    /// Messages that the receiver of the session holds.
    pub locked: usize,
    /// When the lock of the session expires; `None` if it is not locked.
    pub locked_until_ms: Option<i64>,
    /// The size of the stored state.
    pub state_bytes: usize,
}

/// How many dead letters a queue has, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterSummary {
    /// Messages that can be resubmitted or purged.
    pub unlocked: u64,
    pub locked: u64,
    /// The unlocked ones by reason, the first `REASONS_MAX` reasons; the others count as `other`.
    pub reasons: BTreeMap<String, u64>,
    pub other: u64,
}

/// Reasons come from receivers, so there may be any number of them.
const REASONS_MAX: usize = 16;

/// How many timers are searched for scheduled messages: other timers lie between them.
const TIMERS_MAX: usize = 100_000;

impl Machine {
    /// When the oldest message that is ready was enqueued.
    pub(crate) fn oldest_ready_ms(&self) -> Option<i64> {
        let single = self.ready.first().map(|(at, _)| *at);
        let in_session = self.free.first_key_value().map(|((at, _), _)| *at);
        single.into_iter().chain(in_session).min()
    }

    /// The sessions after `after` in the order of their ids.
    pub(crate) fn list_sessions(&self, after: Option<&str>, count_max: usize) -> Vec<SessionInfo> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let sessions = self.sessions.range::<str, _>((begin, Bound::Unbounded));
        let info = sessions.map(|(name, session)| SessionInfo {
            session: name.clone(),
            ready: session.ready.len(),
            locked: session.held.len(),
            locked_until_ms: session.lock.map(|(_, until_ms)| until_ms),
            state_bytes: session.state.as_ref().map_or(0, |state| state.len()),
        });
        info.take(count_max).collect()
    }

    /// The scheduled messages that are due first.
    pub(crate) fn peek_scheduled(&self, limit: ReceiveLimit) -> Vec<PeekedMessage> {
        let due = self.due.iter().take(TIMERS_MAX);
        let scheduled = due.filter_map(|(_, timer)| match timer {
            Timer::Activation(seq) => Some((*seq, self.messages.get(seq)?)),
            _ => None,
        });
        let size = |(_, message): &(u64, &Message)| message.content.size();
        let peeked = limit
            .take(scheduled, size)
            .map(|(seq, message)| PeekedMessage {
                seq,
                message: message.clone(),
            });
        peeked.collect()
    }

    pub(crate) fn dead_letter_summary(&self) -> DeadLetterSummary {
        let mut summary = DeadLetterSummary::default();
        if self.counts.dead == 0 {
            return summary;
        }
        for message in self.messages.values() {
            let Some(cause) = &message.dead_letter else {
                continue;
            };
            if matches!(message.state, MessageState::Locked(_)) {
                summary.locked += 1;
                continue;
            }
            summary.unlocked += 1;
            let has_room = summary.reasons.len() < REASONS_MAX;
            match summary.reasons.get_mut(&cause.reason) {
                Some(count) => *count += 1,
                None if has_room => {
                    summary.reasons.insert(cause.reason.clone(), 1);
                }
                None => summary.other += 1,
            }
        }
        summary
    }

    /// The sequence number of the next message.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Sequence numbers of unlocked dead letters from `from` on, before `until`.
    pub(crate) fn dead_letter_seqs(&self, from: u64, until: u64, count_max: usize) -> Vec<u64> {
        let messages = self.messages.range(from..until.max(from));
        let loose = messages.filter(|(_, message)| {
            message.dead_letter.is_some() && !matches!(message.state, MessageState::Locked(_))
        });
        loose.take(count_max).map(|(seq, _)| *seq).collect()
    }
}
