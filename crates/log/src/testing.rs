//! Test doubles for the crates that use a log.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::batch::{Batch, NewRecord};
use crate::{
    AppendError, AppendInfo, BoxFuture, HubName, HubSettings, HubSpec, Log, LogLayer, MemoryLog,
    Partition, PartitionLayer, Producer, TopicPartition, TransactionMarker,
};

/// The output of a future that is ready, such as those of [`MemoryLog`].
///
/// # Panics
/// If the future is not ready.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match std::pin::pin!(future).as_mut().poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is not ready"),
    }
}

type Append = Result<AppendInfo, AppendError>;

/// A [`MemoryLog`] whose appends a test can delay, refuse or lose. Clones share it.
#[derive(Clone)]
pub struct GatedLog {
    memory: MemoryLog,
    gate: Arc<Mutex<Gate>>,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: VecDeque<(TopicPartition, Box<dyn FnOnce() + Send>)>,
    full: Vec<String>,
    refusal: Option<Refusal>,
    delay: Option<Box<dyn FnMut() -> u64 + Send>>,
    appends: usize,
}

type Refusal = Box<dyn FnMut(&TopicPartition, Option<Producer>) -> Option<AppendError> + Send>;

impl Default for GatedLog {
    fn default() -> GatedLog {
        GatedLog::new(MemoryLog::new(|| 0))
    }
}

impl GatedLog {
    /// The gate is open: appends complete at once.
    pub fn new(memory: MemoryLog) -> GatedLog {
        let gate = Arc::default();
        GatedLog { memory, gate }
    }

    /// The log behind the gate.
    pub fn memory(&self) -> &MemoryLog {
        &self.memory
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on appends wait.
    pub fn close(&self) {
        self.gate().closed = true;
    }

    /// Completes the waiting appends; later ones complete at once.
    pub fn open(&self) {
        loop {
            while self.complete_first() {}
            let mut gate = self.gate();
            if gate.waiting.is_empty() {
                gate.closed = false;
                return;
            }
        }
    }

    /// Completes the first waiting append; false if there is none.
    pub fn complete_first(&self) -> bool {
        self.complete(|_| 0)
    }

    /// Chooses one of `count` waiting appends and completes the first one of its partition; false if there is none.
    pub fn complete(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let mut gate = self.gate();
        let chosen = choose(gate.waiting.len());
        let Some((partition, _)) = gate.waiting.get(chosen) else {
            return false;
        };
        let first = (gate.waiting.iter()).position(|(other, _)| other == partition);
        let append = first.and_then(|first| gate.waiting.remove(first));
        drop(gate);
        append.into_iter().for_each(|(_, append)| append());
        true
    }

    /// Loses the waiting appends, as a crash does. Their futures never complete.
    pub fn lose(&self) {
        let lost = std::mem::take(&mut self.gate().waiting);
        drop(lost);
    }

    /// Refuses appends to a hub with [`AppendError::QueueFull`].
    pub fn set_full(&self, hub: &str, full: bool) {
        let mut gate = self.gate();
        gate.full.retain(|other| other != hub);
        if full {
            gate.full.push(hub.to_owned());
        }
    }

    /// Refuses the appends for which `refusal` returns an error.
    pub fn refuse(
        &self,
        refusal: impl FnMut(&TopicPartition, Option<Producer>) -> Option<AppendError> + Send + 'static,
    ) {
        self.gate().refusal = Some(Box::new(refusal));
    }

    /// From now on a completed append answers after `delay` polls.
    pub fn delay_answers(&self, delay: impl FnMut() -> u64 + Send + 'static) {
        self.gate().delay = Some(Box::new(delay));
    }

    /// Number of appends so far, refused ones included.
    pub fn appends(&self) -> usize {
        self.gate().appends
    }

    pub fn create_hub(&self, name: &str, partitions: u32) {
        let spec = HubSpec {
            name: HubName::new(name).expect("the test has a valid name"),
            partitions,
            settings: HubSettings::default(),
        };
        at_once(self.memory.create(spec)).expect("the hub is new");
    }

    pub fn delete_hub(&self, name: &str) {
        let name = HubName::new(name).expect("the test has a valid name");
        at_once(self.memory.delete(&name)).expect("the hub exists");
    }
}

impl LogLayer for GatedLog {
    fn inner(&self) -> &dyn Log {
        &self.memory
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.memory.partition(hub, partition)?;
        let log = self.clone();
        Some(Arc::new(GatedPartition { log, inner }))
    }
}

struct GatedPartition {
    log: GatedLog,
    inner: Arc<dyn Partition>,
}

impl GatedPartition {
    fn pass(
        &self,
        producer: Option<Producer>,
        append: impl FnOnce(&dyn Partition) -> BoxFuture<Append> + Send + 'static,
    ) -> BoxFuture<Append> {
        let partition = self.inner.topic_partition().clone();
        let mut gate = self.log.gate();
        gate.appends += 1;
        if let Some(error) = gate.refuse(&partition, producer) {
            return Box::pin(ready(Err(error)));
        }
        let inner = Arc::clone(&self.inner);
        if !gate.closed {
            let delay = gate.delay.as_mut().map_or(0, |delay| delay());
            drop(gate);
            let answer = Some(at_once(append(&*inner)));
            return Box::pin(DelayedAnswer { answer, delay });
        }
        let answer = WaitingAnswer::default();
        let state = Arc::clone(&answer.0);
        let complete = move || answer.complete(at_once(append(&*inner)));
        gate.waiting.push_back((partition, Box::new(complete)));
        Box::pin(WaitingAnswer(state))
    }
}

impl Gate {
    fn refuse(
        &mut self,
        partition: &TopicPartition,
        producer: Option<Producer>,
    ) -> Option<AppendError> {
        if self.full.iter().any(|hub| hub == partition.hub.as_str()) {
            let topic_partition = partition.clone();
            return Some(AppendError::QueueFull {
                topic_partition,
                waiting: 0,
            });
        }
        self.refusal.as_mut()?(partition, producer)
    }
}

impl PartitionLayer for GatedPartition {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
    }

    fn append(&self, batch: Batch) -> BoxFuture<Append> {
        let producer = batch.header().producer();
        self.pass(producer, move |inner| inner.append(batch))
    }

    fn append_records(&self, records: &[NewRecord<'_>]) -> BoxFuture<Append> {
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let copy = |record: &NewRecord<'_>| {
            let headers = record.headers.iter();
            let headers: Vec<_> = headers
                .map(|(name, value)| (String::from(*name), own(*value)))
                .collect();
            (own(record.key), own(record.value), headers)
        };
        let copies: Vec<_> = records.iter().map(copy).collect();
        self.pass(None, move |inner| {
            let headers: Vec<Vec<_>> = (copies.iter())
                .map(|(_, _, headers)| headers.iter())
                .map(|headers| headers.map(|(name, value)| (&**name, value.as_deref())))
                .map(Iterator::collect)
                .collect();
            let records: Vec<NewRecord<'_>> = (copies.iter().zip(&headers))
                .map(|((key, value, _), headers)| NewRecord {
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers,
                })
                .collect();
            inner.append_records(&records)
        })
    }

    fn append_marker(&self, producer: Producer, marker: TransactionMarker) -> BoxFuture<Append> {
        self.pass(Some(producer), move |inner| {
            inner.append_marker(producer, marker)
        })
    }
}

struct DelayedAnswer {
    answer: Option<Append>,
    delay: u64,
}

impl Future for DelayedAnswer {
    type Output = Append;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Append> {
        if self.delay > 0 {
            self.delay -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.answer.take().expect("it is polled until it is ready"))
    }
}

/// The answer of a waiting append, shared with the closure that completes it.
#[derive(Default)]
struct WaitingAnswer(Arc<Mutex<(Option<Append>, Option<Waker>)>>);

impl WaitingAnswer {
    fn complete(&self, answer: Append) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(answer);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Future for WaitingAnswer {
    type Output = Append;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Append> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
