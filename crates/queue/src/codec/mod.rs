//! Events as bytes, one record of the journal each. `docs/formats/queue.md` specifies them.
//!
//! This file lists the fields of each record in their order on disk; writing and reading both follow from it.
//! `field.rs` has the encoding of each type of field. Everything read is validated, since a journal may be damaged.

mod field;
mod reference;
mod rule;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use highwater_codec::{DecodeError, Writer};

use self::field::{Field, FieldReader, Read};
use crate::filter::{CorrelationFilter, Filter, Rule, Value};
use crate::machine::{Event, KnownId, RemovalReason, TopicPosition};
use crate::message::{Content, DeadLetterCause, Lock, LockExpiry, Message, MessageState};
use crate::settings::Settings;

/// A struct: its fields, one after the other.
macro_rules! record {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl Field for $name {
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)+
            }

            fn read(from: &mut FieldReader<'_>) -> Read<$name> {
                $(let $field = Field::read(from)?;)+
                Ok($name { $($field),+ })
            }
        }
    };
}

/// An enum: a byte for the variant, then its fields. `$what` names the byte in errors.
macro_rules! tagged {
    ($name:ident, $what:literal {
        $($tag:literal => $variant:ident $(($value:ident))? $({ $($field:ident),+ })?),+ $(,)?
    }) => {
        impl Field for $name {
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $(($value))? $({ $($field),+ })? => {
                        out.u8($tag);
                        $($value.write(out);)?
                        $($($field.write(out);)+)?
                    })+
                }
            }

            fn read(from: &mut FieldReader<'_>) -> Read<$name> {
                match from.u8()? {
                    $($tag => {
                        $(let $value = Field::read(from)?;)?
                        $($(let $field = Field::read(from)?;)+)?
                        Ok($name::$variant $(($value))? $({ $($field),+ })?)
                    })+
                    other => Err(DecodeError::unknown($what, other)),
                }
            }
        }
    };
}

mod transaction;

pub(crate) use transaction::{DecisionPart, read_decision, write_decision};

tagged!(Event, "kind" {
    1 => Configured(settings),
    2 => Enqueued { seq, message },
    3 => Delivered { first_lock, until, seqs },
    4 => Removed { why, seqs },
    5 => Released { seq, properties },
    6 => Renewed { until_ms, seqs },
    7 => Deferred { seq, properties },
    8 => DeadLettered { seq, properties, reason, description },
    9 => Resubmitted { seq },
    10 => SessionLocked { session, number, until_ms },
    11 => SessionReleased { session },
    12 => SessionState { session, state },
    13 => FeedPosition { hub, partition, next },
    14 => Numbers { next_seq, next_lock },
    15 => SessionSnapshot { session, lock, state },
    16 => IdsSnapshot(known),
    17 => MessageSnapshot { seq, message },
    18 => Returned { seqs },
    19 => SessionReturned { session },
    20 => TopicPosition(position),
    21 => RuleAdded(rule),
    22 => RuleRemoved { name },
    23 => Referenced { seq, topic_seq, message },
    24 => Forwarding { to, dead_letters_to },
    25 => TransactionsApplied { floor, offsets },
    26 => AutoDelete { after },
});

tagged!(RemovalReason, "an end of a message" {
    0 => Completed,
    1 => ReceivedAndDeleted,
    2 => Cancelled,
    3 => Purged,
    4 => Published,
    5 => Forwarded,
});

/// Forwarding and deletion on idle have events of their own.
impl Field for Settings {
    fn write(&self, out: &mut Vec<u8>) {
        self.lock.write(out);
        self.deliveries_max.write(out);
        self.time_to_live.write(out);
        self.dead_letter_expired.write(out);
        self.duplicates_within.write(out);
        self.sessions.write(out);
        self.bytes_max.write(out);
        self.message_bytes_max.write(out);
    }

    fn read(from: &mut FieldReader<'_>) -> Read<Settings> {
        Ok(Settings {
            lock: Field::read(from)?,
            deliveries_max: Field::read(from)?,
            time_to_live: Field::read(from)?,
            dead_letter_expired: Field::read(from)?,
            duplicates_within: Field::read(from)?,
            sessions: Field::read(from)?,
            bytes_max: Field::read(from)?,
            message_bytes_max: Field::read(from)?,
            forward_to: None,
            forward_dead_letters_to: None,
            auto_delete_on_idle: None,
        })
    }
}

record!(Message {
    enqueued_ms,
    expires_ms,
    deliveries,
    state,
    dead_letter,
    content
});

tagged!(MessageState, "a state" {
    0 => Ready,
    1 => Scheduled,
    2 => Deferred,
    3 => Locked(lock),
});

record!(Lock {
    number,
    until,
    deferred
});

tagged!(LockExpiry, "a lock's expiry" {
    0 => Session,
    1 => Time(at_ms),
    2 => Forwarded,
});

record!(DeadLetterCause {
    reason,
    description,
    at_ms
});

record!(Content {
    id,
    session,
    content_type,
    properties,
    body
});

record!(KnownId { at_ms, seq, id });

record!(TopicPosition { enqueued_ms, seq });

record!(Rule {
    name,
    created_ms,
    filter,
    action
});

tagged!(Filter, "a filter" {
    0 => True,
    1 => False,
    2 => Sql(sql),
    3 => Correlation(correlation),
});

record!(CorrelationFilter { system, user });

tagged!(Value, "a value" {
    0 => Bool(flag),
    1 => Integer(number),
    2 => Float(number),
    3 => Text(text),
    4 => Time(at_ms),
    5 => Opaque,
});

/// Appends an event to `out`.
pub(crate) fn write(event: &Event, out: &mut Vec<u8>) {
    event.write(out);
}

/// The event that a record holds. Bodies are slices of it.
pub(crate) fn read(record: &Bytes) -> Result<Event, DecodeError> {
    let mut from = FieldReader::new(record);
    let event = Field::read(&mut from)?;
    from.end()?;
    Ok(event)
}
