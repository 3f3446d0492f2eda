//! The asynchronous stage: a handler with several events under way at once.
//!
//! Each event under way is a task of its own, so that it goes on while the pipeline is busy elsewhere,
//! and retries happen inside it, so that they keep their place in the order. The stage holds no more
//! than [`Options::concurrency`] running or finished events and, in order per key, no more than
//! [`Options::waiting_max`] that wait for one of the same key.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{Offset, Place};
use tokio::task::JoinSet;

use crate::attempt::Trying;
use crate::stage::{Item, Line, Polled, Stage, Step};
use crate::{Breaker, Delivery, Failure, retry};

/// How a handler is called.
#[derive(Clone, Debug)]
pub struct Options {
    /// Events under way at once.
    pub concurrency: usize,
    pub order: Order,
    pub retry: retry::Policy,
    /// An attempt that takes longer has failed, and may go better later. `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Events that wait because one of their key is under way. When there are more, nothing is read
    /// until one of them is begun.
    pub waiting_max: usize,
    /// Asked before every attempt, and told how it went.
    pub circuit: Option<Breaker>,
    /// Of the random part of delays: two instances should not have the same.
    pub seed: u64,
}

/// What is kept in order while several events are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing: events leave as they are finished.
    None,
    /// Events are handled at once but leave in the order in which they came.
    Output,
    /// Events of one key are handled one after another. Those without a key are in no order.
    Key,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            concurrency: 16,
            order: Order::None,
            retry: retry::Policy::default(),
            timeout: Some(Duration::from_secs(60)),
            waiting_max: 256,
            circuit: None,
            seed: 0,
        }
    }
}

pub(crate) struct Handle<S: Stage, U, F> {
    from: S,
    handler: Arc<F>,
    options: Arc<Options>,
    tasks: JoinSet<(Turn, Option<Step<U>>)>,
    turns: Turns<S::Out, U>,
    ended: bool,
}

/// Which event a task was for, as far as the order must know.
enum Turn {
    Any,
    /// The how-manieth.
    Number(u64),
    Key(Bytes),
}

/// What has to wait for others.
struct Turns<T, U> {
    /// The number of the first of `leaving`.
    first: u64,
    /// In the order in which they leave; `None` while under way.
    leaving: VecDeque<Option<Step<U>>>,
    /// Of every key that is under way, those that wait for it.
    keys: BTreeMap<Bytes, VecDeque<Item<T>>>,
    waiting: usize,
}

impl<S, U, F, W> Handle<S, U, F>
where
    S: Stage,
    U: Send + Sync + 'static,
    F: Fn(Delivery<S::Out>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<U, Failure>> + Send + 'static,
{
    pub fn new(from: S, options: Options, handler: F) -> Handle<S, U, F> {
        Handle {
            from,
            handler: Arc::new(handler),
            options: Arc::new(options),
            tasks: JoinSet::new(),
            turns: Turns {
                first: 0,
                leaving: VecDeque::new(),
                keys: BTreeMap::new(),
                waiting: 0,
            },
            ended: false,
        }
    }

    fn has_room(&self) -> bool {
        let held = self.tasks.len().max(self.turns.leaving.len());
        held < self.options.concurrency.max(1)
            && self.turns.waiting < self.options.waiting_max.max(1)
    }

    /// Begins the event, or lets it wait. At a stop it is left behind, because one before it may have
    /// been.
    fn take(&mut self, item: Item<S::Out>, line: &Line) {
        if line.is_stopping() {
            return;
        }
        let turn = match self.options.order {
            Order::None => Turn::Any,
            Order::Output => Turn::Number(self.turns.number()),
            Order::Key => match item.order_key() {
                None => Turn::Any,
                Some(key) => match self.turns.keys.get_mut(&key) {
                    Some(queue) => {
                        queue.push_back(item);
                        self.turns.waiting += 1;
                        return;
                    }
                    None => {
                        self.turns.keys.insert(key.clone(), VecDeque::new());
                        Turn::Key(key)
                    }
                },
            },
        };
        self.start(turn, item, line);
    }

    fn start(&mut self, turn: Turn, item: Item<S::Out>, line: &Line) {
        let trying = Trying::new(&self.options, line);
        let handler = Arc::clone(&self.handler);
        self.tasks
            .spawn(async move { (turn, deliver(trying, handler, item).await) });
    }

    /// Takes back what a task has done, which is nothing if it was stopped; answers with what may
    /// leave at once.
    fn finished(&mut self, turn: Turn, step: Option<Step<U>>, line: &Line) -> Option<Step<U>> {
        let Some(step) = step else {
            self.turns.leave_behind(turn);
            return None;
        };
        match turn {
            Turn::Any => Some(step),
            Turn::Number(number) => {
                // Not there if one before it was left behind.
                let place = (number - self.turns.first) as usize;
                if let Some(leaving) = self.turns.leaving.get_mut(place) {
                    *leaving = Some(step);
                }
                None
            }
            Turn::Key(key) => {
                let next = match line.is_stopping() {
                    true => None,
                    false => self.turns.after(&key),
                };
                match next {
                    Some(item) => self.start(Turn::Key(key), item, line),
                    None => self.turns.leave_behind(Turn::Key(key)),
                }
                Some(step)
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.turns.leaving.is_empty()
    }
}

impl<T, U> Turns<T, U> {
    fn number(&mut self) -> u64 {
        self.leaving.push_back(None);
        self.first + self.leaving.len() as u64 - 1
    }

    /// The next event whose turn to leave has come.
    fn leave(&mut self) -> Option<Step<U>> {
        let step = self.leaving.front_mut()?.take()?;
        self.leaving.pop_front();
        self.first += 1;
        Some(step)
    }

    /// Gives up what must not be done because something before it was not.
    fn leave_behind(&mut self, turn: Turn) {
        match turn {
            Turn::Any => {}
            Turn::Number(number) => {
                let place = (number - self.first) as usize;
                self.leaving.truncate(place);
            }
            Turn::Key(key) => {
                let queue = self.keys.remove(&key).unwrap_or_default();
                self.waiting -= queue.len();
            }
        }
    }

    /// The next event of a key.
    fn after(&mut self, key: &Bytes) -> Option<Item<T>> {
        let item = self.keys.get_mut(key)?.pop_front()?;
        self.waiting -= 1;
        Some(item)
    }
}

async fn deliver<T, U, F, W>(mut trying: Trying, handler: Arc<F>, item: Item<T>) -> Option<Step<U>>
where
    F: Fn(Delivery<T>) -> W,
    W: Future<Output = Result<U, Failure>>,
{
    let (item, value) = item.swap(());
    let value = Arc::new(value);
    let delivery = |attempt| Delivery {
        event: item.event.clone(),
        value: Arc::clone(&value),
        attempt,
    };
    let salt = item.event.offset().0 as u64;
    let outcome = trying.persist(salt, |attempt| handler(delivery(attempt)));
    let outcome = outcome.await?;
    Some(item.ended(outcome))
}

impl<S, U, F, W> Stage for Handle<S, U, F>
where
    S: Stage,
    U: Send + Sync + 'static,
    F: Fn(Delivery<S::Out>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<U, Failure>> + Send + 'static,
{
    type Out = U;

    fn poll_next(&mut self, line: &mut Line, cx: &mut Context<'_>) -> Polled<U> {
        loop {
            if let Some(step) = self.turns.leave() {
                return Poll::Ready(Some(step));
            }
            if let Poll::Ready(Some(joined)) = self.tasks.poll_join_next(cx) {
                let (turn, step) = joined.expect("panics are caught, and nobody ends our tasks");
                match self.finished(turn, step, line) {
                    Some(step) => return Poll::Ready(Some(step)),
                    None => continue,
                }
            }
            if self.ended || !self.has_room() {
                return match self.ended && self.is_idle() {
                    true => Poll::Ready(None),
                    false => Poll::Pending,
                };
            }
            match self.from.poll_next(line, cx) {
                Poll::Ready(Some(Step::Go(item))) => self.take(item, line),
                Poll::Ready(Some(Step::Dead(item))) => return Poll::Ready(Some(Step::Dead(item))),
                Poll::Ready(Some(Step::Done(ticket))) => {
                    return Poll::Ready(Some(Step::Done(ticket)));
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn origin(&self) -> (&Place, Offset) {
        self.from.origin()
    }
}
