//! One partition as an output writes to it: a batch that is being filled, and those that are under way.
//!
//! A batch that was sent is kept until the log has answered, because the job has let go of its rows. After a failure
//! everything that is kept is sent again in order; the numbers tell the log what it has.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use highwater_log::batch::{Batch, Builder, NewRecord, Seal};
use highwater_log::{AppendError, Appended, Partition, Pending, Producer};

use super::super::EndpointError;
use super::mark::PartitionMark;
use super::records::{self, ROW_HEADER};

pub(super) struct Channel {
    partition: Arc<dyn Partition>,
    producer: Producer,
    /// Of the next record.
    sequence: i32,
    /// Rows with lower numbers are there.
    have: u64,
    filling: Builder,
    sent: VecDeque<Sent>,
    /// A batch was not taken, and nothing of `sent` is under way any more.
    broken: bool,
}

struct Sent {
    batch: Batch,
    answer: Answer,
}

type Answer = Pending<Result<Appended, AppendError>>;

impl Channel {
    pub fn new(partition: Arc<dyn Partition>, producer: Producer, have: u64) -> Channel {
        Channel {
            partition,
            producer,
            sequence: 0,
            have,
            filling: Builder::new(),
            sent: VecDeque::new(),
            broken: false,
        }
    }

    /// Takes the record of a row, unless it is there.
    pub fn push(
        &mut self,
        number: u64,
        record: &NewRecord<'_>,
        batch_bytes: usize,
    ) -> Result<(), EndpointError> {
        if number < self.have {
            return Ok(());
        }
        if self.filling.size() + records::size(record) > batch_bytes {
            self.send()?;
        }
        let mut digits = itoa::Buffer::new();
        let number = digits.format(number).as_bytes();
        self.filling.push(&NewRecord {
            headers: &[(ROW_HEADER, Some(number))],
            ..*record
        });
        Ok(())
    }

    /// Sends what was pushed.
    pub fn send(&mut self) -> Result<(), EndpointError> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let seal = Seal {
            producer: Some((self.producer, self.sequence)),
            ..Seal::default()
        };
        let batch = self.filling.seal(&seal).map_err(EndpointError::unfit)?;
        self.sequence = next_sequence(&batch);
        let answer = self.partition.append(batch.clone());
        self.sent.push_back(Sent { batch, answer });
        Ok(())
    }

    pub fn underway_bytes(&self) -> usize {
        self.sent.iter().map(|sent| sent.batch.size()).sum()
    }

    /// Takes the answers that are there, and sends again what was not taken.
    pub async fn mend(&mut self) -> Result<(), EndpointError> {
        while !self.broken
            && let Some(sent) = self.sent.front_mut()
            && let Some(answer) = (&mut sent.answer).now_or_never()
        {
            self.answered(answer)?;
        }
        if self.broken {
            self.broken = false;
            for sent in &mut self.sent {
                sent.answer = self.partition.append(sent.batch.clone());
            }
            self.wait().await?;
        }
        Ok(())
    }

    /// Waits for the oldest batch under way.
    pub async fn wait(&mut self) -> Result<(), EndpointError> {
        match self.sent.front_mut() {
            Some(sent) => {
                let answer = (&mut sent.answer).await;
                self.answered(answer)
            }
            None => Ok(()),
        }
    }

    /// Waits for all of them.
    pub async fn drain(&mut self) -> Result<(), EndpointError> {
        while !self.sent.is_empty() {
            self.wait().await?;
        }
        Ok(())
    }

    fn answered(&mut self, answer: Result<Appended, AppendError>) -> Result<(), EndpointError> {
        match answer {
            // What is repeated too late was certainly written.
            Ok(_) | Err(AppendError::RepeatedTooLate { .. }) => {
                self.sent.pop_front();
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                Err(sort(error))
            }
        }
    }

    /// Only when nothing is under way.
    pub fn mark(&self) -> PartitionMark {
        debug_assert!(self.sent.is_empty(), "everything was waited for");
        PartitionMark {
            end: self.partition.bounds().end,
            have: self.have,
        }
    }
}

fn next_sequence(batch: &Batch) -> i32 {
    match batch.header().last_sequence() {
        i32::MAX => 0,
        last => last + 1,
    }
}

pub(super) fn sort(error: AppendError) -> EndpointError {
    match error {
        AppendError::Full { .. }
        | AppendError::NoRoom { .. }
        | AppendError::Stopped { .. }
        | AppendError::Unanswered { .. } => EndpointError::unavailable(error),
        AppendError::Fenced { .. } => EndpointError::unfit(
            "the same output was opened again, and only the last to open it may write",
        ),
        AppendError::Malformed(_)
        | AppendError::TooLarge { .. }
        | AppendError::OutOfSequence { .. }
        | AppendError::RepeatedTooLate { .. }
        | AppendError::NoTransaction { .. }
        | AppendError::Deleted(_) => EndpointError::unfit(error),
    }
}
