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

use crate::retry_context::RetryContext;
use crate::stage::{Item, PipelineContext, Stage, StageOutput, StagePoll};
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

pub(crate) struct HandleStage<S: Stage, U, F> {
    from: S,
    handler: Arc<F>,
    options: Arc<Options>,
    tasks: JoinSet<(OrderSlot, Option<StageOutput<U>>)>,
    order: OrderState<S::Out, U>,
    ended: bool,
}

/// Which event a task was for, as far as the order must know.
enum OrderSlot {
    Any,
    /// The how-manieth.
    Number(u64),
    Key(Bytes),
}

/// What has to wait for others.
struct OrderState<T, U> {
    /// The number of the first of `leaving`.
    first: u64,
    /// In the order in which they leave; `None` while under way.
    leaving: VecDeque<Option<StageOutput<U>>>,
    /// Of every key that is under way, those that wait for it.
    keys: BTreeMap<Bytes, VecDeque<Item<T>>>,
    waiting: usize,
}

impl<S, U, F, W> HandleStage<S, U, F>
where
    S: Stage,
    U: Send + Sync + 'static,
    F: Fn(Delivery<S::Out>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<U, Failure>> + Send + 'static,
{
    pub fn new(from: S, options: Options, handler: F) -> HandleStage<S, U, F> {
        HandleStage {
            from,
            handler: Arc::new(handler),
            options: Arc::new(options),
            tasks: JoinSet::new(),
            order: OrderState {
                first: 0,
                leaving: VecDeque::new(),
                keys: BTreeMap::new(),
                waiting: 0,
            },
            ended: false,
        }
    }

    fn has_room(&self) -> bool {
        let held = self.tasks.len().max(self.order.leaving.len());
        held < self.options.concurrency.max(1)
            && self.order.waiting < self.options.waiting_max.max(1)
    }

    /// Begins the event, or lets it wait. At a stop it is left behind, because one before it may have
    /// been.
    fn take(&mut self, item: Item<S::Out>, context: &PipelineContext) {
        if context.is_stopping() {
            return;
        }
        let slot = match self.options.order {
            Order::None => OrderSlot::Any,
            Order::Output => OrderSlot::Number(self.order.number()),
            Order::Key => match item.order_key() {
                None => OrderSlot::Any,
                Some(key) => match self.order.keys.get_mut(&key) {
                    Some(queue) => {
                        queue.push_back(item);
                        self.order.waiting += 1;
                        return;
                    }
                    None => {
                        self.order.keys.insert(key.clone(), VecDeque::new());
                        OrderSlot::Key(key)
                    }
                },
            },
        };
        self.start(slot, item, context);
    }

    fn start(&mut self, slot: OrderSlot, item: Item<S::Out>, context: &PipelineContext) {
        let retries = RetryContext::new(&self.options, context);
        let handler = Arc::clone(&self.handler);
        self.tasks
            .spawn(async move { (slot, deliver(retries, handler, item).await) });
    }

    /// Takes back what a task has done, which is nothing if it was stopped; answers with what may
    /// leave at once.
    fn finished(
        &mut self,
        slot: OrderSlot,
        step: Option<StageOutput<U>>,
        context: &PipelineContext,
    ) -> Option<StageOutput<U>> {
        let Some(step) = step else {
            self.order.leave_behind(slot);
            return None;
        };
        match slot {
            OrderSlot::Any => Some(step),
            OrderSlot::Number(number) => {
                // Not there if one before it was left behind.
                let place = (number - self.order.first) as usize;
                if let Some(leaving) = self.order.leaving.get_mut(place) {
                    *leaving = Some(step);
                }
                None
            }
            OrderSlot::Key(key) => {
                let next = match context.is_stopping() {
                    true => None,
                    false => self.order.after(&key),
                };
                match next {
                    Some(item) => self.start(OrderSlot::Key(key), item, context),
                    None => self.order.leave_behind(OrderSlot::Key(key)),
                }
                Some(step)
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.order.leaving.is_empty()
    }
}

impl<T, U> OrderState<T, U> {
    fn number(&mut self) -> u64 {
        self.leaving.push_back(None);
        self.first + self.leaving.len() as u64 - 1
    }

    /// The next event whose turn to leave has come.
    fn leave(&mut self) -> Option<StageOutput<U>> {
        let step = self.leaving.front_mut()?.take()?;
        self.leaving.pop_front();
        self.first += 1;
        Some(step)
    }

    /// Gives up what must not be done because something before it was not.
    fn leave_behind(&mut self, slot: OrderSlot) {
        match slot {
            OrderSlot::Any => {}
            OrderSlot::Number(number) => {
                let place = (number - self.first) as usize;
                self.leaving.truncate(place);
            }
            OrderSlot::Key(key) => {
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

async fn deliver<T, U, F, W>(
    mut retries: RetryContext,
    handler: Arc<F>,
    item: Item<T>,
) -> Option<StageOutput<U>>
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
    let outcome = retries.run(salt, |attempt| handler(delivery(attempt)));
    let outcome = outcome.await?;
    Some(item.ended(outcome))
}

impl<S, U, F, W> Stage for HandleStage<S, U, F>
where
    S: Stage,
    U: Send + Sync + 'static,
    F: Fn(Delivery<S::Out>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<U, Failure>> + Send + 'static,
{
    type Out = U;

    fn poll_next(&mut self, context: &mut PipelineContext, cx: &mut Context<'_>) -> StagePoll<U> {
        loop {
            if let Some(step) = self.order.leave() {
                return Poll::Ready(Some(step));
            }
            if let Poll::Ready(Some(joined)) = self.tasks.poll_join_next(cx) {
                let (slot, step) =
                    joined.expect("panics are catch_panic, and nobody ends our tasks");
                match self.finished(slot, step, context) {
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
            match self.from.poll_next(context, cx) {
                Poll::Ready(Some(StageOutput::Item(item))) => self.take(item, context),
                Poll::Ready(Some(StageOutput::Dead(item))) => {
                    return Poll::Ready(Some(StageOutput::Dead(item)));
                }
                Poll::Ready(Some(StageOutput::Done(ticket))) => {
                    return Poll::Ready(Some(StageOutput::Done(ticket)));
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
