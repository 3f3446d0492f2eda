//! Both stores keep the same promises. // proves X1

use std::sync::Arc;

use highwater_env::SimDisk;
use object_store::memory::InMemory;

use super::bucket::BucketStore;
use super::{FolderStore, StateStore};

fn check(store: &dyn StateStore) {
    assert_eq!(store.list("jobs/a").unwrap(), [""; 0]);
    assert_eq!(store.read("jobs/a/1").unwrap(), None);
    assert!(store.create("jobs/a/1", b"one").unwrap());
    // The same request again, and another creator.
    assert!(store.create("jobs/a/1", b"one").unwrap());
    assert!(!store.create("jobs/a/1", b"two").unwrap());
    assert_eq!(store.read("jobs/a/1").unwrap().unwrap(), b"one");
    assert!(store.create("jobs/a/0", b"").unwrap());
    assert!(store.create("jobs/b/0", b"other").unwrap());
    assert_eq!(store.list("jobs/a").unwrap(), ["0", "1"]);
    store.delete("jobs/a/1").unwrap();
    store.delete("jobs/a/1").unwrap();
    assert_eq!(store.list("jobs/a").unwrap(), ["0"]);
}

#[test]
fn a_folder_and_a_bucket_keep_objects_alike() {
    check(&FolderStore::new(Arc::new(SimDisk::new(1)), "state"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let bucket = BucketStore::new(
        Arc::new(InMemory::new()),
        "/pre/fix/",
        runtime.handle().clone(),
    );
    check(&bucket);
}

#[test]
fn what_a_folder_has_created_survives_a_crash() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let store = FolderStore::new(Arc::new(disk.clone()), "data/state");
        assert!(store.create("job/part/1", b"one").unwrap());
        disk.crash();
        let store = FolderStore::new(Arc::new(disk), "data/state");
        assert_eq!(
            store.read("job/part/1").unwrap().unwrap(),
            b"one",
            "seed {seed}"
        );
        assert_eq!(store.list("job/part").unwrap(), ["1"]);
    }
}

#[test]
fn of_several_creators_one_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = format!("part/{round}");
        let creators: Vec<_> = (0..4u8)
            .map(|who| {
                let store = FolderStore::new(Arc::new(highwater_env::RealDisk), folder.path());
                let path = path.clone();
                std::thread::spawn(move || store.create(&path, &[who]).unwrap())
            })
            .collect();
        let created: Vec<bool> = creators.into_iter().map(|t| t.join().unwrap()).collect();
        let winners = created.iter().filter(|created| **created).count();
        assert_eq!(winners, 1, "{created:?}");
        let store = FolderStore::new(Arc::new(highwater_env::RealDisk), folder.path());
        let kept = store.read(&path).unwrap().unwrap();
        assert!(created[usize::from(kept[0])]);
    }
}
