//! Transactions: messages sent and settled in several queues of the node, all or nothing.
//!
//! The operations of one queue are one request, and so one batch of its journal. For several queues a record on a hub
//! of its own decides, one durable append with everything that is to be done: before it each queue reserves what it
//! will settle, after it each applies its part and remembers that it has. A crash before the append leaves nothing;
//! after it the parts are applied when the node starts, before any request is served. *Invariants:* no part is applied
//! without a decision, none twice, and none is forgotten.

mod decisions;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use highwater_log::{Log, Offset};

use super::disposition::Disposition;
use super::error::Error;
use super::handle::{Queue, check_size};
use super::queues::Queues;
use super::topics::Topics;
use crate::codec::DecisionPart;
use crate::journal::{EntityKind, JournalError};
use crate::machine::{LockToken, TransactionStep};
use crate::message::NewMessage;
use decisions::Decisions;

/// One operation of a transaction.
#[derive(Clone, Debug)]
pub enum TransactionOperation {
    Send(Vec<NewMessage>),
    Settle { token: LockToken, how: Disposition },
}

/// The part of a transaction in one queue.
#[derive(Clone)]
pub struct TransactionPart {
    pub queue: Queue,
    pub operations: Vec<TransactionOperation>,
}

/// Clones refer to the same transactions.
#[derive(Clone)]
pub struct Transactions {
    decisions: Arc<Decisions>,
}

impl Transactions {
    /// Applies the decisions made before a crash. Must be called before queues and topics are used.
    pub async fn open(
        log: Arc<dyn Log>,
        queues: &Queues,
        topics: &Topics,
    ) -> Result<Transactions, JournalError> {
        let decisions = Arc::new(Decisions::open(log).await?);
        let find = |hub: &str| find_queue(hub, queues, topics);
        decisions.apply_all(find).await?;
        Ok(Transactions { decisions })
    }

    /// Does everything or nothing. Completes when a crash cannot undo it.
    pub async fn commit(&self, parts: Vec<TransactionPart>) -> Result<(), Error> {
        let mut queues: BTreeMap<String, (Queue, Vec<TransactionOperation>)> = BTreeMap::new();
        for part in parts {
            let hub = part.queue.hub().to_owned();
            let entry = queues.entry(hub);
            let (_, operations) = entry.or_insert_with(|| (part.queue, Vec::new()));
            operations.extend(part.operations);
        }
        let mut parts = Vec::new();
        for (queue, operations) in queues.into_values() {
            let steps = queue.transaction_steps(operations).await?;
            parts.push(PreparedPart { queue, steps });
        }
        check_size(parts.iter().flat_map(|part| part.steps.iter()).filter_map(
            |step| match step {
                TransactionStep::Send(new) => Some(&new.content),
                _ => None,
            },
        ))?;
        match parts.len() {
            0 => Ok(()),
            1 => {
                let PreparedPart { queue, steps } = parts.remove(0);
                queue.call(move |machine| machine.transact(steps)).await
            }
            // Continues if the caller stops waiting: half of it may be done.
            _ => {
                let decisions = self.decisions.clone();
                let committing = tokio::spawn(commit_all(decisions, parts));
                let stopped = || Err(Error::Stopped("the node is stopping".into()));
                committing.await.unwrap_or_else(|_| stopped())
            }
        }
    }
}

/// The steps of one queue.
struct PreparedPart {
    queue: Queue,
    steps: Vec<TransactionStep>,
}

async fn commit_all(decisions: Arc<Decisions>, parts: Vec<PreparedPart>) -> Result<(), Error> {
    let end = decisions.end();
    let reserve = |part: &PreparedPart| {
        let (queue, steps) = (part.queue.clone(), part.steps.clone());
        async move {
            queue
                .call(move |machine| machine.reserve(&steps, end))
                .await
        }
    };
    let reserved = join_all(parts.iter().map(reserve)).await;
    if let Some(error) = reserved.iter().find_map(|result| result.as_ref().err()) {
        unreserve(&parts, &reserved).await;
        return Err(error.clone());
    }
    let decision = parts.iter().map(|part| DecisionPart {
        hub: part.queue.hub().to_owned(),
        steps: part.steps.clone(),
    });
    let offset = match decisions.append(&decision.collect()).await {
        Ok(offset) => offset,
        Err(error) => {
            unreserve(&parts, &reserved).await;
            return Err(Error::Log(error));
        }
    };
    let apply = |part: PreparedPart| apply_until_done(&decisions, part, offset);
    join_all(parts.into_iter().map(apply)).await;
    decisions.finish(offset).await;
    Ok(())
}

/// Applies a decided part. It is committed, so a failure of the queue's journal only delays it.
async fn apply_until_done(decisions: &Decisions, part: PreparedPart, offset: Offset) {
    loop {
        let (floor, steps) = (decisions.floor(), part.steps.clone());
        let applied = part.queue.apply_decision(offset, floor, steps).await;
        match applied {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "a transaction waits for queue `{}`", part.queue.name());
            }
        }
        // A queue that was deleted has nothing to apply.
        tokio::select! {
            () = part.queue.closed() => return,
            () = tokio::time::sleep(decisions::PAUSE) => {}
        }
    }
}

async fn unreserve(parts: &[PreparedPart], reserved: &[Result<(), Error>]) {
    let done = parts
        .iter()
        .zip(reserved)
        .filter(|(_, result)| result.is_ok());
    for (part, _) in done {
        let steps = part.steps.clone();
        let unreserve = part.queue.call(move |machine| {
            machine.unreserve(&steps);
            Ok(())
        });
        // A queue that fails has forgotten its reservations.
        let _ = unreserve.await;
    }
}

/// The queue, topic or subscription that a hub belongs to.
fn find_queue(hub: &str, queues: &Queues, topics: &Topics) -> Option<Queue> {
    if let Some(name) = EntityKind::Queue.name_of(hub) {
        return queues.get(&name);
    }
    if let Some(name) = EntityKind::Topic.name_of(hub) {
        return Some(topics.get(&name)?.queue().clone());
    }
    let path = EntityKind::Subscription.name_of(hub)?;
    topics.subscriptions_as_queues().get(&path)
}
