//! A cluster in memory: a log without punctuation, and producers with epochs.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex};

use highwater_connect::{Cluster, ClusterAddress, Clusters};
use highwater_env::{Clock, SimClock};
use highwater_log::batch::{BatchError, NewRecord, TimestampType};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, HubName, HubSettings, HubSpec,
    InitProducerRequest, Log, LogLayer, MemoryLog, Offset, OffsetCommit, Partition, PartitionLayer,
    Producer, TopicPartition, TransactionCoordinator, TransactionError, TransactionRef,
};

#[derive(Clone)]
pub(crate) struct TestCluster {
    pub log: MemoryLog,
    epochs: Arc<Epochs>,
}

impl TestCluster {
    pub(crate) fn new(clock: &Arc<SimClock>) -> TestCluster {
        let now = clock.clone();
        TestCluster {
            log: MemoryLog::new(move || now.unix_millis()),
            epochs: Arc::default(),
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
        Box::pin(ready(Ok(Cluster {
            log: Arc::new(WithoutPunctuation(self.log.clone())),
            transactions: self.epochs.clone(),
        })))
    }
}

/// As a cluster answers.
struct WithoutPunctuation(MemoryLog);

impl LogLayer for WithoutPunctuation {
    fn inner(&self) -> &dyn Log {
        &self.0
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.0.partition(hub, partition)?;
        Some(Arc::new(WithoutPunctuationIn(inner)))
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
