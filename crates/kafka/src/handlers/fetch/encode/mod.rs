//! Encodes a Fetch response around the records, which go from the log to the socket without a copy.
//!
//! The codec would copy them into its buffer. A test compares the bytes with the codec's in every version.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::ApiKey;

use super::{BY_ID, FetchBody, FetchedPartition, FetchedTopic};
use crate::request::ProtocolError;
use crate::response::{EncodedResponse, Frame};

/// An upper bound of the bytes of a partition without aborted transactions and records.
const PARTITION_BYTES: usize = 64;

pub(super) fn encode(
    version: i16,
    correlation: i32,
    body: FetchBody,
) -> Result<EncodedResponse, ProtocolError> {
    let key = ApiKey::Fetch;
    let partitions: usize = body.topics.iter().map(|topic| topic.partitions.len()).sum();
    let mut writer = Writer {
        frame: Frame::with_capacity(64 + PARTITION_BYTES * (body.topics.len() + partitions)),
        version,
        flexible: key.request_header_version(version) == 2,
    };
    writer.body(correlation, body);
    let finished = writer.frame.finish();
    finished.map_err(|error| ProtocolError::Response {
        key: key as i16,
        version,
        reason: error.to_string(),
    })
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

    fn body(&mut self, correlation: i32, body: FetchBody) {
        self.text().put_i32(correlation);
        self.no_tagged_fields();
        self.text().put_i32(body.throttle_ms);
        if self.version >= 7 {
            self.text().put_i16(body.code);
            self.text().put_i32(0); // session
        }
        self.length(body.topics.len());
        for topic in body.topics {
            self.topic(topic);
        }
        self.no_tagged_fields();
    }

    fn topic(&mut self, topic: FetchedTopic) {
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
        for partition in topic.partitions {
            self.partition(partition);
        }
        self.no_tagged_fields();
    }

    fn partition(&mut self, partition: FetchedPartition) {
        let offsets = partition
            .bounds
            .map(|bounds| (bounds.end.0, bounds.stable.0, bounds.start.0));
        let (end, stable, start) = offsets.unwrap_or((-1, -1, -1));
        self.text().put_i32(partition.index);
        self.text().put_i16(partition.code);
        self.text().put_i64(end);
        self.text().put_i64(stable);
        if self.version >= 5 {
            self.text().put_i64(start);
        }
        self.length(partition.aborted.len());
        for aborted in &partition.aborted {
            self.text().put_i64(aborted.producer_id);
            self.text().put_i64(aborted.first.0);
            self.no_tagged_fields();
        }
        if self.version >= 11 {
            self.text().put_i32(-1); // preferred replica
        }
        // Without data: empty, not null. With null, kcat never sees the end of the partition.
        self.length(partition.bytes());
        for piece in partition.pieces {
            self.frame.insert(piece);
        }
        self.no_tagged_fields();
    }

    /// The length of an array or of bytes.
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
