//! Both stores keep the same promises. // proves X1

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use highwater_env::random::Random;
use highwater_env::{RealDisk, SimDisk};
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::runtime::Runtime;

use super::bucket::BucketStore;
use super::{FolderStore, StateSettings, StateStore, StoreUnavailable};
use crate::endpoint::OutsideAccess;

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

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
    let runtime = runtime();
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

/// `open` makes the store of a creator.
fn check_creators(open: impl Fn() -> Arc<dyn StateStore>) {
    let own = format!("{:016x}", Random::from_os().next_u64());
    for round in 0..20 {
        let path = format!("{own}/{round}");
        let creators: Vec<_> = (0..4u8)
            .map(|who| {
                let (store, path) = (open(), path.clone());
                std::thread::spawn(move || store.create(&path, &[who]).unwrap())
            })
            .collect();
        let created: Vec<bool> = creators.into_iter().map(|t| t.join().unwrap()).collect();
        let winners = created.iter().filter(|created| **created).count();
        assert_eq!(winners, 1, "{created:?}");
        let kept = open().read(&path).unwrap().unwrap();
        assert!(created[usize::from(kept[0])]);
    }
}

#[test]
fn of_several_creators_one_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    check_creators(|| Arc::new(FolderStore::new(Arc::new(RealDisk), folder.path())));
}

/// In the bucket `HIGHWATER_STATE_STORE`, a URL whose credentials are in the environment; `tests/cluster/store` runs
/// it.
#[test]
#[ignore = "it needs an object store"]
fn in_a_service_objects_are_kept_alike_and_of_several_creators_one_succeeds() {
    let url = std::env::var("HIGHWATER_STATE_STORE").expect("HIGHWATER_STATE_STORE is set");
    let runtime = runtime();
    let below = |folder: &str| {
        let _inside = runtime.enter();
        let settings = StateSettings::folder(format!("{url}/{folder}"));
        let access = OutsideAccess::default();
        let opened = settings.open(&access, Path::new(""), Arc::new(RealDisk));
        opened.unwrap()
    };
    let own = format!("{:016x}", Random::from_os().next_u64());
    check(&*below(&own));
    check_creators(|| below("creators"));
}

/// An object store that answers as S3 may while another request about the same object is under way.
#[derive(Debug)]
struct ConflictingStore {
    objects: InMemory,
    conflicts: AtomicU32,
}

impl fmt::Display for ConflictingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.objects, f)
    }
}

#[async_trait]
impl ObjectStore for ConflictingStore {
    async fn put_opts(
        &self,
        at: &Location,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let left = self.conflicts.load(Ordering::Relaxed);
        if left > 0 {
            self.conflicts.store(left - 1, Ordering::Relaxed);
            return Err(Error::AlreadyExists {
                path: at.to_string(),
                source: "409 ConditionalRequestConflict".into(),
            });
        }
        self.objects.put_opts(at, body, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Location,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Location, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Location>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Location>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Location, to: &Location, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

#[test]
fn a_conflict_is_no_object_of_somebody_else() {
    let runtime = runtime();
    let bucket = |conflicts| {
        let store = ConflictingStore {
            objects: InMemory::new(),
            conflicts: AtomicU32::new(conflicts),
        };
        BucketStore::new(Arc::new(store), "jobs", runtime.handle().clone())
    };
    let store = bucket(2);
    assert!(store.create("a/1", b"one").unwrap());
    assert!(!store.create("a/1", b"two").unwrap());
    let error = bucket(1_000).create("a/1", b"one").unwrap_err();
    assert!(StoreUnavailable::is_reason_of(&error), "{error}");
}

#[test]
fn the_answer_of_a_service_is_told_in_short() {
    let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message><StringToSign>AWS4</StringToSign></Error>";
    let error = Error::Generic {
        store: "S3",
        source: format!("Server returned non-2xx status code: 403 Forbidden: {body}").into(),
    };
    let text = super::bucket::unavailable(error).to_string();
    assert_eq!(
        text,
        "the object store refuses access; check the credentials in `state.options` or the environment, and their rights on \
         the bucket: SignatureDoesNotMatch, Check your key."
    );
}
