//! A partition as others see it: an asynchronous face on the store.
//!
//! Appends enter a queue and are answered after a committer has written and synced them; what comes
//! in while the disk is at work shares the next sync. Nothing here waits for time to pass: a lone
//! append is on its way to the disk as soon as a committer wakes up.

mod queue;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AppendError, AppendInfo, Bounds, BoxFuture, EnqueueTime, FetchData, HubSettings, Isolation,
    Offset, Producer, ReadError, TopicPartition, TransactionMarker,
};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{Notify, oneshot};

use self::queue::{Limits, Queue, QueuedAppend, Responder, send};
use crate::pool::{Pool, Readers};
use crate::status::PartitionStatus;
use crate::storage::{self, Counters, Shared, Store, WriteError, WriteGroup, before};

/// The queue of partitions that have something to write.
pub type Committers = Pool<Arc<Partition>>;

pub struct Partition {
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
    pub fn new(
        shared: Arc<Shared>,
        store: Arc<Store>,
        settings: HubSettings,
        committers: Arc<Committers>,
        readers: Arc<Readers>,
    ) -> Arc<Partition> {
        let topic_partition = store.topic_partition().clone();
        let limits = Limits {
            queue_bytes: shared.options.queue_bytes,
            shared_batch_bytes: shared.options.shared_batch_bytes,
            batch_bytes_max: settings.batch_bytes_max as usize,
        };
        let mut queue = Queue::new(topic_partition.clone(), limits);
        queue.reset(store.producers(), store.bounds().last_time);
        if let Some(damage) = store.damage() {
            let reason = damage.to_string();
            queue.refuse(AppendError::Stopped {
                topic_partition,
                reason,
            });
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
        push: impl FnOnce(
            &mut Queue,
            EnqueueTime,
            usize,
            Responder,
        ) -> Result<usize, (AppendError, Responder)>,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue_in(self.queue.lock(), push)
    }

    /// Lets `push` take its place in the queue, and wakes a committer if it did.
    fn enqueue_in(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        push: impl FnOnce(
            &mut Queue,
            EnqueueTime,
            usize,
            Responder,
        ) -> Result<usize, (AppendError, Responder)>,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let (answer, answered) = oneshot::channel();
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        let room = self.shared.options.queue_bytes_all.saturating_sub(waiting);
        match push(&mut queue, self.now(), room, answer) {
            Err((error, answer)) => send(answer, Err(error)),
            Ok(bytes) => {
                self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
                if !std::mem::replace(&mut queue.scheduled, true) {
                    drop(queue);
                    self.schedule();
                }
            }
        }
        let topic_partition = self.store.topic_partition().clone();
        Box::pin(async move {
            let gone = |_| AppendError::Stopped {
                topic_partition,
                reason: "the node has ended".into(),
            };
            answered.await.unwrap_or_else(|error| Err(gone(error)))
        })
    }

    fn schedule(&self) {
        if let Some(me) = self.me.upgrade() {
            self.committers.push(me);
        }
    }

    /// Writes what is queued and answers those who wait for it. Called by one committer at a time.
    pub fn commit(&self) {
        let staged = self.queue.lock().take(self.now());
        let bytes = staged.iter().map(QueuedAppend::bytes).sum::<usize>();
        let group = WriteGroup::new(staged.iter().filter_map(|staged| staged.stamped.as_ref()));
        let outcome = match group.is_empty() {
            true => Ok(()),
            false => self.store.append(&group),
        };
        match outcome {
            Ok(()) => {
                self.moved.notify_waiters();
                let start = self.store.bounds().start;
                staged.into_iter().for_each(|staged| staged.answer(start));
            }
            Err(WriteError::Full(reason)) => self.turn_away(staged, reason),
            Err(WriteError::Failed(reason)) => self.stop_writing(staged, reason),
        }
        self.store.checkpoint_if_due();
        self.finish(bytes);
    }

    fn finish(&self, bytes: usize) {
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        queue.done(bytes);
        queue.scheduled = !queue.is_empty();
        if queue.scheduled {
            drop(queue);
            self.schedule();
        }
    }

    /// The disk is full and has nothing of these batches. Those behind them have offsets that will
    /// not be, so they go too, and the queue goes on from what the disk has.
    fn turn_away(&self, mut staged: Vec<QueuedAppend>, reason: String) {
        let topic_partition = self.store.topic_partition().clone();
        tracing::warn!(%topic_partition, reason, "no room on the disk: batches turned away");
        let error = AppendError::DiskFull {
            topic_partition,
            reason,
        };
        let behind = {
            let mut queue = self.queue.lock();
            let now = self.now();
            let behind = queue.take(now);
            queue.reset(self.store.producers(), self.store.bounds().last_time);
            queue.expect(&staged, now);
            queue.expect(&behind, now);
            behind
        };
        self.drop_behind(&behind);
        staged.extend(behind);
        let batches = staged.iter().filter(|staged| staged.stamped.is_some());
        Counters::add(&self.shared.counters.turned_away, batches.count() as u64);
        staged.into_iter().for_each(|staged| staged.refuse(&error));
    }

    fn drop_behind(&self, behind: &[QueuedAppend]) {
        let bytes = behind.iter().map(QueuedAppend::bytes).sum();
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        self.queue.lock().done(bytes);
    }

    fn stop_writing(&self, staged: Vec<QueuedAppend>, reason: String) {
        let topic_partition = self.store.topic_partition().clone();
        tracing::error!(%topic_partition, reason, "the partition takes no writes until the node is restarted");
        self.refuse_all(
            staged,
            AppendError::Stopped {
                topic_partition,
                reason,
            },
        );
    }

    /// From now on, and for all that waits.
    fn refuse_all(&self, mut staged: Vec<QueuedAppend>, error: AppendError) {
        let behind = {
            let mut queue = self.queue.lock();
            queue.refuse(error.clone());
            queue.take(self.now())
        };
        self.drop_behind(&behind);
        staged.extend(behind);
        staged.into_iter().for_each(|staged| staged.refuse(&error));
        self.moved.notify_waiters();
    }

    /// Closes, removes and compacts what is due.
    pub fn maintain(&self, now: EnqueueTime) {
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

    pub fn change(&self, settings: HubSettings) {
        let bytes = settings.batch_bytes_max as usize;
        self.queue.lock().set_batch_bytes_max(bytes);
        *self.settings.write() = settings;
    }

    pub fn delete(&self) {
        self.store.set_deleted();
        let topic_partition = self.store.topic_partition().clone();
        self.refuse_all(Vec::new(), AppendError::Deleted(topic_partition));
    }

    /// Takes no more appends; what has been taken is still written.
    pub fn refuse_new(&self) {
        let topic_partition = self.store.topic_partition().clone();
        let reason = "the node is stopping".into();
        self.queue.lock().refuse(AppendError::Stopped {
            topic_partition,
            reason,
        });
    }

    /// Leaves the files as a start finds them fastest, unless nobody knows what they hold. Nothing
    /// may be queued any more.
    pub fn stop(&self) -> Result<(), WriteError> {
        match self.store.damage() {
            None => self.store.stop(),
            Some(_) => Ok(()),
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.queue.lock().refusal().is_some()
    }

    pub fn status(&self) -> PartitionStatus {
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

    /// Calls the store where waiting for the disk holds nobody up.
    fn on_disk<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> BoxFuture<T> {
        let store = self.store.clone();
        self.readers.call(move || call(&store))
    }
}

impl highwater_log::Partition for Partition {
    fn topic_partition(&self) -> &TopicPartition {
        self.store.topic_partition()
    }

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue(|queue, now, room, answer| queue.push(batch, now, room, answer))
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue(|queue, now, room, answer| queue.push_records(records, now, room, answer))
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.enqueue(|queue, now, _, answer| queue.push_marker(producer, marker, now, answer))
    }

    fn punctuate(&self, end: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>> {
        let queue = self.queue.lock();
        if queue.refusal().is_none() && queue.end() != end {
            return Box::pin(std::future::ready(Ok(None)));
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
            storage::TailRead::Ready(answer) => Box::pin(std::future::ready(answer)),
            storage::TailRead::OnDisk => {
                self.on_disk(move |store| store.read(from, bytes_max, isolation))
            }
        }
    }

    fn bounds(&self) -> Bounds {
        self.store.bounds()
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> BoxFuture<()> {
        let me = self.me.clone();
        Box::pin(async move {
            let Some(me) = me.upgrade() else {
                return;
            };
            loop {
                let mut moved = std::pin::pin!(me.moved.notified());
                // From here on no move is missed.
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

    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>> {
        self.on_disk(move |store| store.trim(offset))
    }
}
