//! Bytes that change on the disk: an error or a truncation as specified, never wrong data, never a panic. // proves L3

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::{Clock, Disk, SimClock, SimDisk};
use highwater_hub::{Hub, OpenError, Options, Recovery};
use highwater_log::batch::TimestampType;
use highwater_log::{AppendError, Isolation, Log, ReadError};

use crate::common::*;

/// A hub with several segments, a moved start, and all other kinds of files.
struct Fixture {
    options: Options,
    /// Rebuilt for every flip, from the same seed.
    clean_stop: bool,
}

struct World {
    disk: SimDisk,
    /// The acknowledged records, from the start on.
    values: Vec<ReadRecord>,
    options: Options,
}

impl Fixture {
    fn new(clean_stop: bool) -> Fixture {
        Fixture {
            options: Options {
                segment_bytes: 700,
                index_bytes: 200,
                checkpoint_bytes: 400,
                reserve_bytes: 200,
                tail_bytes: 0,
                ..by_hand()
            },
            clean_stop,
        }
    }

    fn build(&self) -> World {
        let disk = SimDisk::new(1);
        let (hub, _) = start(&disk, &self.options).unwrap();
        done(hub.create(spec("h", 1, timestamps(TimestampType::Create)))).unwrap();
        let partition = hub.partition("h", 0).unwrap();
        for number in 0..14 {
            let values: Vec<String> = (0..3).map(|at| format!("record {number}.{at}")).collect();
            let created = Some(2_000 - 90 * number);
            let mut pending = partition.append(created_batch(&values, None, false, created));
            hub.commit();
            poll(&mut pending).unwrap().unwrap();
        }
        done(partition.trim(highwater_log::Offset(4))).unwrap();
        let (_, values, error) = all(&hub);
        assert_eq!(error, None);
        match self.clean_stop {
            true => drop(hub.stop()),
            false => disk.restart(),
        }
        World {
            disk,
            values,
            options: self.options.clone(),
        }
    }
}

fn start(disk: &SimDisk, options: &Options) -> Result<(Hub, Vec<Recovery>), OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = Arc::new(SimClock::at_unix_nanos(1_000_000_000_000));
    open(&disk, &clock, options)
}

fn all(hub: &Hub) -> (Vec<ReadHeader>, Vec<ReadRecord>, Option<ReadError>) {
    let partition = hub.partition("h", 0).unwrap();
    read_from(
        &*partition,
        partition.bounds().start,
        500,
        Isolation::Uncommitted,
    )
}

impl World {
    fn file(&self, ending: &str) -> PathBuf {
        let named = |path: &PathBuf| path.to_string_lossy().ends_with(ending);
        self.disk.files().into_iter().rfind(named).unwrap()
    }

    fn len(&self, path: &Path) -> u64 {
        self.disk.contents(path).unwrap().len() as u64
    }

    /// All served records are as written, from the same start, without a gap.
    fn check_prefix(&self, found: &[ReadRecord]) {
        assert_eq!(found, &self.values[..found.len()]);
    }

    /// Flips a bit of the last file with this suffix.
    fn flip(&self, ending: &str, position: u64, bit: u32) {
        let path = self.file(ending);
        self.disk.flip(&path, position, 1 << bit).unwrap();
    }

    /// The files with this suffix.
    fn names(&self, ending: &str) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let names = self.disk.files();
        let names = names.iter().map(name);
        names.filter(|name| name.ends_with(ending)).collect()
    }
}

/// Position of the last batch.
fn last_batch(bytes: &[u8]) -> u64 {
    let batches = highwater_log::batch::Batches::new(bytes);
    batches.map_while(Result::ok).last().unwrap().position as u64
}

#[test]
fn any_changed_byte_of_the_last_batch_is_damage_that_is_named() {
    for clean_stop in [true, false] {
        let fixture = Fixture::new(clean_stop);
        let world = fixture.build();
        let log = world.file(".log");
        let bytes = world.disk.contents(&log).unwrap();
        let first = last_batch(&bytes);
        let size = 12 + u32::from_be_bytes(bytes[first as usize + 8..][..4].try_into().unwrap());
        for position in first..first + u64::from(size) {
            let world = fixture.build();
            world.flip(".log", position, (position % 8) as u32);
            let (hub, recoveries) = start(&world.disk, &world.options).unwrap();
            let damage = recoveries[0]
                .damage
                .clone()
                .expect("the last batch was acknowledged");
            assert_eq!(
                (damage.position, recoveries[0].torn_tail.clone()),
                (first, None),
                "{position}"
            );
            let (_, found, error) = all(&hub);
            world.check_prefix(&found);
            assert_eq!(
                found.len(),
                world.values.len() - 3,
                "the records before it are served"
            );
            assert!(
                matches!(error, Some(ReadError::Damaged { .. })),
                "{error:?}"
            );
            let partition = hub.partition("h", 0).unwrap();
            let refused = done(partition.append(batch(&["x".into()], None, false)));
            assert!(matches!(refused, Err(AppendError::Stopped { .. })));
            assert!(hub.status().partitions[0].stopped.is_some());
        }
    }
}

#[test]
fn a_changed_byte_elsewhere_in_the_log_is_never_served() {
    let fixture = Fixture::new(true);
    let world = fixture.build();
    for file in world.names(".log") {
        for position in (0..world.len(&world.file(&file))).step_by(3) {
            let world = fixture.build();
            world.flip(&file, position, (position % 8) as u32);
            let (hub, _) = start(&world.disk, &world.options).unwrap();
            let (_, found, error) = all(&hub);
            world.check_prefix(&found);
            let whole = found.len() == world.values.len();
            assert_eq!(whole, error.is_none(), "{file} {position}");
            // Only bytes before the start may be damaged unnoticed.
            assert!(!whole || position < 200, "{file} {position}");
        }
    }
}

#[test]
fn indexes_and_checkpoints_are_made_again() {
    let fixture = Fixture::new(true);
    let world = fixture.build();
    let mut files = world.names(".index");
    files.extend(world.names(".checkpoint"));
    let mut seen = 0;
    for file in files {
        for position in 0..world.len(&world.file(&file)) {
            let world = fixture.build();
            world.flip(&file, position, (position % 8) as u32);
            let (hub, recoveries) = start(&world.disk, &world.options).unwrap();
            assert_eq!(
                (&recoveries[0].torn_tail, &recoveries[0].damage),
                (&None, &None)
            );
            let (_, found, error) = all(&hub);
            assert_eq!(
                (&found, error),
                (&world.values, None),
                "{} {position}",
                file
            );
            seen += 1;
        }
        let world = fixture.build();
        world.disk.remove_file(&world.file(&file)).unwrap();
        let (hub, _) = start(&world.disk, &world.options).unwrap();
        assert_eq!(all(&hub).1, world.values);
    }
    assert!(seen > 400, "{seen}");
}

#[test]
fn a_damaged_sync_marker_does_no_harm_to_an_intact_log() {
    let fixture = Fixture::new(false);
    for position in (0..28).chain(512..540) {
        let world = fixture.build();
        world.flip("synced", position, 3);
        let (hub, recoveries) = start(&world.disk, &world.options).unwrap();
        assert_eq!(recoveries[0].damage, None);
        assert_eq!(all(&hub).1, world.values);
    }
}

#[test]
fn without_a_sync_marker_a_broken_end_is_damage() {
    let world = Fixture::new(false).build();
    let log = world.file(".log");
    let first = last_batch(&world.disk.contents(&log).unwrap());
    world.flip(".log", first + 70, 1);
    world.disk.remove_file(&world.file("synced")).unwrap();
    let (_, recoveries) = start(&world.disk, &world.options).unwrap();
    assert!(recoveries[0].damage.is_some());
}

#[test]
fn a_damaged_start_stops_writes_but_not_reads() {
    let fixture = Fixture::new(true);
    let world = fixture.build();
    let len = world.len(&world.file("start"));
    for position in 0..len {
        let world = fixture.build();
        world.flip("start", position, 0);
        let (hub, recoveries) = start(&world.disk, &world.options).unwrap();
        assert_eq!(recoveries[0].damage.as_ref().unwrap().file, "start");
        let (_, found, _) = all(&hub);
        assert!(found.ends_with(&world.values));
    }
}

#[test]
fn a_damaged_catalogue_is_an_error_and_no_hub_is_touched() {
    let fixture = Fixture::new(true);
    let world = fixture.build();
    let path = world.file("catalogue.json");
    for position in 0..world.len(&path) {
        world.flip("catalogue.json", position, 2);
        let refused = start(&world.disk, &world.options).err().unwrap();
        let named = matches!(
            refused,
            OpenError::Catalogue { .. } | OpenError::CatalogueVersion { .. }
        );
        assert!(named, "{refused}");
        world.disk.restart();
        world.flip("catalogue.json", position, 2);
    }
    let (hub, _) = start(&world.disk, &world.options).unwrap();
    assert_eq!(all(&hub).1, world.values);
}

#[test]
fn a_missing_segment_is_damage() {
    let world = Fixture::new(true).build();
    world.disk.remove_file(&world.file(".log")).unwrap();
    let (hub, recoveries) = start(&world.disk, &world.options).unwrap();
    let damage = recoveries[0].damage.as_ref().unwrap();
    assert_eq!(damage.reason, "the file is missing");
    let (_, found, error) = all(&hub);
    world.check_prefix(&found);
    assert!(matches!(error, Some(ReadError::Damaged { .. })));
}

#[test]
fn a_folder_is_used_by_one_process() {
    let fixture = Fixture::new(true);
    let world = fixture.build();
    let (hub, _) = start(&world.disk, &world.options).unwrap();
    let second = start(&world.disk, &world.options).err().unwrap();
    assert!(matches!(second, OpenError::Locked(_)));
    hub.stop();
    start(&world.disk, &world.options).unwrap();
}
