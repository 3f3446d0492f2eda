//! The face of a queue. Clones are the same queue. Every method is ready when what it did would
//! survive a crash.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_env::Clock;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::actor::{Act, Begin, Command, Reply};
use super::error::Error;
use super::exchange::{Done, Exchange, Receive, Settled};
use super::waiting::{Waiter, Want};
use crate::machine::{
    Counts, Delivery, Machine, Mode, Part, Peeked, Refusal, Sent, SessionLock, Token, Totals,
};
use crate::message::{Content, NewMessage, Properties};
use crate::settings::Settings;

/// What one request may bring; a batch of the journal must hold it.
const REQUEST_BYTES_MAX: usize = 16 << 20;

#[derive(Clone)]
pub struct Queue {
    name: Arc<str>,
    commands: mpsc::Sender<Command>,
    clock: Arc<dyn Clock>,
    glance: Arc<Mutex<(Counts, Totals)>>,
}

/// A session that was accepted, and the state that was left with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub lock: SessionLock,
    pub state: Option<Bytes>,
}

/// How a queue is doing.
#[derive(Clone, Debug)]
pub struct Stats {
    pub settings: Settings,
    pub counts: Counts,
    pub totals: Totals,
}

impl Queue {
    pub(super) fn new(
        name: &str,
        commands: mpsc::Sender<Command>,
        clock: Arc<dyn Clock>,
        glance: Arc<Mutex<(Counts, Totals)>>,
    ) -> Queue {
        let name = name.into();
        Queue {
            name,
            commands,
            clock,
            glance,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it stood when something happened last. Asks nobody, so it may be ahead of what is durable.
    pub fn glance(&self) -> (Counts, Totals) {
        *self.glance.lock()
    }

    /// All of them or none, in order.
    pub async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<Sent>, Error> {
        check_size(messages.iter().map(|message| &message.content))?;
        self.call(|machine| machine.send(messages)).await
    }

    pub async fn cancel(&self, seqs: Vec<u64>) -> Result<Settled, Error> {
        self.each(seqs, Machine::cancel).await
    }

    /// Messages as soon as there are any; none if there were none in time.
    pub async fn receive(&self, receive: Receive) -> Result<Vec<Delivery>, Error> {
        let exchange = self.exchange(Done::default(), receive).await?;
        exchange.received.map_err(Error::Refused)
    }

    /// Settles what the receiver had, at once, and then receives as [`receive`](Queue::receive) does: the
    /// whole round of a worker in one request. What could not be settled keeps nobody from receiving.
    pub async fn exchange(&self, done: Done, receive: Receive) -> Result<Exchange, Error> {
        let Receive {
            part,
            most,
            mode,
            wait,
            session,
        } = receive;
        let want = match &session {
            Some(lock) => Want::InSession(lock.clone()),
            None => Want::Message(part),
        };
        let settle = |machine: &mut Machine| done.settle(machine);
        let take = move |machine: &mut Machine, settled| {
            let received = match &session {
                Some(lock) => machine.receive_in_session(lock, most, mode),
                None => machine.receive(part, most, mode),
            };
            Ok(Exchange { settled, received })
        };
        self.wait(want, wait, settle, take).await
    }

    /// Messages that were set aside, by their numbers; all of them or none.
    pub async fn receive_deferred(
        &self,
        part: Part,
        seqs: Vec<u64>,
        mode: Mode,
        session: Option<SessionLock>,
    ) -> Result<Vec<Delivery>, Error> {
        self.call(move |machine| machine.receive_deferred(part, seqs, mode, session.as_ref()))
            .await
    }

    pub async fn peek(&self, part: Part, from: u64, max: usize) -> Result<Vec<Peeked>, Error> {
        self.call(move |machine| Ok(machine.peek(part, from, max)))
            .await
    }

    pub async fn complete(&self, tokens: Vec<Token>) -> Result<Settled, Error> {
        self.each(tokens, Machine::complete).await
    }

    pub async fn abandon(
        &self,
        tokens: Vec<Token>,
        properties: Option<Properties>,
    ) -> Result<Settled, Error> {
        let abandon =
            move |machine: &mut Machine, token| machine.abandon(token, properties.clone());
        self.each(tokens, abandon).await
    }

    pub async fn defer(
        &self,
        tokens: Vec<Token>,
        properties: Option<Properties>,
    ) -> Result<Settled, Error> {
        let defer = move |machine: &mut Machine, token| machine.defer(token, properties.clone());
        self.each(tokens, defer).await
    }

    pub async fn dead_letter(
        &self,
        tokens: Vec<Token>,
        reason: String,
        description: String,
        properties: Option<Properties>,
    ) -> Result<Settled, Error> {
        let kill = move |machine: &mut Machine, token| {
            let (reason, description) = (reason.clone(), description.clone());
            machine.dead_letter(token, reason, description, properties.clone())
        };
        self.each(tokens, kill).await
    }

    /// Until when each is locked now, in milliseconds since 1970.
    pub async fn renew(&self, tokens: Vec<Token>) -> Result<Vec<Result<i64, Refusal>>, Error> {
        self.each(tokens, Machine::renew).await
    }

    /// Dead letters become messages again.
    pub async fn resubmit(&self, seqs: Vec<u64>) -> Result<Settled, Error> {
        self.each(seqs, Machine::resubmit).await
    }

    /// Removes whatever nobody has locked, a bounded number at a time; answers how many there were.
    pub async fn purge(&self, part: Part) -> Result<usize, Error> {
        const STEP: usize = 10_000;
        let mut all = 0;
        loop {
            let gone = self
                .call(move |machine| Ok(machine.purge(part, STEP)))
                .await?;
            all += gone;
            if gone < STEP {
                return Ok(all);
            }
        }
    }

    /// This session, or any that has a message; `None` if there was none in time.
    pub async fn accept(
        &self,
        session: Option<String>,
        wait: Duration,
    ) -> Result<Option<Accepted>, Error> {
        let want = match &session {
            Some(name) => Want::Session(name.clone()),
            None => Want::AnySession,
        };
        let accept = move |machine: &mut Machine, ()| {
            let Some(lock) = machine.accept(session)? else {
                return Ok(None);
            };
            let state = machine.get_session_state(&lock)?;
            Ok(Some(Accepted { lock, state }))
        };
        self.wait(want, wait, |_| (), accept).await
    }

    pub async fn renew_session(&self, lock: SessionLock) -> Result<SessionLock, Error> {
        self.call(move |machine| machine.renew_session(&lock)).await
    }

    pub async fn free_session(&self, lock: SessionLock) -> Result<(), Error> {
        self.call(move |machine| machine.free_session(&lock)).await
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

    pub async fn stats(&self) -> Result<Stats, Error> {
        let stats = |machine: &mut Machine| {
            Ok(Stats {
                settings: machine.settings().clone(),
                counts: machine.counts(),
                totals: machine.totals(),
            })
        };
        self.call(stats).await
    }

    /// Says what a queue that was just made is like.
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

    /// Where the next event of a partition of a hub is to be read.
    pub async fn fed(&self, hub: String, partition: u32) -> Result<Option<i64>, Error> {
        self.call(move |machine| Ok(machine.fed(&hub, partition)))
            .await
    }

    /// Takes over events of a hub, see [`Machine::feed`].
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

    pub(super) async fn feed_anew(&self, hub: String, partition: u32) -> Result<(), Error> {
        self.call(move |machine| {
            machine.feed_anew(&hub, partition);
            Ok(())
        })
        .await
    }

    pub(super) async fn feed_dead(
        &self,
        hub: String,
        partition: u32,
        event: (i64, Content),
        reason: String,
    ) -> Result<(), Error> {
        self.call(move |machine| {
            machine.feed_dead(&hub, partition, event, &reason);
            Ok(())
        })
        .await
    }

    /// Whoever waits is answered now, with what there is, which may be nothing.
    pub async fn end_waits(&self) {
        // If it is gone, nobody waits.
        let _ = self.commands.send(Command::EndWaits).await;
    }

    /// Ready when the queue was deleted or the node stops.
    pub(super) async fn gone(&self) {
        self.commands.closed().await;
    }

    pub(super) async fn stop(&self) {
        // If it is gone, it has stopped.
        let _ = self.commands.send(Command::Stop).await;
    }

    async fn each<I, T>(
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

    async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Machine) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.ask(Command::Call(answering(answer, act)), answered)
            .await
    }

    /// Does `first` at once, and `act` as soon as there is what is wanted, or its time is over.
    async fn wait<F: Send + 'static, T: Send + 'static>(
        &self,
        want: Want,
        wait: Duration,
        first: impl FnOnce(&mut Machine) -> F + Send + 'static,
        act: impl FnOnce(&mut Machine, F) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let gone = Arc::new(());
        let here = Arc::downgrade(&gone);
        let until = self.clock.elapsed() + wait;
        let begin: Begin = Box::new(move |machine| match machine {
            Err(error) => {
                let _ = answer.send(Err(error.clone()));
                None
            }
            Ok(machine) => {
                let first = first(machine);
                Some(Waiter {
                    want,
                    until,
                    act: answering(answer, move |machine| act(machine, first)),
                    is_gone: Box::new(move || here.strong_count() == 0),
                })
            }
        });
        let asked = self.ask(Command::Wait(begin), answered).await;
        drop(gone);
        asked
    }

    async fn ask<T>(
        &self,
        command: Command,
        answered: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        let stopped = || Error::Stopped("the node is stopping, or the queue was deleted".into());
        let sent = self.commands.send(command).await;
        sent.map_err(|_| stopped())?;
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }
}

/// Does `act` and has the answer ready for when it is durable.
fn answering<T: Send + 'static>(
    answer: oneshot::Sender<Result<T, Error>>,
    act: impl FnOnce(&mut Machine) -> Result<T, Refusal> + Send + 'static,
) -> Act {
    // Whoever asked may have stopped waiting.
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

fn check_size<'a>(contents: impl Iterator<Item = &'a Content>) -> Result<(), Error> {
    let (bytes, max) = (contents.map(Content::size).sum(), REQUEST_BYTES_MAX);
    match bytes <= max {
        true => Ok(()),
        false => Err(Error::RequestTooLarge { bytes, max }),
    }
}
