//! A link on which a client reads a partition.
//!
//! Whole batches are read and encoded at once, and wait for the client's credit. A read is started only when the client
//! has credit and nothing waits.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::AbortHandle;
use highwater_amqp::{AmqpError, condition};
use highwater_env::MemoryShare;
use highwater_log::{EnqueueTime, FetchData, Offset, Partition, ReadError};

use super::broker::Broker;
use super::error::{SERVER_BUSY, read_error};
use super::event::{LastEnqueued, MessageEncoder};
use super::operations::AmqpOperation;
use super::owner_levels::ReadLease;
use super::position::ISOLATION;
use crate::http::decode::{self, DecodeError};

pub(super) struct Consumer {
    pub(super) operation: AmqpOperation,
    /// The address, as tokens name it.
    pub(super) path: String,
    pub(super) group: String,
    pub(super) cursor: Cursor,
    /// The client wants its messages settled.
    pub(super) settled: bool,
    /// Encoded messages that wait for credit.
    pub(super) ready: VecDeque<Bytes>,
    /// The memory of them.
    pub(super) share: MemoryShare,
    /// Ends the read in flight.
    pub(super) reading: Option<AbortHandle>,
    pub(super) _lease: ReadLease,
}

/// The position of a reader.
#[derive(Clone)]
pub(super) struct Cursor {
    pub(super) partition: Arc<dyn Partition>,
    pub(super) next: Offset,
    /// Events that were enqueued earlier are skipped.
    pub(super) not_before: Option<EnqueueTime>,
    /// The client wants the end of the partition with every message.
    pub(super) with_last_enqueued: bool,
}

/// The events of a read.
pub(super) struct ReadBatch {
    pub(super) messages: VecDeque<Bytes>,
    pub(super) share: MemoryShare,
    pub(super) next: Offset,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

impl Consumer {
    pub(super) fn hub(&self) -> &str {
        self.cursor.partition.topic_partition().hub.as_str()
    }

    /// Whether nothing waits, here or in the partition.
    pub(super) fn is_at_end(&self) -> bool {
        let end = self.cursor.partition.bounds().visible(ISOLATION);
        self.ready.is_empty() && self.cursor.next >= end
    }
}

impl Cursor {
    /// Waits for events, and reads some.
    pub(super) async fn read(mut self, broker: Arc<Broker>) -> Result<ReadBatch, AmqpError> {
        loop {
            self.partition.wait_past(self.next, ISOLATION).await;
            let bytes_max = broker.limits.read_bytes_max;
            let mut share = broker.outgoing_memory.take(bytes_max).await;
            let fetched = match self.partition.read(self.next, bytes_max, ISOLATION).await {
                Ok(fetched) => fetched,
                // Retention has deleted unread events.
                Err(ReadError::OutOfRange {
                    start, requested, ..
                }) if requested < start => {
                    self.next = start;
                    continue;
                }
                Err(error) => return Err(read_error(&error)),
            };
            let last_enqueued = self.with_last_enqueued.then(|| LastEnqueued {
                offset: Offset(fetched.bounds.visible(ISOLATION).0 - 1),
                time: fetched.bounds.last_time.unwrap_or_default(),
                now_ms: broker.clock.unix_millis(),
            });
            let mut encoder = MessageEncoder::new(last_enqueued);
            let before = self.next;
            self.next = self.encode(&broker, &fetched, &mut encoder)?;
            if !encoder.is_empty() {
                // The events are here; they are kept even if their encoding is larger than the read.
                share.shrink_to(encoder.bytes());
                return Ok(ReadBatch {
                    messages: encoder.finish().collect(),
                    share,
                    next: self.next,
                });
            }
            if self.next == before {
                // A partition that is deleted or stopped wakes its readers, and has nothing to read.
                let text = "The partition cannot be read any more.";
                return Err(AmqpError::new(condition::LINK_DETACH_FORCED, text));
            }
        }
    }

    /// Encodes the fetched events, as far as they fit; at least one. Returns the next offset.
    fn encode(
        &self,
        broker: &Broker,
        fetched: &FetchData,
        encoder: &mut MessageEncoder,
    ) -> Result<Offset, AmqpError> {
        // Compressed batches may unpack to much more than was read.
        let bytes_max = broker.limits.read_bytes_max * 2;
        let records = decode::records(fetched, self.next, &broker.unpack_memory, |record| {
            let is_early = self
                .not_before
                .is_some_and(|time| record.timestamp < time.0);
            if is_early {
                return true;
            }
            if encoder.bytes() > bytes_max {
                return false;
            }
            encoder.push(record);
            true
        });
        records.map_err(|error| match error {
            DecodeError::Damaged { error, .. } => {
                AmqpError::new(condition::INTERNAL_ERROR, error.message)
            }
            DecodeError::Exhausted(exhausted) => AmqpError::new(SERVER_BUSY, exhausted.to_string()),
        })
    }
}
