//! The checkpoints of a job, or of a shard of it, in a store that several processes share.
//!
//! A *manifest* names the owner and the checkpoints. Manifests are numbered; the latest counts, and the next is created
//! only if no other owner has created it. An owner that was thought dead still has the number of its own last manifest,
//! so its next checkpoint is refused. Checkpoints have names that no other owner uses, so it overwrites nothing either.
//! `docs/formats/state.md` describes the objects.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::StateStore;
use highwater_env::random::Random;

use super::checkpoint_store::{Checkpoints, KEPT};
use super::internal_names::internal_name;
use super::store_object::ObjectFormat;
use crate::load::Job;

const FORMAT: ObjectFormat = ObjectFormat {
    title: *b"HWMANIFE",
    version: 1,
    mistaken: "it is not a manifest (unknown header)",
};
const MANIFEST: &str = "manifest";
const CHECKPOINT: &str = "checkpoint";
const TABLES: &str = "tables";

/// How many manifests are stored: the last, and the one before for readers that have just listed it.
const MANIFESTS_KEPT: u64 = 2;

/// Checkpoints of one owner at a time.
pub struct ShardState {
    store: Arc<dyn StateStore>,
    folder: String,
    /// Drawn at random.
    owner: u64,
    /// `None` until it is claimed.
    claim: Mutex<Option<Claim>>,
    damaged: Mutex<BTreeSet<u64>>,
}

/// The manifest that this owner wrote last.
#[derive(Clone)]
struct Claim {
    version: u64,
    manifest: Manifest,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Manifest {
    owner: u64,
    /// Ascending.
    checkpoints: Vec<StoredObject>,
    tables: Vec<StoredObject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredObject {
    number: u64,
    name: String,
}

impl StoredObject {
    fn read_list(from: &mut Reader<'_>) -> Result<Vec<StoredObject>, DecodeError> {
        let count = from.count()?;
        let read = |_| {
            Ok(StoredObject {
                number: from.u64()?,
                name: from.text()?.to_owned(),
            })
        };
        (0..count).map(read).collect()
    }
}

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        FORMAT.encode(|out| {
            out.u64(self.owner);
            for objects in [&self.checkpoints, &self.tables] {
                out.count(objects.len());
                for object in objects {
                    out.u64(object.number);
                    out.text(&object.name);
                }
            }
        })
    }

    fn decode(bytes: &[u8]) -> Result<Manifest, DecodeError> {
        FORMAT.decode(bytes, |from| {
            Ok(Manifest {
                owner: from.u64()?,
                checkpoints: StoredObject::read_list(from)?,
                tables: StoredObject::read_list(from)?,
            })
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let objects = self.checkpoints.iter().chain(&self.tables);
        objects.map(|object| &object.name[..])
    }
}

/// The checkpoints of a job that is not shared.
pub fn store_checkpoints(store: &Arc<dyn StateStore>, job: &Job) -> Arc<dyn Checkpoints> {
    let folder = internal_name("job", &[&job.file.name]);
    Arc::new(ShardState::new(store.clone(), format!("{folder}/whole")))
}

/// The error of an owner that is one no longer.
#[derive(Debug, thiserror::Error)]
#[error("another instance has taken it over")]
struct Fenced;

/// Whether a checkpoint was refused because there is another owner.
pub(super) fn is_fenced(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(|inner| inner.is::<Fenced>())
}

impl ShardState {
    /// The state in a folder of the store. It is claimed when it is first used; then earlier owners store nothing any
    /// more.
    pub fn new(store: Arc<dyn StateStore>, folder: impl Into<String>) -> ShardState {
        ShardState {
            store,
            folder: folder.into(),
            owner: Random::from_os().next_u64(),
            claim: Mutex::default(),
            damaged: Mutex::default(),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn manifest_path(&self, version: u64) -> String {
        self.path(&format!("{version:020}.{MANIFEST}"))
    }

    /// The numbers of the manifests, ascending.
    fn versions(&self) -> io::Result<Vec<u64>> {
        let names = self.store.list(&self.folder)?;
        let version = |name: &String| name.strip_suffix(MANIFEST)?.strip_suffix('.')?.parse().ok();
        Ok(names.iter().filter_map(version).collect())
    }

    /// The latest manifest, if there is one.
    fn latest(&self) -> io::Result<Option<Claim>> {
        loop {
            let Some(version) = self.versions()?.pop() else {
                return Ok(None);
            };
            // A deleted one has successors.
            let Some(bytes) = self.store.read(&self.manifest_path(version))? else {
                continue;
            };
            let damaged = |error| {
                let text = format!("manifest {version} of `{}`: {error}", self.folder);
                io::Error::new(io::ErrorKind::InvalidData, text)
            };
            let manifest = Manifest::decode(&bytes).map_err(damaged)?;
            return Ok(Some(Claim { version, manifest }));
        }
    }

    fn claimed(&self) -> io::Result<MutexGuard<'_, Option<Claim>>> {
        let mut claim = lock(&self.claim);
        while claim.is_none() {
            let latest = self.latest()?;
            let version = latest.as_ref().map_or(0, |latest| latest.version + 1);
            let manifest = Manifest {
                owner: self.owner,
                ..latest.map(|latest| latest.manifest).unwrap_or_default()
            };
            if self.put(version, &manifest)? {
                self.remove_unnamed(&manifest);
                *claim = Some(Claim { version, manifest });
            }
        }
        Ok(claim)
    }

    /// Whether another owner has claimed it since.
    pub(super) fn is_fenced(&self) -> io::Result<bool> {
        if lock(&self.claim).is_none() {
            return Ok(false);
        }
        let latest = self.latest()?;
        Ok(latest.is_some_and(|latest| latest.manifest.owner != self.owner))
    }

    /// Creates the manifest, unless there is one of that number or a later one.
    fn put(&self, version: u64, manifest: &Manifest) -> io::Result<bool> {
        let path = self.manifest_path(version);
        if !self.store.create(&path, &manifest.encode())? {
            return Ok(false);
        }
        // The manifest of that number may have been removed after others followed.
        let versions = self.versions()?;
        if versions.last() != Some(&version) {
            return Ok(false);
        }
        for old in versions {
            if old + MANIFESTS_KEPT <= version {
                // It stays until the next time.
                let _ = self.store.delete(&self.manifest_path(old));
            }
        }
        Ok(true)
    }

    /// Replaces the manifest of this owner. The objects that it names no longer are removed.
    fn replace(&self, claim: &mut Claim, manifest: Manifest) -> io::Result<()> {
        if !self.put(claim.version + 1, &manifest)? {
            // A request that failed may have created the manifest all the same: then the latest is this owner's.
            let latest = self.latest()?;
            let own = latest.filter(|latest| latest.manifest.owner == self.owner);
            *claim = own.ok_or_else(|| io::Error::other(Fenced))?;
            if !self.put(claim.version + 1, &manifest)? {
                return Err(io::Error::other(Fenced));
            }
        }
        let version = claim.version + 1;
        let before = std::mem::replace(claim, Claim { version, manifest });
        let named: BTreeSet<&str> = claim.manifest.names().collect();
        for name in before.manifest.names().filter(|name| !named.contains(name)) {
            // It stays until the next claim.
            let _ = self.store.delete(&self.path(name));
        }
        Ok(())
    }

    /// Removes objects of earlier owners that no manifest names. Since the claim none of them can.
    fn remove_unnamed(&self, manifest: &Manifest) {
        let named: BTreeSet<&str> = manifest.names().collect();
        let is_object = |name: &str| name.ends_with(CHECKPOINT) || name.ends_with(TABLES);
        let Ok(names) = self.store.list(&self.folder) else {
            return;
        };
        let names = names.iter();
        for name in names.filter(|name| is_object(name) && !named.contains(&name[..])) {
            let _ = self.store.delete(&self.path(name));
        }
    }

    /// Stores an object under a name of its own.
    fn store_object(
        &self,
        claim: &Claim,
        number: u64,
        kind: &str,
        bytes: &[u8],
    ) -> io::Result<StoredObject> {
        let (owner, version) = (self.owner, claim.version);
        let name = format!("{number:020}-{owner:016x}-{version}.{kind}");
        match self.store.create(&self.path(&name), bytes)? {
            true => Ok(StoredObject { number, name }),
            false => Err(io::Error::other(format!("{name} exists already"))),
        }
    }

    fn read_object(&self, objects: &[StoredObject], number: u64) -> io::Result<Vec<u8>> {
        let found = objects.iter().find(|object| object.number == number);
        let object = found.ok_or(io::ErrorKind::NotFound)?;
        let bytes = self.store.read(&self.path(&object.name))?;
        bytes.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpoints for ShardState {
    fn list(&self) -> io::Result<Vec<u64>> {
        let claim = self.claimed()?;
        let checkpoints = claim.iter().flat_map(|claim| &claim.manifest.checkpoints);
        Ok(checkpoints.map(|object| object.number).collect())
    }

    fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        let claim = self.claimed()?;
        let claim = claim.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.read_object(&claim.manifest.checkpoints, number)
    }

    fn write(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let mut claim = self.claimed()?;
        let claim = claim.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let object = self.store_object(claim, number, CHECKPOINT, bytes)?;
        let mut manifest = claim.manifest.clone();
        let damaged = lock(&self.damaged);
        let whole = |object: &StoredObject| !damaged.contains(&object.number);
        manifest.checkpoints.retain(whole);
        manifest.checkpoints.push(object);
        let obsolete_checkpoints = manifest.checkpoints.len().saturating_sub(KEPT);
        manifest.checkpoints.drain(..obsolete_checkpoints);
        drop(damaged);
        self.replace(claim, manifest)
    }

    fn mark_damaged(&self, number: u64) {
        lock(&self.damaged).insert(number);
    }

    fn write_tables(&self, number: u64, bytes: &[u8], in_use: Option<u64>) -> io::Result<()> {
        let mut claim = self.claimed()?;
        let claim = claim.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let object = self.store_object(claim, number, TABLES, bytes)?;
        let mut manifest = claim.manifest.clone();
        manifest
            .tables
            .retain(|tables| Some(tables.number) == in_use && tables.number != number);
        manifest.tables.push(object);
        self.replace(claim, manifest)
    }

    fn read_tables(&self, number: u64) -> io::Result<Vec<u8>> {
        let claim = self.claimed()?;
        let claim = claim.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.read_object(&claim.manifest.tables, number)
    }
}

#[cfg(test)]
mod tests {
    use highwater_connect::FolderStore;
    use highwater_env::SimDisk;

    use super::*;

    fn owner(disk: &SimDisk) -> ShardState {
        let store = FolderStore::new(Arc::new(disk.clone()), "state");
        ShardState::new(Arc::new(store), "job/shared")
    }

    fn latest(state: &ShardState) -> Option<Vec<u8>> {
        let number = state.list().unwrap().pop()?;
        Some(state.read(number).unwrap())
    }

    // proves X1
    #[test]
    fn a_new_owner_goes_on_and_the_earlier_one_stores_nothing_any_more() {
        let disk = SimDisk::new(1);
        let first = owner(&disk);
        assert_eq!(latest(&first), None);
        for number in 0..5 {
            first.write(number, &[number as u8]).unwrap();
        }
        assert_eq!(first.list().unwrap(), [3, 4]);
        let second = owner(&disk);
        assert_eq!(latest(&second).unwrap(), [4]);
        assert!(first.is_fenced().unwrap() && !second.is_fenced().unwrap());
        assert!(first.write(5, b"zombie").is_err());
        second.write(5, b"second").unwrap();
        second.write(6, b"third").unwrap();
        second.write(7, b"fourth").unwrap();
        // The next manifest of the first owner existed and was deleted.
        assert!(first.write(6, b"zombie").is_err());
        assert!(first.write_tables(6, b"zombie", None).is_err());
        assert_eq!(latest(&second).unwrap(), b"fourth");
        assert_eq!(latest(&owner(&disk)).unwrap(), b"fourth");
    }

    #[test]
    fn only_what_is_named_is_kept() {
        let disk = SimDisk::new(2);
        let state = owner(&disk);
        for number in 0..9 {
            state.write_tables(number, b"tables", None).unwrap();
            state.write(number, b"checkpoint").unwrap();
        }
        let again = owner(&disk);
        assert_eq!(again.list().unwrap(), [7, 8]);
        assert_eq!(again.read_tables(8).unwrap(), b"tables");
        let names = again.store.list("job/shared").unwrap();
        let count = |kind: &str| names.iter().filter(|name| name.ends_with(kind)).count();
        assert_eq!((count(CHECKPOINT), count(TABLES)), (2, 1), "{names:?}");
        assert!(count(MANIFEST) <= 2, "{names:?}");
    }

    #[test]
    fn a_crash_leaves_the_last_checkpoint_or_the_one_before() {
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            let state = owner(&disk);
            for number in 0..seed % 7 {
                state.write(number, &[number as u8]).unwrap();
            }
            disk.crash();
            let expected = (seed % 7).checked_sub(1).map(|last| vec![last as u8]);
            assert_eq!(latest(&owner(&disk)), expected, "seed {seed}");
        }
    }

    #[test]
    fn a_damaged_checkpoint_does_not_count_among_those_that_are_kept() {
        let disk = SimDisk::new(3);
        let state = owner(&disk);
        for number in 0..3 {
            state.write(number, b"x").unwrap();
        }
        state.mark_damaged(2);
        state.write(3, b"x").unwrap();
        assert_eq!(state.list().unwrap(), [1, 3]);
    }

    #[test]
    fn a_damaged_manifest_is_refused() {
        let bytes = Manifest {
            owner: 3,
            checkpoints: vec![StoredObject {
                number: 7,
                name: "x".into(),
            }],
            tables: Vec::new(),
        };
        let bytes = bytes.encode();
        assert!(Manifest::decode(&bytes).is_ok());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            Manifest::decode(&damaged).unwrap_err();
            Manifest::decode(&bytes[..at]).unwrap_err();
        }
    }
}
