//! Rows as records of a hub, exactly once.
//!
//! An output is a producer of its own, known by its name to whoever hands out producers, and every start raises its
//! epoch. Every record carries the number of its row, and a partition gets its rows in order, so the last row of ours
//! that a partition has says what it has ([`last`]). A mark says where each partition ended; a start first shuts out
//! whatever an earlier start still has under way, then looks behind the mark, and passes over rows that are there. For
//! that to be the same rows, a row's partition must be a function of the row: of its key, or else of its number; and of
//! the number of partitions when the output first started.
//!
//! Batches are under way while the next are put together, up to a bound ([`channel`]). Order survives failures because
//! the log refuses a batch whose numbers are not due.

mod channel;
mod last;
mod mark;
mod records;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::NewRecord;
use highwater_log::{
    AppendError, HubId, HubInfo, InitProducer, Log, Marker, Offset, Partition, Producer,
    TransactionError, Transactions, partition_for_key,
};
use highwater_query::plan::Name;

use super::{Endpoint, EndpointError, OutputContext, OutputKind, OutputSettings, Rows, Underway};
use channel::Channel;
use mark::Mark;
use records::Records;

/// Rows without a key change the partition after so many.
const BLOCK_ROWS: u64 = 1024;

/// What a batch aims at; smaller where the hub takes no such batches.
const BATCH_BYTES: usize = 256 << 10;

/// More is never under way.
const UNDERWAY_BYTES_MAX: usize = 8 << 20;

/// An output that is a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOutput {
    pub hub: String,
    /// The column whose value is the key of the record.
    pub key: Option<String>,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "hub",
    keys: &["hub", "key"],
    read: |from| {
        Some(Arc::new(HubOutput {
            hub: from.required_text("hub", "alerts")?,
            key: from.text("key", "plate"),
        }))
    },
    missing_feature: None,
};

impl OutputSettings for HubOutput {
    fn open(
        &self,
        names: Vec<Name>,
        context: &OutputContext,
    ) -> Result<Box<dyn Endpoint>, EndpointError> {
        let (log, transactions) = context.hubs.clone().ok_or_else(|| {
            EndpointError::unfit("there are no hubs here: run the job with `highwater up`")
        })?;
        let endpoint = HubEndpoint::open(self, context.id(), names, log, transactions)?;
        Ok(Box::new(endpoint))
    }
}

pub(super) struct HubEndpoint {
    output: HubOutput,
    /// The name that its producer goes by.
    id: String,
    log: Arc<dyn Log>,
    transactions: Arc<dyn Transactions>,
    /// The rows at hand.
    records: Records,
    open: Option<Open>,
}

/// A hub that is being written to.
struct Open {
    hub: HubId,
    producer: Producer,
    channels: Vec<Channel>,
    /// The number of the next row to take.
    next: u64,
    /// There is a mark to come back to.
    marked: bool,
}

impl HubEndpoint {
    pub fn open(
        output: &HubOutput,
        id: String,
        names: Vec<Name>,
        log: Arc<dyn Log>,
        transactions: Arc<dyn Transactions>,
    ) -> Result<HubEndpoint, EndpointError> {
        let records = Records::new(names);
        match &output.key {
            Some(key) if !records.may_have(key) => Err(EndpointError::unfit(format!(
                "the output has no column `{key}`, which is to be the key"
            ))),
            _ => Ok(HubEndpoint {
                output: output.clone(),
                id,
                log,
                transactions,
                records,
                open: None,
            }),
        }
    }

    async fn start(&mut self, mark: Option<&[u8]>) -> Result<(), EndpointError> {
        self.open = None;
        let mark = mark.map(Mark::read).transpose()?;
        let hub = self.find_hub(mark.as_ref())?;
        let producer = self.introduce().await?;
        let count = mark
            .as_ref()
            .map_or(hub.partitions, |mark| mark.partitions.len() as u32);
        let partitions: Option<Vec<Arc<dyn Partition>>> = (0..count)
            .map(|partition| self.log.partition(hub.name.as_str(), partition))
            .collect();
        let partitions = partitions.ok_or_else(|| {
            EndpointError::unfit(format!("hub `{}` has lost partitions", hub.name))
        })?;
        let ends = shut_out(&partitions, producer, mark.as_ref()).await?;
        let mut channels = Vec::with_capacity(partitions.len());
        for (at, (partition, end)) in partitions.into_iter().zip(ends).enumerate() {
            let have = match &mark {
                None => 0,
                Some(mark) => {
                    let (ours, from) = ([mark.producer, producer.id], mark.partitions[at]);
                    let last = last::row(&*partition, ours, from.end, end).await?;
                    from.have.max(last.map_or(0, |last| last + 1))
                }
            };
            channels.push(Channel::new(partition, producer, have));
        }
        self.open = Some(Open {
            hub: hub.id,
            producer,
            channels,
            next: mark.as_ref().map_or(0, |mark| mark.next),
            marked: mark.is_some(),
        });
        Ok(())
    }

    fn find_hub(&self, mark: Option<&Mark>) -> Result<Arc<HubInfo>, EndpointError> {
        let name = &self.output.hub;
        let hub = self.log.hub(name);
        let hub = hub.ok_or_else(|| EndpointError::unfit(format!("there is no hub `{name}`")))?;
        if hub.name.is_internal() {
            return Err(EndpointError::unfit(format!(
                "hub `{name}` is kept by the node for itself"
            )));
        }
        match mark {
            Some(mark) if mark.hub != hub.id => Err(EndpointError::unfit(format!(
                "hub `{name}` was deleted and made again: start the job from the beginning"
            ))),
            _ => Ok(hub),
        }
    }

    /// The next epoch of our producer.
    async fn introduce(&mut self) -> Result<Producer, EndpointError> {
        let request = InitProducer {
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

    async fn take(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        let open = opened(&mut self.open)?;
        if !open.marked {
            return Err(EndpointError::unfit(
                "rows were written to a hub before the first checkpoint, so a crash could write them twice",
            ));
        }
        for channel in &mut open.channels {
            channel.mend().await?;
        }
        self.put(rows)?;
        // The rows are ours from here on, so what fails now is told when somebody asks the next time.
        let _ = opened(&mut self.open)?.make_room().await;
        Ok(())
    }

    /// Puts rows into batches and sends them. Either all are taken or, when some are refused, none.
    fn put(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        let open = opened(&mut self.open)?;
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
        let count = open.channels.len() as u32;
        for (number, record) in numbered() {
            let at = match record.key {
                Some(key) => partition_for_key(key, count),
                None => (number / BLOCK_ROWS % u64::from(count)) as u32,
            };
            open.channels[at as usize].push(number, &record, batch_bytes)?;
        }
        open.next = open.next.max(rows.end());
        open.channels.iter_mut().try_for_each(Channel::send)
    }

    async fn rest(&mut self) -> Result<Vec<u8>, EndpointError> {
        let open = opened(&mut self.open)?;
        for channel in &mut open.channels {
            channel.mend().await?;
            channel.drain().await?;
        }
        open.marked = true;
        let mark = Mark {
            hub: open.hub,
            producer: open.producer.id,
            next: open.next,
            partitions: open.channels.iter().map(Channel::mark).collect(),
        };
        Ok(mark.write())
    }
}

fn opened(open: &mut Option<Open>) -> Result<&mut Open, EndpointError> {
    open.as_mut()
        .ok_or_else(|| EndpointError::unfit("rows were written to a hub before it was opened"))
}

impl Open {
    /// Waits for the oldest batches until few enough are under way.
    async fn make_room(&mut self) -> Result<(), EndpointError> {
        loop {
            let underway: usize = self.channels.iter().map(Channel::underway_bytes).sum();
            if underway <= UNDERWAY_BYTES_MAX {
                return Ok(());
            }
            let fullest = self
                .channels
                .iter_mut()
                .max_by_key(|channel| channel.underway_bytes());
            match fullest {
                Some(channel) => channel.wait().await?,
                None => return Ok(()),
            }
        }
    }
}

/// Makes sure that nothing of an earlier start can be appended any more, and says where each partition ended then. The
/// end of a transaction that was never begun says so, because it carries the new epoch and stands in line behind
/// whatever was sent before.
async fn shut_out(
    partitions: &[Arc<dyn Partition>],
    producer: Producer,
    mark: Option<&Mark>,
) -> Result<Vec<Offset>, EndpointError> {
    // Whoever hands out producers has forgotten ours. The old one cannot come back, and its last epoch is free.
    let forgotten = mark
        .filter(|mark| mark.producer != producer.id)
        .map(|mark| Producer {
            id: mark.producer,
            epoch: i16::MAX,
        });
    // Nobody was there before.
    let known = (producer.epoch > 0).then_some(producer);
    let mut underway = Vec::new();
    for partition in partitions {
        let markers = known.into_iter().chain(forgotten);
        let pending: Vec<_> = markers
            .map(|producer| partition.append_marker(producer, Marker::Abort))
            .collect();
        underway.push((partition, pending));
    }
    let mut ends = Vec::with_capacity(partitions.len());
    for (partition, pending) in underway {
        for marker in pending {
            match marker.await {
                // The forgotten one was shut out before.
                Ok(_) | Err(AppendError::NoTransaction { .. }) => {}
                Err(error) => return Err(channel::sort(error)),
            }
        }
        ends.push(partition.bounds().end);
    }
    Ok(ends)
}

impl Endpoint for HubEndpoint {
    fn resume<'a>(&'a mut self, mark: Option<&'a [u8]>) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(self.start(mark))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(self.take(rows))
    }

    fn settle(&mut self) -> Underway<'_, Result<Vec<u8>, EndpointError>> {
        Box::pin(self.rest())
    }
}
