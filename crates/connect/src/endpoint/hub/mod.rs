//! Rows as records of a hub, or of a topic of a cluster (`kafka`), exactly once.
//!
//! An output is a producer with a transactional id, and every start raises its epoch. Every record carries the number
//! of its row, and rows are appended in order, so the output's last row in a partition is the position of the partition
//! ([`last_row`]). The checkpoint has the end of each partition. A start first fences the producer of an earlier start,
//! then searches from those ends, and skips the rows that are already written. For that to be the same rows, a row's
//! partition must be a function of the row: of its key, or else of its number; and of the number of partitions when the
//! output first started.
//!
//! Batches are in flight while the next are filled, up to a bound ([`partition_writer`]). Order survives failures
//! because the log rejects a batch whose sequence numbers are not due.

mod fence;
mod last_row;
mod partition_writer;
mod records;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use highwater_log::batch::NewRecord;
use highwater_log::{HubInfo, Log, Partition, TransactionCoordinator, partition_for_key};
use highwater_query::plan::Name;

use super::kafka::KafkaOutput;
use super::state::EndpointKind;
use super::{
    Destination, Endpoint, EndpointError, EndpointFuture, OpenResult, OutputContext, OutputKind,
    OutputSettings, OutputShard, Rows,
};
use crate::cluster::{ClusterConnector, ClusterRef};
use last_row::OwnRows;
use partition_writer::{PartitionWriter, RowOrigin};
use records::{RecordKey, Records};
use state::HubState;

pub(super) use fence::Fencing;

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

    fn over_cluster(&self, transactions: bool) -> Option<Arc<dyn OutputSettings>> {
        Some(Arc::new(KafkaOutput {
            cluster: ClusterRef::OfNode,
            topic: self.hub.clone(),
            key: self.key.clone(),
            transactions,
        }))
    }

    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        let (log, transactions) = context.hubs.clone().ok_or_else(|| {
            EndpointError::unfit("there are no hubs here: run the job with `highwater up`")
        })?;
        let target = HubTarget {
            name: self.hub.clone(),
            kind: EndpointKind::Hub,
            fencing: Fencing::Markers,
            source: LogSource::Node(OpenLog { log, transactions }),
        };
        target.open(self.key.as_deref(), names, context)
    }
}

/// The hub or topic of an endpoint.
pub(super) struct HubTarget {
    pub name: String,
    pub kind: EndpointKind,
    pub fencing: Fencing,
    pub source: LogSource,
}

/// The log with the hub.
pub(super) enum LogSource {
    Node(OpenLog),
    /// Connected to when the endpoint is resumed.
    Cluster {
        cluster: Box<ClusterRef>,
        connector: ClusterConnector,
        /// The base of relative paths.
        folder: PathBuf,
    },
}

#[derive(Clone)]
pub(super) struct OpenLog {
    pub log: Arc<dyn Log>,
    pub transactions: Arc<dyn TransactionCoordinator>,
}

impl HubTarget {
    /// `key`: the column with the key of the record.
    pub(super) fn open(
        self,
        key: Option<&str>,
        names: Vec<Name>,
        context: &OutputContext,
    ) -> OpenResult {
        let record_key = match (key, &context.early_key) {
            (Some(column), _) => RecordKey::Column(column.to_owned()),
            (None, Some(columns)) => RecordKey::Columns(columns.clone()),
            (None, None) => RecordKey::None,
        };
        let records = Records::new(names, record_key, context.early_key.is_some());
        match key {
            Some(key) if !records.may_have(key) => Err(EndpointError::unfit(format!(
                "the output has no column `{key}` for its key"
            ))),
            _ => Ok(Box::new(HubEndpoint {
                target: self,
                id: context.id(),
                shard: context.shard.filter(|_| key.is_some()),
                epoch: context.epoch,
                records,
                open: None,
            })),
        }
    }

    async fn open_log(&self) -> Result<OpenLog, EndpointError> {
        match &self.source {
            LogSource::Node(open) => Ok(open.clone()),
            LogSource::Cluster {
                cluster,
                connector,
                folder,
            } => {
                let connected = cluster.connect(connector, folder).await;
                let cluster = connected.map_err(EndpointError::unavailable)?;
                Ok(OpenLog {
                    log: cluster.log,
                    transactions: cluster.transactions,
                })
            }
        }
    }

    fn find_hub(
        &self,
        log: &dyn Log,
        state: Option<&HubState>,
    ) -> Result<Arc<HubInfo>, EndpointError> {
        let name = &self.name;
        let what = match &self.source {
            LogSource::Cluster { cluster, .. } if **cluster != ClusterRef::OfNode => "topic",
            _ => "hub",
        };
        let hub = log.hub(name);
        let missing = || EndpointError::unfit(format!("there is no {what} `{name}`"));
        let hub = hub.ok_or_else(missing)?;
        if hub.name.is_internal() {
            return Err(EndpointError::unfit(format!("{what} `{name}` is internal")));
        }
        match state {
            Some(state) if state.hub != hub.id => Err(EndpointError::unfit(format!(
                "{what} `{name}` was deleted and recreated: start the job from the beginning"
            ))),
            _ => Ok(hub),
        }
    }
}

struct HubEndpoint {
    target: HubTarget,
    /// The transactional id of its producer.
    id: String,
    /// Set if several writers share the partitions by key.
    shard: Option<OutputShard>,
    epoch: u64,
    /// The rows of the current write.
    records: Records,
    open: Option<OpenHub>,
}

/// A hub that is being written to.
struct OpenHub {
    hub: Arc<HubInfo>,
    /// Has the connections of a cluster, too.
    log: Arc<dyn Log>,
    /// The id of the producer; -1 without fencing.
    producer: i64,
    writers: Vec<PartitionWriter>,
    /// The number of the next row to accept.
    next: u64,
    /// A checkpoint has been taken, so a restart can find the written rows.
    has_checkpoint: bool,
}

impl HubEndpoint {
    async fn start(&mut self, state: Option<&[u8]>) -> Result<(), EndpointError> {
        self.open = None;
        let kind = self.target.kind;
        let state = state.map(|state| HubState::read(kind, state)).transpose()?;
        let OpenLog { log, transactions } = self.target.open_log().await?;
        let hub = self.target.find_hub(&*log, state.as_ref())?;
        let count = state
            .as_ref()
            .map_or(hub.partitions, |state| state.partitions.len() as u32);
        if let Some(shard) = self.shard.filter(|shard| count % shard.of != 0) {
            return Err(EndpointError::unfit(format!(
                "`{}` has {count} partitions, which {} combiners cannot share by key: the number of partitions must be a \
                 multiple of `state.combiners`",
                hub.name, shard.of
            )));
        }
        let partitions: Option<Vec<Arc<dyn Partition>>> = (0..count)
            .map(|partition| log.partition(hub.name.as_str(), partition))
            .collect();
        let partitions = partitions.ok_or_else(|| {
            EndpointError::unfit(format!("hub `{}` has lost partitions", hub.name))
        })?;
        let fencing = self.target.fencing;
        let before = state.as_ref().map(|state| state.producer);
        let fenced = fencing
            .fence(&*transactions, &self.id, &partitions, before)
            .await?;
        let producer = fenced.producer.map_or(-1, |producer| producer.id);
        let (origin, own) = match fenced.producer {
            Some(producer) => {
                let own = OwnRows::Producers([before.unwrap_or(producer.id), producer.id]);
                (RowOrigin::Producer(producer), own)
            }
            None => {
                let id: Arc<str> = format!("{}#{}", self.id, self.epoch).into();
                (RowOrigin::Header(id.clone()), OwnRows::Header(id))
            }
        };
        let mut writers = Vec::with_capacity(partitions.len());
        for (at, (partition, end)) in partitions.into_iter().zip(fenced.ends).enumerate() {
            let have = match &state {
                None => 0,
                Some(state) => {
                    let from = state.partitions[at];
                    let last = last_row::find(&*partition, &own, from.end, end).await?;
                    from.have.max(last.map_or(0, |last| last + 1))
                }
            };
            writers.push(PartitionWriter::new(partition, origin.clone(), have));
        }
        self.open = Some(OpenHub {
            hub,
            log,
            producer,
            writers,
            next: state.as_ref().map_or(0, |state| state.next),
            has_checkpoint: state.is_some(),
        });
        Ok(())
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
        self.records.encode(&rows.chunk, new);
        let bytes_max = open.log.hub(&self.target.name);
        let bytes_max = bytes_max.map_or(BATCH_BYTES, |hub| hub.settings.batch_bytes_max as usize);
        let too_large = |record: &NewRecord<'_>| {
            open.writers.first().map_or(0, |writer| writer.size(record)) > bytes_max
        };
        let numbered = || (first..).zip(self.records.iter());
        let refused: Vec<u64> = numbered()
            .filter_map(|(number, record)| too_large(&record).then_some(number))
            .collect();
        if !refused.is_empty() {
            return Err(EndpointError::Refused {
                rows: refused,
                reason: format!(
                    "larger than the {bytes_max} bytes that `{}` takes",
                    self.target.name
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
            hub: open.hub.id,
            producer: open.producer,
            next: open.next,
            partitions: open.writers.iter().map(PartitionWriter::state).collect(),
        };
        Ok(state.write(self.target.kind))
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
