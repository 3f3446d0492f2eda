//! Rows as records of a hub, exactly once.
//!
//! An output is a producer with a transactional id, and every start raises its epoch. Every record carries the number
//! of its row, and a partition gets its rows in order, so the output's last row in a partition tells what the partition
//! has ([`last_row`]). The checkpoint has the end of each partition. A start first fences the producer of an earlier
//! start, then searches from those ends, and skips the rows that are there. For that to be the same rows, a row's
//! partition must be a function of the row: of its key, or else of its number; and of the number of partitions when the
//! output first started.
//!
//! Batches are in flight while the next are filled, up to a bound ([`partition_writer`]). Order survives failures
//! because the log rejects a batch whose sequence numbers are not due.

mod last_row;
mod partition_writer;
mod records;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::NewRecord;
use highwater_log::{
    AppendError, HubId, HubInfo, InitProducerRequest, Log, Offset, Partition, Producer,
    TransactionCoordinator, TransactionError, TransactionMarker, partition_for_key,
};
use highwater_query::plan::Name;

use super::{
    Destination, Endpoint, EndpointError, EndpointFuture, OpenResult, OutputContext, OutputKind,
    OutputSettings, Rows,
};
use partition_writer::PartitionWriter;
use records::Records;
use state::HubState;

/// Rows without a key switch to the next partition after this many.
const BLOCK_ROWS: u64 = 1024;

/// The target size of a batch; less if the hub allows only smaller ones.
const BATCH_BYTES: usize = 256 << 10;

/// The limit for all batches in flight.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

/// The settings of an output to a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOutput {
    pub hub: String,
    /// The column whose value is the key of the record.
    pub key: Option<String>,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "hub",
    keys: &["hub", "key"],
    read: |reader, section| {
        Some(Arc::new(HubOutput {
            hub: reader.required_text(section, "hub", "alerts")?,
            key: reader.text(section, "key", "plate"),
        }))
    },
    missing_feature: None,
};

impl OutputSettings for HubOutput {
    fn destination(&self) -> Option<Destination<'_>> {
        Some(Destination::Hub(&self.hub))
    }

    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        let (log, transactions) = context.hubs.clone().ok_or_else(|| {
            EndpointError::unfit("there are no hubs here: run the job with `highwater up`")
        })?;
        let records = Records::new(names);
        match &self.key {
            Some(key) if !records.may_have(key) => Err(EndpointError::unfit(format!(
                "the output has no column `{key}` for its key"
            ))),
            _ => Ok(Box::new(HubEndpoint {
                output: self.clone(),
                id: context.id(),
                log,
                transactions,
                records,
                open: None,
            })),
        }
    }
}

struct HubEndpoint {
    output: HubOutput,
    /// The transactional id of its producer.
    id: String,
    log: Arc<dyn Log>,
    transactions: Arc<dyn TransactionCoordinator>,
    /// The rows of the current write.
    records: Records,
    open: Option<OpenHub>,
}

/// A hub that is being written to.
struct OpenHub {
    hub: HubId,
    producer: Producer,
    writers: Vec<PartitionWriter>,
    /// The number of the next row to accept.
    next: u64,
    /// A checkpoint has been taken, so a restart can find out what was written.
    has_checkpoint: bool,
}

impl HubEndpoint {
    async fn start(&mut self, state: Option<&[u8]>) -> Result<(), EndpointError> {
        self.open = None;
        let state = state.map(HubState::read).transpose()?;
        let hub = self.find_hub(state.as_ref())?;
        let producer = self.init_producer().await?;
        let count = state
            .as_ref()
            .map_or(hub.partitions, |state| state.partitions.len() as u32);
        let partitions: Option<Vec<Arc<dyn Partition>>> = (0..count)
            .map(|partition| self.log.partition(hub.name.as_str(), partition))
            .collect();
        let partitions = partitions.ok_or_else(|| {
            EndpointError::unfit(format!("hub `{}` has lost partitions", hub.name))
        })?;
        let ends = fence(&partitions, producer, state.as_ref()).await?;
        let mut writers = Vec::with_capacity(partitions.len());
        for (at, (partition, end)) in partitions.into_iter().zip(ends).enumerate() {
            let have = match &state {
                None => 0,
                Some(state) => {
                    let (ours, from) = ([state.producer, producer.id], state.partitions[at]);
                    let last = last_row::find(&*partition, ours, from.end, end).await?;
                    from.have.max(last.map_or(0, |last| last + 1))
                }
            };
            writers.push(PartitionWriter::new(partition, producer, have));
        }
        self.open = Some(OpenHub {
            hub: hub.id,
            producer,
            writers,
            next: state.as_ref().map_or(0, |state| state.next),
            has_checkpoint: state.is_some(),
        });
        Ok(())
    }

    fn find_hub(&self, state: Option<&HubState>) -> Result<Arc<HubInfo>, EndpointError> {
        let name = &self.output.hub;
        let hub = self.log.hub(name);
        let hub = hub.ok_or_else(|| EndpointError::unfit(format!("there is no hub `{name}`")))?;
        if hub.name.is_internal() {
            return Err(EndpointError::unfit(format!(
                "hub `{name}` is internal to the node"
            )));
        }
        match state {
            Some(state) if state.hub != hub.id => Err(EndpointError::unfit(format!(
                "hub `{name}` was deleted and recreated: start the job from the beginning"
            ))),
            _ => Ok(hub),
        }
    }

    /// Raises the epoch of the producer.
    async fn init_producer(&mut self) -> Result<Producer, EndpointError> {
        let request = InitProducerRequest {
            transactional_id: Some(self.id.clone()),
            timeout: Duration::from_secs(60),
            current: None,
        };
        let producer = self.transactions.init_producer(request).await;
        producer.map_err(|error| match error {
            TransactionError::Concurrent
            | TransactionError::Loading
            | TransactionError::Storage(_) => EndpointError::unavailable(error),
            error => EndpointError::unfit(error),
        })
    }

    async fn accept(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        let open = open_hub(&mut self.open)?;
        if !open.has_checkpoint {
            return Err(EndpointError::unfit(
                "rows were written to a hub before the first checkpoint, so a crash could write them twice",
            ));
        }
        for writer in &mut open.writers {
            writer.retry().await?;
        }
        self.send(rows)?;
        // The rows are accepted from here on, so the next call reports a failure.
        let _ = open_hub(&mut self.open)?.wait_for_room().await;
        Ok(())
    }

    /// Adds rows to batches and sends them. Accepts all rows, or none if some are refused.
    fn send(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        let open = open_hub(&mut self.open)?;
        let new = rows.from(open.next);
        let first = rows.first + new.start as u64;
        self.records
            .encode(&rows.chunk, new, self.output.key.as_deref());
        let bytes_max = self.log.hub(&self.output.hub);
        let bytes_max = bytes_max.map_or(BATCH_BYTES, |hub| hub.settings.batch_bytes_max as usize);
        let too_large = |record: &NewRecord<'_>| records::size(record) > bytes_max;
        let numbered = || (first..).zip(self.records.iter());
        let refused: Vec<u64> = numbered()
            .filter_map(|(number, record)| too_large(&record).then_some(number))
            .collect();
        if !refused.is_empty() {
            return Err(EndpointError::Refused {
                rows: refused,
                reason: format!(
                    "larger than the {bytes_max} bytes that hub `{}` takes",
                    self.output.hub
                ),
            });
        }
        let batch_bytes = BATCH_BYTES.min(bytes_max);
        let count = open.writers.len() as u32;
        for (number, record) in numbered() {
            let at = match record.key {
                Some(key) => partition_for_key(key, count),
                None => (number / BLOCK_ROWS % u64::from(count)) as u32,
            };
            open.writers[at as usize].push(number, &record, batch_bytes)?;
        }
        open.next = open.next.max(rows.end());
        open.writers.iter_mut().try_for_each(PartitionWriter::send)
    }

    async fn flush(&mut self) -> Result<Vec<u8>, EndpointError> {
        let open = open_hub(&mut self.open)?;
        for writer in &mut open.writers {
            writer.retry().await?;
            writer.drain().await?;
        }
        open.has_checkpoint = true;
        let state = HubState {
            hub: open.hub,
            producer: open.producer.id,
            next: open.next,
            partitions: open.writers.iter().map(PartitionWriter::state).collect(),
        };
        Ok(state.write())
    }
}

fn open_hub(open: &mut Option<OpenHub>) -> Result<&mut OpenHub, EndpointError> {
    open.as_mut()
        .ok_or_else(|| EndpointError::unfit("rows were written to a hub before it was opened"))
}

impl OpenHub {
    /// Waits for the oldest batches until few enough are in flight.
    async fn wait_for_room(&mut self) -> Result<(), EndpointError> {
        loop {
            let in_flight: usize = self
                .writers
                .iter()
                .map(PartitionWriter::in_flight_bytes)
                .sum();
            if in_flight <= IN_FLIGHT_BYTES_MAX {
                return Ok(());
            }
            let fullest = self
                .writers
                .iter_mut()
                .max_by_key(|writer| writer.in_flight_bytes());
            match fullest {
                Some(writer) => writer.wait().await?,
                None => return Ok(()),
            }
        }
    }
}

/// Fences earlier producers, so that none of their batches can still be appended, and returns the end of each
/// partition. Aborting a transaction that was never begun does it, because the marker carries the new epoch and is
/// appended after every batch sent before.
async fn fence(
    partitions: &[Arc<dyn Partition>],
    producer: Producer,
    state: Option<&HubState>,
) -> Result<Vec<Offset>, EndpointError> {
    // The coordinator has forgotten our producer. The old id cannot come back, so its last epoch is free.
    let forgotten = state
        .filter(|state| state.producer != producer.id)
        .map(|state| Producer {
            id: state.producer,
            epoch: i16::MAX,
        });
    // There was no earlier producer.
    let known = (producer.epoch > 0).then_some(producer);
    let mut in_flight = Vec::new();
    for partition in partitions {
        let markers = known.into_iter().chain(forgotten);
        let pending: Vec<_> = markers
            .map(|producer| partition.append_marker(producer, TransactionMarker::Abort))
            .collect();
        in_flight.push((partition, pending));
    }
    let mut ends = Vec::with_capacity(partitions.len());
    for (partition, pending) in in_flight {
        for marker in pending {
            match marker.await {
                // The forgotten producer was fenced before.
                Ok(_) | Err(AppendError::NoTransaction { .. }) => {}
                Err(error) => return Err(partition_writer::endpoint_error(error)),
            }
        }
        ends.push(partition.bounds().end);
    }
    Ok(ends)
}

impl Endpoint for HubEndpoint {
    fn resume<'a>(&'a mut self, state: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        Box::pin(self.start(state))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(self.accept(rows))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        Box::pin(self.flush())
    }
}
