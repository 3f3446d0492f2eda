//! Writes to one partition: a batch that is being filled, and the batches in flight.
//!
//! A sent batch is kept until the log has answered, because the job has dropped its rows. After a failure all kept
//! batches are sent again in order; their sequence numbers tell the log which of them it has.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, NewRecord};
use highwater_log::{AppendError, AppendInfo, BoxFuture, Partition, Producer};

use super::super::EndpointError;
use super::records::{self, ORIGIN_HEADER, ROW_HEADER};
use super::state::PartitionState;

/// How a row identifies its output.
#[derive(Clone)]
pub(super) enum RowOrigin {
    /// Its batch has this producer.
    Producer(Producer),
    /// It has a header with this value.
    Header(Arc<str>),
}

pub(super) struct PartitionWriter {
    partition: Arc<dyn Partition>,
    origin: RowOrigin,
    /// The sequence number of the next record.
    sequence: i32,
    /// Rows with lower numbers are in the partition.
    have: u64,
    filling: BatchBuilder,
    sent: VecDeque<InFlightBatch>,
    /// A batch failed, and none of `sent` is in flight any more.
    broken: bool,
}

struct InFlightBatch {
    batch: Batch,
    answer: Answer,
}

type Answer = BoxFuture<Result<AppendInfo, AppendError>>;

impl PartitionWriter {
    pub(super) fn new(
        partition: Arc<dyn Partition>,
        origin: RowOrigin,
        have: u64,
    ) -> PartitionWriter {
        PartitionWriter {
            partition,
            origin,
            sequence: 0,
            have,
            filling: BatchBuilder::new(),
            sent: VecDeque::new(),
            broken: false,
        }
    }

    /// Adds the record of a row, unless the partition has it.
    pub(super) fn push(
        &mut self,
        number: u64,
        record: &NewRecord<'_>,
        batch_bytes: usize,
    ) -> Result<(), EndpointError> {
        if number < self.have {
            return Ok(());
        }
        if self.filling.size() + self.size(record) > batch_bytes {
            self.send()?;
        }
        let mut digits = itoa::Buffer::new();
        let number = (ROW_HEADER, Some(digits.format(number).as_bytes()));
        match &self.origin {
            RowOrigin::Producer(_) => self.filling.push(&NewRecord {
                headers: &[number],
                ..*record
            }),
            RowOrigin::Header(id) => self.filling.push(&NewRecord {
                headers: &[number, (ORIGIN_HEADER, Some(id.as_bytes()))],
                ..*record
            }),
        };
        Ok(())
    }

    /// The size of a batch with this one record, at most.
    pub(super) fn size(&self, record: &NewRecord<'_>) -> usize {
        let origin = match &self.origin {
            RowOrigin::Producer(_) => 0,
            RowOrigin::Header(id) => ORIGIN_HEADER.len() + id.len() + 16,
        };
        records::size(record) + origin
    }

    /// Sends the pushed records.
    pub(super) fn send(&mut self) -> Result<(), EndpointError> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let producer = match &self.origin {
            RowOrigin::Producer(producer) => Some((*producer, self.sequence)),
            RowOrigin::Header(_) => None,
        };
        let options = BatchOptions {
            producer,
            ..BatchOptions::default()
        };
        let batch = self.filling.build(&options).map_err(EndpointError::unfit)?;
        if producer.is_some() {
            self.sequence = next_sequence(&batch);
        }
        let answer = self.partition.append(batch.clone());
        self.sent.push_back(InFlightBatch { batch, answer });
        Ok(())
    }

    pub(super) fn in_flight_bytes(&self) -> usize {
        self.sent.iter().map(|sent| sent.batch.size()).sum()
    }

    /// Takes the answers that have arrived, and sends failed batches again.
    pub(super) async fn retry(&mut self) -> Result<(), EndpointError> {
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

    /// Waits for the oldest batch in flight.
    pub(super) async fn wait(&mut self) -> Result<(), EndpointError> {
        match self.sent.front_mut() {
            Some(sent) => {
                let answer = (&mut sent.answer).await;
                self.answered(answer)
            }
            None => Ok(()),
        }
    }

    /// Waits for all batches.
    pub(super) async fn drain(&mut self) -> Result<(), EndpointError> {
        while !self.sent.is_empty() {
            self.wait().await?;
        }
        Ok(())
    }

    fn answered(&mut self, answer: Result<AppendInfo, AppendError>) -> Result<(), EndpointError> {
        match answer {
            // A duplicate that the log no longer knows was certainly written.
            Ok(_) | Err(AppendError::DuplicateTooOld { .. }) => {
                self.sent.pop_front();
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                Err(endpoint_error(error))
            }
        }
    }

    /// Only when nothing is in flight.
    pub(super) fn state(&self) -> PartitionState {
        debug_assert!(self.sent.is_empty(), "everything was waited for");
        PartitionState {
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

pub(super) fn endpoint_error(error: AppendError) -> EndpointError {
    match error {
        AppendError::QueueFull { .. }
        | AppendError::Busy { .. }
        | AppendError::DiskFull { .. }
        | AppendError::Stopped { .. }
        | AppendError::OutcomeUnknown { .. } => EndpointError::unavailable(error),
        AppendError::Fenced { .. } => EndpointError::unfit(
            "the same output was opened again, and only the last to open it may write",
        ),
        AppendError::Malformed(_)
        | AppendError::TooLarge { .. }
        | AppendError::OutOfSequence { .. }
        | AppendError::DuplicateTooOld { .. }
        | AppendError::NoTransaction { .. }
        | AppendError::Deleted(_) => EndpointError::unfit(error),
    }
}
