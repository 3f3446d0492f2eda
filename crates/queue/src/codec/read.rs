//! The pieces that events are read in. Nothing that a record says is believed before it is there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Malformed;
use crate::message::{Content, Death, Lock, Message, Properties, State, Until};
use crate::settings::Settings;

pub struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a Bytes) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// How much was not read.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, count: usize) -> Result<std::ops::Range<usize>, Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed::Short)?;
        if end > self.bytes.len() {
            return Err(Malformed::Short);
        }
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
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

    pub fn number(&mut self) -> Result<u64, Malformed> {
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

    pub fn time(&mut self) -> Result<i64, Malformed> {
        let range = self.take(8)?;
        let mut array = [0; 8];
        array.copy_from_slice(&self.bytes[range]);
        Ok(i64::from_be_bytes(array))
    }

    pub fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let count = self.number()?;
        let range = self.take(usize::try_from(count).map_err(|_| Malformed::Short)?)?;
        Ok(self.bytes.slice(range))
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Malformed::Text)?;
        Ok(text.to_owned())
    }

    pub fn optional<T>(
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
    pub fn list<T>(
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

    pub fn properties(&mut self) -> Result<Properties, Malformed> {
        self.list(|from| Ok((from.text()?, from.text()?)))
    }

    pub fn until(&mut self) -> Result<Until, Malformed> {
        match self.flag()? {
            false => Ok(Until::Session),
            true => Ok(Until::Time(self.time()?)),
        }
    }

    pub fn settings(&mut self) -> Result<Settings, Malformed> {
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

    pub fn message(&mut self) -> Result<Message, Malformed> {
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

pub fn unknown(what: &'static str, given: u8) -> Malformed {
    let given = u64::from(given);
    Malformed::Unknown { what, given }
}
