//! Writes the answer to a Fetch around the records, which go from the log to the socket uncopied.
//!
//! The codec would copy them into its buffer. A test holds this text to the codec's, byte for byte,
//! in every version.

use bytes::{BufMut, BytesMut};

use super::{Answer, BY_ID, Found, Topic};
use crate::answer::{Frame, Outcome};
use crate::call::{Call, ProtocolError};

/// The room that a partition without aborted transactions takes, generously.
const PARTITION_BYTES: usize = 64;

pub(super) fn encode(call: &Call, answer: Answer) -> Result<Outcome, ProtocolError> {
    let partitions: usize = answer
        .topics
        .iter()
        .map(|topic| topic.partitions.len())
        .sum();
    let mut writer = Writer {
        frame: Frame::with_capacity(64 + PARTITION_BYTES * (answer.topics.len() + partitions)),
        version: call.version,
        flexible: call.api.is_flexible(call.version),
    };
    writer.answer(call.correlation, answer);
    let pieces = writer.frame.finish().ok_or_else(|| ProtocolError::Answer {
        key: call.api.key as i16,
        version: call.version,
        reason: "it is longer than 2 GiB".into(),
    })?;
    Ok(Outcome::of(pieces))
}

struct Writer {
    frame: Frame,
    version: i16,
    flexible: bool,
}

impl Writer {
    fn text(&mut self) -> &mut BytesMut {
        &mut self.frame.text
    }

    fn answer(&mut self, correlation: i32, answer: Answer) {
        self.text().put_i32(correlation);
        self.no_tagged_fields();
        self.text().put_i32(0); // throttle time
        if self.version >= 7 {
            self.text().put_i16(answer.code);
            self.text().put_i32(0); // session
        }
        self.length(answer.topics.len());
        for topic in answer.topics {
            self.topic(topic);
        }
        self.no_tagged_fields();
    }

    fn topic(&mut self, topic: Topic) {
        match self.version >= BY_ID {
            true => self.text().put_slice(topic.id.as_bytes()),
            false => {
                match self.flexible {
                    true => self.varint(topic.name.len() + 1),
                    false => self.text().put_i16(topic.name.len() as i16),
                }
                self.text().put_slice(topic.name.as_bytes());
            }
        }
        self.length(topic.partitions.len());
        for found in topic.partitions {
            self.partition(found);
        }
        self.no_tagged_fields();
    }

    fn partition(&mut self, found: Found) {
        let offsets = found
            .bounds
            .map(|bounds| (bounds.end.0, bounds.stable.0, bounds.start.0));
        let (end, stable, start) = offsets.unwrap_or((-1, -1, -1));
        self.text().put_i32(found.index);
        self.text().put_i16(found.code);
        self.text().put_i64(end);
        self.text().put_i64(stable);
        if self.version >= 5 {
            self.text().put_i64(start);
        }
        self.length(found.aborted.len());
        for aborted in &found.aborted {
            self.text().put_i64(aborted.producer_id);
            self.text().put_i64(aborted.first.0);
            self.no_tagged_fields();
        }
        if self.version >= 11 {
            self.text().put_i32(-1); // preferred replica
        }
        // Without data: empty, not null. With null, kcat never sees the end of a partition.
        self.length(found.bytes());
        for piece in found.pieces {
            self.frame.insert(piece);
        }
        self.no_tagged_fields();
    }

    /// Of an array or of bytes.
    fn length(&mut self, length: usize) {
        match self.flexible {
            true => self.varint(length + 1),
            false => self.text().put_i32(length as i32),
        }
    }

    fn varint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.text().put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.text().put_u8(value as u8);
    }

    fn no_tagged_fields(&mut self) {
        if self.flexible {
            self.text().put_u8(0);
        }
    }
}

#[cfg(test)]
mod tests;
