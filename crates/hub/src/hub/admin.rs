//! Changing the catalogue, each step so that a crash leaves the hub as it was or as it was to be.
//!
//! A hub's folder is there before the catalogue names it. It gets a tombstone for a name before the
//! catalogue forgets it; a start finishes what a crash left in between.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use highwater_log::{AdminError, HubId, HubInfo, HubName, HubSettings, HubSpec};

use super::open::{HUBS, TOMBSTONE};
use super::{Hub, HubEntry, now};
use crate::catalogue;
use crate::partition::Partition;
use crate::storage::Store;

impl Hub {
    pub(super) fn create_now(&self, spec: HubSpec) -> Result<Arc<HubInfo>, AdminError> {
        let mut random = self.inner.admin.lock();
        check_partitions(spec.partitions)?;
        check_settings(&spec.settings)?;
        if self.inner.hubs.read().contains_key(&spec.name) {
            return Err(AdminError::Exists(spec.name));
        }
        let id = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let info = Arc::new(HubInfo {
            name: spec.name,
            id: HubId(id.to_be_bytes()),
            partitions: spec.partitions,
            settings: spec.settings,
            created_ms: now(&self.inner.shared).0,
        });
        let partitions = self.make_partitions(&info, 0).map_err(storage)?;
        self.write_catalogue(Some(&info), None).map_err(storage)?;
        let entry = HubEntry {
            info: info.clone(),
            partitions,
        };
        self.inner.hubs.write().insert(info.name.clone(), entry);
        Ok(info)
    }

    pub(super) fn delete_now(&self, name: &HubName) -> Result<(), AdminError> {
        let _admin = self.inner.admin.lock();
        // Whatever the disk says from here on, nobody uses the hub any more.
        let removed = self.inner.hubs.write().remove(name);
        let HubEntry { info, partitions } =
            removed.ok_or_else(|| AdminError::Unknown(name.clone()))?;
        partitions.iter().for_each(|partition| partition.delete());
        let disk = &*self.inner.shared.disk;
        let folder = self.folder_of(info.id);
        let tombstone = folder.with_extension(TOMBSTONE);
        disk.rename(&folder, &tombstone)
            .and_then(|()| disk.sync_folder(&self.inner.folder.join(HUBS)))
            .map_err(storage)?;
        self.write_catalogue(None, None).map_err(storage)?;
        if let Err(error) = disk.remove_folder(&tombstone) {
            tracing::warn!(hub = %name, %error, "the rest of a deleted hub is removed at the next start");
        }
        Ok(())
    }

    pub(super) fn grow_now(
        &self,
        name: &HubName,
        partitions: u32,
    ) -> Result<Arc<HubInfo>, AdminError> {
        let _admin = self.inner.admin.lock();
        check_partitions(partitions)?;
        let old = self.known(name)?;
        if partitions < old.partitions {
            return Err(AdminError::Shrink {
                hub: name.clone(),
                have: old.partitions,
            });
        }
        let info = Arc::new(HubInfo {
            partitions,
            ..(*old).clone()
        });
        let more = self
            .make_partitions(&info, old.partitions)
            .map_err(storage)?;
        self.replace(info, more)
    }

    pub(super) fn change_now(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> Result<Arc<HubInfo>, AdminError> {
        let _admin = self.inner.admin.lock();
        check_settings(&settings)?;
        let info = Arc::new(HubInfo {
            settings,
            ..(*self.known(name)?).clone()
        });
        self.replace(info, Vec::new())
    }

    fn known(&self, name: &HubName) -> Result<Arc<HubInfo>, AdminError> {
        let hubs = self.inner.hubs.read();
        let entry = hubs
            .get(name)
            .ok_or_else(|| AdminError::Unknown(name.clone()))?;
        Ok(entry.info.clone())
    }

    /// Makes the change of a hub last, then lets it be seen.
    fn replace(
        &self,
        info: Arc<HubInfo>,
        more: Vec<Arc<Partition>>,
    ) -> Result<Arc<HubInfo>, AdminError> {
        self.write_catalogue(None, Some(&info)).map_err(storage)?;
        let mut hubs = self.inner.hubs.write();
        if let Some(entry) = hubs.get_mut(&info.name) {
            entry.partitions.extend(more);
            for partition in &entry.partitions {
                partition.change(info.settings.clone());
            }
            entry.info = info.clone();
        }
        Ok(info)
    }

    pub(super) fn folder_of(&self, id: HubId) -> PathBuf {
        self.inner.folder.join(HUBS).join(id.to_string())
    }

    /// Folders for the partitions from `first` on, durable, and empty partitions in them.
    fn make_partitions(&self, info: &HubInfo, first: u32) -> io::Result<Vec<Arc<Partition>>> {
        let disk = &*self.inner.shared.disk;
        let folder = self.folder_of(info.id);
        for partition in first..info.partitions {
            disk.create_folder(&folder.join(partition.to_string()))?;
        }
        disk.sync_folder(&folder)?;
        disk.sync_folder(&self.inner.folder.join(HUBS))?;
        let open = |partition: u32| {
            let folder = folder.join(partition.to_string());
            let shared = self.inner.shared.clone();
            let (store, _) = Store::open(shared, info.topic_partition(partition), &folder)?;
            Ok(self.partition_on(store, info.settings.clone()))
        };
        (first..info.partitions).map(open).collect()
    }

    pub(super) fn partition_on(&self, store: Arc<Store>, settings: HubSettings) -> Arc<Partition> {
        let inner = &*self.inner;
        let (committers, readers) = (inner.committers.clone(), inner.readers.clone());
        Partition::new(inner.shared.clone(), store, settings, committers, readers)
    }

    /// Writes the catalogue as it is in memory, with one hub more, or one changed.
    fn write_catalogue(&self, new: Option<&HubInfo>, changed: Option<&HubInfo>) -> io::Result<()> {
        let hubs = self.inner.hubs.read();
        let infos = hubs.values().map(|entry| match changed {
            Some(changed) if changed.name == entry.info.name => changed,
            _ => &*entry.info,
        });
        catalogue::write(
            &*self.inner.shared.disk,
            &self.inner.folder,
            infos.chain(new),
        )
    }
}

fn check_partitions(requested: u32) -> Result<(), AdminError> {
    let max = HubSpec::PARTITIONS_MAX;
    match (1..=max).contains(&requested) {
        true => Ok(()),
        false => Err(AdminError::Partitions { requested, max }),
    }
}

/// A batch has a header of 61 bytes, and one of less than a kilobyte is of no use to anybody.
const BATCH_BYTES_MIN: u32 = 1024;
const BATCH_BYTES_MAX: u32 = 1 << 30;

fn check_settings(settings: &HubSettings) -> Result<(), AdminError> {
    let bytes = settings.batch_bytes_max;
    match (BATCH_BYTES_MIN..=BATCH_BYTES_MAX).contains(&bytes) {
        true => Ok(()),
        false => Err(AdminError::Settings(format!(
            "the largest batch cannot be of {bytes} bytes: use {BATCH_BYTES_MIN} to {BATCH_BYTES_MAX}"
        ))),
    }
}

fn storage(error: io::Error) -> AdminError {
    AdminError::Storage(error.to_string())
}
