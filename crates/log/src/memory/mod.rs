//! A log in memory, the simplest implementation of [`Log`] and [`Partition`].
//!
//! Other crates test with it, and the hub is compared with it. An append is "durable" at once, so all futures but that
//! of [`Partition::wait_past`] are ready immediately. There is no retention and no compaction: settings are kept and
//! shown, but only the maximum batch size is enforced.

mod partition;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{AdminError, BoxFuture, HubId, HubInfo, HubName, HubSettings, HubSpec, Log, Partition};

use partition::MemoryPartition;

/// Returns milliseconds since 1970.
pub type ClockFn = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A catalogue of hubs in memory. Clones share their contents.
#[derive(Clone)]
pub struct MemoryLog {
    now: ClockFn,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    hubs: BTreeMap<HubName, Hub>,
    /// Number of hubs created so far, deleted ones included.
    made: u128,
}

struct Hub {
    info: Arc<HubInfo>,
    partitions: Vec<Arc<MemoryPartition>>,
}

impl MemoryLog {
    pub fn new(now: impl Fn() -> i64 + Send + Sync + 'static) -> MemoryLog {
        MemoryLog {
            now: Arc::new(now),
            state: Arc::default(),
        }
    }

    fn make(&self, spec: HubSpec) -> Result<Arc<HubInfo>, AdminError> {
        check_partitions(spec.partitions)?;
        let mut state = lock(&self.state);
        if state.hubs.contains_key(&spec.name) {
            return Err(AdminError::Exists(spec.name));
        }
        state.made += 1;
        let info = HubInfo {
            name: spec.name.clone(),
            id: HubId(state.made.to_be_bytes()),
            partitions: 0,
            settings: spec.settings,
            created_ms: (self.now)(),
        };
        let mut hub = Hub {
            info: Arc::new(info),
            partitions: Vec::new(),
        };
        hub.grow(spec.partitions, &self.now);
        let info = Arc::clone(&hub.info);
        state.hubs.insert(spec.name, hub);
        Ok(info)
    }

    fn with_hub<T>(
        &self,
        name: &HubName,
        act: impl FnOnce(&mut Hub) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let mut state = lock(&self.state);
        let hub = state.hubs.get_mut(name);
        act(hub.ok_or_else(|| AdminError::Unknown(name.clone()))?)
    }
}

impl Hub {
    fn grow(&mut self, partitions: u32, now: &ClockFn) {
        for partition in self.info.partitions..partitions {
            let topic_partition = self.info.topic_partition(partition);
            let settings = &self.info.settings;
            let partition = MemoryPartition::new(topic_partition, settings, Arc::clone(now));
            self.partitions.push(Arc::new(partition));
        }
        Arc::make_mut(&mut self.info).partitions = partitions;
    }
}

fn check_partitions(requested: u32) -> Result<(), AdminError> {
    let max = HubSpec::PARTITIONS_MAX;
    match (1..=max).contains(&requested) {
        true => Ok(()),
        false => Err(AdminError::Partitions { requested, max }),
    }
}

impl Log for MemoryLog {
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        let state = lock(&self.state);
        state
            .hubs
            .values()
            .map(|hub| Arc::clone(&hub.info))
            .collect()
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        let state = lock(&self.state);
        state.hubs.get(name).map(|hub| Arc::clone(&hub.info))
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        self.hubs().into_iter().find(|info| info.id == id)
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let state = lock(&self.state);
        let partition = state.hubs.get(hub)?.partitions.get(partition as usize)?;
        Some(Arc::clone(partition) as Arc<dyn Partition>)
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        Box::pin(ready(self.make(spec)))
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>> {
        let hub = lock(&self.state).hubs.remove(name);
        let deleted = hub.ok_or_else(|| AdminError::Unknown(name.clone()));
        Box::pin(ready(deleted.map(|hub| {
            hub.partitions
                .iter()
                .for_each(|partition| partition.delete());
        })))
    }

    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        Box::pin(ready(self.with_hub(name, |hub| {
            check_partitions(partitions)?;
            let have = hub.info.partitions;
            if partitions < have {
                let hub = name.clone();
                return Err(AdminError::Shrink { hub, have });
            }
            hub.grow(partitions, &self.now);
            Ok(Arc::clone(&hub.info))
        })))
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        Box::pin(ready(self.with_hub(name, |hub| {
            for partition in &hub.partitions {
                partition.change(&settings);
            }
            Arc::make_mut(&mut hub.info).settings = settings;
            Ok(Arc::clone(&hub.info))
        })))
    }
}

/// A panic under the lock has failed the test already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
