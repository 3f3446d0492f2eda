//! The owner of a partition: a task that feeds a [`Core`], appends its records and performs its effects.
//!
//! One append is in flight at a time, and inputs that arrive meanwhile form the next one. Under load hundreds of
//! instances share a sync; without load no input waits for others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use highwater_env::Clock;
use highwater_log::{AppendError, BoxFuture, Offset, Partition};
use tokio::sync::{mpsc, oneshot};

use super::OperatorNotifier;
use super::input_memory::InputMemory;
use super::list::{InstanceSummary, ListFilter};
use crate::call::{PreparedCall, ServicePools};
use crate::core::{Core, Effect, Input, Round, StartOutcome};
use crate::history::{ArchivedRecord, History};
use crate::journal::{self, JournalError, record};
use crate::machine::{Instance, Millis, View};
use crate::wait::{finished, sleep};

/// Sends messages to a shard.
pub(crate) type ShardSender = mpsc::UnboundedSender<Message>;

pub(crate) enum Message {
    Input(Input),
    Start {
        id: Arc<str>,
        input: Bytes,
        reply: oneshot::Sender<StartOutcome>,
    },
    /// Failed instances read by the tail, and its next offset.
    Failed(Vec<Instance>, Offset),
    Show {
        id: Arc<str>,
        reply: oneshot::Sender<Option<View>>,
    },
    /// Instances in progress for a page, the newest first.
    List {
        filter: Arc<ListFilter>,
        reply: oneshot::Sender<Vec<InstanceSummary>>,
    },
}

/// Inputs handled before their records are appended.
const GATHER_MAX: usize = 4096;

/// Maximum bytes of one batch.
const APPEND_BYTES: usize = 1 << 20;

/// The parts of a shard.
pub(crate) struct ShardParts {
    pub core: Core,
    pub journal: Arc<dyn Partition>,
    /// Where a scheduler hands over failed instances.
    pub failed: Option<Arc<dyn Partition>>,
    /// The scheduler that learns from a supervisor which instances have ended.
    pub peer: Option<ShardSender>,
    pub history: Arc<History>,
    pub pools: ServicePools,
    pub clock: Arc<dyn Clock>,
    /// Number of instances of all shards, read by starts.
    pub running: Arc<AtomicUsize>,
    pub input_memory: InputMemory,
    pub checkpoint_bytes: usize,
    /// Notified of parked instances, besides the definition's own target.
    pub notifier: Option<Arc<dyn OperatorNotifier>>,
    /// The tail's next offset in a supervisor's journal.
    pub tailed: Option<Offset>,
    pub sender: ShardSender,
    pub inbox: mpsc::UnboundedReceiver<Message>,
}

pub(crate) struct Shard {
    parts: ShardParts,
    /// The append in progress.
    appending: Option<BoxFuture<Result<Round, JournalError>>>,
    /// Ended instances waiting for the history, and the append in progress.
    to_archive: Vec<ArchivedRecord>,
    archiving: Option<BoxFuture<Result<Vec<Arc<str>>, JournalError>>>,
    to_hand_over: Vec<ArchivedRecord>,
    handing_over: Option<BoxFuture<Result<Vec<Arc<str>>, JournalError>>>,
    counted: usize,
    bytes_since_checkpoint: usize,
    checkpoint_bytes: usize,
}

impl Shard {
    pub(crate) fn new(parts: ShardParts) -> Shard {
        Shard {
            checkpoint_bytes: parts.checkpoint_bytes,
            parts,
            appending: None,
            to_archive: Vec::new(),
            archiving: None,
            to_hand_over: Vec::new(),
            handing_over: None,
            counted: 0,
            bytes_since_checkpoint: usize::MAX,
        }
    }

    pub(crate) fn set_notifier(&mut self, notifier: Arc<dyn OperatorNotifier>) {
        self.parts.notifier = Some(notifier);
    }

    pub(crate) async fn run(
        mut self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), JournalError> {
        let mut stop = std::pin::pin!(stop);
        let now_ms = self.now_ms();
        self.parts.core.recovered(now_ms);
        self.bytes_since_checkpoint = self.replayed_bytes();
        loop {
            self.start_io();
            let timer = self.timer();
            tokio::select! {
                biased;
                () = &mut stop => break,
                done = finished(&mut self.appending) => self.appended(done?),
                done = finished(&mut self.archiving) => self.archived(done?),
                done = finished(&mut self.handing_over) => self.handed_over(done?),
                message = self.parts.inbox.recv() => {
                    let Some(message) = message else { break };
                    self.handle_message(message);
                    self.handle_waiting_messages();
                }
                () = sleep(timer) => {
                    let now_ms = self.now_ms();
                    self.parts.core.tick(now_ms);
                }
            }
        }
        if let Some(append) = self.appending.take() {
            append.await?;
        }
        Ok(())
    }

    fn handle_waiting_messages(&mut self) {
        for _ in 1..GATHER_MAX {
            match self.parts.inbox.try_recv() {
                Ok(message) => self.handle_message(message),
                Err(_) => return,
            }
        }
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::Input(input) => self.input(input),
            Message::Start { id, input, reply } => self.start(id, input, reply),
            Message::Failed(instances, next) => {
                for instance in instances {
                    self.adopt(instance);
                }
                self.parts.tailed = Some(next);
            }
            Message::Show { id, reply } => {
                // The caller may have been dropped.
                let _ = reply.send(self.parts.core.get(&id).map(Instance::view));
            }
            Message::List { filter, reply } => {
                let _ = reply.send(filter.select(self.parts.core.instances()));
            }
        }
    }

    fn input(&mut self, input: Input) {
        let now_ms = self.now_ms();
        self.parts.core.handle(now_ms, input);
    }

    /// Starts an instance. An id that may be in the history is looked up first; any other is new or live.
    fn start(&mut self, id: Arc<str>, input: Bytes, reply: oneshot::Sender<StartOutcome>) {
        let begin = |id, reply| Input::Start {
            id,
            input,
            reply: Some(reply),
        };
        if self.parts.core.has(&id) || !self.parts.history.may_have(&id) {
            return self.input(begin(id, reply));
        }
        let history = Arc::clone(&self.parts.history);
        let (sender, input) = (self.parts.sender.clone(), begin(Arc::clone(&id), reply));
        tokio::spawn(async move {
            match (history.find(&id).await, input) {
                (
                    Ok(Some(found)),
                    Input::Start {
                        reply: Some(reply), ..
                    },
                ) => {
                    let _ = reply.send(StartOutcome::Existing(found.phase.name()));
                }
                (Ok(None), input) => {
                    let _ = sender.send(Message::Input(input));
                }
                // No reply: it is unknown whether the instance ran.
                (result, _) => {
                    if let Err(error) = result {
                        tracing::error!(%error, "the history cannot be read");
                    }
                }
            }
        });
    }

    /// Adopts a failed instance, unless it is in the history: it may have been handed over twice.
    fn adopt(&mut self, mut instance: Instance) {
        self.parts.input_memory.count(&mut instance);
        let failed = Input::Failed {
            instance: Box::new(instance),
        };
        let Input::Failed { instance } = &failed else {
            return;
        };
        if !self.parts.history.may_have(&instance.id) {
            return self.input(failed);
        }
        let history = Arc::clone(&self.parts.history);
        let (sender, id) = (self.parts.sender.clone(), Arc::clone(&instance.id));
        tokio::spawn(async move {
            if let Ok(None) = history.find(&id).await {
                let _ = sender.send(Message::Input(failed));
            }
        });
    }

    /// Starts the next append, archiving and hand-over, if none is in progress.
    fn start_io(&mut self) {
        let live = self.parts.core.count();
        let running = &self.parts.running;
        // Wraps when the number falls, and the sum is still right.
        running.fetch_add(live.wrapping_sub(self.counted), Ordering::Relaxed);
        self.counted = live;
        if self.appending.is_none() {
            self.append();
        }
        if self.archiving.is_none() && !self.to_archive.is_empty() {
            let ended = std::mem::take(&mut self.to_archive);
            let history = Arc::clone(&self.parts.history);
            self.archiving = Some(Box::pin(async move {
                history.put(&ended).await?;
                Ok(ended.into_iter().map(|(id, _)| id).collect())
            }));
        }
        if self.handing_over.is_none()
            && !self.to_hand_over.is_empty()
            && let Some(failed) = &self.parts.failed
        {
            let (ended, failed) = (std::mem::take(&mut self.to_hand_over), Arc::clone(failed));
            self.handing_over = Some(Box::pin(async move {
                let records: Vec<_> = ended.iter().map(|(id, value)| record(id, value)).collect();
                journal::append(&*failed, &records).await?;
                Ok(ended.into_iter().map(|(id, _)| id).collect())
            }));
        }
    }

    /// Appends the current round and, if the journal has grown long, a snapshot.
    fn append(&mut self) {
        let round = self.parts.core.take_round();
        let snapshot = (self.bytes_since_checkpoint > self.checkpoint_bytes).then(|| {
            self.parts.core.checkpoint();
            self.parts.core.take_round()
        });
        self.bytes_since_checkpoint = self.bytes_since_checkpoint.saturating_add(round.bytes());
        if let Some(snapshot) = &snapshot {
            self.bytes_since_checkpoint = snapshot.bytes();
            // A long snapshot does not pay off for a short journal.
            self.checkpoint_bytes = self.parts.checkpoint_bytes.max(3 * snapshot.bytes());
        } else if round.is_empty() {
            return;
        }
        let (journal, tailed) = (Arc::clone(&self.parts.journal), self.parts.tailed);
        self.appending = Some(Box::pin(append_all(journal, round, snapshot, tailed)));
    }

    fn appended(&mut self, round: Round) {
        self.appending = None;
        for effect in round.effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Reply(reply) => reply.send(),
            Effect::Call(call) => {
                let sender = self.parts.sender.clone();
                call.submit(&self.parts.pools, move |input| {
                    let _ = sender.send(Message::Input(input));
                });
            }
            Effect::Archive { id, value } => self.to_archive.push((id, value)),
            Effect::HandOver { id, value } => self.to_hand_over.push((id, value)),
            Effect::Notify { id, notice, parked } => self.notify(id, notice, parked),
        }
    }

    fn notify(&self, id: Arc<str>, notice: Option<PreparedCall>, parked: Option<Box<View>>) {
        let (pools, sender) = (self.parts.pools.clone(), self.parts.sender.clone());
        let notifier = self.parts.notifier.clone();
        tokio::spawn(async move {
            if let Some(notice) = notice {
                pools.notify(&id, notice).await;
            }
            if let Some(view) = parked {
                if let Some(notifier) = notifier {
                    notifier.notify_parked(*view).await;
                }
                let _ = sender.send(Message::Input(Input::Notified { id }));
            }
        });
    }

    fn archived(&mut self, ids: Vec<Arc<str>>) {
        self.archiving = None;
        for id in ids {
            if let Some(peer) = &self.parts.peer {
                let id = Arc::clone(&id);
                let _ = peer.send(Message::Input(Input::Archived { id }));
            }
            self.input(Input::Archived { id });
        }
    }

    fn handed_over(&mut self, ids: Vec<Arc<str>>) {
        self.handing_over = None;
        for id in ids {
            self.input(Input::HandedOver { id });
        }
    }

    /// Time until the next timer.
    fn timer(&self) -> Option<Duration> {
        let due_ms = self.parts.core.next_timer()?;
        Some(Duration::from_millis(
            u64::try_from(due_ms - self.now_ms()).unwrap_or(0),
        ))
    }

    fn now_ms(&self) -> Millis {
        self.parts.clock.unix_millis()
    }

    fn replayed_bytes(&self) -> usize {
        usize::try_from(self.parts.journal.bounds().bytes).unwrap_or(usize::MAX)
    }
}

/// Appends a round and a snapshot, then trims the journal to the snapshot or to the tail's position.
async fn append_all(
    journal: Arc<dyn Partition>,
    round: Round,
    snapshot: Option<Round>,
    tailed: Option<Offset>,
) -> Result<Round, JournalError> {
    append_round(&*journal, &round).await?;
    if let Some(snapshot) = snapshot {
        let first = append_round(&*journal, &snapshot).await?;
        let first = first.unwrap_or(journal.bounds().end);
        let cut = tailed.map_or(first, |tailed| tailed.min(first));
        journal.trim(cut).await?;
    }
    Ok(round)
}

/// Appends a round, in several batches if it is large. Returns the offset of its first record.
async fn append_round(
    journal: &dyn Partition,
    round: &Round,
) -> Result<Option<Offset>, AppendError> {
    let mut first = None;
    let mut records = round.records().peekable();
    while records.peek().is_some() {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((id, value)) = records.peek()
            && (batch.is_empty() || bytes + id.len() + value.len() < APPEND_BYTES)
        {
            bytes += id.len() + value.len();
            batch.push(record(id, value));
            records.next();
        }
        let appended = journal::append(journal, &batch).await?;
        first.get_or_insert(appended.offset);
    }
    Ok(first)
}
