//! Connections to brokers, made when they are needed and made again when they have ended.
//!
//! A broker answers the requests of a connection one after another, so what may wait does not share one with
//! what may not. There is a connection for each [`Lane`]; what a broker may hold back for long, a join or a
//! poll, takes a connection for itself and gives it back afterwards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::connection::{CallError, Connection};
use super::dial::{Address, dial};
use super::options::Options;

/// What shares a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Short questions: the catalogue, heartbeats, positions.
    Control,
    Append,
    Read,
}

/// So many connections to a broker are kept that nobody uses.
const IDLE_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Pool {
    options: Arc<Options>,
    lanes: Mutex<HashMap<(Address, Lane), Arc<Slot>>>,
    idle: Mutex<HashMap<Address, Vec<Arc<Connection>>>>,
}

/// Locked while a connection is being made, so that only one is.
#[derive(Debug, Default)]
struct Slot(tokio::sync::Mutex<Standing>);

#[derive(Debug, Default)]
struct Standing {
    connection: Option<Arc<Connection>>,
    /// Why there is none, which is believed for a moment: whoever waited for the lock need not find out.
    failed: Option<(Instant, CallError)>,
}

impl Pool {
    pub fn new(options: Arc<Options>) -> Pool {
        Pool {
            options,
            lanes: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    pub async fn lane(&self, address: &Address, lane: Lane) -> Result<Arc<Connection>, CallError> {
        let slot = {
            let mut lanes = lock(&self.lanes);
            Arc::clone(lanes.entry((address.clone(), lane)).or_default())
        };
        let mut standing = slot.0.lock().await;
        if let Some(connection) = &standing.connection
            && connection.is_open()
        {
            return Ok(Arc::clone(connection));
        }
        if let Some((at, error)) = &standing.failed
            && at.elapsed() < self.options.backoff_min
        {
            return Err(error.clone());
        }
        let made = dial(address, &self.options).await;
        *standing = match &made {
            Ok(connection) => Standing {
                connection: Some(Arc::clone(connection)),
                failed: None,
            },
            Err(error) => Standing {
                connection: None,
                failed: Some((Instant::now(), error.clone())),
            },
        };
        made
    }

    /// A connection that nobody else uses.
    pub async fn own(&self, address: &Address) -> Result<Arc<Connection>, CallError> {
        let idle = || lock(&self.idle).get_mut(address).and_then(Vec::pop);
        while let Some(connection) = idle() {
            if connection.is_open() {
                return Ok(connection);
            }
        }
        dial(address, &self.options).await
    }

    /// Takes back one on which no answer is outstanding.
    pub fn give_back(&self, address: &Address, connection: Arc<Connection>) {
        let mut idle = lock(&self.idle);
        let kept = idle.entry(address.clone()).or_default();
        if connection.is_open() && kept.len() < IDLE_MAX {
            kept.push(connection);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
