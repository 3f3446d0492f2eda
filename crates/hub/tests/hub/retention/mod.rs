//! Retention by age, by size, on request, and by key. // proves L2

mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk::Faults;
use highwater_env::random::Random;
use highwater_env::{Clock, Disk, SimClock, SimDisk};
use highwater_hub::{Hub, Options};
use highwater_log::batch::{BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};
use highwater_log::{
    CleanupPolicy, EnqueueTime, HubSettings, Isolation, Log, Offset, Partition, Producer,
    ReadError, TransactionMarker,
};

use crate::common::*;

struct World {
    disk: SimDisk,
    clock: Arc<SimClock>,
    options: Options,
    hub: Hub,
}

impl World {
    /// All reads are from the disk.
    fn new(seed: u64, settings: HubSettings) -> World {
        World::with_tail(seed, settings, 0)
    }

    /// The last `tail_bytes` are read from memory.
    fn with_tail(seed: u64, settings: HubSettings, tail_bytes: usize) -> World {
        let disk = SimDisk::new(seed);
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let options = Options {
            segment_bytes: 600,
            index_bytes: 100,
            checkpoint_bytes: 300,
            tail_bytes,
            reserve_bytes: 100,
            tombstone_age: Duration::from_secs(60),
            ..by_hand()
        };
        let hub = start(&disk, &clock, &options);
        done(hub.create(spec("h", 1, settings))).unwrap();
        World {
            disk,
            clock,
            options,
            hub,
        }
    }

    fn partition(&self) -> Arc<dyn Partition> {
        self.hub.partition("h", 0).unwrap()
    }

    fn append(&self, text: &str) -> i64 {
        self.put(None, Some(text))
    }

    fn put(&self, key: Option<&str>, value: Option<&str>) -> i64 {
        let record = NewRecord {
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            headers: &[],
        };
        let mut pending = self.partition().append_records(&[record]);
        self.hub.commit();
        poll(&mut pending).unwrap().unwrap().offset.0
    }

    fn maintain(&self) {
        let now = self.clock.unix_millis();
        self.hub.maintain(EnqueueTime(now));
    }

    fn restart(&mut self) {
        self.disk.restart();
        self.hub = start(&self.disk, &self.clock, &self.options);
    }

    fn all(&self) -> Vec<ReadRecord> {
        let partition = self.partition();
        let start = partition.bounds().start;
        let (_, seen, error) = read_from(&*partition, start, 300, Isolation::Uncommitted);
        assert_eq!(error, None);
        seen
    }

    fn logs(&self) -> usize {
        let files = self.disk.files();
        files
            .iter()
            .filter(|path| path.to_string_lossy().ends_with(".log"))
            .count()
    }
}

fn start(disk: &SimDisk, clock: &Arc<SimClock>, options: &Options) -> Hub {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = clock.clone();
    let (hub, recoveries) = open(&disk, &clock, options).unwrap();
    assert!(recoveries.iter().all(|recovery| recovery.damage.is_none()));
    hub
}

fn keep(retention: Option<Duration>, bytes: Option<u64>) -> HubSettings {
    HubSettings {
        retention,
        retention_bytes: bytes,
        ..HubSettings::default()
    }
}

#[test]
fn old_segments_go_and_an_old_active_one_too() {
    let mut world = World::new(1, keep(Some(Duration::from_secs(100)), None));
    for _ in 0..10 {
        world.append(&"x".repeat(150));
        world.clock.advance(Duration::from_secs(10));
    }
    world.maintain();
    assert_eq!(
        world.partition().bounds().start,
        Offset(0),
        "nothing is too old yet"
    );
    world.clock.advance(Duration::from_secs(55));
    world.maintain();
    let bounds = world.partition().bounds();
    assert!(
        bounds.start > Offset(0) && bounds.start < Offset(10),
        "{bounds:?}"
    );
    let left = world.all();
    let times: Vec<i64> = left.iter().map(|seen| seen.time).collect();
    assert_eq!(
        times,
        [60_000, 70_000, 80_000, 90_000],
        "older than 55 s are gone, no others"
    );
    let gone = done(world.partition().read(Offset(0), 1, Isolation::Uncommitted));
    assert!(matches!(gone, Err(ReadError::OutOfRange { .. })));

    world.clock.advance(Duration::from_secs(1000));
    world.maintain();
    world.maintain();
    let bounds = world.partition().bounds();
    assert_eq!((bounds.start, bounds.end), (Offset(10), Offset(10)));
    world.restart();
    let bounds = world.partition().bounds();
    assert_eq!((bounds.start, bounds.end), (Offset(10), Offset(10)));
    assert_eq!(
        bounds.last_time,
        Some(EnqueueTime(90_000)),
        "time goes on from there"
    );
    world.clock.set_unix_nanos(0);
    assert_eq!(world.append("next"), 10);
    assert_eq!(world.all()[0].time, 90_000);
}

#[test]
fn no_more_is_removed_than_the_size_allows() {
    let world = World::new(1, keep(None, Some(1500)));
    for _ in 0..30 {
        world.append(&"x".repeat(150));
        world.maintain();
        let bounds = world.partition().bounds();
        assert!(bounds.start == Offset(0) || bounds.bytes >= 1500);
        assert!(bounds.bytes < 1500 + 2 * 700);
    }
    assert!(world.partition().bounds().start > Offset(0));
}

#[test]
fn trimmed_records_stay_deleted_with_their_segments() {
    let mut world = World::new(1, keep(None, None));
    for number in 0..12 {
        world.append(&format!("{number} {}", "x".repeat(150)));
    }
    let before = world.logs();
    assert_eq!(done(world.partition().trim(Offset(7))), Ok(Offset(7)));
    assert!(world.logs() < before);
    assert_eq!(done(world.partition().trim(Offset(3))), Ok(Offset(7)));
    assert!(done(world.partition().trim(Offset(13))).is_err());
    world.restart();
    assert_eq!(world.partition().bounds().start, Offset(7));
    assert_eq!(done(world.partition().trim(Offset(12))), Ok(Offset(12)));
    world.restart();
    assert!(world.all().is_empty());
    assert_eq!(world.append("next"), 12);
}

fn compacted() -> HubSettings {
    HubSettings {
        cleanup: CleanupPolicy::Compact,
        retention: None,
        ..HubSettings::default()
    }
}

/// Key, value and offset of every record.
fn records(partition: &dyn Partition) -> Vec<(i64, Option<String>, Option<String>)> {
    let mut decompressor = Decompressor::new(1 << 20);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (mut from, mut found) = (partition.bounds().start, Vec::new());
    loop {
        let fetched = done(partition.read(from, 400, Isolation::Uncommitted)).unwrap();
        if fetched.pieces.is_empty() {
            return found;
        }
        for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
            let batch = batch.unwrap();
            from = batch.header.next_offset();
            if batch.header.is_control() {
                continue;
            }
            for record in batch.records(&mut decompressor).unwrap() {
                let record = record.unwrap();
                found.push((
                    record.offset.0,
                    record.key.map(text),
                    record.value.map(text),
                ));
            }
        }
    }
}

/// The final value of every key, for a reader of all records in order.
fn table(records: &[(i64, Option<String>, Option<String>)]) -> BTreeMap<String, (i64, String)> {
    let mut table = BTreeMap::new();
    for (offset, key, value) in records {
        let Some(key) = key.clone() else { continue };
        match value {
            Some(value) => table.insert(key, (*offset, value.clone())),
            None => table.remove(&key),
        };
    }
    table
}

#[test]
fn the_last_record_of_every_key_stays_where_it_was() {
    let mut world = World::new(1, compacted());
    for number in 0..60 {
        world.put(
            Some(&format!("key {}", number % 4)),
            Some(&format!("value {number}")),
        );
    }
    world.put(Some("key 0"), None);
    for _ in 0..8 {
        world.put(None, Some(&"filler ".repeat(10)));
    }
    let (before, bytes) = (
        records(&*world.partition()),
        world.partition().bounds().bytes,
    );
    world.maintain();
    let after = records(&*world.partition());
    assert_eq!(table(&after), table(&before));
    assert!(
        after.iter().all(|record| before.contains(record)),
        "no record is invented"
    );
    assert!(world.partition().bounds().bytes < bytes / 2);
    assert_eq!(world.partition().bounds().end, Offset(69));
    assert!(
        after
            .iter()
            .any(|(_, key, value)| key.is_some() && value.is_none()),
        "the tombstone is visible"
    );
    world.restart();
    assert_eq!(records(&*world.partition()), after);

    // The tombstone is removed when it is old and new segments are compacted.
    world.clock.advance(Duration::from_secs(120));
    for _ in 0..8 {
        world.put(None, Some(&"filler ".repeat(10)));
    }
    world.maintain();
    let later = records(&*world.partition());
    assert_eq!(table(&later), table(&before));
    assert!(
        later
            .iter()
            .all(|(_, key, value)| key.is_none() || value.is_some())
    );
}

#[test]
fn old_punctuations_go_from_a_compacted_hub_and_their_offsets_stay() {
    let mut world = World::new(1, compacted());
    let say = |world: &World| {
        let end = world.partition().bounds().end;
        let mut said = world.partition().punctuate(end);
        world.hub.commit();
        poll(&mut said).unwrap().unwrap().unwrap().offset
    };
    let silences = |world: &World| {
        let partition = world.partition();
        let start = partition.bounds().start;
        let (headers, ..) = read_from(&*partition, start, 400, Isolation::Uncommitted);
        assert!(
            headers
                .windows(2)
                .all(|pair| pair[0].next_offset() == pair[1].base_offset())
        );
        let silent = headers.iter().filter(|header| header.is_control());
        silent
            .map(|header| header.base_offset())
            .collect::<Vec<_>>()
    };
    world.put(Some("a"), Some("1"));
    let old: Vec<_> = (0..10).map(|_| say(&world)).collect();
    world.maintain();
    assert_eq!(silences(&world), old, "they are too new to be removed");
    world.clock.advance(Duration::from_secs(120));
    let young = say(&world);
    for _ in 0..8 {
        world.put(None, Some(&"filler ".repeat(10)));
    }
    let before = records(&*world.partition());
    world.maintain();
    assert_eq!(silences(&world), [young]);
    assert_eq!(records(&*world.partition()), before);
    world.restart();
    assert_eq!(silences(&world), [young]);
    assert_eq!(world.partition().bounds().end, Offset(20));
}

#[test]
fn aborted_records_replace_nothing_and_open_ones_stay() {
    let world = World::new(1, compacted());
    let put = |key: &str, value: &str, producer: Option<(Producer, i32)>| {
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &[],
        });
        let seal = BatchOptions {
            producer,
            transactional: producer.is_some(),
            ..BatchOptions::default()
        };
        let mut pending = world.partition().append(builder.build(&seal).unwrap());
        world.hub.commit();
        poll(&mut pending).unwrap().unwrap();
    };
    let end = |producer: Producer, marker: TransactionMarker| {
        let mut pending = world.partition().append_marker(producer, marker);
        world.hub.commit();
        poll(&mut pending).unwrap().unwrap();
    };
    let [aborts, commits, stays] = [1, 2, 3].map(|id| Producer { id, epoch: 0 });
    put("a", "first", None);
    put("a", "aborted", Some((aborts, 0)));
    end(aborts, TransactionMarker::Abort);
    put("b", "first", None);
    put("b", "committed", Some((commits, 0)));
    end(commits, TransactionMarker::Commit);
    put("c", "first", None);
    put("c", "open", Some((stays, 0)));
    for _ in 0..10 {
        world.put(None, Some(&"filler ".repeat(10)));
    }
    world.maintain();
    let kept: Vec<String> = (records(&*world.partition()).into_iter())
        .filter_map(|(_, key, value)| Some(format!("{}={}", key?, value?)))
        .collect();
    assert_eq!(kept, ["a=first", "b=committed", "c=first", "c=open"]);
}

#[test]
fn a_compaction_that_fails_half_way_is_completed_without_a_restart() {
    let mut interrupted = 0;
    for seed in 0..150 {
        let world = World::new(seed, compacted());
        let mut expected = BTreeMap::new();
        for number in 0..40 {
            let (key, value) = (format!("key {}", number % 6), format!("value {number}"));
            let offset = world.put(Some(&key), Some(&value));
            expected.insert(key, (offset, value));
        }
        let before = world.partition().bounds().bytes;
        world.disk.set_faults(Faults {
            folder_syncs: 2,
            ..Faults::default()
        });
        world.maintain();
        world.disk.set_faults(Faults::default());
        let has_swap = |path: &PathBuf| path.to_string_lossy().ends_with(".swap");
        let is_interrupted = world.disk.files().iter().any(has_swap);
        interrupted += usize::from(is_interrupted);
        // The pauses grow, so the first attempts may be too early.
        for _ in 0..5 {
            world.clock.advance(Duration::from_secs(10));
            world.maintain();
        }
        assert!(!world.disk.files().iter().any(has_swap), "seed {seed}");
        assert!(world.partition().bounds().bytes < before / 2, "seed {seed}");
        assert_eq!(
            table(&records(&*world.partition())),
            expected,
            "seed {seed}"
        );
        // Appends and compactions continue.
        for number in 40..80 {
            let (key, value) = (format!("key {}", number % 6), format!("value {number}"));
            let offset = world.put(Some(&key), Some(&value));
            expected.insert(key, (offset, value));
        }
        world.maintain();
        let mut world = world;
        world.disk.crash();
        world.restart();
        assert_eq!(
            table(&records(&*world.partition())),
            expected,
            "seed {seed}"
        );
    }
    assert!(interrupted > 10, "{interrupted}");
}

#[test]
fn a_crash_during_compaction_leaves_the_table_as_it_was() {
    for seed in 0..150 {
        let mut random = Random::seeded(seed);
        let mut world = World::new(seed, compacted());
        let mut expected = BTreeMap::new();
        for round in 0..4 {
            world.disk.set_faults(Faults::default());
            for number in 0..20 + random.below(20) {
                let key = format!("key {}", random.below(6));
                let value = (random.below(5) > 0).then(|| format!("value {round} {number}"));
                let offset = world.put(Some(&key), value.as_deref());
                match value {
                    Some(value) => expected.insert(key, (offset, value)),
                    None => expected.remove(&key),
                };
            }
            world.clock.advance(Duration::from_secs(random.below(100)));
            if random.below(2) == 0 {
                world.disk.set_faults(Faults {
                    syncs: 3,
                    folder_syncs: 4,
                    writes: 6,
                    ..Faults::default()
                });
            }
            world.maintain();
            world.disk.set_faults(Faults::default());
            match random.below(3) {
                0 => world.disk.crash(),
                1 => world.disk.restart(),
                _ => drop(world.hub.stop()),
            }
            world.disk.restart();
            world.hub = start(&world.disk, &world.clock, &world.options);
            assert_eq!(
                table(&records(&*world.partition())),
                expected,
                "seed {seed}"
            );
        }
    }
}
