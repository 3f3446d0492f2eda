//! One producer in one partition.

use std::collections::VecDeque;

use crate::batch::{BatchHeader, sequence_after};
use crate::{EnqueueTime, Offset, Producer, ProducerInfo};

/// How many batches of a producer are remembered: the maximum that a client has in flight.
pub(super) const BATCHES_MAX: usize = 5;

/// Sequence numbers are modulo this.
const SEQUENCES: i64 = 1 << 31;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProducerEntry {
    pub epoch: i16,
    /// The sequence number that the next batch must have; `None` accepts any.
    pub next: Option<i32>,
    /// The last batches, oldest first.
    pub batches: VecDeque<BatchMetadata>,
    /// How many sequence numbers directly before `batches` were written, too.
    pub older: u32,
    /// The first offset of its open transaction.
    pub open: Option<Offset>,
    pub last_time: EnqueueTime,
}

/// A batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchMetadata {
    pub sequence: i32,
    pub last_delta: i32,
    pub offset: Offset,
    pub time: EnqueueTime,
}

impl BatchMetadata {
    pub(super) fn last_offset(&self) -> Offset {
        Offset(self.offset.0.saturating_add(i64::from(self.last_delta)))
    }
}

impl ProducerEntry {
    pub(super) fn new(epoch: i16) -> ProducerEntry {
        ProducerEntry {
            epoch,
            next: None,
            batches: VecDeque::with_capacity(BATCHES_MAX),
            older: 0,
            open: None,
            last_time: EnqueueTime::default(),
        }
    }

    pub(super) fn info(&self, id: i64) -> ProducerInfo {
        let last = |batch: &BatchMetadata| {
            let last = i64::from(batch.sequence) + i64::from(batch.last_delta);
            (last % SEQUENCES) as i32
        };
        let epoch = self.epoch;
        ProducerInfo {
            producer: Producer { id, epoch },
            last_sequence: self.batches.back().map(last),
            last_time: self.last_time,
            open: self.open,
        }
    }

    pub(super) fn expecting(epoch: i16, next: i32, now: EnqueueTime) -> ProducerEntry {
        ProducerEntry {
            next: Some(next),
            last_time: now,
            ..ProducerEntry::new(epoch)
        }
    }

    /// Takes over the epoch of a batch. A new epoch starts at sequence number 0.
    pub(super) fn note(&mut self, epoch: i16, time: EnqueueTime) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.next = Some(0);
            self.batches.clear();
            self.older = 0;
        }
        self.last_time = self.last_time.max(time);
    }

    pub(super) fn remember(&mut self, header: &BatchHeader, time: EnqueueTime) {
        let sequence = header.base_sequence();
        if self.next.is_some_and(|next| next != sequence) {
            // Recovery found it after a part of the log that was deleted.
            self.batches.clear();
            self.older = 0;
        }
        if self.batches.len() == BATCHES_MAX
            && let Some(oldest) = self.batches.pop_front()
        {
            let count = oldest.last_delta as u32 + 1;
            // Half of the sequence space is enough, and keeps older and newer numbers apart.
            self.older = self.older.saturating_add(count).min(1 << 30);
        }
        self.batches.push_back(BatchMetadata {
            sequence,
            last_delta: header.last_offset_delta(),
            offset: header.base_offset(),
            time,
        });
        self.next = Some(sequence_after(header.last_sequence(), 1));
    }

    /// The remembered batch with the same sequence numbers.
    pub(super) fn find(&self, header: &BatchHeader) -> Option<&BatchMetadata> {
        self.batches.iter().find(|sent| {
            sent.sequence == header.base_sequence() && sent.last_delta == header.last_offset_delta()
        })
    }

    /// True if all sequence numbers of the batch precede the remembered ones and were written.
    pub(super) fn is_older_duplicate(&self, header: &BatchHeader) -> bool {
        let Some(oldest) = self.batches.front() else {
            return false;
        };
        let before = i64::from(oldest.sequence) - i64::from(header.base_sequence());
        let before = before.rem_euclid(SEQUENCES);
        let count = i64::from(header.last_offset_delta()) + 1;
        count <= before && before <= i64::from(self.older)
    }
}
