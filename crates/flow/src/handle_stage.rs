//! The asynchronous stage: calls a handler for several events concurrently.
//!
//! Each event in progress is a task of its own, so that it continues while the pipeline is busy elsewhere, and retries
//! happen inside it, so that events keep their order. The stage holds at most [`Options::concurrency`] running or
//! finished events and, with order by key, at most [`Options::waiting_max`] that wait for another of the same key.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{Offset, TopicPartition};
use highwater_retry::RetryPolicy;
use tokio::task::JoinSet;

use crate::retry_context::RetryContext;
use crate::stage::{Item, PipelineContext, Stage, StageOutput, StagePoll};
use crate::{Breaker, Delivery, Failure};

/// Options of handler calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// Events handled concurrently.
    pub concurrency: usize,
    pub order: Order,
    pub retry: RetryPolicy,
    /// A longer attempt is a transient failure. `None` means no limit.
    pub timeout: Option<Duration>,
    /// Events that wait for another of the same key. When there are more, reading pauses.
    pub waiting_max: usize,
    /// Guards every attempt and counts its outcome.
    pub circuit: Option<Breaker>,
    /// Seed of the jitter; it should differ between instances.
    pub seed: u64,
}

/// Which order is preserved between concurrent events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None: events leave as they finish.
    None,
    /// Events are handled concurrently but leave in their original order.
    Output,
    /// Events of one key are handled one after another. Events without a key are unordered.
    Key,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            concurrency: 16,
            order: Order::None,
            retry: RetryPolicy::default(),
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

/// The position of a task's event in the order.
enum OrderSlot {
    Any,
    /// Sequence number.
    Number(u64),
    Key(Bytes),
}

/// Events that wait for others.
struct OrderState<T, U> {
    /// Sequence number of the first of `leaving`.
    first: u64,
    /// In the order in which they leave; `None` while in progress.
    leaving: VecDeque<Option<StageOutput<U>>>,
    /// For every key in progress, the events waiting for it.
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
    pub(crate) fn new(from: S, options: Options, handler: F) -> HandleStage<S, U, F> {
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

    /// Begins the event, or queues it. At a shutdown it is abandoned, because an earlier one may have been.
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

    /// Handles the end of a task, which has no output if it was stopped. Returns an output that may leave at once.
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
                // Missing if an earlier one was abandoned.
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

    /// The next event that may leave.
    fn leave(&mut self) -> Option<StageOutput<U>> {
        let step = self.leaving.front_mut()?.take()?;
        self.leaving.pop_front();
        self.first += 1;
        Some(step)
    }

    /// Abandons everything ordered after an abandoned event.
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

    /// The next waiting event of a key.
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
    Some(item.into_output(outcome))
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
                let (slot, step) = joined.expect("panics are caught, and tasks are not aborted");
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
                Poll::Ready(Some(step)) => match step.into_item() {
                    Ok(item) => self.take(item, context),
                    Err(passed) => return Poll::Ready(Some(passed)),
                },
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn origin(&self) -> (&TopicPartition, Offset) {
        self.from.origin()
    }
}
