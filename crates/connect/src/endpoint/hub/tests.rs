//! Hubs that fail, answer late and keep what a dead endpoint had sent.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use highwater_env::SimDisk;
use highwater_env::random::Random;
use highwater_log::batch::{Batch, Batches, Decompressor};
use highwater_log::testing::at_once;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, HubName, HubSettings, HubSpec,
    InitProducerRequest, Isolation, LogLayer, MemoryLog, OffsetCommit, PartitionLayer, Producer,
    TopicPartition, TransactionError, TransactionMarker, TransactionRef,
};
use proptest::prelude::*;

use super::super::testing::*;
use super::*;

/// Producers by name, each with an epoch that grows; `forget` drops all of them.
#[derive(Default)]
struct Names {
    known: Mutex<(BTreeMap<String, Producer>, i64)>,
    /// The log of a cluster, and the partitions of the open transaction.
    cluster: Mutex<Option<(LateLog, Vec<TopicPartition>)>>,
}

impl Names {
    fn forget(&self) {
        self.known.lock().unwrap().0.clear();
    }
}

impl TransactionCoordinator for Names {
    fn init_producer(
        &self,
        request: InitProducerRequest,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        let (known, next) = &mut *self.known.lock().unwrap();
        let producer = known
            .entry(request.transactional_id.unwrap())
            .and_modify(|producer| producer.epoch += 1)
            .or_insert_with(|| {
                *next += 1;
                Producer {
                    id: *next,
                    epoch: 0,
                }
            });
        Box::pin(ready(Ok(*producer)))
    }

    fn add_partitions(
        &self,
        _: TransactionRef,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let mut cluster = self.cluster.lock().unwrap();
        let (_, open) = cluster.as_mut().expect("a node aborts by markers");
        open.extend(topic_partitions);
        Box::pin(ready(Ok(())))
    }

    fn add_group(&self, _: TransactionRef, _: String) -> BoxFuture<Result<(), TransactionError>> {
        unreachable!("nothing here is a transaction")
    }

    fn commit_transaction_offsets(
        &self,
        _: TransactionRef,
        _: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        unreachable!("nothing here is a transaction")
    }

    /// As brokers do: every partition gets a marker with the epoch of the transaction.
    fn end(
        &self,
        transaction: TransactionRef,
        commit: bool,
    ) -> BoxFuture<Result<(), TransactionError>> {
        assert!(!commit, "the endpoint has no transaction with records");
        let mut cluster = self.cluster.lock().unwrap();
        let (log, open) = cluster.as_mut().expect("a node aborts by markers");
        for one in open.drain(..) {
            let partition = log.partitions[one.partition as usize].clone();
            let marker = TransactionMarker::Abort;
            let marker = PartitionLayer::append_marker(&*partition, transaction.producer, marker);
            at_once(marker).unwrap();
        }
        Box::pin(ready(Ok(())))
    }
}

/// A log whose partitions write nothing before a caller waits, and sometimes have no room.
#[derive(Clone)]
struct LateLog {
    inner: MemoryLog,
    partitions: Vec<Arc<Late>>,
}

/// Shown for a record without a value.
const TOMBSTONE: &str = "no value";

/// Key and value of a record.
type KeyValue = (Option<String>, String);

/// Keys and values of each partition.
type Contents = Vec<Vec<KeyValue>>;

struct Late {
    inner: Arc<dyn Partition>,
    state: Arc<Mutex<Waiting>>,
}

struct Waiting {
    batches: VecDeque<(u64, Batch)>,
    answers: BTreeMap<u64, Result<AppendInfo, AppendError>>,
    made: u64,
    random: Random,
    /// One append in this many has no room; 0 for none.
    full: u64,
}

impl LateLog {
    fn new(partitions: u32, seed: u64, full: u64) -> LateLog {
        LateLog::with_batches(partitions, seed, full, 200)
    }

    fn with_batches(partitions: u32, seed: u64, full: u64, batch_bytes_max: u32) -> LateLog {
        let inner = MemoryLog::new(|| 0);
        let made = block_on(inner.create(HubSpec {
            name: HubName::new("out").unwrap(),
            partitions,
            settings: HubSettings {
                batch_bytes_max,
                ..HubSettings::default()
            },
        }));
        made.unwrap();
        let partitions = (0..partitions).map(|partition| {
            let waiting = Waiting {
                batches: VecDeque::new(),
                answers: BTreeMap::new(),
                made: 0,
                random: Random::seeded(seed + u64::from(partition)),
                full,
            };
            Arc::new(Late {
                inner: inner.partition("out", partition).unwrap(),
                state: Arc::new(Mutex::new(waiting)),
            })
        });
        LateLog {
            partitions: partitions.collect(),
            inner: inner.clone(),
        }
    }

    fn contents(&self) -> Contents {
        let records = self.numbered().into_iter();
        records
            .map(|records| records.into_iter().map(|(_, record)| record).collect())
            .collect()
    }

    /// The contents, each record with the number of its row.
    fn numbered(&self) -> Vec<Vec<(u64, KeyValue)>> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let read = |late: &Arc<Late>| {
            let partition = &late.inner;
            let start = partition.bounds().start;
            let fetched = block_on(partition.read(start, usize::MAX, Isolation::Uncommitted));
            let mut found = Vec::new();
            let mut unpacker = Decompressor::new(1 << 20);
            for piece in fetched.unwrap().pieces {
                for batch in Batches::new(&piece) {
                    let batch = batch.unwrap();
                    if batch.header.is_control() {
                        continue;
                    }
                    for record in batch.records(&mut unpacker).unwrap() {
                        let mut record = record.unwrap();
                        let value = record.value.map_or_else(|| TOMBSTONE.to_owned(), text);
                        let row = record.headers.find(|(name, _)| name == "row");
                        let row = text(row.unwrap().1.unwrap()).parse().unwrap();
                        found.push((row, (record.key.map(text), value)));
                    }
                }
            }
            found
        };
        self.partitions.iter().map(read).collect()
    }
}

impl LogLayer for LateLog {
    fn inner(&self) -> &dyn Log {
        &self.inner
    }

    fn partition(&self, _: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let late = self.partitions.get(partition as usize)?;
        Some(Arc::clone(late) as Arc<dyn Partition>)
    }
}

impl Late {
    /// Writes all pending batches. Once one finds no room, the later ones find none either.
    fn flush(inner: &dyn Partition, state: &mut Waiting) {
        let mut full = false;
        while let Some((id, batch)) = state.batches.pop_front() {
            full |= state.full > 0 && state.random.below(state.full) == 0;
            let answer = match full {
                true => Err(AppendError::DiskFull {
                    topic_partition: inner.topic_partition().clone(),
                    reason: "simulated".into(),
                }),
                false => at_once(inner.append(batch)),
            };
            state.answers.insert(id, answer);
        }
    }
}

struct Answer {
    id: u64,
    inner: Arc<dyn Partition>,
    state: Arc<Mutex<Waiting>>,
}

impl Future for Answer {
    type Output = Result<AppendInfo, AppendError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut *self.state.lock().unwrap();
        Late::flush(&*self.inner, state);
        Poll::Ready(state.answers.remove(&self.id).unwrap())
    }
}

impl PartitionLayer for Late {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
    }

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let mut state = self.state.lock().unwrap();
        state.made += 1;
        let id = state.made;
        state.batches.push_back((id, batch));
        Box::pin(Answer {
            id,
            inner: Arc::clone(&self.inner),
            state: Arc::clone(&self.state),
        })
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        Late::flush(&*self.inner, &mut self.state.lock().unwrap());
        self.inner.append_marker(producer, marker)
    }
}

fn endpoint(log: &LateLog, names_of: &Arc<Names>, key: Option<&str>) -> Box<dyn Endpoint> {
    let output = HubOutput {
        hub: "out".into(),
        key: key.map(Into::into),
    };
    let transactions = Arc::clone(names_of) as Arc<dyn TransactionCoordinator>;
    let mut context = OutputContext::new("job", "out", Arc::new(SimDisk::new(0)));
    context.hubs = Some((Arc::new(log.clone()), transactions));
    output.open(names(), &context).unwrap()
}

/// An endpoint of a cluster, which is this log.
fn cluster_endpoint(log: &LateLog, names_of: &Arc<Names>, fencing: Fencing) -> Box<dyn Endpoint> {
    *names_of.cluster.lock().unwrap() = Some((log.clone(), Vec::new()));
    let target = HubTarget {
        name: "out".into(),
        kind: EndpointKind::Kafka,
        fencing,
        source: LogSource::Node(OpenLog {
            log: Arc::new(log.clone()),
            transactions: Arc::clone(names_of) as Arc<dyn TransactionCoordinator>,
        }),
    };
    let context = OutputContext::new("job", "out", Arc::new(SimDisk::new(0)));
    target.open(Some("Device"), names(), &context).unwrap()
}

/// The contents of the hub at the end, and the refused rows.
fn played(
    input: &[Row],
    steps: &[Step],
    key: Option<&str>,
    full: u64,
    forgetful: bool,
) -> (Contents, Vec<u64>) {
    let log = LateLog::new(3, 1, full);
    let producers = Arc::new(Names::default());
    let refused = block_on(play(input, steps, || {
        if forgetful {
            producers.forget();
        }
        endpoint(&log, &producers, key)
    }));
    (log.contents(), refused)
}

proptest! {
    // proves S4
    #[test]
    fn crashes_and_failures_leave_no_trace(
        mut input in any_rows(120),
        steps in any_steps(),
        keyed: bool,
        full in 0..4u64,
        large in prop::option::of(0..120usize),
    ) {
        if let Some(row) = large.and_then(|large| input.get_mut(large)) {
            row.text = "x".repeat(200);
        }
        let key = keyed.then_some("Device");
        let full = if full == 0 { 0 } else { full + 1 };
        prop_assert_eq!(
            played(&input, &steps, key, full, false),
            played(&input, &[], key, 0, false)
        );
    }

    // proves S4 X4
    #[test]
    fn a_topic_has_the_records_of_a_hub_after_crashes_and_failures(
        input in any_rows(120),
        steps in any_steps(),
        full in 0..4u64,
    ) {
        let log = LateLog::new(3, 1, if full == 0 { 0 } else { full + 1 });
        let producers = Arc::new(Names::default());
        let refused = block_on(play(&input, &steps, || {
            cluster_endpoint(&log, &producers, Fencing::Transactions)
        }));
        prop_assert_eq!((log.contents(), refused), played(&input, &[], Some("Device"), 0, false));
    }

    // proves S4
    #[test]
    fn without_transactions_no_row_is_lost_and_a_repeated_one_has_its_number(
        input in any_rows(120),
        steps in any_steps(),
    ) {
        // The name of the output takes its place in every record.
        let log = LateLog::with_batches(3, 1, 0, 300);
        let producers = Arc::new(Names::default());
        block_on(play(&input, &steps, || cluster_endpoint(&log, &producers, Fencing::Off)));
        let (expected, _) = played(&input, &[], Some("Device"), 0, false);
        for (found, expected) in log.numbered().into_iter().zip(expected) {
            let by_number: BTreeMap<u64, _> = found.into_iter().collect();
            prop_assert_eq!(by_number.into_values().collect::<Vec<_>>(), expected);
        }
    }

    // proves S4
    #[test]
    fn a_producer_that_was_forgotten_is_shut_out_and_counted(
        input in any_rows(60),
        writes in (1..20usize, 1..20usize),
    ) {
        // Forgotten at one start, and never while there is no checkpoint.
        let steps = [Step::Write(writes.0), Step::Crash, Step::Settle, Step::Write(writes.1)];
        prop_assert_eq!(
            played(&input, &steps, Some("Device"), 0, true),
            played(&input, &[], Some("Device"), 0, false)
        );
    }
}

fn text_row(text: &str) -> Row {
    Row {
        seconds: 0,
        device: None,
        text: text.into(),
    }
}

#[test]
fn a_key_goes_where_other_producers_send_it() {
    let row = Row {
        seconds: 0,
        device: Some(4),
        text: "a".into(),
    };
    let (contents, _) = played(&[row], &[], Some("Device"), 0, false);
    let partition = partition_for_key(b"4", 3) as usize;
    let expected = "{\"Device\":4,\"Text\":\"a\",\"At\":\"2026-03-01T23:58:00.0000000Z\"}";
    assert_eq!(contents[partition], [(Some("4".into()), expected.into())]);
}

// proves E1
#[test]
fn revisions_of_a_row_share_a_key_and_a_withdrawn_row_is_a_tombstone() {
    let log = LateLog::new(1, 1, 0);
    let output = HubOutput {
        hub: "out".into(),
        key: None,
    };
    let mut context = OutputContext::new("job", "out", Arc::new(SimDisk::new(0)));
    let transactions: Arc<dyn TransactionCoordinator> = Arc::new(Names::default());
    context.hubs = Some((Arc::new(log.clone()), transactions));
    context.early_key = Some(vec!["D".into(), "T".into()]);
    // Batches of this log are small.
    let names = ["D", "T", "_final"].map(|name| Name::Field(name.into()));
    let row = |device| Row {
        device: Some(device),
        ..text_row("w")
    };
    let mut rows = rows(0, &[row(1), row(2), row(1)]);
    let finals = vec![Some(false), Some(true), None];
    rows.chunk.columns[2] = highwater_engine::Column::Bit(finals.into());
    block_on(async {
        let mut endpoint = output.open(names.into(), &context).unwrap();
        endpoint.resume(None).await.unwrap();
        endpoint.checkpoint().await.unwrap();
        endpoint.write(&rows).await.unwrap();
        endpoint.checkpoint().await.unwrap();
    });
    let contents = &log.contents()[0];
    let keys: Vec<&str> = contents
        .iter()
        .map(|(key, _)| key.as_deref().unwrap())
        .collect();
    let key = |device: i64| format!("{{\"D\":{device},\"T\":\"w\"}}");
    assert_eq!(keys, [key(1), key(2), key(1)]);
    assert!(contents[0].1.ends_with("\"_final\":false}"), "{contents:?}");
    assert_eq!(contents[2].1, TOMBSTONE);
}

#[test]
fn rows_that_were_given_up_do_not_confuse_the_others() {
    let log = LateLog::new(1, 1, 0);
    let producers = Arc::new(Names::default());
    let input: Vec<Row> = (0..12).map(|n| text_row(&n.to_string())).collect();
    block_on(async {
        let mut before = endpoint(&log, &producers, None);
        before.resume(None).await.unwrap();
        let state = before.checkpoint().await.unwrap();
        before.write(&rows(0, &input[..5])).await.unwrap();
        before.write(&rows(8, &input[8..10])).await.unwrap();
        let mut after = endpoint(&log, &producers, None);
        after.resume(Some(&state)).await.unwrap();
        after.write(&rows(0, &input)).await.unwrap();
        after.checkpoint().await.unwrap();
    });
    let numbers: Vec<String> = log.contents()[0]
        .iter()
        .map(|(_, line)| line.split('"').nth(5).unwrap().to_owned())
        .collect();
    assert_eq!(numbers.join(" "), "0 1 2 3 4 8 9 10 11");
}

#[test]
fn an_older_start_may_write_no_more() {
    let log = LateLog::new(1, 1, 0);
    let producers = Arc::new(Names::default());
    let row = text_row("");
    block_on(async {
        let mut old = endpoint(&log, &producers, None);
        old.resume(None).await.unwrap();
        let state = old.checkpoint().await.unwrap();
        let mut new = endpoint(&log, &producers, None);
        new.resume(Some(&state)).await.unwrap();
        old.write(&rows(0, std::slice::from_ref(&row)))
            .await
            .unwrap();
        assert!(matches!(
            old.checkpoint().await,
            Err(EndpointError::Unfit { .. })
        ));
        new.write(&rows(0, &[row])).await.unwrap();
        new.checkpoint().await.unwrap();
    });
    assert_eq!(log.contents()[0].len(), 1);
}

#[test]
fn nothing_is_written_before_there_is_a_mark_to_come_back_to() {
    let log = LateLog::new(1, 1, 0);
    let row = text_row("");
    block_on(async {
        let mut endpoint = endpoint(&log, &Arc::default(), None);
        endpoint.resume(None).await.unwrap();
        let written = endpoint.write(&rows(0, &[row])).await;
        assert!(matches!(written, Err(EndpointError::Unfit { .. })));
    });
}
