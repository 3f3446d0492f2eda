//! A supervisor in a process of its own: it claims failed instances from a dispatcher, undoes them, and reports every
//! outcome before it continues.
//!
//! It runs the same core as a supervisor beside the journal, but its journal is behind a [`FailedInstanceSource`]. It
//! keeps no state: after losing its lock, or when the outcome of a request is unknown, it drops everything and claims
//! anew.

mod session;
mod wire;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::BoxFuture;

pub use crate::core::Claim;
pub use wire::{
    Base64Bytes, ClaimResponse, ClaimedSnapshot, OutcomeReport, ReleaseRequest, ReportResponse,
    ReportedEvent,
};

use crate::call::ServicePools;
use crate::core::LockLost;
use session::Session;

/// Where a supervisor claims its work: the dispatcher of one partition of a workflow.
pub trait FailedInstanceSource: Send + Sync {
    fn claim(&self, claim: Claim) -> BoxFuture<Result<ClaimResponse, FailedInstanceError>>;
    /// Completes when the reported events are durable.
    fn report(
        &self,
        report: OutcomeReport,
    ) -> BoxFuture<Result<ReportResponse, FailedInstanceError>>;
    fn release(&self, release: ReleaseRequest) -> BoxFuture<Result<(), FailedInstanceError>>;
}

/// Why a supervisor has to start over, or why its request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailedInstanceError {
    #[error(transparent)]
    Lost(#[from] LockLost),
    #[error("failed instances are undone by the node itself, or there is no such partition")]
    Closed,
    #[error("{0} cannot be read")]
    Unreadable(String),
    #[error("{0}")]
    Away(String),
}

/// Options of a supervisor.
#[derive(Clone, Debug)]
pub struct Options {
    /// Duration of the lock: how long a silent supervisor keeps its instances.
    pub lock: Duration,
    /// Maximum number of claimed instances.
    pub instances_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lock: Duration::from_secs(15),
            instances_max: 10_000,
        }
    }
}

pub struct Supervisor {
    pub source: Arc<dyn FailedInstanceSource>,
    pub clock: Arc<dyn Clock>,
    /// May be shared by several supervisors: a service is then protected from all of them.
    pub pools: ServicePools,
    pub options: Options,
}

/// Delay before the next claim after a failed one.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// How long a release may take at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Runs until `stop`. Calls then in progress are repeated by the next supervisor.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            let mut session = Session::new(&self);
            let ended = tokio::select! {
                biased;
                () = &mut stop => None,
                error = session.run() => Some(error),
            };
            if let Some(lock) = session.lock() {
                let release = self.source.release(ReleaseRequest { lock });
                // If this fails, the lock expires.
                let _ = tokio::time::timeout(RELEASE_TIMEOUT, release).await;
            }
            match ended {
                None => return,
                Some(error) if session.lock().is_some() => {
                    tracing::warn!(%error, "the supervisor starts over");
                }
                Some(error) => tracing::debug!(%error, "claiming again"),
            }
            tokio::select! {
                () = &mut stop => return,
                () = tokio::time::sleep(RETRY_DELAY) => {}
            }
        }
    }
}
