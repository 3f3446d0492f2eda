//! Events as bytes, one record of the journal each. `docs/formats/queue.md` specifies them.
//!
//! Numbers are varints; texts and bytes are preceded by their length. Everything read is validated, since a journal may
//! be damaged. This file has the fields of each event, written and read side by side; `write.rs` and `read.rs` have the
//! parts.

mod read;
#[cfg(test)]
mod tests;
mod write;

use bytes::Bytes;
use highwater_codec::{DecodeError, Writer};

use self::read::EventReader;
use self::write::{list, optional};
use crate::machine::{Event, KnownId, RemovalReason};

mod kind {
    pub(super) const CONFIGURED: u8 = 1;
    pub(super) const ENQUEUED: u8 = 2;
    pub(super) const DELIVERED: u8 = 3;
    pub(super) const REMOVED: u8 = 4;
    pub(super) const RELEASED: u8 = 5;
    pub(super) const RENEWED: u8 = 6;
    pub(super) const DEFERRED: u8 = 7;
    pub(super) const DEAD_LETTERED: u8 = 8;
    pub(super) const RESUBMITTED: u8 = 9;
    pub(super) const SESSION_LOCKED: u8 = 10;
    pub(super) const SESSION_RELEASED: u8 = 11;
    pub(super) const SESSION_STATE: u8 = 12;
    pub(super) const FEED_POSITION: u8 = 13;
    pub(super) const NUMBERS: u8 = 14;
    pub(super) const SESSION_SNAPSHOT: u8 = 15;
    pub(super) const IDS_SNAPSHOT: u8 = 16;
    pub(super) const MESSAGE_SNAPSHOT: u8 = 17;
}

/// Appends an event to `out`.
pub(crate) fn write(event: &Event, out: &mut Vec<u8>) {
    match event {
        Event::Configured(settings) => {
            out.u8(kind::CONFIGURED);
            write::settings(out, settings);
        }
        Event::Enqueued { seq, message } => write::put(out, kind::ENQUEUED, *seq, message),
        Event::MessageSnapshot { seq, message } => {
            write::put(out, kind::MESSAGE_SNAPSHOT, *seq, message)
        }
        Event::Delivered {
            seqs,
            first_lock,
            until,
        } => {
            out.u8(kind::DELIVERED);
            out.varint(*first_lock);
            write::until(out, *until);
            list(out, seqs);
        }
        Event::Removed { seqs, why } => {
            out.u8(kind::REMOVED);
            out.u8(match why {
                RemovalReason::Completed => 0,
                RemovalReason::ReceivedAndDeleted => 1,
                RemovalReason::Cancelled => 2,
                RemovalReason::Purged => 3,
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
            out.u8(kind::RENEWED);
            out.i64_be(*until_ms);
            list(out, seqs);
        }
        Event::DeadLettered {
            seq,
            reason,
            description,
            properties,
        } => {
            write::settled(out, kind::DEAD_LETTERED, *seq, properties);
            out.text_var(reason);
            out.text_var(description);
        }
        Event::Resubmitted { seq } => {
            out.u8(kind::RESUBMITTED);
            out.varint(*seq);
        }
        Event::SessionLocked {
            session,
            number: lock,
            until_ms,
        } => {
            out.u8(kind::SESSION_LOCKED);
            out.text_var(session);
            out.varint(*lock);
            out.i64_be(*until_ms);
        }
        Event::SessionReleased { session } => {
            out.u8(kind::SESSION_RELEASED);
            out.text_var(session);
        }
        Event::SessionState { session, state } => {
            out.u8(kind::SESSION_STATE);
            out.text_var(session);
            optional(out, state.as_ref(), |out, state| out.blob_var(state));
        }
        Event::FeedPosition {
            hub,
            partition,
            next,
        } => {
            out.u8(kind::FEED_POSITION);
            out.text_var(hub);
            out.varint(u64::from(*partition));
            out.i64_be(*next);
        }
        Event::Numbers {
            next_seq,
            next_lock,
        } => {
            out.u8(kind::NUMBERS);
            out.varint(*next_seq);
            out.varint(*next_lock);
        }
        Event::SessionSnapshot {
            session,
            lock,
            state,
        } => {
            out.u8(kind::SESSION_SNAPSHOT);
            out.text_var(session);
            optional(out, lock.as_ref(), |out, (lock, until_ms)| {
                out.varint(*lock);
                out.i64_be(*until_ms);
            });
            optional(out, state.as_ref(), |out, state| out.blob_var(state));
        }
        Event::IdsSnapshot(known) => {
            out.u8(kind::IDS_SNAPSHOT);
            out.varint(known.len() as u64);
            for known in known {
                out.i64_be(known.at_ms);
                out.varint(known.seq);
                out.text_var(&known.id);
            }
        }
    }
}

/// The event that a record holds. Bodies are slices of it.
pub(crate) fn read(record: &Bytes) -> Result<Event, DecodeError> {
    let mut from = EventReader::new(record);
    let event = match from.u8()? {
        kind::CONFIGURED => Event::Configured(from.settings()?),
        kind::ENQUEUED => Event::Enqueued {
            seq: from.varint()?,
            message: from.message()?,
        },
        kind::MESSAGE_SNAPSHOT => Event::MessageSnapshot {
            seq: from.varint()?,
            message: from.message()?,
        },
        kind::DELIVERED => Event::Delivered {
            first_lock: from.varint()?,
            until: from.until()?,
            seqs: from.seqs()?,
        },
        kind::REMOVED => Event::Removed {
            why: match from.u8()? {
                0 => RemovalReason::Completed,
                1 => RemovalReason::ReceivedAndDeleted,
                2 => RemovalReason::Cancelled,
                3 => RemovalReason::Purged,
                other => return Err(DecodeError::unknown("an end of a message", other)),
            },
            seqs: from.seqs()?,
        },
        kind::RELEASED => Event::Released {
            seq: from.varint()?,
            properties: from.optional(EventReader::properties)?,
        },
        kind::DEFERRED => Event::Deferred {
            seq: from.varint()?,
            properties: from.optional(EventReader::properties)?,
        },
        kind::RENEWED => Event::Renewed {
            until_ms: from.i64_be()?,
            seqs: from.seqs()?,
        },
        kind::DEAD_LETTERED => Event::DeadLettered {
            seq: from.varint()?,
            properties: from.optional(EventReader::properties)?,
            reason: from.text()?,
            description: from.text()?,
        },
        kind::RESUBMITTED => Event::Resubmitted {
            seq: from.varint()?,
        },
        kind::SESSION_LOCKED => Event::SessionLocked {
            session: from.text()?,
            number: from.varint()?,
            until_ms: from.i64_be()?,
        },
        kind::SESSION_RELEASED => Event::SessionReleased {
            session: from.text()?,
        },
        kind::SESSION_STATE => Event::SessionState {
            session: from.text()?,
            state: from.optional(EventReader::bytes)?,
        },
        kind::FEED_POSITION => Event::FeedPosition {
            hub: from.text()?,
            partition: from.varint()? as u32,
            next: from.i64_be()?,
        },
        kind::NUMBERS => Event::Numbers {
            next_seq: from.varint()?,
            next_lock: from.varint()?,
        },
        kind::SESSION_SNAPSHOT => Event::SessionSnapshot {
            session: from.text()?,
            lock: from.optional(|from| Ok((from.varint()?, from.i64_be()?)))?,
            state: from.optional(EventReader::bytes)?,
        },
        kind::IDS_SNAPSHOT => Event::IdsSnapshot(from.list(|from| {
            Ok(KnownId {
                at_ms: from.i64_be()?,
                seq: from.varint()?,
                id: from.text()?,
            })
        })?),
        other => return Err(DecodeError::unknown("kind", other)),
    };
    from.end()?;
    Ok(event)
}
