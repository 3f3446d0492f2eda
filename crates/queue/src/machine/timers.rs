//! Effects of time: locks of messages and sessions expire, scheduled messages become ready, the time to live ends. They
//! have no event: a replay of the journal advances the time and reaches the same state.

use super::{DeadLetterCause, EXPIRED, Machine, MessageState, millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A scheduled message becomes ready.
    Activation(u64),
    /// The lock of a message expires.
    LockExpiry(u64),
    /// The time to live of a message ends.
    MessageExpiry(u64),
    /// The session lock with this number expires.
    SessionLockExpiry(u64),
}

impl Machine {
    /// When the next timer fires.
    pub(crate) fn next_due_ms(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Advances the time and fires due timers. An earlier time changes nothing.
    pub(crate) fn advance(&mut self, now_ms: i64) {
        while let Some(&(at, timer)) = self.due.first() {
            if at > now_ms {
                break;
            }
            self.due.pop_first();
            self.references.by_time = true;
            match timer {
                Timer::Activation(seq) => {
                    self.change(seq, |message| message.state = MessageState::Ready)
                }
                Timer::LockExpiry(seq) => {
                    self.totals.locks_lost += 1;
                    self.release(seq, at, None);
                }
                Timer::MessageExpiry(seq) => self.expire(seq, at),
                Timer::SessionLockExpiry(number) => self.session_expired(number, at),
            }
        }
        self.references.by_time = false;
        self.now_ms = self.now_ms.max(now_ms);
        if let Some(window) = self.settings.duplicates_within {
            self.ids.forget(self.now_ms.saturating_sub(millis(window)));
        }
    }

    pub(super) fn expire(&mut self, seq: u64, at_ms: i64) {
        if self.settings.dead_letter_expired {
            let cause = DeadLetterCause::new(EXPIRED, "its time to live was over", at_ms);
            self.move_to_dead_letters(seq, cause, None);
        } else {
            self.totals.expired += 1;
            self.remove(seq);
        }
    }
}
