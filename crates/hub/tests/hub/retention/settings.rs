//! The settings of segments, compaction and timestamps. // proves K4

use highwater_log::batch::TimestampType;
use highwater_log::{CompactionSettings, SegmentSettings};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Puts `count` values of one key, each in a batch of about 100 bytes.
fn put_many(world: &World, key: &str, count: usize) {
    for number in 0..count {
        world.put(
            Some(key),
            Some(&format!("value {number} {}", "x".repeat(20))),
        );
    }
}

/// How many records have the key.
fn count(world: &World, key: &str) -> usize {
    let found = records(&*world.partition());
    let keys = found
        .iter()
        .filter(|(_, found, _)| found.as_deref() == Some(key));
    keys.count()
}

fn compacted_with(compaction: CompactionSettings) -> HubSettings {
    HubSettings {
        compaction,
        ..compacted()
    }
}

#[test]
fn a_hub_can_be_compacted_and_lose_its_old_records() {
    let settings = HubSettings {
        cleanup: CleanupPolicy::CompactDelete,
        retention: Some(100 * SECOND),
        ..HubSettings::default()
    };
    let mut world = World::new(1, settings);
    put_many(&world, "old", 30);
    world.maintain();
    let kept = count(&world, "old");
    assert!(kept < 10, "{kept} of 30 are left: they were compacted");
    assert_eq!(
        world.partition().bounds().start,
        Offset(0),
        "none is deleted"
    );
    world.clock.advance(60 * SECOND);
    put_many(&world, "young", 30);
    world.clock.advance(60 * SECOND);
    world.maintain();
    assert_eq!(
        count(&world, "old"),
        0,
        "the last of a key is deleted, too, when it is old"
    );
    assert!(count(&world, "young") > 0);
    let bounds = world.partition().bounds();
    assert!(bounds.start > Offset(20), "{bounds:?}");
    world.restart();
    assert_eq!(world.partition().bounds().start, bounds.start);
    let only_compacted = HubSettings {
        cleanup: CleanupPolicy::Compact,
        ..world.hub.hub("h").unwrap().settings.clone()
    };
    done(world.hub.change(&name("h"), only_compacted)).unwrap();
    world.clock.advance(1_000 * SECOND);
    world.maintain();
    assert!(
        count(&world, "young") > 0,
        "without deletion it stays for ever"
    );
}

#[test]
fn segments_are_as_large_and_as_old_as_the_hub_says() {
    let settings = |bytes, age| HubSettings {
        segments: SegmentSettings { bytes, age },
        ..keep(None, None)
    };
    let mut world = World::new(1, settings(Some(2_000), None));
    put_many(&world, "key", 36);
    let bytes = world.partition().bounds().bytes;
    assert_eq!(world.logs() as u64, bytes.div_ceil(2_000), "{bytes} bytes");
    done(world.hub.change(&name("h"), settings(None, None))).unwrap();
    let before = world.logs();
    put_many(&world, "key", 36);
    assert!(
        world.logs() - before >= 6,
        "the node has segments of 600 bytes"
    );
    world.restart();

    done(
        world
            .hub
            .change(&name("h"), settings(None, Some(5 * SECOND))),
    )
    .unwrap();
    world.append("first of a segment");
    world.maintain();
    let before = world.logs();
    world.clock.advance(4 * SECOND);
    world.maintain();
    assert_eq!(world.logs(), before, "it is not old enough");
    world.clock.advance(2 * SECOND);
    world.maintain();
    assert_eq!(world.logs(), before + 1);
    let refused = done(world.hub.change(&name("h"), settings(Some(10), None)));
    assert!(refused.is_err(), "a segment has at least a batch or two");
}

#[test]
fn compaction_waits_for_its_share_of_new_bytes() {
    let compaction = CompactionSettings {
        dirty_ratio_min: 500_000,
        ..CompactionSettings::default()
    };
    let world = World::new(1, compacted_with(compaction));
    // Different keys, which compaction keeps: 40 batches are clean.
    for number in 0..40 {
        put_many(&world, &format!("key {number}"), 1);
    }
    world.maintain();
    put_many(&world, "again", 20);
    world.maintain();
    assert_eq!(count(&world, "again"), 20, "a third of the bytes is new");
    put_many(&world, "again", 40);
    world.maintain();
    assert!(count(&world, "again") < 12, "more than half is new");
}

#[test]
fn young_records_are_not_compacted() {
    let compaction = CompactionSettings {
        lag_min: 10 * SECOND,
        ..CompactionSettings::default()
    };
    let world = World::new(1, compacted_with(compaction));
    put_many(&world, "key", 20);
    world.clock.advance(8 * SECOND);
    put_many(&world, "key", 20);
    world.maintain();
    assert_eq!(count(&world, "key"), 40);
    world.clock.advance(3 * SECOND);
    world.maintain();
    let left = count(&world, "key");
    assert!(
        (20..30).contains(&left),
        "{left}: only the older half was compacted"
    );
    world.clock.advance(10 * SECOND);
    world.maintain();
    assert!(count(&world, "key") < 10);
}

#[test]
fn no_record_waits_longer_for_compaction_than_it_may() {
    let compaction = CompactionSettings {
        dirty_ratio_min: 1_000_000,
        lag_max: Some(10 * SECOND),
        ..CompactionSettings::default()
    };
    let world = World::new(1, compacted_with(compaction));
    for number in 0..20 {
        put_many(&world, &format!("key {number}"), 1);
    }
    world.maintain();
    put_many(&world, "again", 12);
    world.maintain();
    assert_eq!(count(&world, "again"), 12, "not all bytes are new");
    world.clock.advance(11 * SECOND);
    // The first call closes the active segment.
    world.maintain();
    world.maintain();
    assert_eq!(count(&world, "again"), 1);
}

#[test]
fn readers_see_what_compaction_left_also_of_records_in_memory() {
    let world = World::with_tail(1, compacted(), 1 << 20);
    put_many(&world, "again", 12);
    assert_eq!(count(&world, "again"), 12);
    world.maintain();
    let left = count(&world, "again");
    assert!(left < 12, "{left} of the closed and the active segment");
    put_many(&world, "new", 1);
    assert_eq!((count(&world, "again"), count(&world, "new")), (left, 1));
}

#[test]
fn a_hub_has_its_own_age_of_tombstones() {
    let compaction = CompactionSettings {
        tombstone_age: Some(5 * SECOND),
        ..CompactionSettings::default()
    };
    let world = World::new(1, compacted_with(compaction));
    let tombstones = |world: &World| {
        let found = records(&*world.partition());
        found.iter().filter(|(.., value)| value.is_none()).count()
    };
    world.put(Some("gone"), None);
    put_many(&world, "key", 12);
    world.maintain();
    assert_eq!(tombstones(&world), 1);
    world.clock.advance(6 * SECOND);
    put_many(&world, "key", 12);
    world.maintain();
    assert_eq!(tombstones(&world), 0);
}

/// A reader may have seen the value before the compaction that removes it, and must then see the tombstone.
#[test]
fn a_tombstone_outlives_the_compaction_of_its_key() {
    let mut world = World::new(1, compacted());
    let tombstones = |world: &World| {
        let found = records(&*world.partition());
        found.iter().filter(|(.., value)| value.is_none()).count()
    };
    world.put(Some("gone"), Some("value"));
    world.put(Some("gone"), None);
    put_many(&world, "key", 12);
    world.clock.advance(100 * SECOND);
    world.maintain();
    assert_eq!(count(&world, "gone"), 1, "the value is removed");
    assert_eq!(
        tombstones(&world),
        1,
        "it is old, but was not compacted before"
    );
    for restart in [false, true] {
        world.clock.advance(40 * SECOND);
        put_many(&world, "key", 12);
        world.maintain();
        assert_eq!(tombstones(&world), usize::from(!restart));
        if !restart {
            // The time of the first compaction survives.
            world.restart();
        }
    }
}

#[test]
fn a_restart_does_not_compact_again() {
    let compaction = CompactionSettings {
        dirty_ratio_min: 500_000,
        ..CompactionSettings::default()
    };
    let mut world = World::new(1, compacted_with(compaction));
    for number in 0..40 {
        put_many(&world, &format!("key {number}"), 1);
    }
    world.maintain();
    world.restart();
    put_many(&world, "again", 20);
    world.maintain();
    assert_eq!(count(&world, "again"), 20, "a third of the bytes is new");
}

/// Appends a batch of one record with a producer's timestamp.
fn put_created(world: &World, key: &str, created: i64) {
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        key: Some(key.as_bytes()),
        value: Some(b"a value of some length, so that segments are filled"),
        headers: &[],
    });
    let options = BatchOptions {
        timestamp: Some(created),
        ..BatchOptions::default()
    };
    let mut pending = world.partition().append(builder.build(&options).unwrap());
    world.hub.commit();
    poll(&mut pending).unwrap().unwrap();
}

#[test]
fn retention_goes_by_the_enqueue_time_and_not_by_the_producers() {
    let settings = HubSettings {
        retention: Some(100 * SECOND),
        ..timestamps(TimestampType::Create)
    };
    let world = World::new(1, settings);
    for number in 0..20 {
        // Far in the past and in the future.
        put_created(
            &world,
            "key",
            if number % 2 == 0 { 0 } else { i64::MAX / 4 },
        );
    }
    world.clock.advance(90 * SECOND);
    world.maintain();
    assert_eq!(world.all().len(), 20, "none is old");
    world.clock.advance(20 * SECOND);
    world.maintain();
    world.maintain();
    assert_eq!(world.all().len(), 0, "all are old");
}

#[test]
fn compaction_keeps_both_times() {
    let settings = HubSettings {
        cleanup: CleanupPolicy::Compact,
        ..timestamps(TimestampType::Create)
    };
    let mut world = World::new(1, settings);
    for number in 0..40 {
        world.clock.advance(SECOND);
        put_created(&world, &format!("key {}", number % 8), 500 - 7 * number);
    }
    let before = world.all();
    world.maintain();
    let after = world.all();
    assert!(after.len() < 20, "{}", after.len());
    assert!(after.iter().all(|record| before.contains(record)));
    for record in &after {
        assert_eq!(record.time, 1_000 * (record.offset + 1));
        assert_eq!(record.created, 500 - 7 * record.offset);
    }
    world.restart();
    assert_eq!(world.all(), after);
}

#[test]
fn maintenance_comes_as_often_as_the_hub_is_told() {
    let mut world = World::new(1, keep(Some(10 * SECOND), None));
    put_many(&world, "key", 30);
    world.clock.advance(60 * SECOND);
    // With threads, the first look would come after an hour.
    world.options = Options {
        committers: 1,
        maintenance: 3600 * SECOND,
        ..world.options.clone()
    };
    world.restart();
    let partition = world.partition();
    assert_eq!(partition.bounds().start, Offset(0));
    world.hub.maintain_every(Duration::from_millis(1));
    while partition.bounds().start == Offset(0) {
        std::thread::yield_now();
    }
    assert_eq!(world.hub.stop(), Vec::<String>::new());
}
