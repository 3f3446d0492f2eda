//! Events as bytes, one record of the journal each. `docs/formats/queue.md` draws them.
//!
//! Numbers have as many bytes as they need (seven bits a byte, the lowest first), texts and bytes their
//! length in front. What is read is checked, since a journal may be damaged.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::machine::{Event, Gone, KnownId};
use crate::message::{Content, Death, Lock, Message, Properties, State, Until};
use crate::settings::Settings;

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
            write_settings(out, settings);
        }
        Event::Sent { seq, message } => write_put(out, kind::SENT, *seq, message),
        Event::Kept { seq, message } => write_put(out, kind::KEPT, *seq, message),
        Event::Delivered {
            seqs,
            first_lock,
            until,
        } => {
            out.push(kind::DELIVERED);
            number(out, *first_lock);
            write_until(out, *until);
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
            write_settled(out, kind::RELEASED, *seq, properties);
        }
        Event::Deferred { seq, properties } => {
            write_settled(out, kind::DEFERRED, *seq, properties);
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
            write_settled(out, kind::DIED, *seq, properties);
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
    let mut from = Reader {
        bytes: record,
        at: 0,
    };
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
    match record.len() - from.at {
        0 => Ok(event),
        left => Err(Malformed::Long(left)),
    }
}

fn unknown(what: &'static str, given: u8) -> Malformed {
    let given = u64::from(given);
    Malformed::Unknown { what, given }
}

fn write_settings(out: &mut Vec<u8>, settings: &Settings) {
    let millis = |time: Duration| time.as_millis() as u64;
    number(out, millis(settings.lock));
    number(out, u64::from(settings.deliveries_max));
    optional(out, settings.time_to_live.as_ref(), |out, time| {
        number(out, millis(*time));
    });
    out.push(u8::from(settings.dead_letter_expired));
    optional(out, settings.duplicates_within.as_ref(), |out, time| {
        number(out, millis(*time));
    });
    out.push(u8::from(settings.sessions));
    number(out, settings.bytes_max);
    number(out, u64::from(settings.message_bytes_max));
}

fn write_settled(out: &mut Vec<u8>, kind: u8, seq: u64, properties: &Option<Properties>) {
    out.push(kind);
    number(out, seq);
    optional(out, properties.as_ref(), |out, properties| {
        write_properties(out, properties);
    });
}

fn write_put(out: &mut Vec<u8>, kind: u8, seq: u64, message: &Message) {
    out.push(kind);
    number(out, seq);
    let content = &*message.content;
    time(out, message.enqueued_ms);
    optional(out, message.expires_ms.as_ref(), |out, at| time(out, *at));
    number(out, u64::from(message.deliveries));
    match message.state {
        State::Ready => out.push(0),
        State::Scheduled => out.push(1),
        State::Deferred => out.push(2),
        State::Locked(lock) => {
            out.push(3);
            number(out, lock.number);
            write_until(out, lock.until);
            out.push(u8::from(lock.deferred));
        }
    }
    optional(out, message.death.as_ref(), |out, death| {
        bytes(out, death.reason.as_bytes());
        bytes(out, death.description.as_bytes());
        time(out, death.at_ms);
    });
    for text in [&content.id, &content.session, &content.content_type] {
        optional(out, text.as_ref(), |out, text| bytes(out, text.as_bytes()));
    }
    write_properties(out, &content.properties);
    bytes(out, &content.body);
}

fn write_properties(out: &mut Vec<u8>, properties: &Properties) {
    number(out, properties.len() as u64);
    for (name, value) in properties {
        bytes(out, name.as_bytes());
        bytes(out, value.as_bytes());
    }
}

fn write_until(out: &mut Vec<u8>, until: Until) {
    match until {
        Until::Session => out.push(0),
        Until::Time(at) => {
            out.push(1);
            time(out, at);
        }
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Eight bytes, the highest first: times and offsets may be negative.
fn time(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    number(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn optional<T>(out: &mut Vec<u8>, value: Option<&T>, write: impl FnOnce(&mut Vec<u8>, &T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        write(out, value);
    }
}

fn list(out: &mut Vec<u8>, numbers: &[u64]) {
    number(out, numbers.len() as u64);
    numbers.iter().for_each(|value| number(out, *value));
}

struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<std::ops::Range<usize>, Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed::Short)?;
        if end > self.bytes.len() {
            return Err(Malformed::Short);
        }
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        let at = self.take(1)?.start;
        Ok(self.bytes[at])
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(unknown("a flag", other)),
        }
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(unknown("a number of more than ten bytes ending in", 0x80))
    }

    fn time(&mut self) -> Result<i64, Malformed> {
        let range = self.take(8)?;
        let mut array = [0; 8];
        array.copy_from_slice(&self.bytes[range]);
        Ok(i64::from_be_bytes(array))
    }

    fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let count = self.number()?;
        let range = self.take(usize::try_from(count).map_err(|_| Malformed::Short)?)?;
        Ok(self.bytes.slice(range))
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Malformed::Text)?;
        Ok(text.to_owned())
    }

    fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        match self.flag()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }

    /// As many as a count in front says. Nothing is set aside for them beforehand, because the count
    /// may lie.
    fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.number()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(each(self)?);
        }
        Ok(list)
    }

    fn properties(&mut self) -> Result<Properties, Malformed> {
        self.list(|from| Ok((from.text()?, from.text()?)))
    }

    fn until(&mut self) -> Result<Until, Malformed> {
        match self.flag()? {
            false => Ok(Until::Session),
            true => Ok(Until::Time(self.time()?)),
        }
    }

    fn settings(&mut self) -> Result<Settings, Malformed> {
        let millis = |from: &mut Self| Ok(Duration::from_millis(from.number()?));
        Ok(Settings {
            lock: millis(self)?,
            deliveries_max: self.number()? as u32,
            time_to_live: self.optional(millis)?,
            dead_letter_expired: self.flag()?,
            duplicates_within: self.optional(millis)?,
            sessions: self.flag()?,
            bytes_max: self.number()?,
            message_bytes_max: self.number()? as u32,
        })
    }

    fn message(&mut self) -> Result<Message, Malformed> {
        Ok(Message {
            enqueued_ms: self.time()?,
            expires_ms: self.optional(Reader::time)?,
            deliveries: self.number()? as u32,
            state: self.state()?,
            death: self.optional(|from| {
                Ok(Arc::new(Death {
                    reason: from.text()?,
                    description: from.text()?,
                    at_ms: from.time()?,
                }))
            })?,
            content: Arc::new(Content {
                id: self.optional(Reader::text)?,
                session: self.optional(Reader::text)?,
                content_type: self.optional(Reader::text)?,
                properties: self.properties()?,
                body: self.bytes()?,
            }),
        })
    }

    fn state(&mut self) -> Result<State, Malformed> {
        Ok(match self.u8()? {
            0 => State::Ready,
            1 => State::Scheduled,
            2 => State::Deferred,
            3 => State::Locked(Lock {
                number: self.number()?,
                until: self.until()?,
                deferred: self.flag()?,
            }),
            other => return Err(unknown("a state", other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        let text = || prop::option::of(".{0,9}");
        let state = prop_oneof![
            Just(State::Ready),
            Just(State::Scheduled),
            Just(State::Deferred),
            (any::<u64>(), prop::option::of(any::<i64>()), any::<bool>()).prop_map(
                |(number, at, deferred)| State::Locked(Lock {
                    number,
                    until: at.map_or(Until::Session, Until::Time),
                    deferred,
                })
            ),
        ];
        let content = (
            any::<Vec<u8>>(),
            text(),
            text(),
            text(),
            prop::collection::vec((".{0,5}", ".{0,5}"), 0..3),
        );
        let content = content.prop_map(|(body, id, session, content_type, properties)| Content {
            body: body.into(),
            id,
            session,
            content_type,
            properties,
        });
        let death = prop::option::of((".{0,5}", ".{0,5}", any::<i64>()));
        (
            content,
            any::<i64>(),
            prop::option::of(any::<i64>()),
            any::<u32>(),
            state,
            death,
        )
            .prop_map(
                |(content, enqueued_ms, expires_ms, deliveries, state, death)| Message {
                    content: Arc::new(content),
                    enqueued_ms,
                    expires_ms,
                    deliveries,
                    state,
                    death: death.map(|(reason, description, at_ms)| {
                        Arc::new(Death {
                            reason,
                            description,
                            at_ms,
                        })
                    }),
                },
            )
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(seq: u64, message in message()) {
            let event = Event::Kept { seq, message };
            let mut out = Vec::new();
            write(&event, &mut out);
            let bytes = Bytes::from(out);
            prop_assert_eq!(read(&bytes), Ok(event));
            for end in 0..bytes.len() {
                prop_assert!(read(&bytes.slice(..end)).is_err());
            }
        }

        #[test]
        fn whatever_a_record_holds_nothing_panics(bytes: Vec<u8>) {
            let _ = read(&bytes.into());
        }
    }

    #[test]
    fn a_message_has_these_bytes() {
        let content = Content {
            body: "{}".into(),
            id: Some("7".into()),
            properties: vec![("a".into(), "b".into())],
            ..Content::default()
        };
        let message = Message {
            content: Arc::new(content),
            enqueued_ms: 0x0102,
            expires_ms: None,
            deliveries: 300,
            state: State::Locked(Lock {
                number: 5,
                until: Until::Session,
                deferred: false,
            }),
            death: None,
        };
        let mut out = Vec::new();
        write(&Event::Sent { seq: 9, message }, &mut out);
        let expected = [
            &[2, 9][..],
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0],
            &[0xac, 2],
            &[3, 5, 0, 0],
            &[0],
            &[1, 1, b'7', 0, 0],
            &[1, 1, b'a', 1, b'b'],
            &[2, b'{', b'}'],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn a_completed_message_costs_four_bytes_of_journal() {
        let mut out = Vec::new();
        let (seqs, why) = (vec![7], Gone::Completed);
        write(&Event::Removed { seqs, why }, &mut out);
        assert_eq!(out, [4, 0, 1, 7]);
    }
}
