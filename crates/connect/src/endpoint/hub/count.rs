//! How many records of ours lie behind a mark.
//!
//! Only headers of batches are looked at. Records are counted by their producer's numbers and not one by one, so that
//! neither compaction nor retention, which take some away, changes the count, as long as a batch of each start is left.
//! Where all of them are gone, the rows are gone from the hub as well, and are written again.

use highwater_log::batch::Batches;
use highwater_log::{Isolation, Offset, Partition, Producer, ReadError};

use super::super::EndpointError;
use super::mark::PartitionMark;

const READ_BYTES: usize = 1 << 20;

/// Numbers begin again after so many.
const SEQUENCES: i64 = 1 << 31;

/// Records between the mark and `end` that were written by the producer of the mark or by `current`.
pub(super) async fn behind(
    partition: &dyn Partition,
    marked: Producer,
    current: Producer,
    mark: &PartitionMark,
    end: Offset,
) -> Result<u64, EndpointError> {
    let mut counter = Counter {
        ids: [marked.id, current.id],
        at: marked,
        due: mark.sequence,
        found: 0,
    };
    let mut from = mark.end.max(partition.bounds().start);
    while from < end {
        let read = partition.read(from, READ_BYTES, Isolation::Uncommitted);
        let fetched = read.await.map_err(sort)?;
        let before = from;
        for piece in &fetched.pieces {
            for batch in Batches::new(piece) {
                let header = batch.map_err(EndpointError::unavailable)?.header;
                from = header.next_offset();
                // A read begins with the whole batch that holds the offset.
                if header.base_offset() >= mark.end
                    && header.base_offset() < end
                    && !header.is_control()
                {
                    counter.take(
                        header.producer(),
                        header.base_sequence(),
                        i64::from(header.last_offset_delta()) + 1,
                    );
                }
            }
        }
        if from == before {
            break;
        }
    }
    Ok(counter.found)
}

struct Counter {
    ids: [i64; 2],
    at: Producer,
    /// The number that comes next from that producer.
    due: i32,
    found: u64,
}

impl Counter {
    fn take(&mut self, producer: Option<Producer>, sequence: i32, count: i64) {
        let Some(producer) = producer.filter(|producer| self.ids.contains(&producer.id)) else {
            return;
        };
        if producer != self.at {
            self.at = producer;
            self.due = 0;
        }
        let end = i64::from(sequence) + count;
        self.found += (end - i64::from(self.due)).rem_euclid(SEQUENCES) as u64;
        self.due = end.rem_euclid(SEQUENCES) as i32;
    }
}

fn sort(error: ReadError) -> EndpointError {
    match error {
        ReadError::Storage { .. } => EndpointError::unavailable(error),
        ReadError::OutOfRange { .. } | ReadError::Damaged { .. } | ReadError::Deleted(_) => {
            EndpointError::unfit(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(due: i32) -> Counter {
        let at = Producer { id: 7, epoch: 2 };
        Counter {
            ids: [7, 9],
            at,
            due,
            found: 0,
        }
    }

    fn of(id: i64, epoch: i16) -> Option<Producer> {
        Some(Producer { id, epoch })
    }

    #[test]
    fn numbers_go_on_from_the_mark_and_start_anew_with_an_epoch() {
        let mut counter = counter(100);
        counter.take(of(7, 2), 100, 5);
        counter.take(of(8, 0), 0, 50);
        counter.take(None, -1, 50);
        counter.take(of(7, 3), 0, 2);
        counter.take(of(7, 3), 2, 1);
        counter.take(of(9, 0), 0, 4);
        assert_eq!(counter.found, 5 + 2 + 1 + 4);
    }

    #[test]
    fn what_retention_took_away_is_counted_all_the_same() {
        let mut counter = counter(100);
        counter.take(of(7, 2), 140, 10);
        counter.take(of(7, 4), 3, 1);
        assert_eq!(counter.found, 50 + 4);
    }

    #[test]
    fn numbers_begin_again_after_the_last() {
        let mut counter = counter(i32::MAX);
        counter.take(of(7, 2), i32::MAX, 3);
        counter.take(of(7, 2), 2, 1);
        assert_eq!(counter.found, 4);
    }
}
