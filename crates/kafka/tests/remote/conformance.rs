//! The same tests for a log in memory and for one over the wire.
// proves C1 L2 L6

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use Isolation::{Committed, Uncommitted};
use highwater_log::{
    AdminError, AppendError, EnqueueTime, HubSettings, Isolation, Log, MemoryLog, Offset,
    Partition, Producer, ReadError, TransactionMarker,
};

use crate::cluster::*;

struct Case {
    log: Arc<dyn Log>,
    /// The log of the broker, for operations that only brokers have.
    inner: Arc<dyn Log>,
    now: Arc<AtomicI64>,
    /// Kept running.
    _world: Option<TestCluster>,
}

impl Case {
    async fn memory() -> Case {
        let now = Arc::new(AtomicI64::new(1_000));
        let clock = Arc::clone(&now);
        let log = MemoryLog::new(move || clock.load(Ordering::Relaxed));
        let log: Arc<dyn Log> = Arc::new(log);
        Case {
            inner: Arc::clone(&log),
            log,
            now,
            _world: None,
        }
    }

    async fn wire() -> Case {
        let cluster = cluster().await;
        Case {
            log: Arc::new(cluster.remote().await),
            inner: Arc::clone(&cluster.log),
            now: Arc::clone(&cluster.now),
            _world: Some(cluster),
        }
    }

    async fn partition(&self) -> Arc<dyn Partition> {
        self.log.create(spec("h", 1)).await.unwrap();
        self.log.partition("h", 0).unwrap()
    }

    fn set_time(&self, ms: i64) {
        self.now.store(ms, Ordering::Relaxed);
    }
}

macro_rules! laws {
    ($($law:ident,)*) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $law() {
                super::$law(super::Case::memory().await).await
            })*
        }
        mod over_the_wire {
            $(#[tokio::test]
            async fn $law() {
                super::$law(super::Case::wire().await).await
            })*
        }
    };
}

laws! {
    appended_records_are_read_with_offset_and_time,
    a_read_returns_as_many_batches_as_fit_and_at_least_one,
    a_duplicate_returns_its_first_offset,
    calls_without_waiting_keep_their_order,
    readers_of_committed_records_get_no_open_and_skip_aborted_transactions,
    a_waiter_wakes_when_records_become_visible,
    records_are_found_by_time,
    trimmed_records_are_gone,
    a_batch_that_is_too_large_or_empty_is_refused,
    hubs_are_created_grown_and_deleted,
}

async fn offsets(partition: &Arc<dyn Partition>, from: i64, isolation: Isolation) -> Vec<i64> {
    let fetched = partition.read(Offset(from), 1 << 20, isolation).await;
    let found = contents(&fetched.unwrap()).into_iter();
    found.map(|(offset, ..)| offset).collect()
}

async fn appended_records_are_read_with_offset_and_time(case: Case) {
    let partition = case.partition().await;
    assert_eq!(append(&partition, &["a", "b"]).await, 0);
    // The clock goes back; times in the log do not.
    case.set_time(900);
    assert_eq!(append(&partition, &["c"]).await, 2);
    let fetched = partition
        .read(Offset(0), 1 << 20, Uncommitted)
        .await
        .unwrap();
    let expected = [(0, 1_000, "a"), (1, 1_000, "b"), (2, 1_000, "c")];
    assert_eq!(
        contents(&fetched),
        expected.map(|(o, t, v)| (o, t, v.to_string()))
    );
    assert_eq!(fetched.bounds.last_time, Some(EnqueueTime(1_000)));
    assert_eq!(partition.bounds().end, Offset(3));
    assert_eq!(offsets(&partition, 1, Uncommitted).await, [0, 1, 2]);
    assert_eq!(offsets(&partition, 3, Uncommitted).await, [0i64; 0]);
    let beyond = partition.read(Offset(4), 1, Uncommitted).await.unwrap_err();
    let expected = ReadError::OutOfRange {
        topic_partition: topic_partition("h", 0),
        requested: Offset(4),
        start: Offset(0),
        end: Offset(3),
    };
    assert_eq!(beyond, expected);
}

async fn a_read_returns_as_many_batches_as_fit_and_at_least_one(case: Case) {
    let partition = case.partition().await;
    for offset in 0..4 {
        assert_eq!(append(&partition, &["x"]).await, offset);
    }
    let size = batch(&["x"], None, false).size();
    for (bytes_max, batches) in [(0, 1), (size, 1), (2 * size, 2), (3 * size - 1, 2)] {
        let fetched = partition.read(Offset(1), bytes_max, Uncommitted).await;
        assert_eq!(contents(&fetched.unwrap()).len(), batches, "{bytes_max}");
    }
}

async fn a_duplicate_returns_its_first_offset(case: Case) {
    let partition = case.partition().await;
    let producer = Some((Producer { id: 9, epoch: 0 }, 0));
    let first = partition
        .append(batch(&["a"], producer, false))
        .await
        .unwrap();
    append(&partition, &["other"]).await;
    case.set_time(5_000);
    let again = partition
        .append(batch(&["a"], producer, false))
        .await
        .unwrap();
    assert_eq!((again.offset, again.time), (first.offset, first.time));
    assert_eq!(partition.fetch_bounds().await.unwrap().end, Offset(2));
    let gap = Some((Producer { id: 9, epoch: 0 }, 5));
    let refused = partition
        .append(batch(&["b"], gap, false))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, AppendError::OutOfSequence { got: 5, .. }),
        "{refused}"
    );
}

async fn calls_without_waiting_keep_their_order(case: Case) {
    let partition = case.partition().await;
    let values: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let mut pending = Vec::new();
    for (n, text) in values.iter().enumerate() {
        pending.push(match n % 3 {
            0 => partition.append(batch(&[text], None, false)),
            _ => partition.append_records(&[value(text)]),
        });
    }
    for (n, appended) in pending.into_iter().enumerate() {
        assert_eq!(appended.await.unwrap().offset, Offset(n as i64));
    }
    let fetched = partition
        .read(Offset(0), 1 << 20, Uncommitted)
        .await
        .unwrap();
    let found: Vec<_> = contents(&fetched)
        .into_iter()
        .map(|(.., value)| value)
        .collect();
    assert_eq!(found, values);
}

async fn readers_of_committed_records_get_no_open_and_skip_aborted_transactions(case: Case) {
    let partition = case.partition().await;
    let inner = case.inner.partition("h", 0).unwrap();
    let producer = Producer { id: 9, epoch: 0 };
    append(&partition, &["before"]).await;
    inner
        .append(batch(&["a", "b"], Some((producer, 0)), true))
        .await
        .unwrap();
    append(&partition, &["after"]).await;
    let bounds = partition.fetch_bounds().await.unwrap();
    assert_eq!((bounds.stable, bounds.end), (Offset(1), Offset(4)));
    assert_eq!(offsets(&partition, 0, Committed).await, [0]);
    assert_eq!(offsets(&partition, 2, Committed).await, [0i64; 0]);
    assert_eq!(offsets(&partition, 0, Uncommitted).await, [0, 1, 2, 3]);

    inner
        .append_marker(producer, TransactionMarker::Abort)
        .await
        .unwrap();
    let fetched = partition.read(Offset(0), 1 << 20, Committed).await.unwrap();
    assert_eq!(fetched.bounds.stable, Offset(5));
    let [aborted] = fetched.aborted[..] else {
        panic!("{:?}", fetched.aborted);
    };
    assert_eq!((aborted.producer_id, aborted.first), (9, Offset(1)));
    let all = partition
        .read(Offset(0), 1 << 20, Uncommitted)
        .await
        .unwrap();
    assert_eq!(all.aborted, []);
}

async fn a_waiter_wakes_when_records_become_visible(case: Case) {
    let partition = case.partition().await;
    let inner = case.inner.partition("h", 0).unwrap();
    let all = tokio::spawn(partition.wait_past(Offset(0), Uncommitted));
    let committed = tokio::spawn(partition.wait_past(Offset(0), Committed));
    let later = tokio::spawn(partition.wait_past(Offset(1), Uncommitted));
    let producer = Producer { id: 9, epoch: 0 };
    inner
        .append(batch(&["a"], Some((producer, 0)), true))
        .await
        .unwrap();
    all.await.unwrap();
    assert_eq!(partition.bounds().end, Offset(1));
    assert!(!committed.is_finished() && !later.is_finished());
    inner
        .append_marker(producer, TransactionMarker::Commit)
        .await
        .unwrap();
    committed.await.unwrap();
    later.await.unwrap();
    // The next read returns the batches of the poll.
    assert_eq!(offsets(&partition, 0, Committed).await, [0]);

    let forever = tokio::spawn(partition.wait_past(Offset(100), Uncommitted));
    case.log.delete(&name("h")).await.unwrap();
    forever.await.unwrap();
}

async fn records_are_found_by_time(case: Case) {
    let partition = case.partition().await;
    for time in [1_000, 2_000, 3_000] {
        case.set_time(time);
        append(&partition, &["x", "y"]).await;
    }
    let find = async |time| partition.offset_for_time(EnqueueTime(time)).await.unwrap();
    let at = |offset, time| Some((Offset(offset), EnqueueTime(time)));
    assert_eq!(find(0).await, at(0, 1_000));
    assert_eq!(find(1_001).await, at(2, 2_000));
    assert_eq!(find(3_000).await, at(4, 3_000));
    assert_eq!(find(3_001).await, None);
    partition.trim(Offset(3)).await.unwrap();
    assert_eq!(find(0).await, at(3, 2_000));
}

async fn trimmed_records_are_gone(case: Case) {
    let partition = case.partition().await;
    append(&partition, &["a", "b"]).await;
    append(&partition, &["c", "d"]).await;
    assert_eq!(partition.trim(Offset(3)).await, Ok(Offset(3)));
    assert_eq!(partition.trim(Offset(1)).await, Ok(Offset(3)));
    assert!(partition.trim(Offset(5)).await.is_err());
    let gone = partition.read(Offset(2), 1, Uncommitted).await.unwrap_err();
    assert!(matches!(
        gone,
        ReadError::OutOfRange {
            start: Offset(3),
            ..
        }
    ));
    // The batch is whole; a reader from 3 skips 2.
    assert_eq!(offsets(&partition, 3, Uncommitted).await, [2, 3]);
    assert_eq!(append(&partition, &["e"]).await, 4);
    partition.trim(Offset(5)).await.unwrap();
    let bounds = partition.fetch_bounds().await.unwrap();
    let five = Offset(5);
    assert_eq!(
        (bounds.start, bounds.stable, bounds.end),
        (five, five, five)
    );
}

async fn a_batch_that_is_too_large_or_empty_is_refused(case: Case) {
    let partition = case.partition().await;
    let long = "x".repeat(100);
    let sealed = batch(&[&long], None, false);
    partition.append(sealed.clone()).await.unwrap();
    let settings = HubSettings {
        batch_bytes_max: 100,
        ..HubSettings::default()
    };
    let changed = case.log.change(&name("h"), settings.clone()).await.unwrap();
    assert_eq!(changed.settings, settings);
    let refused = partition.append_records(&[value(&long)]).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::TooLarge { max: 100, .. }),
        "{refused}"
    );
    let refused = partition.append(sealed).await.unwrap_err();
    assert!(matches!(refused, AppendError::TooLarge { .. }), "{refused}");
    let empty = partition.append_records(&[]).await.unwrap_err();
    assert!(matches!(empty, AppendError::Malformed(_)));
    // Later appends succeed.
    assert_eq!(append(&partition, &["short"]).await, 1);
}

async fn hubs_are_created_grown_and_deleted(case: Case) {
    let log = &*case.log;
    let made = log.create(spec("b", 2)).await.unwrap();
    log.create(spec("a", 1)).await.unwrap();
    let names = || {
        let hubs = log.hubs().into_iter();
        hubs.filter(|hub| !hub.name.is_internal())
            .map(|hub| hub.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["a", "b"]);
    assert_eq!(log.hub_by_id(made.id).unwrap().name, made.name);
    assert_eq!(
        log.create(spec("b", 2)).await,
        Err(AdminError::Exists(name("b")))
    );
    for requested in [0, 1_025] {
        let (none, max) = (log.create(spec("c", requested)).await, 1_024);
        assert_eq!(none, Err(AdminError::Partitions { requested, max }));
    }
    assert_eq!(log.grow(&name("b"), 3).await.unwrap().partitions, 3);
    assert!(log.partition("b", 2).is_some() && log.partition("b", 3).is_none());
    let (hub, have) = (name("b"), 3);
    let shrunk = log.grow(&name("b"), 2).await;
    assert_eq!(shrunk, Err(AdminError::Shrink { hub, have }));

    let partition = log.partition("b", 0).unwrap();
    log.delete(&name("b")).await.unwrap();
    assert_eq!(names(), ["a"]);
    assert_eq!(
        log.delete(&name("b")).await,
        Err(AdminError::Unknown(name("b")))
    );
    let other = log.create(spec("b", 1)).await.unwrap();
    assert_ne!(other.id, made.id);
    // A handle belongs to its hub, not to a new one with the same name.
    let deleted = partition.append_records(&[value("x")]).await;
    assert_eq!(deleted, Err(AppendError::Deleted(made.topic_partition(0))));
    let deleted = partition.read(Offset(0), 1, Uncommitted).await.unwrap_err();
    assert_eq!(deleted, ReadError::Deleted(made.topic_partition(0)));
    let end = log
        .partition("b", 0)
        .unwrap()
        .fetch_bounds()
        .await
        .unwrap()
        .end;
    assert_eq!(end, Offset(0));
}
