//! How appends are combined, rejected and refused. // proves L3 L4

use std::sync::Arc;

use highwater_env::disk::Faults;
use highwater_env::{Clock, Disk, SimClock, SimDisk};
use highwater_hub::{Hub, Options};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, EnqueueTime, HubSettings, Isolation, Log, Offset,
    Partition, Producer, TransactionMarker,
};

use crate::common::*;

struct World {
    disk: SimDisk,
    hub: Hub,
    options: Options,
}

impl World {
    fn new(options: Options) -> World {
        let disk = SimDisk::new(1);
        let hub = start(&disk, &options);
        done(hub.create(spec("h", 2, HubSettings::default()))).unwrap();
        World { disk, hub, options }
    }

    fn partition(&self) -> Arc<dyn Partition> {
        self.hub.partition("h", 0).unwrap()
    }

    fn commit(
        &self,
        pending: &mut BoxFuture<Result<AppendInfo, AppendError>>,
    ) -> Result<AppendInfo, AppendError> {
        self.hub.commit();
        poll(pending).expect("a commit answers")
    }
}

fn start(disk: &SimDisk, options: &Options) -> Hub {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = Arc::new(SimClock::at_unix_nanos(1_000_000_000));
    open(&disk, &clock, options).unwrap().0
}

fn numbered(number: i32, size: usize) -> highwater_log::batch::Batch {
    let producer = Producer { id: 1, epoch: 0 };
    batch(&["x".repeat(size)], Some((producer, number)), false)
}

#[test]
fn callers_with_single_records_share_a_batch_and_keep_their_order() {
    let world = World::new(by_hand());
    let partition = world.partition();
    let mut pending: Vec<_> = (0..50)
        .map(|number| partition.append_records(&[record(&number.to_string()), record("and")]))
        .collect();
    let mut alone = partition.append(numbered(0, 5));
    pending.push(partition.append_records(&[record("last")]));
    assert!(
        poll(&mut pending[0]).is_none(),
        "no answer before it is durable"
    );
    assert_eq!(partition.bounds().end, Offset(0), "nor seen");
    world.hub.commit();
    let offsets: Vec<i64> = pending
        .into_iter()
        .map(|one| done(one).unwrap().offset.0)
        .collect();
    let expected: Vec<i64> = (0..50).map(|number| 2 * number).chain([101]).collect();
    assert_eq!(offsets, expected);
    assert_eq!(poll(&mut alone).unwrap().unwrap().offset, Offset(100));
    let totals = world.hub.status().totals;
    assert_eq!(
        (totals.batches, totals.groups, totals.syncs),
        (3, 1, 1),
        "and one sync"
    );
}

#[test]
fn a_full_queue_says_so_and_an_unknown_producer_keeps_its_order() {
    let world = World::new(Options {
        queue_bytes: 1000,
        ..by_hand()
    });
    let partition = world.partition();
    let mut other = partition.append(batch(&["y".repeat(800)], None, false));
    let refused = done(partition.append(numbered(0, 300)));
    assert!(
        matches!(refused, Err(AppendError::QueueFull { waiting: 800.., .. })),
        "{refused:?}"
    );
    // The next one would fit, but it is not the first.
    let out_of_order = done(partition.append(numbered(1, 10)));
    assert!(matches!(
        out_of_order,
        Err(AppendError::OutOfSequence {
            expected: 0,
            got: 1,
            ..
        })
    ));
    world.commit(&mut other).unwrap();
    assert_eq!(world.hub.status().waiting_bytes, 0);
    let mut again = partition.append(numbered(0, 300));
    assert_eq!(world.commit(&mut again).unwrap().offset, Offset(1));
}

#[test]
fn all_partitions_together_have_a_limit_too() {
    let world = World::new(Options {
        queue_bytes_all: 1000,
        ..by_hand()
    });
    let mut first = world
        .partition()
        .append(batch(&["y".repeat(700)], None, false));
    let other = world.hub.partition("h", 1).unwrap();
    let refused = done(other.append(batch(&["y".repeat(700)], None, false)));
    assert!(matches!(refused, Err(AppendError::QueueFull { .. })));
    world.commit(&mut first).unwrap();
    let mut again = other.append(batch(&["y".repeat(700)], None, false));
    world.commit(&mut again).unwrap();
}

#[test]
fn a_repeat_on_its_way_is_answered_when_the_first_is_durable() {
    let world = World::new(by_hand());
    let partition = world.partition();
    let mut first = partition.append(numbered(0, 10));
    let mut again = partition.append(numbered(0, 10));
    assert!(poll(&mut again).is_none());
    let first = world.commit(&mut first).unwrap();
    let again = poll(&mut again).unwrap().unwrap();
    assert_eq!(
        (again.offset, again.time, again.duplicate),
        (first.offset, first.time, true)
    );
    assert_eq!(partition.bounds().end, Offset(1));
}

#[test]
fn a_shortage_of_descriptors_rejects_appends_until_one_is_free() {
    let options = Options {
        files_open: 1,
        ..by_hand()
    };
    let world = World::new(options);
    let partition = world.partition();
    world
        .commit(&mut partition.append_records(&[record("a")]))
        .unwrap();
    // The sync marker was the last file used, so the segment must be opened again.
    world.disk.set_faults(Faults {
        opens: 1,
        ..Faults::default()
    });
    let error = world
        .commit(&mut partition.append_records(&[record("b")]))
        .unwrap_err();
    assert!(matches!(error, AppendError::Busy { .. }), "{error}");
    world.hub.maintain(EnqueueTime(i64::MAX / 2));
    assert_eq!(world.hub.status().partitions[0].stopped, None);
    world.disk.set_faults(Faults::default());
    let appended = world
        .commit(&mut partition.append_records(&[record("c")]))
        .unwrap();
    assert_eq!(appended.offset, Offset(1));
}

#[test]
fn a_full_disk_rejects_appends_until_space_is_free() {
    let world = World::new(Options {
        reserve_bytes: 0,
        ..by_hand()
    });
    let partition = world.partition();
    let mut kept = partition.append(numbered(0, 10));
    world.commit(&mut kept).unwrap();
    world.disk.set_faults(Faults {
        capacity: Some(0),
        ..Faults::default()
    });
    let mut rejected = partition.append(numbered(1, 1000));
    let error = world.commit(&mut rejected).unwrap_err();
    assert!(matches!(error, AppendError::DiskFull { .. }), "{error:?}");
    let expected = "the disk has no space for `h/0`: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    let status = world.hub.status();
    assert_eq!(status.partitions[0].stopped, None);
    assert_eq!(status.totals.rejected, 1);
    world.disk.set_faults(Faults::default());
    let mut again = partition.append(numbered(1, 1000));
    assert_eq!(world.commit(&mut again).unwrap().offset, Offset(1));
}

#[test]
fn after_a_failed_sync_nothing_is_taken_until_a_restart() {
    let world = World::new(by_hand());
    let partition = world.partition();
    let mut kept = partition.append(numbered(0, 10));
    world.commit(&mut kept).unwrap();
    world.disk.set_faults(Faults {
        syncs: 1,
        ..Faults::default()
    });
    let mut lost = partition.append(numbered(1, 10));
    let refused = world.commit(&mut lost);
    assert!(
        matches!(refused, Err(AppendError::Stopped { .. })),
        "{refused:?}"
    );
    world.disk.set_faults(Faults::default());
    let refused = done(partition.append(numbered(1, 10)));
    assert!(
        matches!(refused, Err(AppendError::Stopped { .. })),
        "a sync that succeeds proves nothing"
    );
    done(partition.wait_past(Offset(1), Isolation::Uncommitted));
    let status = &world.hub.status().partitions;
    assert!(status[0].stopped.is_some() && status[1].stopped.is_none());
    let (_, found, error) = read_from(&*partition, Offset(0), 1000, Isolation::Uncommitted);
    assert_eq!(
        (found.len(), error),
        (1, None),
        "acknowledged records are served"
    );

    let mut other = world.hub.partition("h", 1).unwrap().append(numbered(0, 10));
    world.commit(&mut other).unwrap();
    world.disk.restart();
    let hub = start(&world.disk, &world.options);
    let partition = hub.partition("h", 0).unwrap();
    let mut again = partition.append(numbered(1, 10));
    hub.commit();
    assert_eq!(poll(&mut again).unwrap().unwrap().offset, Offset(1));
}

#[test]
fn a_marker_without_a_transaction_is_refused() {
    let world = World::new(by_hand());
    let producer = Producer { id: 1, epoch: 0 };
    let mut pending = world.partition().append(numbered(0, 10));
    world.commit(&mut pending).unwrap();
    let refused = done(
        world
            .partition()
            .append_marker(producer, TransactionMarker::Commit),
    );
    assert!(matches!(refused, Err(AppendError::NoTransaction { .. })));
}

// proves T7 T8
#[test]
fn no_punctuation_while_an_append_is_queued() {
    let world = World::new(by_hand());
    let partition = world.partition();
    let mut first = partition.append_records(&[record("a"), record("b")]);
    assert_eq!(done(partition.punctuate(Offset(0))), Ok(None));
    // After the queued appends it is true, and it follows them.
    let mut punctuation = partition.punctuate(Offset(2));
    assert!(poll(&mut punctuation).is_none(), "it is not durable yet");
    assert_eq!(partition.bounds().end, Offset(0), "nor seen");
    assert_eq!(done(partition.punctuate(Offset(2))), Ok(None));
    let mut last = partition.append_records(&[record("c")]);
    assert_eq!(world.commit(&mut first).unwrap().offset, Offset(0));
    assert_eq!(poll(&mut last).unwrap().unwrap().offset, Offset(3));
    let punctuation = poll(&mut punctuation).unwrap().unwrap().unwrap();
    assert_eq!(punctuation.offset, Offset(2));
    assert_eq!(world.hub.status().totals.records, 3, "it is not a record");
    let (headers, seen, _) = read_from(&*partition, Offset(0), 1, Isolation::Committed);
    let silent: Vec<bool> = headers.iter().map(|header| header.is_control()).collect();
    assert_eq!(silent, [false, true, false]);
    assert_eq!(seen.len(), 3);
}

#[test]
fn a_stopped_partition_refuses_punctuations() {
    let world = World::new(by_hand());
    let partition = world.partition();
    world.disk.set_faults(Faults {
        syncs: 1,
        ..Faults::default()
    });
    let mut punctuation = partition.punctuate(Offset(0));
    world.hub.commit();
    let refused = poll(&mut punctuation).unwrap();
    assert!(matches!(refused, Err(AppendError::Stopped { .. })));
    // Even with the wrong end: a caller that punctuates must learn of it.
    let refused = done(partition.punctuate(Offset(7)));
    assert!(matches!(refused, Err(AppendError::Stopped { .. })));
}
