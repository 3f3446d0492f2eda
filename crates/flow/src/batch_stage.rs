//! The batch stage: hands up to `count_max` events to the handler in one call, one call at a time.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use highwater_log::{Offset, TopicPartition};
use tokio::task::JoinSet;

use crate::handle_stage::Options;
use crate::retry_context::RetryContext;
use crate::stage::{Item, PipelineContext, Stage, StageOutput, StagePoll};
use crate::{Delivery, Failure};

pub(crate) struct BatchStage<S: Stage, F> {
    from: S,
    count_max: usize,
    handler: Arc<F>,
    options: Arc<Options>,
    /// Items of the next call.
    gathered: Vec<Item<Arc<S::Out>>>,
    /// The call in progress, at most one.
    task: JoinSet<Vec<StageOutput<()>>>,
    leaving: VecDeque<StageOutput<()>>,
    ended: bool,
}

impl<S, F, W> BatchStage<S, F>
where
    S: Stage,
    F: Fn(Vec<Delivery<S::Out>>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    pub(crate) fn new(from: S, count_max: usize, options: Options, handler: F) -> BatchStage<S, F> {
        BatchStage {
            from,
            count_max: count_max.max(1),
            handler: Arc::new(handler),
            options: Arc::new(options),
            gathered: Vec::new(),
            task: JoinSet::new(),
            leaving: VecDeque::new(),
            ended: false,
        }
    }

    fn start(&mut self, context: &PipelineContext) {
        let retries = RetryContext::new(&self.options, context);
        let handler = Arc::clone(&self.handler);
        let items = std::mem::take(&mut self.gathered);
        self.task.spawn(deliver(retries, handler, items));
    }
}

/// The outcomes of the items, up to the first one abandoned by a shutdown.
async fn deliver<T, F, W>(
    mut retries: RetryContext,
    handler: Arc<F>,
    items: Vec<Item<Arc<T>>>,
) -> Vec<StageOutput<()>>
where
    F: Fn(Vec<Delivery<T>>) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    let Some(all) = call(&mut retries, &*handler, &items).await else {
        return Vec::new();
    };
    let mut steps = Vec::with_capacity(items.len());
    let alone = items.len() == 1;
    for item in items {
        let outcome = match &all {
            Err(_) if !alone => call(&mut retries, &*handler, std::slice::from_ref(&item)).await,
            all => Some(all.clone()),
        };
        let Some(outcome) = outcome else {
            break;
        };
        steps.push(item.into_output(outcome));
    }
    steps
}

async fn call<T, F, W>(
    retries: &mut RetryContext,
    handler: &F,
    items: &[Item<Arc<T>>],
) -> Option<Result<(), Vec<crate::FailedAttempt>>>
where
    F: Fn(Vec<Delivery<T>>) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    let deliveries = |attempt| {
        let delivery = |item: &Item<Arc<T>>| Delivery {
            event: item.event.clone(),
            value: Arc::clone(&item.value),
            attempt,
        };
        items.iter().map(delivery).collect()
    };
    let salt = items.first().map_or(0, |item| item.event.offset().0 as u64);
    retries
        .run(salt, |attempt| handler(deliveries(attempt)))
        .await
}

impl<S, F, W> Stage for BatchStage<S, F>
where
    S: Stage,
    F: Fn(Vec<Delivery<S::Out>>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    type Out = ();

    fn poll_next(&mut self, context: &mut PipelineContext, cx: &mut Context<'_>) -> StagePoll<()> {
        loop {
            if let Some(step) = self.leaving.pop_front() {
                return Poll::Ready(Some(step));
            }
            if let Poll::Ready(Some(done)) = self.task.poll_join_next(cx) {
                let done = done.expect("panics are caught, and tasks are not aborted");
                self.leaving.extend(done);
                continue;
            }
            if !self.task.is_empty() {
                return Poll::Pending;
            }
            let more = match self.ended || self.gathered.len() >= self.count_max {
                true => Poll::Ready(None),
                false => self.from.poll_next(context, cx),
            };
            match more {
                Poll::Ready(Some(step)) => match step.into_item() {
                    Ok(item) => {
                        self.gathered.push(item.map(Arc::new));
                        continue;
                    }
                    Err(passed) => return Poll::Ready(Some(passed)),
                },
                Poll::Ready(None) => self.ended |= self.gathered.len() < self.count_max,
                Poll::Pending => {}
            }
            if context.is_stopping() {
                // An earlier event may have been abandoned, so these are too.
                self.gathered.clear();
            }
            match (self.gathered.is_empty(), self.ended) {
                (false, _) => self.start(context),
                (true, true) => return Poll::Ready(None),
                (true, false) => return Poll::Pending,
            }
        }
    }

    fn origin(&self) -> (&TopicPartition, Offset) {
        self.from.origin()
    }
}
