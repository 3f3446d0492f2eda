//! Groups and transactions of a node over a log, and a reader of committed records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};
use highwater_log::testing::GatedLog;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupCoordinator, InitProducerRequest, Isolation, Log,
    Membership, Offset, OffsetAndMetadata, OffsetCommit, Partition, Producer, TopicPartition,
    TransactionCoordinator, TransactionError, TransactionMarker, TransactionRef,
};

use super::{Handle, Options, Service};
use crate::coordinator::testing::TokioClock;
use crate::groups;

pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Dropping it stops the services, but not their spawned tasks; dropping the runtime is a crash.
pub(super) struct Node {
    pub log: GatedLog,
    pub groups: groups::Handle,
    pub transactions: Handle,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|task| task.abort());
    }
}

impl Node {
    pub(super) fn start(log: &GatedLog, unix: Duration) -> Node {
        let clock = TokioClock::new(unix);
        let shared = || Arc::new(log.clone());
        let groups = groups::Options::default();
        let groups = groups::Service::new(shared(), clock.clone(), Random::seeded(1), groups);
        let (handle, options) = (groups.handle(), Options::default());
        let service = Service::new(shared(), clock, handle.clone(), options);
        Node {
            log: log.clone(),
            groups: handle,
            transactions: service.handle(),
            tasks: vec![
                tokio::spawn(async { groups.run(std::future::pending()).await.unwrap() }),
                tokio::spawn(async { service.run(std::future::pending()).await.unwrap() }),
            ],
        }
    }

    pub(super) async fn init(&self, id: &str) -> Result<TransactionRef, TransactionError> {
        self.init_as(id, None).await
    }

    pub(super) async fn init_as(
        &self,
        id: &str,
        current: Option<Producer>,
    ) -> Result<TransactionRef, TransactionError> {
        let request = InitProducerRequest {
            transactional_id: Some(id.to_owned()),
            timeout: TIMEOUT,
            current,
        };
        let producer = self.transactions.init_producer(request).await?;
        let id = id.to_owned();
        Ok(TransactionRef { id, producer })
    }

    pub(super) fn send(
        &self,
        transaction: &TransactionRef,
        topic_partition: &TopicPartition,
        sequence: i32,
        value: i64,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let partition = self
            .log
            .partition(topic_partition.hub.as_str(), topic_partition.partition);
        let batch = batch(transaction.producer, sequence, value);
        (self.transactions).append(transaction, &partition.unwrap(), batch)
    }

    /// As a client of the second version of the protocol sends, without adding the partition before.
    pub(super) fn send_adding(
        &self,
        transaction: &TransactionRef,
        topic_partition: &TopicPartition,
        sequence: i32,
        value: i64,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let hub = topic_partition.hub.as_str();
        let partition = self.log.partition(hub, topic_partition.partition);
        let batch = batch(transaction.producer, sequence, value);
        (self.transactions).append_adding(transaction, &partition.unwrap(), batch)
    }

    pub(super) async fn committed_offset(
        &self,
        group: &str,
        topic_partition: &TopicPartition,
    ) -> Option<i64> {
        let requested = Some(vec![topic_partition.clone()]);
        let found = self
            .groups
            .fetch_offsets(group.to_owned(), requested, false)
            .await;
        let (_, stored) = found.unwrap().remove(0);
        stored.map(|stored| stored.offset.0)
    }

    /// The values that a reader of committed records sees.
    pub(super) async fn committed(&self, topic_partition: &TopicPartition) -> Vec<i64> {
        let partition = self
            .log
            .partition(topic_partition.hub.as_str(), topic_partition.partition);
        committed(&*partition.unwrap()).await
    }
}

pub(super) fn batch(producer: Producer, sequence: i32, value: i64) -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        key: None,
        value: Some(&value.to_be_bytes()),
        headers: &[],
    });
    let seal = BatchOptions {
        producer: Some((producer, sequence)),
        transactional: true,
        ..BatchOptions::default()
    };
    builder.build(&seal).unwrap()
}

pub(super) fn committed_offsets(
    group: &str,
    topic_partition: &TopicPartition,
    offset: i64,
) -> OffsetCommit {
    let stored = OffsetAndMetadata {
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
    };
    OffsetCommit {
        member: Membership {
            group: group.to_owned(),
            generation: -1,
            member: String::new(),
            instance: None,
        },
        offsets: vec![(topic_partition.clone(), stored)],
    }
}

/// Reads as a client does: holds back the records of a producer until its marker.
async fn committed(partition: &dyn Partition) -> Vec<i64> {
    let mut open = BTreeMap::<i64, Vec<i64>>::new();
    let mut values = Vec::new();
    let (mut next, mut decompressor) = (Offset(0), Decompressor::new(1 << 20));
    loop {
        let fetched = partition.read(next, 1 << 20, Isolation::Committed).await;
        let fetched = fetched.unwrap();
        if fetched.pieces.is_empty() {
            return values;
        }
        for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
            let batch = batch.unwrap();
            next = batch.header.next_offset();
            let producer = batch.header.producer().unwrap().id;
            match batch.as_marker().unwrap() {
                Some(TransactionMarker::Commit) => {
                    values.extend(open.remove(&producer).unwrap_or_default())
                }
                Some(TransactionMarker::Abort) => drop(open.remove(&producer)),
                None => {
                    let records = batch.records(&mut decompressor).unwrap();
                    let value = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
                    let all = records.map(|record| value(record.unwrap().value.unwrap()));
                    open.entry(producer).or_default().extend(all);
                }
            }
        }
    }
}
