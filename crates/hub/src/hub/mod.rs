//! A node's hubs: opening, changing the catalogue, stopping.

mod admin;
mod open;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use highwater_env::disk::Lock;
use highwater_env::random::Random;
use highwater_log::{
    AdminError, BoxFuture, EnqueueTime, HubId, HubInfo, HubName, HubSettings, HubSpec, Log,
};
use parking_lot::{Condvar, Mutex, RwLock};

pub use self::open::{OpenError, OpenProgress};
use crate::partition::{Committers, Partition};
use crate::pool::{Readers, side_by_side};
use crate::status::{PartitionStatus, Status, Totals};
use crate::storage::Shared;

/// The hubs of a node, in one folder. Clones are handles on the same one; [`Hub::stop`] ends it.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    folder: PathBuf,
    hubs: RwLock<BTreeMap<HubName, HubEntry>>,
    /// Held while the catalogue is being changed, with the numbers for new hubs.
    admin: Mutex<Random>,
    committers: Arc<Committers>,
    readers: Arc<Readers>,
    timer: Timer,
    /// Nobody else uses the folder while this is held.
    lock: Mutex<Option<Lock>>,
}

struct HubEntry {
    info: Arc<HubInfo>,
    partitions: Vec<Arc<Partition>>,
}

/// The thread that looks for what is due.
#[derive(Default)]
struct Timer {
    stopped: Mutex<bool>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Hub {
    fn partitions(&self) -> Vec<Arc<Partition>> {
        let hubs = self.inner.hubs.read();
        hubs.values()
            .flat_map(|entry| entry.partitions.clone())
            .collect()
    }

    /// Does what `now` asks for: old segments are closed and removed, compacted hubs are compacted.
    /// A timer calls this; tests do it by hand.
    pub fn maintain(&self, now: EnqueueTime) {
        for partition in self.partitions() {
            partition.maintain(now);
        }
    }

    /// Writes what is queued on this thread, for a hub that has no committers of its own.
    pub fn commit(&self) {
        self.inner.committers.run();
    }

    pub fn status(&self) -> Status {
        Status {
            partitions: self
                .partitions()
                .iter()
                .map(|partition| partition.status())
                .collect(),
            totals: Totals::of(&self.inner.shared.counters),
            waiting_bytes: self.inner.shared.waiting.load(Ordering::Relaxed),
        }
    }

    /// The partitions of one hub, in order; none if there is no such hub.
    pub fn status_of(&self, hub: &str) -> Vec<PartitionStatus> {
        let hubs = self.inner.hubs.read();
        let partitions = hubs.get(hub).map(|entry| entry.partitions.clone());
        drop(hubs);
        let partitions = partitions.into_iter().flatten();
        partitions.map(|partition| partition.status()).collect()
    }

    /// Takes no more appends, writes those it has, and leaves the files so that the next start is
    /// quick. Waits for all that, so it belongs on a thread that may wait. Answers with the places
    /// that could not be left in order; a start will mend them.
    pub fn stop(&self) -> Vec<String> {
        let inner = &*self.inner;
        inner.timer.stop();
        let partitions = self.partitions();
        partitions
            .iter()
            .for_each(|partition| partition.refuse_new());
        inner.committers.close();
        inner.readers.close();
        let stop = |partition: &Arc<Partition>| {
            let topic_partition = highwater_log::Partition::topic_partition(&**partition);
            let trouble = partition.stop().err()?;
            Some(format!("`{topic_partition}`: {trouble}"))
        };
        let troubles = side_by_side(&partitions, self.threads(), stop);
        inner.lock.lock().take();
        troubles.into_iter().flatten().collect()
    }

    fn start_timer(&self) {
        let every = self.inner.shared.options.maintenance;
        let inner = Arc::downgrade(&self.inner);
        let shared = self.inner.shared.clone();
        let work = move || {
            loop {
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                let hub = Hub { inner };
                let mut stopped = hub.inner.timer.stopped.lock();
                if !*stopped {
                    hub.inner.timer.changed.wait_for(&mut stopped, every);
                }
                if *stopped {
                    return;
                }
                drop(stopped);
                hub.maintain(now(&shared));
            }
        };
        let thread = std::thread::Builder::new()
            .name("hub-maintain".into())
            .spawn(work);
        *self.inner.timer.thread.lock() = thread.ok();
    }
}

impl Timer {
    fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn now(shared: &Shared) -> EnqueueTime {
    EnqueueTime(shared.clock.unix_millis())
}

impl Log for Hub {
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        let hubs = self.inner.hubs.read();
        hubs.values().map(|entry| entry.info.clone()).collect()
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        Some(self.inner.hubs.read().get(name)?.info.clone())
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        let hubs = self.inner.hubs.read();
        let entry = hubs.values().find(|entry| entry.info.id == id)?;
        Some(entry.info.clone())
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn highwater_log::Partition>> {
        let hubs = self.inner.hubs.read();
        let partition = hubs.get(hub)?.partitions.get(partition as usize)?;
        Some(partition.clone())
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let hub = self.clone();
        self.inner.readers.call(move || hub.create_now(spec))
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>> {
        let (hub, name) = (self.clone(), name.clone());
        self.inner.readers.call(move || hub.delete_now(&name))
    }

    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let (hub, name) = (self.clone(), name.clone());
        self.inner
            .readers
            .call(move || hub.grow_now(&name, partitions))
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let (hub, name) = (self.clone(), name.clone());
        self.inner
            .readers
            .call(move || hub.change_now(&name, settings))
    }
}
