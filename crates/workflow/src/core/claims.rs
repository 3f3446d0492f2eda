//! Claims of remote supervisors: a dispatcher gives each failed instance to one supervisor at a time, under a
//! lock that expires.
//!
//! Locks are not journaled. A supervisor sends its lock with every report, and a report under a lost lock
//! changes nothing. So if a supervisor dies or stalls, or a dispatcher restarts and forgets its locks, the only
//! consequence is calls made twice, with the same idempotency key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{Core, Effect, Ownership, Reply};
use crate::definition::Version;
use crate::journal;
use crate::machine::{Event, Millis};

/// The right to undo the instances claimed under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SupervisorLock(pub u64);

impl From<SupervisorLock> for String {
    fn from(SupervisorLock(number): SupervisorLock) -> String {
        format!("{number:016x}")
    }
}

impl TryFrom<String> for SupervisorLock {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<SupervisorLock, std::num::ParseIntError> {
        u64::from_str_radix(&text, 16).map(SupervisorLock)
    }
}

/// A supervisor's request for instances. It also extends the lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// `None` in the first claim.
    #[serde(default)]
    pub lock: Option<SupervisorLock>,
    /// Maximum number of instances; 0 only extends the lock.
    pub most: usize,
    /// How long to wait for the first instance.
    pub wait_ms: u64,
    /// Duration of the lock from now on.
    pub lasts_ms: u64,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedInstances {
    pub lock: SupervisorLock,
    pub instances: Vec<ClaimedInstance>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedInstance {
    pub id: Arc<str>,
    pub version: Version,
    /// In the journal's format.
    pub snapshot: Vec<u8>,
}

/// The lock expired or is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock has expired: claim again without one")]
pub struct LockLost;

/// Approximate maximum size of the instances in one response.
const CLAIM_BYTES_MAX: usize = 4 << 20;

/// Limits of the requested durations.
const LASTS_MS_MIN: Millis = 100;
const LASTS_MS_MAX: Millis = 600_000;
const WAIT_MS_MAX: Millis = 60_000;

/// All claims of a dispatcher.
#[derive(Default)]
pub(super) struct Claims {
    /// Unclaimed instances in arrival order. One may have left the undoing phase since.
    pub(super) available: VecDeque<Arc<str>>,
    active: BTreeMap<SupervisorLock, ActiveClaim>,
    waiting: VecDeque<WaitingClaim>,
}

struct ActiveClaim {
    until_ms: Millis,
    lasts_ms: Millis,
    ids: BTreeSet<Arc<str>>,
}

struct WaitingClaim {
    lock: SupervisorLock,
    limit: usize,
    until_ms: Millis,
    reply: oneshot::Sender<Result<ClaimedInstances, LockLost>>,
}

/// The claim on an instance of a dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClaimState {
    #[default]
    None,
    /// Available.
    Available,
    Claimed(SupervisorLock),
}

impl Claims {
    pub(super) fn next_timer(&self) -> Option<Millis> {
        let active = self
            .active
            .values()
            .map(|active_claim| active_claim.until_ms);
        let waiting = self.waiting.iter().map(|waiting| waiting.until_ms);
        active.chain(waiting).min()
    }

    fn has_match(&self) -> bool {
        !self.waiting.is_empty() && !self.available.is_empty()
    }
}

impl Core {
    pub(super) fn claim(
        &mut self,
        claim: Claim,
        reply: oneshot::Sender<Result<ClaimedInstances, LockLost>>,
    ) {
        let lasts_ms = millis(claim.lasts_ms, LASTS_MS_MAX).max(LASTS_MS_MIN);
        let lock = match claim.lock {
            None => SupervisorLock(self.random.next_u64()),
            Some(lock) if self.claims.active.contains_key(&lock) => lock,
            Some(_) => return self.reply(Reply::Claim(reply, Err(LockLost))),
        };
        let active_claim = self.claims.active.entry(lock).or_insert(ActiveClaim {
            until_ms: 0,
            lasts_ms,
            ids: BTreeSet::new(),
        });
        active_claim.lasts_ms = lasts_ms;
        active_claim.until_ms = self.now_ms + lasts_ms;
        self.claims.waiting.push_back(WaitingClaim {
            lock,
            limit: claim.most,
            until_ms: self.now_ms + millis(claim.wait_ms, WAIT_MS_MAX),
            reply,
        });
        self.answer_claims();
    }

    /// Applies the reported events. Replies with the ids whose claim is lost.
    pub(super) fn report(
        &mut self,
        lock: SupervisorLock,
        events: Vec<(Arc<str>, Event)>,
        reply: oneshot::Sender<Result<Vec<Arc<str>>, LockLost>>,
    ) {
        let Some(active_claim) = self.claims.active.get_mut(&lock) else {
            return self.reply(Reply::Report(reply, Err(LockLost)));
        };
        active_claim.until_ms = self.now_ms + active_claim.lasts_ms;
        let mut refused = Vec::new();
        for (id, event) in events {
            let claim = self.live.get(&id).map(|live| live.claim);
            if claim == Some(ClaimState::Claimed(lock)) && is_undo_outcome(&event) {
                self.record_event(&id, event);
            } else {
                refused.push(id);
            }
        }
        self.reply(Reply::Report(reply, Ok(refused)));
    }

    /// Makes the instances claimed under a lock available again.
    pub(super) fn release_claim(&mut self, lock: SupervisorLock) {
        let Some(active_claim) = self.claims.active.remove(&lock) else {
            return;
        };
        for id in active_claim.ids {
            if let Some(live) = self.live.get_mut(&id) {
                live.claim = ClaimState::None;
            }
            self.advance(&id);
        }
    }

    /// Makes an instance available to claims.
    pub(super) fn make_available(&mut self, id: &Arc<str>) {
        if let Some(live) = self.live.get_mut(id)
            && live.claim == ClaimState::None
        {
            live.claim = ClaimState::Available;
            self.claims.available.push_back(Arc::clone(id));
        }
    }

    /// Ends the claim on an instance; its supervisor learns of it with the next report.
    pub(super) fn withdraw_claim(&mut self, id: &Arc<str>) {
        let Some(live) = self.live.get_mut(id) else {
            return;
        };
        if let ClaimState::Claimed(lock) = std::mem::take(&mut live.claim)
            && let Some(active_claim) = self.claims.active.get_mut(&lock)
        {
            active_claim.ids.remove(id);
        }
    }

    /// Releases expired locks.
    pub(super) fn expire_claims(&mut self) {
        let now_ms = self.now_ms;
        let over =
            (self.claims.active.iter()).filter(|(_, active_claim)| active_claim.until_ms <= now_ms);
        let over: Vec<SupervisorLock> = over.map(|(lock, _)| *lock).collect();
        for lock in over {
            self.release_claim(lock);
        }
        self.answer_claims();
    }

    /// Answers waiting claims that match instances or have waited long enough.
    fn answer_claims(&mut self) {
        for waiting in std::mem::take(&mut self.claims.waiting) {
            if waiting.reply.is_closed() {
                continue;
            }
            if !self.claims.active.contains_key(&waiting.lock) {
                self.reply(Reply::Claim(waiting.reply, Err(LockLost)));
                continue;
            }
            let instances = self.claim_available(waiting.lock, waiting.limit);
            let is_over = waiting.limit == 0 || waiting.until_ms <= self.now_ms;
            if instances.is_empty() && !is_over {
                self.claims.waiting.push_back(waiting);
            } else {
                let lock = waiting.lock;
                let claimed = ClaimedInstances { lock, instances };
                self.reply(Reply::Claim(waiting.reply, Ok(claimed)));
            }
        }
    }

    /// Answers waiting claims if instances are available.
    pub(super) fn serve_waiting_claims(&mut self) {
        if self.claims.has_match() {
            self.answer_claims();
        }
    }

    fn claim_available(&mut self, lock: SupervisorLock, limit: usize) -> Vec<ClaimedInstance> {
        let (mut claimed, mut bytes) = (Vec::new(), 0);
        while claimed.len() < limit
            && bytes < CLAIM_BYTES_MAX
            && let Some(id) = self.claims.available.pop_front()
        {
            let Some(live) = self.live.get_mut(&id) else {
                continue;
            };
            let (ClaimState::Available, Ownership::Own(instance)) = (live.claim, &live.ownership)
            else {
                continue;
            };
            live.claim = ClaimState::Claimed(lock);
            let mut snapshot = Vec::with_capacity(256 + instance.input.len());
            journal::write_snapshot(&mut snapshot, instance);
            bytes += snapshot.len();
            claimed.push(ClaimedInstance {
                id: Arc::clone(&id),
                version: instance.version,
                snapshot,
            });
            if let Some(active_claim) = self.claims.active.get_mut(&lock) {
                active_claim.ids.insert(id);
            }
        }
        claimed
    }

    fn reply(&mut self, reply: Reply) {
        self.round.effects.push(Effect::Reply(reply));
    }

    /// Drops an instance that a remote supervisor has finished or lost.
    pub(crate) fn forget_instance(&mut self, id: &Arc<str>) {
        if let Some(live) = self.live.remove(id) {
            self.forget_timer(id, live.timer_ms);
        }
    }
}

/// A remote supervisor may report outcomes of undo attempts, and nothing else.
fn is_undo_outcome(event: &Event) -> bool {
    match event {
        Event::Succeeded { attempt, .. } | Event::Failed { attempt, .. } => attempt.undo,
        _ => false,
    }
}

fn millis(requested: u64, max: Millis) -> Millis {
    Millis::try_from(requested).map_or(max, |requested| requested.min(max))
}
