//! Events as bytes, one record of the journal each. `docs/formats/queue.md` draws them.
//!
//! Numbers have as many bytes as they need (seven bits a byte, the lowest first), texts and bytes their
//! length in front. What is read is checked, since a journal may be damaged. Here is what each event holds,
//! written and read side by side; `write.rs` and `read.rs` have the pieces.

mod read;
#[cfg(test)]
mod tests;
mod write;

use bytes::Bytes;

use self::read::{Reader, unknown};
use self::write::{bytes, list, number, optional, time};
use crate::machine::{Event, Gone, KnownId};

/// A record does not say what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it ends too early")]
    Short,
    #[error("it has {0} bytes too many")]
    Long(usize),
    #[error("a text is not UTF-8")]
    Text,
    #[error("{what} {given} is not known to this version")]
    Unknown { what: &'static str, given: u64 },
}

mod kind {
    pub const CONFIGURED: u8 = 1;
    pub const SENT: u8 = 2;
    pub const DELIVERED: u8 = 3;
    pub const REMOVED: u8 = 4;
    pub const RELEASED: u8 = 5;
    pub const RENEWED: u8 = 6;
    pub const DEFERRED: u8 = 7;
    pub const DIED: u8 = 8;
    pub const REVIVED: u8 = 9;
    pub const SESSION_LOCKED: u8 = 10;
    pub const SESSION_FREED: u8 = 11;
    pub const SESSION_STATE: u8 = 12;
    pub const FED: u8 = 13;
    pub const NUMBERS: u8 = 14;
    pub const KEPT_SESSION: u8 = 15;
    pub const KEPT_IDS: u8 = 16;
    pub const KEPT: u8 = 17;
}

/// Appends an event to `out`.
pub fn write(event: &Event, out: &mut Vec<u8>) {
    match event {
        Event::Configured(settings) => {
            out.push(kind::CONFIGURED);
            write::settings(out, settings);
        }
        Event::Sent { seq, message } => write::put(out, kind::SENT, *seq, message),
        Event::Kept { seq, message } => write::put(out, kind::KEPT, *seq, message),
        Event::Delivered {
            seqs,
            first_lock,
            until,
        } => {
            out.push(kind::DELIVERED);
            number(out, *first_lock);
            write::until(out, *until);
            list(out, seqs);
        }
        Event::Removed { seqs, why } => {
            out.push(kind::REMOVED);
            out.push(match why {
                Gone::Completed => 0,
                Gone::ReceivedAndDeleted => 1,
                Gone::Cancelled => 2,
                Gone::Purged => 3,
            });
            list(out, seqs);
        }
        Event::Released { seq, properties } => {
            write::settled(out, kind::RELEASED, *seq, properties);
        }
        Event::Deferred { seq, properties } => {
            write::settled(out, kind::DEFERRED, *seq, properties);
        }
        Event::Renewed { seqs, until_ms } => {
            out.push(kind::RENEWED);
            time(out, *until_ms);
            list(out, seqs);
        }
        Event::Died {
            seq,
            reason,
            description,
            properties,
        } => {
            write::settled(out, kind::DIED, *seq, properties);
            bytes(out, reason.as_bytes());
            bytes(out, description.as_bytes());
        }
        Event::Revived { seq } => {
            out.push(kind::REVIVED);
            number(out, *seq);
        }
        Event::SessionLocked {
            session,
            number: lock,
            until_ms,
        } => {
            out.push(kind::SESSION_LOCKED);
            bytes(out, session.as_bytes());
            number(out, *lock);
            time(out, *until_ms);
        }
        Event::SessionFreed { session } => {
            out.push(kind::SESSION_FREED);
            bytes(out, session.as_bytes());
        }
        Event::SessionState { session, state } => {
            out.push(kind::SESSION_STATE);
            bytes(out, session.as_bytes());
            optional(out, state.as_ref(), |out, state| bytes(out, state));
        }
        Event::Fed {
            hub,
            partition,
            next,
        } => {
            out.push(kind::FED);
            bytes(out, hub.as_bytes());
            number(out, u64::from(*partition));
            time(out, *next);
        }
        Event::Numbers {
            next_seq,
            next_lock,
        } => {
            out.push(kind::NUMBERS);
            number(out, *next_seq);
            number(out, *next_lock);
        }
        Event::KeptSession {
            session,
            lock,
            state,
        } => {
            out.push(kind::KEPT_SESSION);
            bytes(out, session.as_bytes());
            optional(out, lock.as_ref(), |out, (lock, until_ms)| {
                number(out, *lock);
                time(out, *until_ms);
            });
            optional(out, state.as_ref(), |out, state| bytes(out, state));
        }
        Event::KeptIds(known) => {
            out.push(kind::KEPT_IDS);
            number(out, known.len() as u64);
            for known in known {
                time(out, known.at_ms);
                number(out, known.seq);
                bytes(out, known.id.as_bytes());
            }
        }
    }
}

/// The event that a record holds. Bodies are slices of it.
pub fn read(record: &Bytes) -> Result<Event, Malformed> {
    let mut from = Reader::new(record);
    let event = match from.u8()? {
        kind::CONFIGURED => Event::Configured(from.settings()?),
        kind::SENT => Event::Sent {
            seq: from.number()?,
            message: from.message()?,
        },
        kind::KEPT => Event::Kept {
            seq: from.number()?,
            message: from.message()?,
        },
        kind::DELIVERED => Event::Delivered {
            first_lock: from.number()?,
            until: from.until()?,
            seqs: from.list(Reader::number)?,
        },
        kind::REMOVED => Event::Removed {
            why: match from.u8()? {
                0 => Gone::Completed,
                1 => Gone::ReceivedAndDeleted,
                2 => Gone::Cancelled,
                3 => Gone::Purged,
                other => return Err(unknown("an end of a message", other)),
            },
            seqs: from.list(Reader::number)?,
        },
        kind::RELEASED => Event::Released {
            seq: from.number()?,
            properties: from.optional(Reader::properties)?,
        },
        kind::DEFERRED => Event::Deferred {
            seq: from.number()?,
            properties: from.optional(Reader::properties)?,
        },
        kind::RENEWED => Event::Renewed {
            until_ms: from.time()?,
            seqs: from.list(Reader::number)?,
        },
        kind::DIED => Event::Died {
            seq: from.number()?,
            properties: from.optional(Reader::properties)?,
            reason: from.text()?,
            description: from.text()?,
        },
        kind::REVIVED => Event::Revived {
            seq: from.number()?,
        },
        kind::SESSION_LOCKED => Event::SessionLocked {
            session: from.text()?,
            number: from.number()?,
            until_ms: from.time()?,
        },
        kind::SESSION_FREED => Event::SessionFreed {
            session: from.text()?,
        },
        kind::SESSION_STATE => Event::SessionState {
            session: from.text()?,
            state: from.optional(Reader::bytes)?,
        },
        kind::FED => Event::Fed {
            hub: from.text()?,
            partition: from.number()? as u32,
            next: from.time()?,
        },
        kind::NUMBERS => Event::Numbers {
            next_seq: from.number()?,
            next_lock: from.number()?,
        },
        kind::KEPT_SESSION => Event::KeptSession {
            session: from.text()?,
            lock: from.optional(|from| Ok((from.number()?, from.time()?)))?,
            state: from.optional(Reader::bytes)?,
        },
        kind::KEPT_IDS => Event::KeptIds(from.list(|from| {
            Ok(KnownId {
                at_ms: from.time()?,
                seq: from.number()?,
                id: from.text()?,
            })
        })?),
        other => return Err(unknown("kind", other)),
    };
    match from.left() {
        0 => Ok(event),
        left => Err(Malformed::Long(left)),
    }
}
