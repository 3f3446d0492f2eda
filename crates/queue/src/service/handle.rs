//! The handle of a queue. Clones refer to the same queue. Every method completes when its effect would survive a
//! crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use highwater_env::{Clock, MemoryShare};
use tokio::sync::{mpsc, oneshot};

use super::actor::{Command, Operation, QueueStatus, Reply, WaitSetup};
use super::error::Error;
use super::exchange::{
    DeferredRequest, ReceiveRequest, SettleAndReceiveResult, SettleBatch, SettleResults,
};
use super::waiting::{WaitCondition, WaitKey, Waiter};
use crate::machine::{
    Counts, DeadLetterSummary, Delivery, LockToken, Machine, PeekedMessage, ReceiveLimit, Refusal,
    SendResult, SessionInfo, SessionLock, SubQueue, Totals,
};
use crate::message::{Content, NewMessage, Properties};
use crate::settings::Settings;

/// The largest request; a batch of the journal must hold it.
const REQUEST_BYTES_MAX: usize = 16 << 20;

#[derive(Clone)]
pub struct Queue {
    name: Arc<str>,
    /// The hub of the journal.
    hub: Arc<str>,
    commands: mpsc::Sender<Command>,
    clock: Arc<dyn Clock>,
    status: Arc<QueueStatus>,
    wait_keys: Arc<AtomicU64>,
}

/// An accepted session and its stored state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedSession {
    pub lock: SessionLock,
    pub state: Option<Bytes>,
}

/// Settings and counters of a queue.
#[derive(Clone, Debug)]
pub struct QueueStats {
    pub settings: Settings,
    pub counts: Counts,
    pub totals: Totals,
    /// When the oldest message that is ready was enqueued, in milliseconds since 1970.
    pub oldest_ready_ms: Option<i64>,
}

impl Queue {
    pub(super) fn new(
        name: &str,
        hub: &str,
        commands: mpsc::Sender<Command>,
        clock: Arc<dyn Clock>,
        status: Arc<QueueStatus>,
    ) -> Queue {
        let (name, hub) = (name.into(), hub.into());
        Queue {
            name,
            hub,
            commands,
            clock,
            status,
            wait_keys: Arc::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The hub of the journal, which names the queue among all entities.
    pub(super) fn hub(&self) -> &str {
        &self.hub
    }

    /// Whether it is the same queue, and not a new one of the same name.
    pub(super) fn is_same(&self, other: &Queue) -> bool {
        self.commands.same_channel(&other.commands)
    }

    pub(super) fn status(&self) -> &QueueStatus {
        &self.status
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.unix_millis()
    }

    /// The counters after the last round. Sends no request, so they may be ahead of the durable state.
    pub fn counters(&self) -> (Counts, Totals) {
        *self.status.counters.lock()
    }

    /// Whether another owner has claimed the journal. All requests are refused then.
    pub fn is_fenced(&self) -> bool {
        self.status.fenced.load(Ordering::Acquire)
    }

    /// Enqueues all messages or none, in order.
    pub async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<SendResult>, Error> {
        check_size(messages.iter().map(|message| &message.content))?;
        self.call(|machine| machine.send(messages)).await
    }

    pub async fn cancel(&self, seqs: Vec<u64>) -> Result<SettleResults, Error> {
        self.each(seqs, Machine::cancel).await
    }

    /// Receives messages as soon as any are ready. Returns none if the wait ends first.
    pub async fn receive(&self, receive: ReceiveRequest) -> Result<Vec<Delivery>, Error> {
        let exchange = self.exchange(SettleBatch::default(), receive).await?;
        exchange.received.map_err(Error::Refused)
    }

    /// Settles messages at once, then receives as [`receive`](Queue::receive) does: a worker's whole cycle in one
    /// request. A failed settlement does not prevent the receive.
    pub async fn exchange(
        &self,
        settlement: SettleBatch,
        receive: ReceiveRequest,
    ) -> Result<SettleAndReceiveResult, Error> {
        let ReceiveRequest {
            sub_queue,
            limit,
            mode,
            wait,
            session,
            key,
            memory,
        } = receive;
        let condition = match &session {
            Some(lock) => WaitCondition::InSession(lock.clone()),
            None => WaitCondition::Message(sub_queue),
        };
        let settle = |machine: &mut Machine| settlement.settle(machine);
        let ready = condition.clone();
        let take = move |machine: &mut Machine, settled| {
            let lent = memory
                .map(|budget| budget.try_take(limit.bytes))
                .transpose();
            let received = match (&lent, &session) {
                (Err(exhausted), _) if ready.is_met(machine) => Err(Refusal::NoMemory(*exhausted)),
                (_, Some(lock)) => machine.receive_in_session(lock, limit, mode),
                (_, None) => machine.receive(sub_queue, limit, mode),
            };
            let mut memory = lent.ok().flatten().unwrap_or_default();
            memory.shrink_to(received.as_ref().map_or(0, |got| size(got)));
            Ok(SettleAndReceiveResult {
                settled,
                received,
                memory,
            })
        };
        self.wait(condition, wait, key, settle, take).await
    }

    /// Receives deferred messages by sequence number, all or none, and takes their memory before.
    pub async fn receive_deferred(
        &self,
        request: DeferredRequest,
    ) -> Result<(Vec<Delivery>, MemoryShare), Error> {
        let receive = move |machine: &mut Machine| {
            let DeferredRequest {
                sub_queue,
                seqs,
                mode,
                session,
                memory,
            } = request;
            let memory = memory.try_take(machine.size_of(&seqs));
            let memory = memory.map_err(Refusal::NoMemory)?;
            let received = machine.receive_deferred(sub_queue, seqs, mode, session.as_ref())?;
            Ok((received, memory))
        };
        self.call(receive).await
    }

    pub async fn peek(
        &self,
        sub_queue: SubQueue,
        from: u64,
        limit: impl Into<ReceiveLimit>,
    ) -> Result<Vec<PeekedMessage>, Error> {
        let limit = limit.into();
        self.call(move |machine| Ok(machine.peek(sub_queue, None, from, limit)))
            .await
    }

    /// As [`peek`](Queue::peek), the messages of one session.
    pub async fn peek_session(
        &self,
        sub_queue: SubQueue,
        session: String,
        from: u64,
        limit: ReceiveLimit,
    ) -> Result<Vec<PeekedMessage>, Error> {
        self.call(move |machine| Ok(machine.peek(sub_queue, Some(&session), from, limit)))
            .await
    }

    pub async fn complete(&self, tokens: Vec<LockToken>) -> Result<SettleResults, Error> {
        self.each(tokens, Machine::complete).await
    }

    pub async fn abandon(
        &self,
        tokens: Vec<LockToken>,
        properties: Option<Properties>,
    ) -> Result<SettleResults, Error> {
        let abandon =
            move |machine: &mut Machine, token| machine.abandon(token, properties.clone());
        self.each(tokens, abandon).await
    }

    pub async fn defer(
        &self,
        tokens: Vec<LockToken>,
        properties: Option<Properties>,
    ) -> Result<SettleResults, Error> {
        let defer = move |machine: &mut Machine, token| machine.defer(token, properties.clone());
        self.each(tokens, defer).await
    }

    pub async fn dead_letter(
        &self,
        tokens: Vec<LockToken>,
        reason: String,
        description: String,
        properties: Option<Properties>,
    ) -> Result<SettleResults, Error> {
        let dead_letter = move |machine: &mut Machine, token| {
            let (reason, description) = (reason.clone(), description.clone());
            machine.dead_letter(token, reason, description, properties.clone())
        };
        self.each(tokens, dead_letter).await
    }

    /// Renews locks and returns their new expiry times, in milliseconds since 1970.
    pub async fn renew(&self, tokens: Vec<LockToken>) -> Result<Vec<Result<i64, Refusal>>, Error> {
        self.each(tokens, Machine::renew).await
    }

    /// Returns dead letters to the main queue.
    pub async fn resubmit(&self, seqs: Vec<u64>) -> Result<SettleResults, Error> {
        self.each(seqs, Machine::resubmit).await
    }

    /// Resubmits all dead letters that are unlocked now, a bounded number at a time, and returns how many.
    pub async fn resubmit_all(&self) -> Result<usize, Error> {
        const STEP: usize = 1000;
        let until = self.call(|machine| Ok(machine.next_seq())).await?;
        let (mut from, mut all) = (0, 0);
        loop {
            let step = move |machine: &mut Machine| {
                let seqs = machine.dead_letter_seqs(from, until, STEP);
                seqs.iter().try_for_each(|seq| machine.resubmit(*seq))?;
                Ok(seqs)
            };
            let seqs = self.call(step).await?;
            all += seqs.len();
            match seqs.last() {
                Some(last) if seqs.len() == STEP => from = last + 1,
                _ => return Ok(all),
            }
        }
    }

    pub async fn dead_letter_summary(&self) -> Result<DeadLetterSummary, Error> {
        self.ask_unused(|machine| Ok(machine.dead_letter_summary()))
            .await
    }

    /// Scheduled messages, those that are due first.
    pub async fn peek_scheduled(&self, limit: ReceiveLimit) -> Result<Vec<PeekedMessage>, Error> {
        self.call(move |machine| Ok(machine.peek_scheduled(limit)))
            .await
    }

    /// Up to `count_max` sessions in the order of their ids, after `after`.
    pub async fn list_sessions(
        &self,
        after: Option<String>,
        count_max: usize,
    ) -> Result<Vec<SessionInfo>, Error> {
        self.call(move |machine| Ok(machine.list_sessions(after.as_deref(), count_max)))
            .await
    }

    /// Removes all unlocked messages, a bounded number at a time, and returns how many.
    pub async fn purge(&self, sub_queue: SubQueue) -> Result<usize, Error> {
        const STEP: usize = 10_000;
        let mut all = 0;
        loop {
            let removed = self
                .call(move |machine| Ok(machine.purge(sub_queue, STEP)))
                .await?;
            all += removed;
            if removed < STEP {
                return Ok(all);
            }
        }
    }

    /// Accepts the named session, or any with a ready message. `None` if the wait ends first.
    pub async fn accept(
        &self,
        session: Option<String>,
        wait: Duration,
    ) -> Result<Option<AcceptedSession>, Error> {
        self.accept_until(session, wait, None).await
    }

    /// As [`accept`](Queue::accept), with a key to end the wait.
    pub async fn accept_until(
        &self,
        session: Option<String>,
        wait: Duration,
        key: Option<WaitKey>,
    ) -> Result<Option<AcceptedSession>, Error> {
        let condition = match &session {
            Some(name) => WaitCondition::Session(name.clone()),
            None => WaitCondition::AnySession,
        };
        let accept = move |machine: &mut Machine, ()| {
            let Some(lock) = machine.accept(session)? else {
                return Ok(None);
            };
            let state = machine.get_session_state(&lock)?;
            Ok(Some(AcceptedSession { lock, state }))
        };
        self.wait(condition, wait, key, |_| (), accept).await
    }

    pub async fn renew_session(&self, lock: SessionLock) -> Result<SessionLock, Error> {
        self.call(move |machine| machine.renew_session(&lock)).await
    }

    pub async fn release_session(&self, lock: SessionLock) -> Result<(), Error> {
        self.call(move |machine| machine.release_session(&lock))
            .await
    }

    /// Releases a session whose receiver ends gracefully: the deliveries of its unsettled messages do not count.
    pub async fn return_session(&self, lock: SessionLock) -> Result<(), Error> {
        self.call(move |machine| machine.return_session(&lock))
            .await
    }

    pub async fn session_state(&self, lock: SessionLock) -> Result<Option<Bytes>, Error> {
        self.call(move |machine| machine.get_session_state(&lock))
            .await
    }

    pub async fn set_session_state(
        &self,
        lock: SessionLock,
        state: Option<Bytes>,
    ) -> Result<(), Error> {
        self.call(move |machine| machine.set_session_state(&lock, state))
            .await
    }

    pub async fn stats(&self) -> Result<QueueStats, Error> {
        let stats = |machine: &mut Machine| {
            Ok(QueueStats {
                settings: machine.settings().clone(),
                counts: machine.counts(),
                totals: machine.totals(),
                oldest_ready_ms: machine.oldest_ready_ms(),
            })
        };
        self.ask_unused(stats).await
    }

    /// Initialises a new queue.
    pub(super) async fn begin(&self, settings: Settings, first_lock: u64) -> Result<(), Error> {
        let begin = move |machine: &mut Machine| {
            machine.begin(settings, first_lock);
            Ok(())
        };
        self.call(begin).await
    }

    pub(super) async fn configure(&self, settings: Settings) -> Result<(), Error> {
        let configure = |machine: &mut Machine| {
            machine.configure(settings);
            Ok(())
        };
        self.call(configure).await
    }

    /// The next offset to read from a feeding partition.
    pub async fn feed_position(&self, hub: String, partition: u32) -> Result<Option<i64>, Error> {
        self.call(move |machine| Ok(machine.feed_position(&hub, partition)))
            .await
    }

    /// Enqueues events of a hub, see `Machine::feed`.
    pub async fn feed(
        &self,
        hub: String,
        partition: u32,
        messages: Vec<(i64, NewMessage)>,
        next: i64,
    ) -> Result<usize, Error> {
        check_size(messages.iter().map(|(_, message)| &message.content))?;
        self.call(move |machine| machine.feed(&hub, partition, messages, next))
            .await
    }

    pub(super) async fn restart_feed(&self, hub: String, partition: u32) -> Result<(), Error> {
        self.call(move |machine| {
            machine.restart_feed(&hub, partition);
            Ok(())
        })
        .await
    }

    pub(super) async fn feed_unreadable(
        &self,
        hub: String,
        partition: u32,
        offset: i64,
        content: Content,
        reason: String,
    ) -> Result<(), Error> {
        self.call(move |machine| {
            machine.feed_unreadable(&hub, partition, offset, content, &reason);
            Ok(())
        })
        .await
    }

    /// Ends all waits now, with the messages that are ready, if any.
    pub async fn end_waits(&self) {
        // If the task has ended, there are no waits.
        let _ = self.commands.send(Command::EndWaits).await;
    }

    /// A new key for a wait.
    pub fn wait_key(&self) -> WaitKey {
        WaitKey(self.wait_keys.fetch_add(1, Ordering::Relaxed))
    }

    /// Ends a wait now, with the available messages or session, if any.
    pub async fn end_wait(&self, key: WaitKey) {
        // If the task has ended, there are no waits.
        let _ = self.commands.send(Command::EndWait(key)).await;
    }

    /// Completes when the queue is deleted or the node stops.
    pub(super) async fn closed(&self) {
        self.commands.closed().await;
    }

    pub(super) async fn stop(&self) {
        // If the task has ended, it has stopped.
        let _ = self.commands.send(Command::Stop).await;
    }

    pub(super) async fn each<I, T>(
        &self,
        items: Vec<I>,
        mut act: impl FnMut(&mut Machine, I) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<Vec<Result<T, Refusal>>, Error>
    where
        I: Send + 'static,
        T: Send + 'static,
    {
        self.call(move |machine| {
            let items = items.into_iter();
            Ok(items.map(|item| act(machine, item)).collect())
        })
        .await
    }

    /// A request of a client.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Machine) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let _use = self.status.usage.begin(&*self.clock)?;
        self.ask_unused(act).await
    }

    /// A request that is not a use of the queue, see `usage.rs`.
    pub(super) async fn ask_unused<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Machine) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, reply) = oneshot::channel();
        self.ask(Command::Call(reply_when_durable(answer, act)), reply)
            .await
    }

    /// A request of a client that waits, see [`wait_unused`](Queue::wait_unused).
    async fn wait<F: Send + 'static, T: Send + 'static>(
        &self,
        condition: WaitCondition,
        wait: Duration,
        key: Option<WaitKey>,
        first: impl FnOnce(&mut Machine) -> F + Send + 'static,
        act: impl FnOnce(&mut Machine, F) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let _use = self.status.usage.begin(&*self.clock)?;
        self.wait_unused(condition, wait, key, first, act).await
    }

    /// Runs `first` at once, and `act` as soon as the condition is met or the wait ends. Is not a use of the queue.
    pub(super) async fn wait_unused<F: Send + 'static, T: Send + 'static>(
        &self,
        condition: WaitCondition,
        wait: Duration,
        key: Option<WaitKey>,
        first: impl FnOnce(&mut Machine) -> F + Send + 'static,
        act: impl FnOnce(&mut Machine, F) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, reply) = oneshot::channel();
        let caller = Arc::new(());
        let alive = Arc::downgrade(&caller);
        let until = self.clock.elapsed() + wait;
        let begin: WaitSetup = Box::new(move |machine| match machine {
            Err(error) => {
                let _ = answer.send(Err(error.clone()));
                None
            }
            Ok(machine) => {
                let first = first(machine);
                Some(Waiter {
                    condition,
                    key,
                    until,
                    operation: reply_when_durable(answer, move |machine| act(machine, first)),
                    is_cancelled: Box::new(move || alive.strong_count() == 0),
                })
            }
        });
        let asked = self.ask(Command::Wait(begin), reply).await;
        drop(caller);
        asked
    }

    async fn ask<T>(
        &self,
        command: Command,
        reply: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        let stopped = || {
            let reason = "the node is stopping or gives it up, or the queue was deleted";
            Error::Stopped(reason.into())
        };
        let sent = self.commands.send(command).await;
        sent.map_err(|_| stopped())?;
        reply.await.unwrap_or_else(|_| Err(stopped()))
    }
}

/// Runs `act` and keeps its result until it is durable.
fn reply_when_durable<T: Send + 'static>(
    answer: oneshot::Sender<Result<T, Error>>,
    act: impl FnOnce(&mut Machine) -> Result<T, Refusal> + Send + 'static,
) -> Operation {
    // The caller may have stopped waiting.
    Box::new(move |machine| match machine {
        Err(error) => {
            let _ = answer.send(Err(error.clone()));
            None
        }
        Ok(machine) => {
            let result = act(machine).map_err(Error::Refused);
            let reply: Reply = Box::new(move |written| {
                let _ = answer.send(match written {
                    Ok(()) => result,
                    Err(error) => Err(error.clone()),
                });
            });
            Some(reply)
        }
    })
}

/// The size of messages, as [`ReceiveLimit`] counts it.
fn size(deliveries: &[Delivery]) -> usize {
    let sizes = deliveries
        .iter()
        .map(|delivery| delivery.message.content.size());
    sizes.sum()
}

pub(super) fn check_size<'a>(contents: impl Iterator<Item = &'a Content>) -> Result<(), Error> {
    let (bytes, max) = (contents.map(Content::size).sum(), REQUEST_BYTES_MAX);
    match bytes <= max {
        true => Ok(()),
        false => Err(Error::RequestTooLarge { bytes, max }),
    }
}
