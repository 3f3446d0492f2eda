//! Connections to brokers, made when they are needed and made again when they have ended.
//!
//! A broker answers the requests of a connection one after another, so what may wait does not share one with
//! what may not. There is a connection for each [`ConnectionClass`]; what a broker may hold back for long, a join or a
//! poll, takes a connection for itself and gives it back afterwards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::connection::{CallError, Connection};
use super::dial::{Address, dial};
use super::options::Options;

/// What shares a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionClass {
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
    shared: Mutex<HashMap<(Address, ConnectionClass), Arc<Slot>>>,
    idle: Mutex<HashMap<Address, Vec<Arc<Connection>>>>,
}

/// Locked while a connection is being made, so that only one is.
#[derive(Debug, Default)]
struct Slot(tokio::sync::Mutex<ConnectionState>);

#[derive(Debug, Default)]
struct ConnectionState {
    connection: Option<Arc<Connection>>,
    /// Why there is none, which is believed for a moment: whoever waited for the lock need not find out.
    failed: Option<(Instant, CallError)>,
}

impl Pool {
    pub fn new(options: Arc<Options>) -> Pool {
        Pool {
            options,
            shared: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    pub async fn connection(
        &self,
        address: &Address,
        class: ConnectionClass,
    ) -> Result<Arc<Connection>, CallError> {
        let slot = {
            let mut shared = lock(&self.shared);
            Arc::clone(shared.entry((address.clone(), class)).or_default())
        };
        let mut state = slot.0.lock().await;
        if let Some(connection) = &state.connection
            && connection.is_open()
        {
            return Ok(Arc::clone(connection));
        }
        if let Some((at, error)) = &state.failed
            && at.elapsed() < self.options.backoff_min
        {
            return Err(error.clone());
        }
        let made = dial(address, &self.options).await;
        *state = match &made {
            Ok(connection) => ConnectionState {
                connection: Some(Arc::clone(connection)),
                failed: None,
            },
            Err(error) => ConnectionState {
                connection: None,
                failed: Some((Instant::now(), error.clone())),
            },
        };
        made
    }

    /// A connection that nobody else uses.
    pub async fn exclusive(&self, address: &Address) -> Result<Arc<Connection>, CallError> {
        let idle = || lock(&self.idle).get_mut(address).and_then(Vec::pop);
        while let Some(connection) = idle() {
            if connection.is_open() {
                return Ok(connection);
            }
        }
        dial(address, &self.options).await
    }

    /// Takes back one on which no answer is outstanding.
    pub fn release(&self, address: &Address, connection: Arc<Connection>) {
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
