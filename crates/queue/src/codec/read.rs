//! Reads the parts of events. Every length is checked before it is used.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader};

use crate::message::{
    Content, DeadLetterCause, Lock, LockExpiry, Message, MessageState, Properties,
};
use crate::settings::Settings;

/// Bodies are slices of the record that is read, not copies.
pub(super) struct EventReader<'a> {
    record: &'a Bytes,
    from: Reader<'a>,
}

type Read<T> = Result<T, DecodeError>;

impl<'a> EventReader<'a> {
    pub(super) fn new(record: &'a Bytes) -> EventReader<'a> {
        EventReader {
            record,
            from: Reader::new(record),
        }
    }

    pub(super) fn end(&self) -> Read<()> {
        self.from.end()
    }

    pub(super) fn u8(&mut self) -> Read<u8> {
        self.from.u8()
    }

    pub(super) fn varint(&mut self) -> Read<u64> {
        self.from.varint()
    }

    pub(super) fn i64_be(&mut self) -> Read<i64> {
        self.from.i64_be()
    }

    pub(super) fn bytes(&mut self) -> Read<Bytes> {
        self.from
            .blob_var()
            .map(|bytes| self.record.slice_ref(bytes))
    }

    pub(super) fn text(&mut self) -> Read<String> {
        self.from.text_var().map(str::to_owned)
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<Option<T>> {
        match self.from.bool()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        (0..self.from.count_var()?).map(|_| each(self)).collect()
    }

    pub(super) fn seqs(&mut self) -> Read<Vec<u64>> {
        self.from.list_var(Reader::varint)
    }

    pub(super) fn properties(&mut self) -> Read<Properties> {
        self.list(|from| Ok((from.text()?, from.text()?)))
    }

    pub(super) fn until(&mut self) -> Read<LockExpiry> {
        match self.from.bool()? {
            false => Ok(LockExpiry::Session),
            true => Ok(LockExpiry::Time(self.i64_be()?)),
        }
    }

    pub(super) fn settings(&mut self) -> Read<Settings> {
        let millis = |from: &mut Self| Ok(Duration::from_millis(from.varint()?));
        Ok(Settings {
            lock: millis(self)?,
            deliveries_max: self.varint()? as u32,
            time_to_live: self.optional(millis)?,
            dead_letter_expired: self.from.bool()?,
            duplicates_within: self.optional(millis)?,
            sessions: self.from.bool()?,
            bytes_max: self.varint()?,
            message_bytes_max: self.varint()? as u32,
        })
    }

    pub(super) fn message(&mut self) -> Read<Message> {
        Ok(Message {
            enqueued_ms: self.i64_be()?,
            expires_ms: self.optional(EventReader::i64_be)?,
            deliveries: self.varint()? as u32,
            state: self.state()?,
            dead_letter: self.optional(|from| {
                Ok(Arc::new(DeadLetterCause {
                    reason: from.text()?,
                    description: from.text()?,
                    at_ms: from.i64_be()?,
                }))
            })?,
            content: Arc::new(Content {
                id: self.optional(EventReader::text)?,
                session: self.optional(EventReader::text)?,
                content_type: self.optional(EventReader::text)?,
                properties: self.properties()?,
                body: self.bytes()?,
            }),
        })
    }

    fn state(&mut self) -> Read<MessageState> {
        Ok(match self.u8()? {
            0 => MessageState::Ready,
            1 => MessageState::Scheduled,
            2 => MessageState::Deferred,
            3 => MessageState::Locked(Lock {
                number: self.varint()?,
                until: self.until()?,
                deferred: self.from.bool()?,
            }),
            other => return Err(DecodeError::unknown("a state", other)),
        })
    }
}
