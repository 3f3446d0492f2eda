//! Opens a folder: locks it, reads the catalogue, recovers every partition.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_env::disk::Lock;
use highwater_env::random::Random;
use highwater_env::{Clock, Disk};
use highwater_log::{HubInfo, TopicPartition};
use parking_lot::{Mutex, RwLock};

use super::{Hub, HubEntry, Inner, Timer};
use crate::catalogue::{self, CatalogueError};
use crate::pool::{Pool, Readers, parallel_map};
use crate::storage::{Recovery, Shared, Store};
use crate::{Options, partition};

pub(super) const HUBS: &str = "hubs";
pub(super) const TOMBSTONE: &str = "deleted";
const LOCK: &str = "lock";

/// Why a folder could not be opened. The attempt has lost nothing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process uses {0}")]
    Locked(PathBuf),
    #[error("{path} is damaged: {reason}; restore a copy of it: without it the hubs are unknown")]
    Catalogue { path: PathBuf, reason: String },
    #[error(
        "{path} has version {version}, which is unknown to this version of Highwater: \
         use the one that wrote it, or a later one"
    )]
    CatalogueVersion { path: PathBuf, version: String },
    #[error("the folder {path} of hub `{hub}` is missing")]
    Missing { hub: String, path: PathBuf },
    #[error("could not {doing} {path}: {error}")]
    Storage {
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

/// Reported for each recovered partition.
#[derive(Clone, Debug)]
pub struct OpenProgress {
    pub topic_partition: TopicPartition,
    /// Number of partitions recovered, including this one, and of all partitions.
    pub done: usize,
    pub total: usize,
    pub recovery: Recovery,
}

/// Maximum number of threads that recover partitions.
const THREADS_MAX: usize = 8;

/// Creates a data folder if it is missing, and locks it against other processes until the lock is dropped.
pub fn lock_folder(disk: &dyn Disk, path: &Path) -> Result<Lock, OpenError> {
    create_folders(disk, path)?;
    let lock_path = path.join(LOCK);
    disk.lock(&lock_path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked(path.to_path_buf()),
        _ => failed("lock", &lock_path)(error),
    })
}

impl Hub {
    /// Opens a folder, which may be new. Calls `progress` for every partition, from several threads.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        clock: Arc<dyn Clock>,
        progress: &(dyn Fn(OpenProgress) + Sync),
    ) -> Result<Hub, OpenError> {
        let (committers, readers) = (options.committers, options.readers);
        let lock = lock_folder(&*disk, path)?;
        let infos = read_catalogue(&*disk, path)?;
        let maintenance = options.maintenance;
        let shared = Arc::new(Shared::new(disk, clock, options));
        let commit = |partition: Arc<partition::Partition>| partition.commit();
        let hub = Hub {
            inner: Arc::new(Inner {
                folder: path.to_path_buf(),
                hubs: RwLock::new(BTreeMap::new()),
                admin: Mutex::new(Random::from_os()),
                defaults: RwLock::new(Box::new(|settings| settings)),
                committers: Arc::new(Pool::new("hub-commit", committers, commit)),
                readers: Arc::new(Readers::new(readers)),
                timer: Timer::new(maintenance),
                lock: Mutex::new(Some(lock)),
                shared,
            }),
        };
        hub.recover(&infos, progress)?;
        if committers > 0 {
            hub.start_timer();
        }
        Ok(hub)
    }

    fn recover(
        &self,
        infos: &[HubInfo],
        progress: &(dyn Fn(OpenProgress) + Sync),
    ) -> Result<(), OpenError> {
        let topic_partitions: Vec<(&HubInfo, u32)> = (infos.iter())
            .flat_map(|info| (0..info.partitions).map(move |partition| (info, partition)))
            .collect();
        let stores = self.recover_stores(&topic_partitions, progress)?;
        let mut hubs = self.inner.hubs.write();
        for ((info, _), store) in topic_partitions.into_iter().zip(stores) {
            let partition = self.partition_on(store, info.settings.clone());
            let entry = hubs.entry(info.name.clone()).or_insert_with(|| HubEntry {
                info: Arc::new(info.clone()),
                partitions: Vec::new(),
            });
            entry.partitions.push(partition);
        }
        Ok(())
    }

    fn recover_stores(
        &self,
        topic_partitions: &[(&HubInfo, u32)],
        progress: &(dyn Fn(OpenProgress) + Sync),
    ) -> Result<Vec<Arc<Store>>, OpenError> {
        let done = AtomicUsize::new(0);
        let recover = |(info, partition): &(&HubInfo, u32)| {
            let topic_partition = info.topic_partition(*partition);
            let (store, recovery) = self.recover_store(info, topic_partition.clone())?;
            progress(OpenProgress {
                topic_partition,
                done: done.fetch_add(1, Ordering::Relaxed) + 1,
                total: topic_partitions.len(),
                recovery,
            });
            Ok(store)
        };
        let stores = parallel_map(topic_partitions, self.threads(), recover);
        stores.into_iter().collect()
    }

    /// Number of threads that open and stop partitions.
    pub(super) fn threads(&self) -> usize {
        self.inner.shared.options.committers.clamp(1, THREADS_MAX)
    }

    fn recover_store(
        &self,
        info: &HubInfo,
        topic_partition: TopicPartition,
    ) -> Result<(Arc<Store>, Recovery), OpenError> {
        let folder = self
            .folder_of(info.id)
            .join(topic_partition.partition.to_string());
        let opened = Store::open(self.inner.shared.clone(), topic_partition.clone(), &folder);
        let (store, recovery) = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::Missing {
                hub: info.name.to_string(),
                path: folder.clone(),
            },
            _ => failed("recover", &folder)(error),
        })?;
        if let Some(cut) = &recovery.torn_tail {
            let (file, position, bytes) = (&cut.file, cut.position, cut.bytes);
            tracing::warn!(%topic_partition, file, position, bytes, reason = cut.reason, "torn end truncated");
        }
        if let Some(damage) = &recovery.damage {
            tracing::error!(%topic_partition, %damage, "the partition serves the batches before the damage and accepts no writes");
        }
        Ok((store, recovery))
    }
}

/// Creates the folders. Existing ones are synced, too: an earlier process may have been killed before its sync.
fn create_folders(disk: &dyn Disk, path: &Path) -> Result<(), OpenError> {
    let hubs_folder = path.join(HUBS);
    disk.create_folder(&hubs_folder)
        .map_err(failed("create", &hubs_folder))?;
    // A folder of an earlier version may be open to others.
    if let Err(error) = disk.make_private(path) {
        tracing::warn!(folder = %path.display(), %error, "the data folder may be readable by other users");
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    for folder in [&hubs_folder, path, above.unwrap_or(Path::new("."))] {
        disk.sync_folder(folder).map_err(failed("sync", folder))?;
    }
    Ok(())
}

/// The hubs of the catalogue. Completes deletions; unknown folders stay.
fn read_catalogue(disk: &dyn Disk, path: &Path) -> Result<Vec<HubInfo>, OpenError> {
    let file = path.join(catalogue::FILE);
    let found = catalogue::read(disk, path).map_err(failed("read", &file))?;
    let hubs_folder = path.join(HUBS);
    let names = disk.list(&hubs_folder);
    let names: BTreeSet<String> = (names.map_err(failed("list", &hubs_folder))?)
        .into_iter()
        .collect();
    let mut infos = match found {
        Some(Ok(infos)) => infos,
        Some(Err(CatalogueError::Damaged(reason))) => {
            return Err(OpenError::Catalogue { path: file, reason });
        }
        Some(Err(CatalogueError::Version(version))) => {
            let path = file;
            return Err(OpenError::CatalogueVersion { path, version });
        }
        None => Vec::new(),
    };
    let exists = |info: &HubInfo| names.contains(&info.id.to_string());
    let is_deleted = |info: &HubInfo| names.contains(&format!("{}.{TOMBSTONE}", info.id));
    let stored = infos.len();
    infos.retain(|info| exists(info) || !is_deleted(info));
    if infos.len() < stored {
        catalogue::write(disk, path, infos.iter()).map_err(failed("write", &file))?;
    }
    if let Some(info) = infos.iter().find(|info| !exists(info)) {
        return Err(OpenError::Missing {
            hub: info.name.to_string(),
            path: hubs_folder.join(info.id.to_string()),
        });
    }
    let known: BTreeSet<String> = infos.iter().map(|info| info.id.to_string()).collect();
    for name in &names {
        let folder = hubs_folder.join(name);
        if name.ends_with(TOMBSTONE) {
            disk.remove_folder(&folder)
                .map_err(failed("remove", &folder))?;
        } else if !known.contains(name) {
            remove_if_empty(disk, &folder).map_err(failed("clean up", &folder))?;
        }
    }
    Ok(infos)
}

/// A folder that is not in the catalogue belongs to a hub whose creation was interrupted, and is empty. If it is not,
/// an operator must look at it.
fn remove_if_empty(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    for partition in disk.list(folder)? {
        if !disk.list(&folder.join(partition))?.is_empty() {
            tracing::error!(folder = %folder.display(), "the folder is not in the catalogue and stays");
            return Ok(());
        }
    }
    disk.remove_folder(folder)
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |error| OpenError::Storage {
        doing,
        path: path.to_path_buf(),
        error,
    }
}
