//! A cluster in memory: a log without punctuation, and producers with epochs.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex};

use highwater_connect::{Cluster, ClusterAddress, Clusters};
use highwater_env::{Clock, SimClock};
use highwater_log::batch::{BatchError, NewRecord, TimestampType};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, ClaimResult, GroupError, HubName, HubSettings, HubSpec,
    InitProducerRequest, Log, LogLayer, MemoryLog, Offset, OffsetCommit, Partition, PartitionLayer,
    Producer, TopicPartition, TransactionCoordinator, TransactionError, TransactionRef,
};

#[derive(Clone)]
pub(crate) struct TestCluster {
    pub log: MemoryLog,
    epochs: Arc<Epochs>,
    claims: Claims,
}

/// Per partition, how often it was claimed.
type Claims = Arc<Mutex<BTreeMap<TopicPartition, u64>>>;

impl TestCluster {
    pub(crate) fn new(clock: &Arc<SimClock>) -> TestCluster {
        let now = clock.clone();
        TestCluster {
            log: MemoryLog::new(move || now.unix_millis()),
            epochs: Arc::default(),
            claims: Claims::default(),
        }
    }

    pub(crate) async fn topic(&self, name: &str, partitions: u32, kind: TimestampType) {
        let mut settings = HubSettings::default();
        settings.timestamps.kind = kind;
        let name = HubName::new(name).unwrap();
        let spec = HubSpec {
            name,
            partitions,
            settings,
        };
        self.log.create(spec).await.unwrap();
    }

    pub(crate) async fn send(&self, topic: &str, partition: u32, events: &[String]) {
        let records = events.iter().map(|event| NewRecord {
            key: None,
            value: Some(event.as_bytes()),
            headers: &[],
        });
        let records: Vec<NewRecord<'_>> = records.collect();
        let partition = self.log.partition(topic, partition).unwrap();
        partition.append_records(&records).await.unwrap();
    }

    pub(crate) fn end(&self, topic: &str, partition: u32) -> Offset {
        self.log.partition(topic, partition).unwrap().bounds().end
    }
}

impl Clusters for TestCluster {
    fn connect(&self, address: ClusterAddress) -> BoxFuture<Result<Cluster, String>> {
        assert_eq!(address.servers, ["cluster:9092"]);
        self.connect_node()
    }

    fn connect_node(&self) -> BoxFuture<Result<Cluster, String>> {
        Box::pin(ready(Ok(Cluster {
            log: Arc::new(WithoutPunctuation {
                log: self.log.clone(),
                claims: self.claims.clone(),
            }),
            transactions: self.epochs.clone(),
            groups: None,
        })))
    }
}

/// As a cluster answers.
struct WithoutPunctuation {
    log: MemoryLog,
    claims: Claims,
}

impl LogLayer for WithoutPunctuation {
    fn inner(&self) -> &dyn Log {
        &self.log
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.log.partition(hub, partition)?;
        Some(Arc::new(WithoutPunctuationIn(inner)))
    }

    fn claim(&self, hub: &str, partition: u32) -> BoxFuture<ClaimResult> {
        let inner = self.log.partition(hub, partition);
        let claimed = inner.map(|inner| {
            let mut claims = self.claims.lock().unwrap();
            let number = claims.entry(inner.topic_partition().clone()).or_default();
            *number += 1;
            Arc::new(ClaimedPartition {
                number: *number,
                claims: self.claims.clone(),
                inner,
            }) as Arc<dyn Partition>
        });
        Box::pin(ready(Ok(claimed)))
    }
}

/// A partition that refuses its owner when it has another one.
struct ClaimedPartition {
    inner: Arc<dyn Partition>,
    claims: Claims,
    number: u64,
}

impl PartitionLayer for ClaimedPartition {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        // Held until the order of the append is fixed.
        let claims = self.claims.lock().unwrap();
        let current = claims[self.inner.topic_partition()];
        match current == self.number {
            true => self.inner.append_records(records),
            false => Box::pin(ready(Err(AppendError::Fenced {
                producer: Producer {
                    id: 1,
                    epoch: self.number as i16,
                },
                current: current as i16,
            }))),
        }
    }
}

struct WithoutPunctuationIn(Arc<dyn Partition>);

impl PartitionLayer for WithoutPunctuationIn {
    fn inner(&self) -> &dyn Partition {
        &*self.0
    }

    fn punctuate(&self, _: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>> {
        Box::pin(ready(Err(BatchError::Control.into())))
    }
}

/// Producers by transactional id.
#[derive(Default)]
struct Epochs(Mutex<BTreeMap<String, Producer>>);

impl TransactionCoordinator for Epochs {
    fn init_producer(
        &self,
        request: InitProducerRequest,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        let mut known = self.0.lock().unwrap();
        let id = 100 + known.len() as i64;
        let producer = known.entry(request.transactional_id.unwrap());
        let producer = producer
            .and_modify(|producer| producer.epoch += 1)
            .or_insert(Producer { id, epoch: 0 });
        Box::pin(ready(Ok(*producer)))
    }

    fn add_partitions(
        &self,
        _: TransactionRef,
        _: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), TransactionError>> {
        unreachable!("inputs have no transactions")
    }

    fn add_group(&self, _: TransactionRef, _: String) -> BoxFuture<Result<(), TransactionError>> {
        unreachable!("inputs have no transactions")
    }

    fn commit_transaction_offsets(
        &self,
        _: TransactionRef,
        _: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        unreachable!("inputs have no transactions")
    }

    fn end(&self, _: TransactionRef, _: bool) -> BoxFuture<Result<(), TransactionError>> {
        unreachable!("inputs have no transactions")
    }
}
