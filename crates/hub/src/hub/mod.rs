//! The hubs of a node: open, administrate, stop.

mod admin;
mod open;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use highwater_env::disk::Lock;
use highwater_env::random::Random;
use highwater_log::{
    AdminError, BoxFuture, EnqueueTime, HubId, HubInfo, HubName, HubSettings, HubSpec, Log,
};
use parking_lot::{Condvar, Mutex, RwLock};

pub use self::open::{OpenError, OpenProgress, lock_folder};
use crate::partition::{Committers, Partition};
use crate::pool::{Readers, parallel_map};
use crate::status::{PartitionStatus, Status, Totals};
use crate::storage::Shared;

/// The hubs of a node, in one folder. Clones share it; [`Hub::stop`] ends it.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    folder: PathBuf,
    hubs: RwLock<BTreeMap<HubName, HubEntry>>,
    /// Held while the catalogue is changed; generates the ids of hubs.
    admin: Mutex<Random>,
    /// Gives hubs the defaults of the node for settings that they do not have of their own.
    defaults: RwLock<Box<Defaults>>,
    committers: Arc<Committers>,
    readers: Arc<Readers>,
    timer: Timer,
    /// Excludes other processes from the folder.
    lock: Mutex<Option<Lock>>,
}

type Defaults = dyn Fn(HubSettings) -> HubSettings + Send + Sync;

struct HubEntry {
    info: Arc<HubInfo>,
    partitions: Vec<Arc<Partition>>,
}

/// The maintenance thread.
struct Timer {
    stopped: Mutex<bool>,
    every: Mutex<Duration>,
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

    /// Retention and compaction of all partitions. A timer calls it; tests call it directly.
    pub fn maintain(&self, now: EnqueueTime) {
        for partition in self.partitions() {
            partition.maintain(now);
        }
    }

    /// Writes queued appends on this thread, for a hub without committers.
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

    /// The partitions of one hub, in order; empty if the hub is unknown.
    pub fn status_of(&self, hub: &str) -> Vec<PartitionStatus> {
        let hubs = self.inner.hubs.read();
        let partitions = hubs.get(hub).map(|entry| entry.partitions.clone());
        drop(hubs);
        let partitions = partitions.into_iter().flatten();
        partitions.map(|partition| partition.status()).collect()
    }

    /// Refuses further appends, writes the queued ones, and prepares the files for a fast start. Blocks until that is
    /// done. Returns the partitions that failed; the next start recovers them.
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
            let error = partition.stop().err()?;
            Some(format!("`{topic_partition}`: {error}"))
        };
        let failures = parallel_map(&partitions, self.threads(), stop);
        inner.lock.lock().take();
        failures.into_iter().flatten().collect()
    }

    /// How often [`Hub::maintain`] is called from now on; it is called at once, too.
    pub fn maintain_every(&self, every: Duration) {
        let timer = &self.inner.timer;
        // Held, so that the timer is not about to wait for the time of before.
        let _stopped = timer.stopped.lock();
        *timer.every.lock() = every;
        timer.changed.notify_all();
    }

    fn start_timer(&self) {
        let inner = Arc::downgrade(&self.inner);
        let shared = self.inner.shared.clone();
        let work = move || {
            loop {
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                let hub = Hub { inner };
                let mut stopped = hub.inner.timer.stopped.lock();
                let every = *hub.inner.timer.every.lock();
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
    fn new(every: Duration) -> Timer {
        Timer {
            stopped: Mutex::default(),
            every: Mutex::new(every),
            changed: Condvar::new(),
            thread: Mutex::default(),
        }
    }

    fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread was reported already.
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

    fn create_missing(&self, specs: Vec<HubSpec>) -> BoxFuture<Result<(), AdminError>> {
        let hub = self.clone();
        self.inner
            .readers
            .call(move || hub.create_missing_now(specs))
    }

    fn create_automatically(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let hub = self.clone();
        self.inner
            .readers
            .call(move || hub.create_automatically_now(spec))
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
