//! The stages of a pipeline.
//!
//! Work is pulled: a stage that is not polled does nothing, so a slow end slows the source down and nothing between
//! them grows. An item carries the [`Ticket`] of its event from the source to the end, where the event is finished. A
//! lost item leaves its event unfinished, and the checkpoint stays before it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use highwater_env::Clock;
use highwater_log::{Offset, TopicPartition, shard_for_key};
use tokio::sync::watch;

use crate::batch_stage::BatchStage;
use crate::dead_letter::FailedAttempt;
use crate::handle_stage::{HandleStage, Options};
use crate::offset_tracker::{OffsetTracker, Ticket};
use crate::source::SourceError;
use crate::{Delivery, Event, Failure};

/// A value in the pipeline, and the event it was made from.
pub struct Item<T> {
    pub(crate) ticket: Ticket,
    pub(crate) event: Event,
    pub(crate) key: Key,
    pub(crate) value: T,
}

/// The key for [`Order::Key`](crate::Order::Key).
#[derive(Clone)]
pub(crate) enum Key {
    OfEvent,
    By(Option<Bytes>),
}

/// The output of a stage.
pub enum StageOutput<T> {
    /// To be processed by the next stage.
    Item(Item<T>),
    /// Failed for good. Stages pass it on unchanged.
    Dead(Item<Vec<FailedAttempt>>),
    /// Finished. Stages pass it on unchanged.
    Done(Ticket),
}

/// Shared by the stages of a running pipeline.
pub struct PipelineContext {
    pub(crate) tracker: OffsetTracker,
    pub(crate) clock: Arc<dyn Clock>,
    /// Tells the source to end and waiting calls to give up.
    pub(crate) stopping: watch::Sender<bool>,
    /// Why the source ended before shutdown.
    pub(crate) failed: Option<SourceError>,
}

/// A source with all stages applied so far.
pub trait Stage: Send + Sized {
    type Out: Send + Sync + 'static;

    /// The next item. Keeps no state in the caller, so it may be polled any number of times. After `None` there are no
    /// more items.
    fn poll_next(
        &mut self,
        context: &mut PipelineContext,
        cx: &mut Context<'_>,
    ) -> StagePoll<Self::Out>;

    /// The partition and the start offset.
    fn origin(&self) -> (&TopicPartition, Offset);

    /// Maps every value.
    fn map<U, F>(self, change: F) -> impl Stage<Out = U>
    where
        U: Send + Sync + 'static,
        F: FnMut(Self::Out) -> U + Send,
    {
        let mut change = change;
        MapStage {
            from: self,
            change: move |item: Item<Self::Out>| StageOutput::Item(item.map(&mut change)),
        }
    }

    /// Maps every value; an error makes the event a dead letter.
    fn try_map<U, E, F>(self, change: F) -> impl Stage<Out = U>
    where
        U: Send + Sync + 'static,
        E: fmt::Display,
        F: FnMut(Self::Out) -> Result<U, E> + Send,
    {
        let mut change = change;
        MapStage {
            from: self,
            change: move |item: Item<Self::Out>| item.try_map(&mut change),
        }
    }

    /// Keeps the values for which `keep` is true. The others are finished.
    fn filter<F>(self, keep: F) -> impl Stage<Out = Self::Out>
    where
        F: FnMut(&Self::Out) -> bool + Send,
    {
        let mut keep = keep;
        MapStage {
            from: self,
            change: move |item: Item<Self::Out>| match keep(&item.value) {
                true => StageOutput::Item(item),
                false => StageOutput::Done(item.ticket),
            },
        }
    }

    /// Replaces the event's key as the key of [`Order::Key`](crate::Order::Key). Values without a key are unordered.
    fn key_by<F>(self, key: F) -> impl Stage<Out = Self::Out>
    where
        F: FnMut(&Self::Out) -> Option<Bytes> + Send,
    {
        let mut key = key;
        MapStage {
            from: self,
            change: move |item: Item<Self::Out>| {
                let key = Key::By(key(&item.value));
                StageOutput::Item(Item { key, ..item })
            },
        }
    }

    /// Keeps one share of the partition, by the hash of the event's key: with `of` readers, each with positions of its
    /// own, every event has exactly one reader, and a key always has the same one. Events without a key are distributed
    /// by offset.
    fn share(self, index: u32, of: u32) -> impl Stage<Out = Self::Out> {
        assert!(index < of, "shares are counted from 0");
        MapStage {
            from: self,
            change: move |item: Item<Self::Out>| {
                let share = match item.event.key() {
                    _ if of == 1 => 0,
                    Some(key) => shard_for_key(key, of),
                    None => (item.event.offset().0 % i64::from(of)) as u32,
                };
                match share == index {
                    true => StageOutput::Item(item),
                    false => StageOutput::Done(item.ticket),
                }
            },
        }
    }

    /// Calls `handler` for every value, several concurrently, until it succeeds or the policy gives up.
    fn handle<U, F, W>(self, options: Options, handler: F) -> impl Stage<Out = U>
    where
        U: Send + Sync + 'static,
        F: Fn(Delivery<Self::Out>) -> W + Send + Sync + 'static,
        W: Future<Output = Result<U, Failure>> + Send + 'static,
    {
        HandleStage::new(self, options, handler)
    }

    /// Calls `handler` with up to `count_max` values at once, one batch after another. A batch that fails for good is
    /// retried value by value, so that one bad event does not affect the others.
    fn handle_batches<F, W>(
        self,
        count_max: usize,
        options: Options,
        handler: F,
    ) -> impl Stage<Out = ()>
    where
        F: Fn(Vec<Delivery<Self::Out>>) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        BatchStage::new(self, count_max, options, handler)
    }
}

impl<T> StageOutput<T> {
    /// The item, or else the output, which passes the following stages unchanged.
    pub(crate) fn into_item<U>(self) -> Result<Item<T>, StageOutput<U>> {
        match self {
            StageOutput::Item(item) => Ok(item),
            StageOutput::Dead(item) => Err(StageOutput::Dead(item)),
            StageOutput::Done(ticket) => Err(StageOutput::Done(ticket)),
        }
    }
}

pub type StagePoll<T> = Poll<Option<StageOutput<T>>>;

impl<T> Item<T> {
    pub(crate) fn new(ticket: Ticket, event: Event, value: T) -> Item<T> {
        Item {
            ticket,
            event,
            key: Key::OfEvent,
            value,
        }
    }

    /// Replaces the value and returns the old one.
    pub(crate) fn swap<U>(self, value: U) -> (Item<U>, T) {
        let item = Item {
            ticket: self.ticket,
            event: self.event,
            key: self.key,
            value,
        };
        (item, self.value)
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Item<U> {
        let (item, value) = self.swap(());
        item.swap(change(value)).0
    }

    /// Converts the outcome of an item into an output.
    pub(crate) fn into_output<U>(self, outcome: Result<U, Vec<FailedAttempt>>) -> StageOutput<U> {
        match outcome {
            Ok(value) => StageOutput::Item(self.swap(value).0),
            Err(attempts) => StageOutput::Dead(self.swap(attempts).0),
        }
    }

    fn try_map<U, E: fmt::Display>(self, change: impl FnOnce(T) -> Result<U, E>) -> StageOutput<U> {
        let (item, value) = self.swap(());
        item.into_output(change(value).map_err(|error| vec![FailedAttempt::undated(error)]))
    }

    /// The key that determines the order.
    pub(crate) fn order_key(&self) -> Option<Bytes> {
        match &self.key {
            Key::OfEvent => self.event.key_bytes(),
            Key::By(key) => key.clone(),
        }
    }
}

impl PipelineContext {
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// A synchronous stage that maps each item.
struct MapStage<S, F> {
    from: S,
    change: F,
}

impl<S, U, F> Stage for MapStage<S, F>
where
    S: Stage,
    U: Send + Sync + 'static,
    F: FnMut(Item<S::Out>) -> StageOutput<U> + Send,
{
    type Out = U;

    fn poll_next(&mut self, context: &mut PipelineContext, cx: &mut Context<'_>) -> StagePoll<U> {
        let next = self.from.poll_next(context, cx);
        next.map(|next| {
            next.map(|step| {
                step.into_item()
                    .map_or_else(|passed| passed, &mut self.change)
            })
        })
    }

    fn origin(&self) -> (&TopicPartition, Offset) {
        self.from.origin()
    }
}
