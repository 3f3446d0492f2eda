//! Producers on a node that crashes repeatedly at any point.
//!
//! Each transaction writes its number to some partitions and commits it as offset of its producer's group. When the
//! last node has cleaned up:
//! - a transaction is visible to readers of committed records in all its partitions or in none, and at most once;
//! - it is visible if its commit was acknowledged, and not if its abort was;
//! - the offset of a producer is the number of its last visible transaction;
//! - no partition has an open transaction.
//!
//! Some producers use the second version of the protocol, the others the first.
//!
//! Another client commits offsets without transactions: the last acknowledged one, or a later one, is stored in the
//! end. Sometimes a hub refuses appends for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::testing::GatedLog;
use highwater_log::{
    AppendError, GroupCoordinator, GroupError, Log, TopicPartition, TransactionCoordinator,
    TransactionError, TransactionRef,
};

use super::state::State;
use super::testing::{Node, TIMEOUT, committed_offsets};
use crate::coordinator::testing::{seeds, topic_partition};

const PARTITIONS: u32 = 3;
const PRODUCERS: u64 = 3;
const HUBS: [&str; 3] = ["a", super::HUB, crate::groups::HUB];

/// A client's view of its transaction.
#[derive(Clone, Debug, Default)]
struct ClientTransaction {
    producer: u64,
    /// Partitions with acknowledged writes.
    written: BTreeSet<TopicPartition>,
    offset_stored: bool,
    /// Its commit was requested.
    tried: bool,
    /// The acknowledged outcome.
    committed: Option<bool>,
}

#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<ClientTransaction>>>);

impl Ledger {
    fn begin(&self, producer: u64) -> i64 {
        let mut all = self.0.lock().unwrap();
        all.push(ClientTransaction {
            producer,
            ..ClientTransaction::default()
        });
        all.len() as i64 - 1
    }

    fn note(&self, number: i64, note: impl FnOnce(&mut ClientTransaction)) {
        note(&mut self.0.lock().unwrap()[number as usize]);
    }
}

/// Runs until the node crashes; starts over with a new epoch after any failure.
async fn produce(node: Arc<Node>, ledger: Ledger, producer: u64, mut random: Random) {
    loop {
        match node.init(&format!("t{producer}")).await {
            Ok(mut transaction) => {
                let mut sequences = BTreeMap::new();
                while transact(
                    &node,
                    &ledger,
                    producer,
                    &mut transaction,
                    &mut sequences,
                    &mut random,
                )
                .await
                .is_some()
                {}
            }
            Err(
                TransactionError::Concurrent
                | TransactionError::Loading
                | TransactionError::Storage(_),
            ) => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// `None` if the client has given up.
async fn transact(
    node: &Node,
    ledger: &Ledger,
    producer: u64,
    transaction: &mut TransactionRef,
    sequences: &mut BTreeMap<TopicPartition, i32>,
    random: &mut Random,
) -> Option<()> {
    let number = ledger.begin(producer);
    let group = format!("g{producer}");
    let is_second_version = producer % 2 == 1;
    let own = transaction.clone();
    let own = || own.clone();
    let first = random.below(u64::from(PARTITIONS)) as u32;
    let topic_partitions: Vec<TopicPartition> = (first..PARTITIONS)
        .map(|it| topic_partition("a", it))
        .collect();
    let transactions = &node.transactions;
    if !is_second_version {
        let added = transactions.add_partitions(own(), topic_partitions.clone());
        added.await.ok()?;
        transactions.add_group(own(), group.clone()).await.ok()?;
    }
    for topic_partition in &topic_partitions {
        let sequence = sequences.entry(topic_partition.clone()).or_default();
        let sent = match is_second_version {
            true => node.send_adding(transaction, topic_partition, *sequence, number),
            false => node.send(transaction, topic_partition, *sequence, number),
        };
        match sent.await {
            Ok(_) => *sequence += 1,
            Err(
                AppendError::Fenced { .. }
                | AppendError::NoTransaction { .. }
                | AppendError::QueueFull { .. }
                | AppendError::Busy { .. },
            ) => return None,
            Err(error) => panic!("{error}"),
        }
        ledger.note(number, |known| {
            known.written.insert(topic_partition.clone());
        });
    }
    let commit = committed_offsets(&group, &topic_partition("a", 0), number);
    let stored = match is_second_version {
        true => transactions.commit_offsets_adding(own(), commit),
        false => transactions.commit_transaction_offsets(own(), commit),
    };
    match stored.await {
        Ok(()) => ledger.note(number, |known| known.offset_stored = true),
        Err(GroupError::Loading | GroupError::Transaction(_) | GroupError::Storage(_)) => {
            return None;
        }
        Err(error) => panic!("{error}"),
    }
    if random.below(8) == 0 {
        // Abandons its transaction.
        return None;
    }
    let commit = random.below(3) > 0;
    ledger.note(number, |known| known.tried = commit);
    loop {
        let ended = match is_second_version {
            true => transactions.end_raising_epoch(own(), commit).await,
            false => {
                let ended = transactions.end(own(), commit).await;
                ended.map(|()| transaction.producer)
            }
        };
        match ended {
            Ok(next) if next == transaction.producer => break,
            Ok(next) => {
                // A new epoch counts from 0.
                transaction.producer = next;
                sequences.clear();
                break;
            }
            Err(TransactionError::Concurrent) => tokio::time::sleep(Duration::from_secs(1)).await,
            Err(_) => return None,
        }
    }
    ledger.note(number, |known| known.committed = Some(commit));
    Some(())
}

/// Commits one offset after another; `marks` are the last one tried and the last one acknowledged.
async fn read_on(node: Arc<Node>, marks: Arc<Mutex<(i64, i64)>>) {
    loop {
        let next = marks.lock().unwrap().0 + 1;
        marks.lock().unwrap().0 = next;
        let stored =
            node.groups
                .commit_offsets(committed_offsets("plain", &topic_partition("a", 1), next));
        if stored.await.is_ok() {
            marks.lock().unwrap().1 = next;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

struct World {
    log: GatedLog,
    ledger: Ledger,
    marks: Arc<Mutex<(i64, i64)>>,
    random: Random,
    unix: Duration,
}

impl World {
    fn new(seed: u64) -> World {
        let log = GatedLog::default();
        log.create_hub("a", PARTITIONS);
        World {
            log,
            ledger: Ledger::default(),
            marks: Arc::default(),
            random: Random::seeded(seed),
            unix: Duration::from_secs(1_000_000_000),
        }
    }

    /// A node from its start to its crash.
    fn life(&mut self) {
        self.log.close();
        let runtime = runtime();
        runtime.block_on(async {
            let node = Arc::new(Node::start(&self.log, self.unix));
            for producer in 0..PRODUCERS {
                let random = Random::seeded(self.random.next_u64());
                let work = produce(Arc::clone(&node), self.ledger.clone(), producer, random);
                tokio::spawn(work);
            }
            tokio::spawn(read_on(Arc::clone(&node), Arc::clone(&self.marks)));
            for _ in 0..self.random.below(150) {
                self.moment().await;
            }
        });
        drop(runtime);
        self.log.lose();
        HUBS.iter().for_each(|hub| self.log.set_full(hub, false));
        self.unix += Duration::from_millis(self.random.below(90_000));
    }

    /// Completes an append, runs tasks, or advances time.
    async fn moment(&mut self) {
        match self.random.below(40) {
            0 => {
                let wait = Duration::from_millis(self.random.below(70_000));
                self.unix += wait;
                tokio::time::sleep(wait).await;
            }
            1..5 => {
                let wait = Duration::from_millis(self.random.below(50));
                self.unix += wait;
                tokio::time::sleep(wait).await;
            }
            5..25 => {
                let random = &mut self.random;
                let choose = |count| random.below(count as u64) as usize;
                self.log.complete(choose);
            }
            25 => {
                let hub = HUBS[self.random.below(HUBS.len() as u64) as usize];
                self.log.set_full(hub, self.random.below(3) == 0);
            }
            _ => {
                for _ in 0..self.random.below(10) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// The last node runs without faults and without a time limit.
    fn check(&self) -> CommitCounts {
        self.log.open();
        runtime().block_on(async {
            let node = Node::start(&self.log, self.unix);
            tokio::time::sleep(TIMEOUT + Duration::from_secs(5)).await;
            self.check_nothing_is_open(&node);
            let mut seen = Vec::new();
            for partition in 0..PARTITIONS {
                let topic_partition = topic_partition("a", partition);
                let values = node.committed(&topic_partition).await;
                let distinct: BTreeSet<i64> = values.iter().copied().collect();
                assert_eq!(values.len(), distinct.len(), "seen twice");
                seen.push((topic_partition, distinct));
            }
            self.check_transactions(&seen);
            for producer in 0..PRODUCERS {
                let offset = node
                    .committed_offset(&format!("g{producer}"), &topic_partition("a", 0))
                    .await;
                assert_eq!(offset, self.last_seen(&seen, producer));
            }
            let (tried, stored) = *self.marks.lock().unwrap();
            let found = node
                .committed_offset("plain", &topic_partition("a", 1))
                .await
                .unwrap_or(0);
            assert!(
                stored <= found && found <= tried,
                "{stored} {found} {tried}"
            );
            let (_, last) = &seen[PARTITIONS as usize - 1];
            CommitCounts {
                committed: last.len(),
                begun: self.ledger.0.lock().unwrap().len(),
            }
        })
    }

    fn check_nothing_is_open(&self, node: &Node) {
        for state in node.transactions.states() {
            assert!(
                !matches!(state, State::Ongoing | State::Preparing(_)),
                "{state:?}"
            );
        }
        for partition in 0..PARTITIONS {
            let bounds = self.log.partition("a", partition).unwrap().bounds();
            assert_eq!(bounds.stable, bounds.end);
        }
    }

    fn check_transactions(&self, seen: &[(TopicPartition, BTreeSet<i64>)]) {
        for (number, known) in self.ledger.0.lock().unwrap().iter().enumerate() {
            let sees =
                |(_, values): &&(TopicPartition, BTreeSet<i64>)| values.contains(&(number as i64));
            let shown: BTreeSet<TopicPartition> = (seen.iter().filter(sees))
                .map(|(topic_partition, _)| topic_partition.clone())
                .collect();
            match known.committed {
                Some(true) => assert_eq!(shown, known.written, "{number}: {known:?}"),
                Some(false) => assert!(shown.is_empty(), "{number}: {known:?}"),
                None if shown.is_empty() => {}
                None => assert_eq!(shown, known.written, "{number}: {known:?}"),
            }
            assert!(shown.is_empty() || known.tried && known.offset_stored);
        }
    }

    fn last_seen(&self, seen: &[(TopicPartition, BTreeSet<i64>)], producer: u64) -> Option<i64> {
        let all = self.ledger.0.lock().unwrap();
        let numbers = seen.iter().flat_map(|(_, values)| values.iter().copied());
        numbers
            .filter(|number| all[*number as usize].producer == producer)
            .max()
    }
}

struct CommitCounts {
    committed: usize,
    begun: usize,
}

#[test]
fn a_transaction_is_seen_in_full_or_not_at_all_whenever_the_node_crashes() {
    // proves L3, S4, K3
    let (mut committed, mut begun) = (0, 0);
    let count = seeds(300);
    for seed in 0..count {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..4 {
                world.life();
            }
            world.check()
        });
        let seen = run.unwrap_or_else(|_| panic!("seed {seed}"));
        committed += seen.committed;
        begun += seen.begun;
    }
    assert!(
        committed > count as usize,
        "{committed} of {begun}: too few to prove anything"
    );
    assert!(committed < begun, "some must have failed");
}
