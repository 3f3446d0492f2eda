use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Wake, Waker};

use super::*;
use crate::batch::{Batch, BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};
use crate::testing::at_once;
use crate::{
    AppendError, Bounds, EnqueueTime, FetchData, Isolation, Offset, Producer, ReadError,
    TransactionMarker,
};
use Isolation::{Committed, Uncommitted};

/// A log whose clock is moved by hand.
struct Fixture {
    log: MemoryLog,
    clock: Arc<AtomicI64>,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = Arc::new(AtomicI64::new(1_000));
        let now = Arc::clone(&clock);
        let log = MemoryLog::new(move || now.load(Ordering::Relaxed));
        Fixture { log, clock }
    }

    /// Partition 0 of a new hub `h`.
    fn partition(&self) -> Arc<dyn Partition> {
        at_once(self.log.create(spec("h", 1))).unwrap();
        self.log.partition("h", 0).unwrap()
    }
}

fn name(name: &str) -> HubName {
    HubName::new(name).unwrap()
}

fn spec(hub: &str, partitions: u32) -> HubSpec {
    HubSpec {
        name: name(hub),
        partitions,
        settings: HubSettings::default(),
    }
}

fn value(text: &str) -> NewRecord<'_> {
    NewRecord {
        key: None,
        value: Some(text.as_bytes()),
        headers: &[],
    }
}

fn batch(values: &[&str], producer: Option<(Producer, i32)>, transactional: bool) -> Batch {
    let mut builder = BatchBuilder::new();
    for text in values {
        builder.push(&value(text));
    }
    let seal = BatchOptions {
        producer,
        transactional,
        ..BatchOptions::default()
    };
    builder.build(&seal).unwrap()
}

fn append(partition: &Arc<dyn Partition>, values: &[&str]) -> i64 {
    let records: Vec<_> = values.iter().map(|text| value(text)).collect();
    at_once(partition.append_records(&records))
        .unwrap()
        .offset
        .0
}

fn read(partition: &Arc<dyn Partition>, from: i64, isolation: Isolation) -> FetchData {
    at_once(partition.read(Offset(from), usize::MAX, isolation)).unwrap()
}

/// Offset, time and value of every record.
fn contents(fetched: &FetchData) -> Vec<(i64, i64, String)> {
    let mut decompressor = Decompressor::new(1 << 20);
    let mut found = Vec::new();
    for piece in &fetched.pieces {
        for stored in Batches::new(piece) {
            let stored = stored.unwrap();
            stored.check().unwrap();
            for record in stored.records(&mut decompressor).unwrap() {
                let record = record.unwrap();
                let text = String::from_utf8_lossy(record.value.unwrap()).into_owned();
                found.push((record.offset.0, record.timestamp, text));
            }
        }
    }
    found
}

fn offsets(fetched: &FetchData) -> Vec<i64> {
    contents(fetched)
        .into_iter()
        .map(|(offset, ..)| offset)
        .collect()
}

#[test]
fn appended_records_are_read_with_their_offset_and_time() {
    let fixture = Fixture::new();
    let partition = fixture.partition();
    assert_eq!(append(&partition, &["a", "b"]), 0);
    // The clock goes back, enqueue times do not.
    fixture.clock.store(900, Ordering::Relaxed);
    assert_eq!(append(&partition, &["c"]), 2);
    let found = contents(&read(&partition, 0, Uncommitted));
    let expected = [(0, 1_000, "a"), (1, 1_000, "b"), (2, 1_000, "c")];
    assert_eq!(found, expected.map(|(o, t, v)| (o, t, v.to_string())));
    // A batch is served whole, even if the read starts inside it.
    assert_eq!(offsets(&read(&partition, 1, Uncommitted)), [0, 1, 2]);
    assert_eq!(offsets(&read(&partition, 3, Uncommitted)), []);
    let beyond = at_once(partition.read(Offset(4), 1, Uncommitted)).unwrap_err();
    assert!(matches!(beyond, ReadError::OutOfRange { .. }));
}

#[test]
fn a_read_takes_as_many_batches_as_fit_but_one_at_least() {
    let partition = Fixture::new().partition();
    for offset in 0..4 {
        assert_eq!(append(&partition, &["x"]), offset);
    }
    let size = partition.bounds().bytes as usize / 4;
    for (bytes_max, batches) in [(0, 1), (size, 1), (2 * size, 2), (3 * size - 1, 2)] {
        let fetched = at_once(partition.read(Offset(1), bytes_max, Uncommitted)).unwrap();
        assert_eq!(offsets(&fetched).len(), batches, "{bytes_max}");
    }
}

#[test]
fn a_repeat_is_answered_with_its_first_offset() {
    let fixture = Fixture::new();
    let partition = fixture.partition();
    let producer = Some((Producer { id: 9, epoch: 0 }, 0));
    let first = at_once(partition.append(batch(&["a"], producer, false))).unwrap();
    append(&partition, &["other"]);
    fixture.clock.store(5_000, Ordering::Relaxed);
    let again = at_once(partition.append(batch(&["a"], producer, false))).unwrap();
    assert!(!first.duplicate && again.duplicate);
    assert_eq!((again.offset, again.time), (first.offset, first.time));
    assert_eq!(partition.bounds().end, Offset(2));
}

#[test]
fn readers_of_committed_records_stop_at_open_transactions_and_learn_of_aborted_ones() {
    let partition = Fixture::new().partition();
    let producer = Producer { id: 9, epoch: 0 };
    append(&partition, &["before"]);
    at_once(partition.append(batch(&["a", "b"], Some((producer, 0)), true))).unwrap();
    append(&partition, &["after"]);
    assert_eq!(partition.bounds().stable, Offset(1));
    assert_eq!(offsets(&read(&partition, 0, Committed)), [0]);
    assert_eq!(offsets(&read(&partition, 2, Committed)), []);
    assert_eq!(offsets(&read(&partition, 0, Uncommitted)), [0, 1, 2, 3]);

    at_once(partition.append_marker(producer, TransactionMarker::Abort)).unwrap();
    let fetched = at_once(partition.read(Offset(0), usize::MAX, Committed)).unwrap();
    assert_eq!(fetched.bounds.stable, Offset(5));
    let [aborted] = fetched.aborted[..] else {
        panic!("{:?}", fetched.aborted);
    };
    assert_eq!((aborted.producer_id, aborted.first), (9, Offset(1)));
    assert_eq!(read(&partition, 0, Uncommitted).aborted, []);
}

// proves T7 T8
#[test]
fn a_punctuation_is_appended_at_the_given_end_or_not_at_all() {
    let fixture = Fixture::new();
    let partition = fixture.partition();
    let producer = Producer { id: 9, epoch: 0 };
    append(&partition, &["a"]);
    fixture.clock.store(1_500, Ordering::Relaxed);
    assert_eq!(at_once(partition.punctuate(Offset(0))), Ok(None));
    assert_eq!(at_once(partition.punctuate(Offset(2))), Ok(None));
    assert_eq!(partition.bounds().end, Offset(1));
    let appended = at_once(partition.punctuate(Offset(1))).unwrap().unwrap();
    assert_eq!(
        (appended.offset, appended.time),
        (Offset(1), EnqueueTime(1_500))
    );
    // The clock goes back, enqueue times do not, and an open transaction stays open.
    fixture.clock.store(1_200, Ordering::Relaxed);
    at_once(partition.append(batch(&["b"], Some((producer, 0)), true))).unwrap();
    let appended = at_once(partition.punctuate(Offset(3))).unwrap().unwrap();
    assert_eq!(
        (appended.offset, appended.time),
        (Offset(3), EnqueueTime(1_500))
    );
    let bounds = partition.bounds();
    assert_eq!((bounds.stable, bounds.end), (Offset(2), Offset(4)));
    let fetched = read(&partition, 0, Uncommitted);
    let batches = fetched.pieces.iter().flat_map(|piece| Batches::new(piece));
    let silent: Vec<bool> = batches
        .map(|batch| batch.unwrap().is_punctuation())
        .collect();
    assert_eq!(silent, [false, true, false, true]);
    let found = at_once(partition.offset_for_time(EnqueueTime(1_001))).unwrap();
    assert_eq!(found, Some((Offset(1), EnqueueTime(1_500))));
    at_once(fixture.log.delete(&name("h"))).unwrap();
    let deleted = at_once(partition.punctuate(Offset(0))).unwrap_err();
    assert!(matches!(deleted, AppendError::Deleted(_)));
}

/// Records that it was called.
#[derive(Default)]
struct Called(AtomicI64);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_waiting_reader_is_woken_by_new_records() {
    let fixture = Fixture::new();
    let partition = fixture.partition();
    let called = Arc::new(Called::default());
    let waker = Waker::from(Arc::clone(&called));
    let mut context = Context::from_waker(&waker);
    let mut all = partition.wait_past(Offset(0), Uncommitted);
    let mut committed = partition.wait_past(Offset(0), Committed);
    assert!(all.as_mut().poll(&mut context).is_pending());
    assert!(committed.as_mut().poll(&mut context).is_pending());

    let producer = Producer { id: 9, epoch: 0 };
    at_once(partition.append(batch(&["a"], Some((producer, 0)), true))).unwrap();
    assert_eq!(called.0.load(Ordering::Relaxed), 1);
    assert!(all.as_mut().poll(&mut context).is_ready());
    assert!(committed.as_mut().poll(&mut context).is_pending());
    at_once(partition.append_marker(producer, TransactionMarker::Commit)).unwrap();
    assert!(committed.as_mut().poll(&mut context).is_ready());

    let mut forever = partition.wait_past(Offset(100), Uncommitted);
    assert!(forever.as_mut().poll(&mut context).is_pending());
    at_once(fixture.log.delete(&name("h"))).unwrap();
    assert_eq!(called.0.load(Ordering::Relaxed), 3);
    assert!(forever.as_mut().poll(&mut context).is_ready());
}

#[test]
fn records_are_found_by_time() {
    let fixture = Fixture::new();
    let partition = fixture.partition();
    for time in [1_000, 2_000, 3_000] {
        fixture.clock.store(time, Ordering::Relaxed);
        append(&partition, &["x", "y"]);
    }
    let find = |time| at_once(partition.offset_for_time(EnqueueTime(time))).unwrap();
    let at = |offset, time| Some((Offset(offset), EnqueueTime(time)));
    assert_eq!(find(0), at(0, 1_000));
    assert_eq!(find(1_001), at(2, 2_000));
    assert_eq!(find(3_000), at(4, 3_000));
    assert_eq!(find(3_001), None);
    at_once(partition.trim(Offset(3))).unwrap();
    assert_eq!(find(0), at(3, 2_000));
}

#[test]
fn trimmed_records_are_deleted() {
    let partition = Fixture::new().partition();
    append(&partition, &["a", "b"]);
    append(&partition, &["c", "d"]);
    assert_eq!(at_once(partition.trim(Offset(3))), Ok(Offset(3)));
    assert_eq!(at_once(partition.trim(Offset(1))), Ok(Offset(3)));
    assert!(at_once(partition.trim(Offset(5))).is_err());
    let gone = at_once(partition.read(Offset(2), 1, Uncommitted)).unwrap_err();
    assert!(matches!(
        gone,
        ReadError::OutOfRange {
            start: Offset(3),
            ..
        }
    ));
    // The batch is served whole; the reader skips 2.
    assert_eq!(offsets(&read(&partition, 3, Uncommitted)), [2, 3]);
    assert_eq!(append(&partition, &["e"]), 4);
    at_once(partition.trim(Offset(5))).unwrap();
    let bounds = partition.bounds();
    let five = Offset(5);
    assert_eq!(
        (bounds.start, bounds.stable, bounds.end),
        (five, five, five)
    );
}

#[test]
fn a_batch_that_is_too_large_or_empty_is_refused() {
    let fixture = Fixture::new();
    let partition = fixture.partition();
    let settings = HubSettings {
        batch_bytes_max: 100,
        ..HubSettings::default()
    };
    at_once(fixture.log.change(&name("h"), settings)).unwrap();
    let long = "x".repeat(100);
    let refused = at_once(partition.append_records(&[value(&long)])).unwrap_err();
    assert!(matches!(refused, AppendError::TooLarge { max: 100, .. }));
    let empty = at_once(partition.append_records(&[])).unwrap_err();
    assert!(matches!(empty, AppendError::Malformed(_)));
    let nothing = Bounds::default();
    assert_eq!(partition.bounds(), nothing);
}

#[test]
fn hubs_come_grow_and_go() {
    let fixture = Fixture::new();
    let log: &dyn Log = &fixture.log;
    let made = at_once(log.create(spec("b", 2))).unwrap();
    at_once(log.create(spec("a", 1))).unwrap();
    let names = || {
        log.hubs()
            .iter()
            .map(|hub| hub.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["a", "b"]);
    assert_eq!(log.hub_by_id(made.id), Some(Arc::clone(&made)));
    let again = at_once(log.create(spec("b", 2)));
    assert_eq!(again, Err(AdminError::Exists(name("b"))));
    for requested in [0, 1_025] {
        let (none, max) = (at_once(log.create(spec("c", requested))), 1_024);
        assert_eq!(none, Err(AdminError::Partitions { requested, max }));
    }
    assert_eq!(at_once(log.grow(&name("b"), 3)).unwrap().partitions, 3);
    assert!(log.partition("b", 2).is_some() && log.partition("b", 3).is_none());
    let (hub, have) = (name("b"), 3);
    assert_eq!(
        at_once(log.grow(&name("b"), 2)),
        Err(AdminError::Shrink { hub, have })
    );

    let partition = log.partition("b", 0).unwrap();
    at_once(log.delete(&name("b"))).unwrap();
    assert_eq!(names(), ["a"]);
    assert_eq!(
        at_once(log.delete(&name("b"))),
        Err(AdminError::Unknown(name("b")))
    );
    let deleted = at_once(partition.append_records(&[value("x")]));
    assert_eq!(deleted, Err(AppendError::Deleted(made.topic_partition(0))));
    let other = at_once(log.create(spec("b", 1))).unwrap();
    assert_ne!(other.id, made.id);
}
