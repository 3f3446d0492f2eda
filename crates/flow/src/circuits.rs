//! Circuits stored on a log: every instance reads the same events and so has the same circuits.
//!
//! All circuits share a partition. The key of a record is the name of its circuit, the value a [`CircuitEvent`] as
//! text, or `notified OFFSET`, which records that the opening at that offset was notified (docs/formats/circuits.md).
//! Outcomes are collected briefly before they are written; while all deliveries succeed, nothing is written.
//!
//! Records that no circuit needs are trimmed: a closed circuit needs the records within its window, any other one the
//! records since it was last closed.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::batch::{NewRecord, Record};
use highwater_log::{AppendError, EnqueueTime, Isolation, Offset, Partition};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::breaker::{Breaker, UnwrittenOutcomes};
use crate::circuit::{CircuitEvent, CircuitState, Rule, SLOTS, Transition};
use crate::scan::scan;
use crate::source::SourceError;

/// How long outcomes are collected before they are written.
const WRITE_DELAY: Duration = Duration::from_millis(50);

/// Delay after a failed read or write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Minimum number of obsolete records for a trim.
const TRIM_MIN: i64 = 10_000;

/// Openings that wait for notification. Any more are notified after a restart.
const OPENINGS_MAX: usize = 1024;

/// Clones share the circuits.
#[derive(Clone)]
pub struct Circuits(Arc<Shared>);

struct Shared {
    partition: Arc<dyn Partition>,
    clock: Arc<dyn Clock>,
    circuits: Mutex<BTreeMap<String, Entry>>,
    /// The next offset to read.
    read: watch::Sender<Offset>,
    openings: mpsc::Sender<CircuitTrip>,
}

struct Entry {
    breaker: Breaker,
    opening: Option<CircuitTrip>,
    notified: bool,
    /// The records it needs, or only the first of them.
    required: VecDeque<(EnqueueTime, Offset)>,
}

/// The opening of a circuit that has not been closed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitTrip {
    pub circuit: String,
    /// Offset of the record that opened it; unique per opening.
    pub offset: Offset,
    pub at: EnqueueTime,
    pub why: String,
}

/// State and rule of a circuit.
#[derive(Clone, Debug)]
pub struct CircuitStatus {
    pub name: String,
    pub state: CircuitState,
    pub rule: Rule,
    pub opening: Option<CircuitTrip>,
}

/// A record of the partition.
enum CircuitRecord {
    Event(CircuitEvent),
    Notified(Offset),
}

impl Circuits {
    /// Also returns the openings as they happen, for notification.
    pub fn new(
        partition: Arc<dyn Partition>,
        clock: Arc<dyn Clock>,
    ) -> (Circuits, mpsc::Receiver<CircuitTrip>) {
        let (openings, receiver) = mpsc::channel(OPENINGS_MAX);
        let circuits = Circuits(Arc::new(Shared {
            partition,
            clock,
            circuits: Mutex::default(),
            read: watch::Sender::new(Offset(0)),
            openings,
        }));
        (circuits, receiver)
    }

    /// The circuit of this name, created if necessary. Must be called before [`load`](Self::load).
    pub fn circuit(&self, name: &str, rule: Rule, poison_max: u32) -> Breaker {
        let mut circuits = self.circuits();
        let entry = circuits.entry(name.to_owned());
        let clock = &self.0.clock;
        let entry = entry.or_insert_with(|| Entry::new(rule, poison_max, clock));
        entry.breaker.clone()
    }

    /// Reads all records. Openings without a notification are sent to the receiver.
    pub async fn load(&self) -> Result<(), SourceError> {
        self.read_to_end(false).await?;
        for entry in self.circuits().values() {
            if let Some(opening) = entry.opening.clone().filter(|_| !entry.notified) {
                // If the channel is full, the next start notifies.
                let _ = self.0.openings.try_send(opening);
            }
        }
        Ok(())
    }

    pub fn list(&self) -> Vec<CircuitStatus> {
        let circuits = self.circuits();
        let status = |(name, entry): (&String, &Entry)| CircuitStatus {
            name: name.clone(),
            state: entry.breaker.state(),
            rule: entry.breaker.rule(),
            opening: entry.opening.clone(),
        };
        circuits.iter().map(status).collect()
    }

    pub fn get(&self, name: &str) -> Option<CircuitStatus> {
        self.list().into_iter().find(|status| status.name == name)
    }

    /// Appends an event. Completes when it is applied here.
    pub async fn append_event(&self, name: &str, event: &CircuitEvent) -> Result<(), AppendError> {
        let offset = self.append(name, &event.to_string()).await?;
        let mut read = self.0.read.subscribe();
        // The sender is in `self`.
        let _ = read.wait_for(|read| *read > offset).await;
        Ok(())
    }

    /// Records that an opening was notified.
    pub async fn notified(&self, opening: &CircuitTrip) -> Result<(), AppendError> {
        let line = format!("notified {}", opening.offset);
        self.append(&opening.circuit, &line).await.map(drop)
    }

    /// Follows the log and writes outcomes of this instance until `shutdown`.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        for (name, entry) in self.circuits().iter() {
            let (circuits, name, breaker) = (self.clone(), name.clone(), entry.breaker.clone());
            tasks.spawn(async move { circuits.write(&name, &breaker).await });
        }
        let reader = self.clone();
        tasks.spawn(async move { reader.follow_log().await });
        shutdown.await;
        tasks.shutdown().await;
        let unwritten: Vec<_> = (self.circuits().iter())
            .map(|(name, entry)| (name.clone(), entry.breaker.take_unwritten()))
            .collect();
        for (name, unwritten) in unwritten {
            for line in records(unwritten) {
                if let Err(error) = self.append(&name, &line).await {
                    tracing::warn!(circuit = name, %error, "the last outcomes could not be written");
                }
            }
        }
    }

    async fn write(&self, name: &str, breaker: &Breaker) {
        loop {
            breaker.has_unwritten().await;
            tokio::time::sleep(WRITE_DELAY).await;
            for line in records(breaker.take_unwritten()) {
                while let Err(error) = self.append(name, &line).await {
                    tracing::warn!(circuit = name, %error, "outcomes could not be written");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    async fn follow_log(&self) {
        loop {
            let next = *self.0.read.borrow();
            self.0.partition.wait_past(next, Isolation::Committed).await;
            if let Err(error) = self.read_to_end(true).await {
                tracing::warn!(%error, "circuit events could not be read");
            }
            if *self.0.read.borrow() == next {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            self.trim().await;
        }
    }

    async fn read_to_end(&self, live: bool) -> Result<(), SourceError> {
        let from = *self.0.read.borrow();
        let next = scan(&*self.0.partition, from, |record| {
            self.apply_record(record, live)
        })
        .await?;
        self.0.read.send_replace(next);
        Ok(())
    }

    fn apply_record(&self, record: &Record<'_>, live: bool) {
        let text = |bytes: Option<_>| std::str::from_utf8(bytes.unwrap_or_default()).ok();
        let (Some(name), Some(line)) = (text(record.key), text(record.value)) else {
            return;
        };
        let Some(line) = CircuitRecord::read(line) else {
            tracing::warn!(circuit = name, line, offset = %record.offset, "not a circuit event");
            return;
        };
        let mut circuits = self.circuits();
        // An unused circuit is kept, because an instance may use it again.
        let unused = || Entry::new(Rule::default(), Breaker::POISON_MAX, &self.0.clock);
        let entry = circuits.entry(name.to_owned()).or_insert_with(unused);
        let opened = entry.apply_record(name, record, line);
        if let Some(opening) = opened.filter(|_| live) {
            let _ = self.0.openings.try_send(opening);
        }
    }

    async fn trim(&self) {
        let read = *self.0.read.borrow();
        let now = EnqueueTime(self.0.clock.unix_millis());
        let required = self
            .circuits()
            .values_mut()
            .filter_map(|entry| entry.first_required(now))
            .min();
        let required = required.unwrap_or(read);
        if required.0 - self.0.partition.bounds().start.0 < TRIM_MIN {
            return;
        }
        if let Err(error) = self.0.partition.trim(required).await {
            tracing::warn!(%error, "old circuit events could not be trimmed");
        }
    }

    async fn append(&self, name: &str, line: &str) -> Result<Offset, AppendError> {
        let appended = self.0.partition.append_records(&[NewRecord {
            key: Some(name.as_bytes()),
            value: Some(line.as_bytes()),
            headers: &[],
        }]);
        Ok(appended.await?.offset)
    }

    fn circuits(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0
            .circuits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn records(unwritten: UnwrittenOutcomes) -> impl Iterator<Item = String> {
    let tally = (unwritten.tally != Default::default()).then_some(unwritten.tally);
    let outcomes = tally.map(CircuitEvent::Outcomes);
    let tripped = unwritten.tripped.map(|why| CircuitEvent::Tripped { why });
    outcomes
        .into_iter()
        .chain(tripped)
        .map(|event| event.to_string())
}

impl CircuitRecord {
    fn read(text: &str) -> Option<CircuitRecord> {
        match text.strip_prefix("notified ") {
            Some(offset) => Some(CircuitRecord::Notified(Offset(offset.parse().ok()?))),
            None => text.parse().ok().map(CircuitRecord::Event),
        }
    }
}

impl Entry {
    fn new(rule: Rule, poison_max: u32, clock: &Arc<dyn Clock>) -> Entry {
        Entry {
            breaker: Breaker::on_log(rule, poison_max, Arc::clone(clock)),
            opening: None,
            notified: false,
            required: VecDeque::new(),
        }
    }

    /// Applies a record. Returns the opening if this was one.
    fn apply_record(
        &mut self,
        name: &str,
        record: &Record<'_>,
        line: CircuitRecord,
    ) -> Option<CircuitTrip> {
        let (at, offset) = (EnqueueTime(record.timestamp), record.offset);
        let event = match line {
            CircuitRecord::Event(event) => event,
            CircuitRecord::Notified(of) => {
                let current = self
                    .opening
                    .as_ref()
                    .is_some_and(|opening| opening.offset == of);
                self.notified |= current;
                return None;
            }
        };
        let closed = self.opening.is_none();
        if closed || self.required.is_empty() {
            self.required.push_back((at, offset));
        }
        match self.breaker.apply(at, &event) {
            Some(Transition::Opened { why }) if closed => {
                let opening = CircuitTrip {
                    circuit: name.to_owned(),
                    offset,
                    at,
                    why,
                };
                self.opening = Some(opening.clone());
                return Some(opening);
            }
            Some(Transition::Closed) => {
                (self.opening, self.notified) = (None, false);
                self.required.clear();
            }
            _ if closed => self.forget(at),
            _ => {}
        }
        None
    }

    /// Drops required records outside the window of a closed circuit.
    fn forget(&mut self, now: EnqueueTime) {
        let window = self.breaker.rule().window.as_millis();
        // A window expires by slots, so it may reach back a little further.
        let reach = window + 2 * window.div_ceil(u128::from(SLOTS));
        let reach = i64::try_from(reach).unwrap_or(i64::MAX);
        let first_required = now.0.saturating_sub(reach);
        while self
            .required
            .front()
            .is_some_and(|(at, _)| at.0 < first_required)
        {
            self.required.pop_front();
        }
    }

    /// The first record it needs.
    fn first_required(&mut self, now: EnqueueTime) -> Option<Offset> {
        if self.opening.is_none() {
            self.forget(now);
        }
        self.required.front().map(|(_, offset)| *offset)
    }
}
