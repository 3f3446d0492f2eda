//! A supervisor that is a process of its own: it asks a keeper for what failed, undoes it, and reports every outcome before
//! it does what comes next.
//!
//! It runs the same core as a supervisor beside the journal; only its journal is somewhere else, behind a [`Desk`]. It keeps
//! nothing: one that has lost its lock, or does not know what became of a request, forgets everything and begins anew.

mod session;
mod wire;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::Pending;

pub use crate::core::{Claim, Lock};
pub use wire::{Farewell, Offer, Offered, Packed, Report, Reported, Taken};

use crate::call::Lanes;
use crate::core::LockLost;
use session::Session;

/// Where a supervisor gets its work: the keeper of one partition of a workflow.
pub trait Desk: Send + Sync {
    fn claim(&self, claim: Claim) -> Pending<Result<Offer, DeskError>>;
    /// Ready when what it says is safe.
    fn report(&self, report: Report) -> Pending<Result<Taken, DeskError>>;
    fn give_back(&self, farewell: Farewell) -> Pending<Result<(), DeskError>>;
}

/// Why a supervisor has to begin anew, or whoever asks for one is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    #[error(transparent)]
    Lost(#[from] LockLost),
    #[error("what failed is undone by the node itself, or there is no such partition")]
    Closed,
    #[error("{0} cannot be read")]
    Unreadable(String),
    #[error("{0}")]
    Away(String),
}

/// How a supervisor works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long others wait before they take over from one that is silent.
    pub lock: Duration,
    /// Instances that it has at once.
    pub held_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lock: Duration::from_secs(15),
            held_max: 10_000,
        }
    }
}

pub struct Supervisor {
    pub desk: Arc<dyn Desk>,
    pub clock: Arc<dyn Clock>,
    /// Those of several supervisors may be the same: a service is then protected from all of them.
    pub lanes: Lanes,
    pub options: Options,
}

/// How long to wait before a keeper is asked again that did not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// How long to wait for a keeper that is told good-bye.
const FAREWELL: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Runs until told to stop. Calls that are under way then are made again by whoever comes next.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            let mut session = Session::new(&self);
            let ended = tokio::select! {
                biased;
                () = &mut stop => None,
                error = session.work() => Some(error),
            };
            if let Some(lock) = session.lock() {
                let farewell = self.desk.give_back(Farewell { lock });
                // If it is not heard, the lock runs out.
                let _ = tokio::time::timeout(FAREWELL, farewell).await;
            }
            match ended {
                None => return,
                Some(error) if session.lock().is_some() => {
                    tracing::warn!(%error, "the supervisor begins anew");
                }
                Some(error) => tracing::debug!(%error, "the node is asked again"),
            }
            tokio::select! {
                () = &mut stop => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
}
