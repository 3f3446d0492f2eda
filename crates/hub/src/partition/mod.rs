//! A partition: the asynchronous interface of the store.
//!
//! Appends enter a queue and are answered after a committer has written and synced them; appends that arrive during a
//! sync share the next one. There is no delay to gather more: a single append is written as soon as a committer wakes
//! up.

mod queue;

use std::future::ready;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AppendError, AppendInfo, Bounds, BoxFuture, EnqueueTime, FetchData, HubSettings, Isolation,
    Offset, Producer, ProducerInfo, ReadError, TimestampLookup, TopicPartition, TransactionMarker,
};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;

use self::queue::{Limits, PendingAppend, Queue, QueuedAppend};
use crate::pool::{Pool, Readers};
use crate::status::PartitionStatus;
use crate::storage::{self, Counters, Shared, Store, WriteError, WriteGroup, before};

/// The threads that write queued appends.
pub(crate) type Committers = Pool<Arc<Partition>>;

pub(crate) struct Partition {
    shared: Arc<Shared>,
    store: Arc<Store>,
    settings: RwLock<HubSettings>,
    queue: Mutex<Queue>,
    moved: Notify,
    committers: Arc<Committers>,
    readers: Arc<Readers>,
    me: Weak<Partition>,
}

impl Partition {
    pub(crate) fn new(
        shared: Arc<Shared>,
        store: Arc<Store>,
        settings: HubSettings,
        committers: Arc<Committers>,
        readers: Arc<Readers>,
    ) -> Arc<Partition> {
        store.configure(&settings);
        let limits = limits(&shared, &settings);
        let mut queue = Queue::new(store.topic_partition().clone(), limits);
        queue.reset(store.producers(), store.bounds().last_time);
        if let Some(damage) = store.damage() {
            let reason = damage.to_string();
            queue.refuse(stopped(&store, reason));
        }
        Arc::new_cyclic(|me| Partition {
            shared,
            store,
            settings: RwLock::new(settings),
            queue: Mutex::new(queue),
            moved: Notify::new(),
            committers,
            readers,
            me: me.clone(),
        })
    }

    fn now(&self) -> EnqueueTime {
        EnqueueTime(self.shared.clock.unix_millis())
    }

    fn enqueue(
        &self,
        push: impl FnOnce(&mut Queue, EnqueueTime, usize) -> Result<PendingAppend, AppendError>,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue_in(self.queue.lock(), push)
    }

    /// Calls `push` with the queue, and schedules the partition if that succeeded.
    fn enqueue_in(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        push: impl FnOnce(&mut Queue, EnqueueTime, usize) -> Result<PendingAppend, AppendError>,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        let available = (self.shared.options.queue_bytes_all).saturating_sub(waiting);
        let PendingAppend { bytes, outcome } = match push(&mut queue, self.now(), available) {
            Ok(pending) => pending,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        if !std::mem::replace(&mut queue.scheduled, true) {
            drop(queue);
            self.schedule();
        }
        let store = self.store.clone();
        Box::pin(async move {
            let ended = |_| Err(stopped(&store, "the node has ended".into()));
            outcome.await.unwrap_or_else(ended)
        })
    }

    fn schedule(&self) {
        if let Some(me) = self.me.upgrade() {
            self.committers.push(me);
        }
    }

    /// Writes and answers the queued appends. Called by one committer at a time.
    pub(crate) fn commit(&self) {
        let queued = self.queue.lock().take(self.now());
        let bytes = queued.iter().map(QueuedAppend::bytes).sum::<usize>();
        let group = WriteGroup::new(queued.iter().filter_map(|queued| queued.stamped.as_ref()));
        let outcome = match group.is_empty() {
            true => Ok(()),
            false => self.store.append(&group),
        };
        match outcome {
            Ok(()) => {
                self.moved.notify_waiters();
                let start = self.store.bounds().start;
                queued.into_iter().for_each(|queued| queued.answer(start));
            }
            Err(error @ (WriteError::Full(_) | WriteError::Busy(_))) => self.reject(queued, error),
            Err(WriteError::Failed(reason)) => self.stop_writing(queued, reason),
        }
        self.store.checkpoint_if_due();
        self.finish(bytes);
    }

    fn finish(&self, bytes: usize) {
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        queue.release(bytes);
        queue.scheduled = !queue.is_empty();
        if queue.scheduled {
            drop(queue);
            self.schedule();
        }
    }

    /// Rejects these batches, which could not be written, and those queued after them, whose offsets assume them. The
    /// queue continues from the durable state.
    fn reject(&self, mut rejected: Vec<QueuedAppend>, error: WriteError) {
        let topic_partition = self.store.topic_partition().clone();
        tracing::warn!(%topic_partition, %error, "batches rejected");
        let error = match error {
            WriteError::Full(reason) => AppendError::DiskFull {
                topic_partition,
                reason,
            },
            WriteError::Busy(reason) | WriteError::Failed(reason) => AppendError::Busy {
                topic_partition,
                reason,
            },
        };
        let later = {
            let mut queue = self.queue.lock();
            let now = self.now();
            let later = queue.take(now);
            queue.reset(self.store.producers(), self.store.bounds().last_time);
            queue.expect_again(&rejected, now);
            queue.expect_again(&later, now);
            later
        };
        self.release(&later);
        rejected.extend(later);
        let batches = rejected.iter().filter(|queued| queued.stamped.is_some());
        Counters::add(&self.shared.counters.rejected, batches.count() as u64);
        rejected
            .into_iter()
            .for_each(|queued| queued.refuse(&error));
    }

    fn release(&self, queued: &[QueuedAppend]) {
        let bytes = queued.iter().map(QueuedAppend::bytes).sum();
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        self.queue.lock().release(bytes);
    }

    fn stop_writing(&self, queued: Vec<QueuedAppend>, reason: String) {
        let topic_partition = self.store.topic_partition();
        tracing::error!(%topic_partition, reason, "the partition accepts no writes until the node is restarted");
        self.refuse_all(queued, stopped(&self.store, reason));
    }

    /// Refuses these appends, all queued ones and all further ones.
    fn refuse_all(&self, mut queued: Vec<QueuedAppend>, error: AppendError) {
        let later = {
            let mut queue = self.queue.lock();
            queue.refuse(error.clone());
            queue.take(self.now())
        };
        self.release(&later);
        queued.extend(later);
        queued.into_iter().for_each(|queued| queued.refuse(&error));
        self.moved.notify_waiters();
    }

    /// Retention and compaction.
    pub(crate) fn maintain(&self, now: EnqueueTime) {
        let settings = self.settings.read().clone();
        if self.queue.lock().refusal().is_some() {
            return;
        }
        let silent = before(now, self.shared.options.producer_age);
        self.queue.lock().expire(silent);
        if let Err(WriteError::Failed(reason)) = self.store.maintain(&settings, now) {
            self.stop_writing(Vec::new(), reason);
        }
    }

    pub(crate) fn change(&self, settings: HubSettings) {
        let limits = limits(&self.shared, &settings);
        self.queue.lock().set_limits(limits);
        self.store.configure(&settings);
        *self.settings.write() = settings;
    }

    pub(crate) fn delete(&self) {
        self.store.set_deleted();
        let topic_partition = self.store.topic_partition().clone();
        self.refuse_all(Vec::new(), AppendError::Deleted(topic_partition));
    }

    /// Refuses further appends; queued ones are still written.
    pub(crate) fn refuse_new(&self) {
        let error = stopped(&self.store, "the node is stopping".into());
        self.queue.lock().refuse(error);
    }

    /// Prepares the files for a fast start, unless they are damaged. The queue must be empty.
    pub(crate) fn stop(&self) -> Result<(), WriteError> {
        match self.store.damage() {
            None => self.store.stop(),
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.queue.lock().refusal().is_some()
    }

    pub(crate) fn status(&self) -> PartitionStatus {
        let (waiting_bytes, stopped) = {
            let queue = self.queue.lock();
            (queue.bytes(), queue.refusal().map(AppendError::to_string))
        };
        PartitionStatus {
            topic_partition: self.store.topic_partition().clone(),
            bounds: self.store.bounds(),
            segments: self.store.segments(),
            waiting_bytes,
            stopped,
        }
    }

    /// Calls the store on a thread that may wait for the disk.
    fn on_disk<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> BoxFuture<T> {
        let store = self.store.clone();
        self.readers.call(move || call(&store))
    }
}

fn limits(shared: &Shared, settings: &HubSettings) -> Limits {
    Limits {
        queue_bytes: shared.options.queue_bytes,
        shared_batch_bytes: shared.options.shared_batch_bytes,
        batch_bytes_max: settings.batch_bytes_max as usize,
        timestamps: settings.timestamps.kind,
    }
}

fn stopped(store: &Store, reason: String) -> AppendError {
    let topic_partition = store.topic_partition().clone();
    AppendError::Stopped {
        topic_partition,
        reason,
    }
}

impl highwater_log::Partition for Partition {
    fn topic_partition(&self) -> &TopicPartition {
        self.store.topic_partition()
    }

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue(|queue, now, available| queue.push(batch, now, available))
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue(|queue, now, available| queue.push_records(records, now, available))
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue(|queue, now, _| queue.push_marker(producer, marker, now))
    }

    fn punctuate(&self, end: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>> {
        let queue = self.queue.lock();
        if queue.refusal().is_none() && queue.end() != end {
            return Box::pin(ready(Ok(None)));
        }
        let appended = self.enqueue_in(queue, Queue::push_punctuation);
        Box::pin(async move { appended.await.map(Some) })
    }

    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> BoxFuture<Result<FetchData, ReadError>> {
        match self.store.read_tail(from, bytes_max, isolation) {
            storage::TailRead::Ready(answer) => Box::pin(ready(answer)),
            storage::TailRead::OnDisk => {
                self.on_disk(move |store| store.read(from, bytes_max, isolation))
            }
        }
    }

    fn bounds(&self) -> Bounds {
        self.store.bounds()
    }

    fn stored_bytes(&self) -> Option<u64> {
        Some(self.store.stored_bytes())
    }

    fn producers(&self) -> Option<Vec<ProducerInfo>> {
        Some(self.store.producers().infos())
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> BoxFuture<()> {
        let me = self.me.clone();
        Box::pin(async move {
            let Some(me) = me.upgrade() else {
                return;
            };
            loop {
                let mut moved = std::pin::pin!(me.moved.notified());
                // No notification is missed from here on.
                moved.as_mut().enable();
                if me.bounds().visible(isolation) > offset || me.is_stopped() {
                    return;
                }
                moved.await;
            }
        })
    }

    fn offset_for_time(
        &self,
        time: EnqueueTime,
    ) -> BoxFuture<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        self.on_disk(move |store| store.find(time))
    }

    fn offset_for_timestamp(
        &self,
        lookup: TimestampLookup,
    ) -> BoxFuture<Result<Option<(Offset, i64)>, ReadError>> {
        self.on_disk(move |store| store.find_timestamp(lookup))
    }

    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>> {
        self.on_disk(move |store| store.trim(offset))
    }
}
