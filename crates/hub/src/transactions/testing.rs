//! A node's groups and transactions over a log, and a reader of committed records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::batch::{Batch, Batches, Builder, NewRecord, Seal, Unpacker};
use highwater_log::{
    AppendError, Appended, Commit, Groups, InitProducer, Isolation, Log, Marker, Membership,
    Offset, Partition, Pending, Place, Producer, StoredOffset, TransactionError, TransactionRef,
    Transactions,
};

use super::{Handle, Options, Service};
use crate::coordinator::testing::{SlowLog, TokioClock};
use crate::groups;

pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Dropping it stops the services, but not what they have begun; dropping the runtime is a crash.
pub struct Node {
    pub log: SlowLog,
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
    pub fn start(log: &SlowLog, unix: Duration) -> Node {
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

    pub async fn init(&self, id: &str) -> Result<TransactionRef, TransactionError> {
        self.init_as(id, None).await
    }

    pub async fn init_as(
        &self,
        id: &str,
        current: Option<Producer>,
    ) -> Result<TransactionRef, TransactionError> {
        let request = InitProducer {
            transactional_id: Some(id.to_owned()),
            timeout: TIMEOUT,
            current,
        };
        let producer = self.transactions.init_producer(request).await?;
        let id = id.to_owned();
        Ok(TransactionRef { id, producer })
    }

    pub fn send(
        &self,
        transaction: &TransactionRef,
        place: &Place,
        sequence: i32,
        value: i64,
    ) -> Pending<Result<Appended, AppendError>> {
        let partition = self.log.partition(place.hub.as_str(), place.partition);
        let batch = batch(transaction.producer, sequence, value);
        (self.transactions).append(transaction, &partition.unwrap(), batch)
    }

    pub async fn position(&self, group: &str, place: &Place) -> Option<i64> {
        let asked = Some(vec![place.clone()]);
        let found = self.groups.committed(group.to_owned(), asked, false).await;
        let (_, stored) = found.unwrap().remove(0);
        stored.map(|stored| stored.offset.0)
    }

    /// The values that a reader of committed records finds.
    pub async fn committed(&self, place: &Place) -> Vec<i64> {
        let partition = self.log.partition(place.hub.as_str(), place.partition);
        committed(&*partition.unwrap()).await
    }
}

pub fn batch(producer: Producer, sequence: i32, value: i64) -> Batch {
    let mut builder = Builder::new();
    builder.push(&NewRecord {
        key: None,
        value: Some(&value.to_be_bytes()),
        headers: &[],
    });
    let seal = Seal {
        producer: Some((producer, sequence)),
        transactional: true,
        ..Seal::default()
    };
    builder.seal(&seal).unwrap()
}

pub fn positions(group: &str, place: &Place, offset: i64) -> Commit {
    let stored = StoredOffset {
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
    };
    Commit {
        member: Membership {
            group: group.to_owned(),
            generation: -1,
            member: String::new(),
            instance: None,
        },
        offsets: vec![(place.clone(), stored)],
    }
}

/// Reads as a client does: keeps a producer's records back until its marker says what they are worth.
async fn committed(partition: &dyn Partition) -> Vec<i64> {
    let mut open = BTreeMap::<i64, Vec<i64>>::new();
    let mut values = Vec::new();
    let (mut next, mut unpacker) = (Offset(0), Unpacker::new(1 << 20));
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
                Some(Marker::Commit) => values.extend(open.remove(&producer).unwrap_or_default()),
                Some(Marker::Abort) => drop(open.remove(&producer)),
                None => {
                    let records = batch.records(&mut unpacker).unwrap();
                    let value = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
                    let all = records.map(|record| value(record.unwrap().value.unwrap()));
                    open.entry(producer).or_default().extend(all);
                }
            }
        }
    }
}
