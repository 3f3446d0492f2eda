//! The owner of a partition: a task that feeds a [`Core`], appends what it says and carries out what
//! follows.
//!
//! One append is under way at a time, and what comes in meanwhile makes the next: under load a sync is
//! shared by hundreds of instances, and without load nobody waits for company.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use highwater_env::Clock;
use highwater_log::{AppendError, Offset, Partition, Pending};
use tokio::sync::{mpsc, oneshot};

use super::People;
use crate::call::{Job, Lanes, Outcome, Prepared};
use crate::core::{Core, Effect, Input, Round, Started};
use crate::history::{Ended, History};
use crate::journal::{self, JournalError, record};
use crate::machine::{Instance, Millis, View};
use crate::wait::{finished, sleep};

/// The way to a shard.
pub type Door = mpsc::UnboundedSender<Message>;

pub enum Message {
    Input(Input),
    Start {
        id: Arc<str>,
        input: Bytes,
        reply: oneshot::Sender<Started>,
    },
    /// What the tail has read, and how far it is now.
    Failed(Vec<Instance>, Offset),
    Show {
        id: Arc<str>,
        reply: oneshot::Sender<Option<View>>,
    },
    /// Instances in one of these states, if any are named; the newest first.
    List {
        states: Vec<String>,
        limit: usize,
        reply: oneshot::Sender<Vec<Instance>>,
    },
}

/// Inputs that are taken before what has gathered is appended.
const GATHER_MAX: usize = 4096;

/// Bytes of one append.
const APPEND_BYTES: usize = 1 << 20;

/// What a shard is made of.
pub struct Parts {
    pub core: Core,
    pub journal: Arc<dyn Partition>,
    /// Where a scheduler puts what failed.
    pub failed: Option<Arc<dyn Partition>>,
    /// The scheduler that a supervisor tells what has ended.
    pub peer: Option<Door>,
    pub history: Arc<History>,
    pub lanes: Lanes,
    pub clock: Arc<dyn Clock>,
    /// How many instances there are, for those who start more.
    pub running: Arc<AtomicUsize>,
    pub checkpoint_bytes: usize,
    /// Who is told of what is parked, beside those whom the definition names.
    pub people: Option<Arc<dyn People>>,
    /// How far a supervisor has read what others write to its journal.
    pub tailed: Option<Offset>,
    pub door: Door,
    pub inbox: mpsc::UnboundedReceiver<Message>,
}

pub struct Shard {
    parts: Parts,
    /// The round that is being made durable.
    appending: Option<Pending<Result<Round, JournalError>>>,
    /// Ended instances that wait for the history, and those on their way.
    to_finish: Vec<Ended>,
    finishing: Option<Pending<Result<Vec<Arc<str>>, JournalError>>>,
    to_hand: Vec<Ended>,
    handing: Option<Pending<Result<Vec<Arc<str>>, JournalError>>>,
    counted: usize,
    bytes_since_checkpoint: usize,
    checkpoint_bytes: usize,
}

impl Shard {
    pub fn new(parts: Parts) -> Shard {
        Shard {
            checkpoint_bytes: parts.checkpoint_bytes,
            parts,
            appending: None,
            to_finish: Vec::new(),
            finishing: None,
            to_hand: Vec::new(),
            handing: None,
            counted: 0,
            bytes_since_checkpoint: usize::MAX,
        }
    }

    pub fn tell_people(&mut self, people: Arc<dyn People>) {
        self.parts.people = Some(people);
    }

    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Result<(), JournalError> {
        let mut stop = std::pin::pin!(stop);
        let now_ms = self.now_ms();
        self.parts.core.recovered(now_ms);
        self.bytes_since_checkpoint = self.replayed_bytes();
        loop {
            self.go_on();
            let timer = self.timer();
            tokio::select! {
                biased;
                () = &mut stop => break,
                done = finished(&mut self.appending) => self.appended(done?),
                done = finished(&mut self.finishing) => self.finished(done?),
                done = finished(&mut self.handing) => self.handed(done?),
                message = self.parts.inbox.recv() => {
                    let Some(message) = message else { break };
                    self.take(message);
                    self.take_more();
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

    fn take_more(&mut self) {
        for _ in 1..GATHER_MAX {
            match self.parts.inbox.try_recv() {
                Ok(message) => self.take(message),
                Err(_) => return,
            }
        }
    }

    fn take(&mut self, message: Message) {
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
                // Whoever asked may have gone.
                let _ = reply.send(self.parts.core.get(&id).map(Instance::view));
            }
            Message::List {
                states,
                limit,
                reply,
            } => {
                let _ = reply.send(self.list(&states, limit));
            }
        }
    }

    fn input(&mut self, input: Input) {
        let now_ms = self.now_ms();
        self.parts.core.handle(now_ms, input);
    }

    /// An id that may have ended is looked up first; all others are new or live.
    fn start(&mut self, id: Arc<str>, input: Bytes, reply: oneshot::Sender<Started>) {
        let begin = |id, reply| Input::Start {
            id,
            input,
            reply: Some(reply),
        };
        if self.parts.core.has(&id) || !self.parts.history.may_have(&id) {
            return self.input(begin(id, reply));
        }
        let history = Arc::clone(&self.parts.history);
        let (door, input) = (self.parts.door.clone(), begin(Arc::clone(&id), reply));
        tokio::spawn(async move {
            match (history.find(&id).await, input) {
                (
                    Ok(Some(found)),
                    Input::Start {
                        reply: Some(reply), ..
                    },
                ) => {
                    let _ = reply.send(Started::Known(found.phase.name()));
                }
                (Ok(None), input) => {
                    let _ = door.send(Message::Input(input));
                }
                // Nobody is answered: it is not known whether it ran.
                (result, _) => {
                    if let Err(error) = result {
                        tracing::error!(%error, "the history cannot be read");
                    }
                }
            }
        });
    }

    /// Handed over twice, it may have ended since.
    fn adopt(&mut self, instance: Instance) {
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
        let (door, id) = (self.parts.door.clone(), Arc::clone(&instance.id));
        tokio::spawn(async move {
            if let Ok(None) = history.find(&id).await {
                let _ = door.send(Message::Input(failed));
            }
        });
    }

    fn list(&self, states: &[String], limit: usize) -> Vec<Instance> {
        let wanted = |instance: &&Instance| {
            states.is_empty() || states.iter().any(|state| state == instance.phase.name())
        };
        let mut found: Vec<&Instance> = self.parts.core.instances().filter(wanted).collect();
        found.sort_by(|a, b| (b.started_ms, &b.id).cmp(&(a.started_ms, &a.id)));
        found.into_iter().take(limit).cloned().collect()
    }

    /// Starts whatever can be started.
    fn go_on(&mut self) {
        let live = self.parts.core.count();
        let running = &self.parts.running;
        // Wraps when there are fewer, and the sum is right all the same.
        running.fetch_add(live.wrapping_sub(self.counted), Ordering::Relaxed);
        self.counted = live;
        if self.appending.is_none() {
            self.append();
        }
        if self.finishing.is_none() && !self.to_finish.is_empty() {
            let ended = std::mem::take(&mut self.to_finish);
            let history = Arc::clone(&self.parts.history);
            self.finishing = Some(Box::pin(async move {
                history.put(&ended).await?;
                Ok(ended.into_iter().map(|(id, _)| id).collect())
            }));
        }
        if self.handing.is_none()
            && !self.to_hand.is_empty()
            && let Some(failed) = &self.parts.failed
        {
            let (ended, failed) = (std::mem::take(&mut self.to_hand), Arc::clone(failed));
            self.handing = Some(Box::pin(async move {
                let records: Vec<_> = ended.iter().map(|(id, value)| record(id, value)).collect();
                journal::append(&*failed, &records).await?;
                Ok(ended.into_iter().map(|(id, _)| id).collect())
            }));
        }
    }

    /// Appends what has gathered and, if the journal has become long, a snapshot of everything.
    fn append(&mut self) {
        let round = self.parts.core.take_round();
        let snapshot = (self.bytes_since_checkpoint > self.checkpoint_bytes).then(|| {
            self.parts.core.checkpoint();
            self.parts.core.take_round()
        });
        self.bytes_since_checkpoint = self.bytes_since_checkpoint.saturating_add(round.bytes());
        if let Some(snapshot) = &snapshot {
            self.bytes_since_checkpoint = snapshot.bytes();
            // A long snapshot is not worth writing for a short journal.
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
            // Whoever asked may have gone.
            Effect::Reply(reply, started) => drop(reply.send(started)),
            Effect::Show(reply, view) => drop(reply.send(view.map(|view| *view))),
            Effect::Lend(reply, lent) => drop(reply.send(lent)),
            Effect::Take(reply, taken) => drop(reply.send(taken)),
            Effect::Call {
                id,
                step,
                undo,
                work,
                timeout,
            } => {
                let door = self.parts.door.clone();
                let done = move |outcome: Outcome| {
                    let input = Input::Outcome {
                        id,
                        step,
                        undo,
                        outcome,
                    };
                    let _ = door.send(Message::Input(input));
                };
                self.parts.lanes.submit(Job {
                    work,
                    timeout,
                    done: Box::new(done),
                });
            }
            Effect::Finish { id, value } => self.to_finish.push((id, value)),
            Effect::HandOver { id, value } => self.to_hand.push((id, value)),
            Effect::Tell { id, notice, parked } => self.tell(id, notice, parked),
        }
    }

    fn tell(&self, id: Arc<str>, notice: Option<Prepared>, parked: Option<Box<View>>) {
        let (lanes, door) = (self.parts.lanes.clone(), self.parts.door.clone());
        let people = self.parts.people.clone();
        tokio::spawn(async move {
            if let Some(notice) = notice {
                lanes.tell(&id, notice).await;
            }
            if let Some(view) = parked {
                if let Some(people) = people {
                    people.told(*view).await;
                }
                let _ = door.send(Message::Input(Input::Told { id }));
            }
        });
    }

    fn finished(&mut self, ids: Vec<Arc<str>>) {
        self.finishing = None;
        for id in ids {
            if let Some(peer) = &self.parts.peer {
                let id = Arc::clone(&id);
                let _ = peer.send(Message::Input(Input::Closed { id }));
            }
            self.input(Input::Closed { id });
        }
    }

    fn handed(&mut self, ids: Vec<Arc<str>>) {
        self.handing = None;
        for id in ids {
            self.input(Input::HandedOver { id });
        }
    }

    /// How long until something is due.
    fn timer(&self) -> Option<Duration> {
        let due_ms = self.parts.core.next_timer()?;
        Some(Duration::from_millis(
            u64::try_from(due_ms - self.now_ms()).unwrap_or(0),
        ))
    }

    fn now_ms(&self) -> Millis {
        (self.parts.clock.unix_nanos() / 1_000_000) as i64
    }

    fn replayed_bytes(&self) -> usize {
        usize::try_from(self.parts.journal.bounds().bytes).unwrap_or(usize::MAX)
    }
}

/// Appends a round and then a snapshot, before which everything is forgotten that a tail has read.
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

/// Appends a round, in several batches if it is large; answers with the offset of its first record.
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
