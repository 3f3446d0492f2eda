use super::*;

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// A file with these bytes; its contents and its name are synced.
fn durable(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(path(name), Access::Create).unwrap();
    file.write_all_at(&[bytes], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_folder(path("")).unwrap();
    file
}

/// The possible contents of a file after a crash.
fn outcomes(change: impl Fn(&dyn DiskFile)) -> BTreeSet<Vec<u8>> {
    let outcome = |seed| {
        let disk = SimDisk::new(seed);
        change(&*durable(&disk, "f", &[b'-'; 1024]));
        disk.crash();
        disk.contents(path("f")).unwrap()
    };
    (0..200).map(outcome).collect()
}

#[test]
fn synced_bytes_survive_and_unsynced_ones_may_be_lost() {
    let halves = outcomes(|file| file.write_all_at(&[&[b'x'; 512], &[b'y'; 512]], 0).unwrap());
    let expected: BTreeSet<Vec<u8>> = [b"--", b"-y", b"x-", b"xy"]
        .map(|sectors| sectors.iter().flat_map(|byte| [*byte; 512]).collect())
        .into();
    assert_eq!(halves, expected);

    let synced = outcomes(|file| {
        file.write_all_at(&[&[b'x'; 1024]], 0).unwrap();
        file.sync_data().unwrap();
    });
    assert_eq!(synced, [vec![b'x'; 1024]].into());
}

#[test]
fn later_writes_may_survive_without_earlier_ones() {
    let left = outcomes(|file| {
        file.write_all_at(&[b"1"], 0).unwrap();
        file.write_all_at(&[b"2"], 600).unwrap();
    });
    let pairs: BTreeSet<(u8, u8)> = left.iter().map(|bytes| (bytes[0], bytes[600])).collect();
    assert!(pairs.contains(&(b'-', b'2')) && pairs.contains(&(b'1', b'-')));
}

#[test]
fn names_are_forgotten_unless_their_folder_was_synced() {
    let mut kept = BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        disk.create_folder(path("a/b")).unwrap();
        disk.sync_folder(path("")).unwrap();
        disk.open(path("a/f"), Access::Create).unwrap();
        disk.crash();
        let names = disk.list(path("a")).unwrap();
        kept.insert((names.contains(&"b".into()), names.contains(&"f".into())));
    }
    assert_eq!(kept.len(), 4);
}

#[test]
fn a_rename_happens_whole_or_not_at_all() {
    let mut kept = BTreeSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        durable(&disk, "old", b"new contents");
        durable(&disk, "f", b"old contents");
        disk.rename(path("old"), path("f")).unwrap();
        disk.crash();
        kept.insert((
            disk.list(path("")).unwrap(),
            disk.contents(path("f")).unwrap(),
        ));
    }
    let before = (vec!["f".into(), "old".into()], b"old contents".to_vec());
    let after = (vec!["f".into()], b"new contents".to_vec());
    assert_eq!(kept, [before, after].into());
}

#[test]
fn bytes_lost_by_a_failed_sync_stay_lost_after_a_second_one() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = durable(&disk, "f", b"old");
        file.write_all_at(&[b"new"], 0).unwrap();
        disk.set_faults(Faults {
            syncs: 1,
            ..Faults::default()
        });
        file.sync_data().unwrap_err();
        disk.set_faults(Faults::default());
        file.sync_data().unwrap();
        disk.crash();
        lost += usize::from(disk.contents(path("f")).unwrap() == b"old");
    }
    assert!((1..50).contains(&lost), "{lost}");
}

#[test]
fn a_full_disk_takes_what_fits_and_can_be_freed() {
    let disk = SimDisk::new(1);
    disk.set_faults(Faults {
        capacity: Some(10),
        ..Faults::default()
    });
    let file = disk.open(path("f"), Access::Create).unwrap();
    let full = file.write_all_at(&[b"0123456", b"789abc"], 0).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.contents(path("f")).unwrap(), b"0123456789");
    assert!(file.allocate(11).is_err());
    file.set_len(3).unwrap();
    file.write_all_at(&[b"xyz"], 3).unwrap();
    assert_eq!(disk.contents(path("f")).unwrap(), b"012xyz");
}

#[test]
fn files_and_locks_of_a_dead_process_are_gone() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "f", b"abc");
    file.write_all_at(&[b"x"], 0).unwrap();
    let lock = disk.lock(path("lock")).unwrap();
    assert!(disk.lock(path("lock")).is_err());
    disk.restart();
    assert!(file.read_at(&mut [0], 0).is_err());
    let next = disk.lock(path("lock")).unwrap();
    drop(lock);
    assert!(disk.lock(path("lock")).is_err());
    drop(next);
    disk.lock(path("lock")).unwrap();
    assert_eq!(disk.contents(path("f")).unwrap(), b"xbc");
}

#[test]
fn a_removed_tree_leaves_nothing() {
    let disk = SimDisk::new(1);
    disk.create_folder(path("a/b")).unwrap();
    disk.open(path("a/b/f"), Access::Create).unwrap();
    disk.remove_folder(path("a")).unwrap();
    assert!(disk.files().is_empty() && disk.list(path("")).unwrap().is_empty());
}
