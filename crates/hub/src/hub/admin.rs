//! Changes of the catalogue. A crash leaves a hub as it was before or after the change.
//!
//! The folder of a hub exists before the catalogue lists it. It is renamed to a tombstone before the catalogue drops
//! it; a start completes an interrupted change.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use highwater_env::random::Random;
use highwater_log::{AdminError, HubId, HubInfo, HubName, HubSettings, HubSpec};

use super::open::{HUBS, TOMBSTONE};
use super::{Defaults, Hub, HubEntry, now};
use crate::catalogue;
use crate::partition::Partition;
use crate::pool::parallel_map;
use crate::storage::Store;

impl Hub {
    pub(super) fn create_now(&self, spec: HubSpec) -> Result<Arc<HubInfo>, AdminError> {
        let mut random = self.inner.admin.lock();
        self.create_locked(&mut random, spec)
    }

    /// Checks the limits and creates in one step, so that clients that create at once do not exceed them together.
    pub(super) fn create_automatically_now(
        &self,
        spec: HubSpec,
    ) -> Result<Arc<HubInfo>, AdminError> {
        let mut random = self.inner.admin.lock();
        self.check_automatic_creation(spec.partitions)?;
        self.create_locked(&mut random, spec)
    }

    /// Creates the hubs that do not exist: one write of the catalogue for all of them, and their folders in parallel.
    pub(super) fn create_missing_now(&self, specs: Vec<HubSpec>) -> Result<(), AdminError> {
        let mut random = self.inner.admin.lock();
        let mut infos = BTreeMap::new();
        for spec in specs {
            check_partitions(spec.partitions)?;
            spec.settings.check()?;
            if !self.inner.hubs.read().contains_key(&spec.name) {
                infos.insert(spec.name.clone(), self.new_info(&mut random, spec));
            }
        }
        if infos.is_empty() {
            return Ok(());
        }
        let infos: Vec<Arc<HubInfo>> = infos.into_values().collect();
        let folders = parallel_map(&infos, self.threads(), |info| self.create_folders(info, 0));
        folders
            .into_iter()
            .collect::<io::Result<()>>()
            .map_err(storage)?;
        self.sync_hubs_folder().map_err(storage)?;
        let opened = parallel_map(&infos, self.threads(), |info| self.open_partitions(info, 0));
        let opened: Vec<_> = opened
            .into_iter()
            .collect::<io::Result<_>>()
            .map_err(storage)?;
        self.write_catalogue(&infos, &[]).map_err(storage)?;
        let mut hubs = self.inner.hubs.write();
        for (info, partitions) in infos.into_iter().zip(opened) {
            hubs.insert(info.name.clone(), HubEntry { info, partitions });
        }
        Ok(())
    }

    fn check_automatic_creation(&self, partitions: u32) -> Result<(), AdminError> {
        let options = &self.inner.shared.options;
        let hubs = self.inner.hubs.read();
        let counts = hubs.iter().filter(|(name, _)| !name.is_internal());
        let counts: Vec<usize> = counts.map(|(_, entry)| entry.partitions.len()).collect();
        let checks = [
            ("hubs", counts.len() + 1, options.auto_create_hubs_max),
            (
                "partitions",
                counts.iter().sum::<usize>() + partitions as usize,
                options.auto_create_partitions_max,
            ),
        ];
        match checks.into_iter().find(|(_, count, max)| count > max) {
            Some((what, _, max)) => Err(AdminError::TooMany { what, max }),
            None => Ok(()),
        }
    }

    /// The caller has locked the administration, whose random numbers make the ids.
    fn create_locked(
        &self,
        random: &mut Random,
        spec: HubSpec,
    ) -> Result<Arc<HubInfo>, AdminError> {
        check_partitions(spec.partitions)?;
        spec.settings.check()?;
        if self.inner.hubs.read().contains_key(&spec.name) {
            return Err(AdminError::Exists(spec.name));
        }
        let info = self.new_info(random, spec);
        let partitions = self.create_partitions(&info, 0).map_err(storage)?;
        self.write_catalogue(std::slice::from_ref(&info), &[])
            .map_err(storage)?;
        let entry = HubEntry {
            info: info.clone(),
            partitions,
        };
        self.inner.hubs.write().insert(info.name.clone(), entry);
        Ok(info)
    }

    fn new_info(&self, random: &mut Random, spec: HubSpec) -> Arc<HubInfo> {
        let id = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let name = spec.name;
        Arc::new(HubInfo {
            id: HubId(id.to_be_bytes()),
            partitions: spec.partitions,
            settings: self.with_defaults(&name, spec.settings),
            name,
            created_ms: now(&self.inner.shared).0,
        })
    }

    pub(super) fn delete_now(&self, name: &HubName) -> Result<(), AdminError> {
        let _admin = self.inner.admin.lock();
        // From here on the hub does not exist for clients, even if the disk fails.
        let removed = self.inner.hubs.write().remove(name);
        let HubEntry { info, partitions } =
            removed.ok_or_else(|| AdminError::Unknown(name.clone()))?;
        partitions.iter().for_each(|partition| partition.delete());
        let disk = &*self.inner.shared.disk;
        let folder = self.folder_of(info.id);
        let tombstone = folder.with_extension(TOMBSTONE);
        disk.rename(&folder, &tombstone)
            .and_then(|()| self.sync_hubs_folder())
            .map_err(storage)?;
        self.write_catalogue(&[], &[]).map_err(storage)?;
        if let Err(error) = disk.remove_folder(&tombstone) {
            tracing::warn!(hub = %name, %error, "the rest of a deleted hub will be removed at the next start");
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
        let old = self.info_of(name)?;
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
            .create_partitions(&info, old.partitions)
            .map_err(storage)?;
        self.replace(vec![info.clone()], more)?;
        Ok(info)
    }

    pub(super) fn change_now(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> Result<Arc<HubInfo>, AdminError> {
        let _admin = self.inner.admin.lock();
        settings.check()?;
        let info = Arc::new(HubInfo {
            settings: self.with_defaults(name, settings),
            ..(*self.info_of(name)?).clone()
        });
        self.replace(vec![info.clone()], Vec::new())?;
        Ok(info)
    }

    fn with_defaults(&self, name: &HubName, settings: HubSettings) -> HubSettings {
        resolved(&**self.inner.defaults.read(), name, settings)
    }

    /// Sets the defaults of settings that hubs do not have of their own: `defaults` takes the settings of a hub and
    /// returns them with the defaults. It is called for every hub now, which is stored at once, and for each that is
    /// created or changed.
    pub fn set_defaults(
        &self,
        defaults: impl Fn(HubSettings) -> HubSettings + Send + Sync + 'static,
    ) -> Result<(), AdminError> {
        let _admin = self.inner.admin.lock();
        let changed = |entry: &HubEntry| {
            let info = &entry.info;
            let settings = resolved(&defaults, &info.name, info.settings.clone());
            (settings != info.settings).then(|| {
                let info = (**info).clone();
                Arc::new(HubInfo { settings, ..info })
            })
        };
        let infos = self
            .inner
            .hubs
            .read()
            .values()
            .filter_map(changed)
            .collect();
        self.replace(infos, Vec::new())?;
        *self.inner.defaults.write() = Box::new(defaults);
        Ok(())
    }

    fn info_of(&self, name: &HubName) -> Result<Arc<HubInfo>, AdminError> {
        let hubs = self.inner.hubs.read();
        let entry = hubs
            .get(name)
            .ok_or_else(|| AdminError::Unknown(name.clone()))?;
        Ok(entry.info.clone())
    }

    /// Stores the changes of hubs, then publishes them. A single one may have more partitions.
    fn replace(
        &self,
        infos: Vec<Arc<HubInfo>>,
        more: Vec<Arc<Partition>>,
    ) -> Result<(), AdminError> {
        if infos.is_empty() {
            return Ok(());
        }
        self.write_catalogue(&[], &infos).map_err(storage)?;
        let mut more = Some(more);
        let mut hubs = self.inner.hubs.write();
        for info in infos {
            let Some(entry) = hubs.get_mut(&info.name) else {
                continue;
            };
            entry.partitions.extend(more.take().unwrap_or_default());
            for partition in &entry.partitions {
                partition.change(info.settings.clone());
            }
            entry.info = info;
        }
        Ok(())
    }

    pub(super) fn folder_of(&self, id: HubId) -> PathBuf {
        self.inner.folder.join(HUBS).join(id.to_string())
    }

    /// Creates durable folders for the partitions from `first` on, and opens them.
    fn create_partitions(&self, info: &HubInfo, first: u32) -> io::Result<Vec<Arc<Partition>>> {
        self.create_folders(info, first)?;
        self.sync_hubs_folder()?;
        self.open_partitions(info, first)
    }

    /// The folder of the hub itself is durable when the folder of all hubs is synced.
    fn create_folders(&self, info: &HubInfo, first: u32) -> io::Result<()> {
        let disk = &*self.inner.shared.disk;
        let folder = self.folder_of(info.id);
        for partition in first..info.partitions {
            disk.create_folder(&folder.join(partition.to_string()))?;
        }
        disk.sync_folder(&folder)
    }

    fn sync_hubs_folder(&self) -> io::Result<()> {
        let disk = &*self.inner.shared.disk;
        disk.sync_folder(&self.inner.folder.join(HUBS))
    }

    fn open_partitions(&self, info: &HubInfo, first: u32) -> io::Result<Vec<Arc<Partition>>> {
        let folder = self.folder_of(info.id);
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

    /// Writes the catalogue with hubs added, or with some changed.
    fn write_catalogue(&self, new: &[Arc<HubInfo>], changed: &[Arc<HubInfo>]) -> io::Result<()> {
        let changed: BTreeMap<&HubName, &HubInfo> =
            (changed.iter()).map(|info| (&info.name, &**info)).collect();
        let hubs = self.inner.hubs.read();
        let infos = hubs.values().map(|entry| {
            let changed = changed.get(&entry.info.name);
            changed.copied().unwrap_or(&entry.info)
        });
        catalogue::write(
            &*self.inner.shared.disk,
            &self.inner.folder,
            infos.chain(new.iter().map(|info| &**info)),
        )
    }
}

/// The settings of a hub with the defaults of the node. Hubs of the node itself do not take them.
fn resolved(defaults: &Defaults, name: &HubName, settings: HubSettings) -> HubSettings {
    match name.is_internal() {
        true => settings,
        false => defaults(settings),
    }
}

fn check_partitions(requested: u32) -> Result<(), AdminError> {
    let max = HubSpec::PARTITIONS_MAX;
    match (1..=max).contains(&requested) {
        true => Ok(()),
        false => Err(AdminError::Partitions { requested, max }),
    }
}

fn storage(error: io::Error) -> AdminError {
    AdminError::Storage(error.to_string())
}
