//! Connections to brokers, opened on demand and reopened when they have ended.
//!
//! A broker answers the requests of a connection in order, so slow and urgent requests do not share one. There is a
//! connection for each [`ConnectionClass`]; a request that the broker may hold for long, a join or a poll, uses an
//! exclusive connection, which is released afterwards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::connection::{CallError, Connection};
use super::dial::{Address, dial};
use super::lock;
use super::options::Options;

/// Requests that share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionClass {
    /// Short requests: the catalogue, heartbeats, committed offsets.
    Control,
    Append,
    Read,
}

/// The limit of idle connections to a broker.
const IDLE_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Pool {
    options: Arc<Options>,
    shared: Mutex<HashMap<(Address, ConnectionClass), Arc<Slot>>>,
    idle: Mutex<HashMap<Address, Vec<Arc<Connection>>>>,
}

/// Locked while a connection is opened, so that only one is.
#[derive(Debug, Default)]
struct Slot(tokio::sync::Mutex<ConnectionState>);

#[derive(Debug, Default)]
struct ConnectionState {
    connection: Option<Arc<Connection>>,
    /// The last error, which is valid for a moment: callers that waited for the lock return it too.
    failed: Option<(Instant, CallError)>,
}

impl Pool {
    pub(super) fn new(options: Arc<Options>) -> Pool {
        Pool {
            options,
            shared: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    pub(super) async fn connection(
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
            && !(connection.is_expiring() && is_idle(connection))
        {
            return Ok(Arc::clone(connection));
        }
        if let Some((at, error)) = &state.failed
            && at.elapsed() < self.options.backoff_min
        {
            return Err(error.clone());
        }
        let opened = dial(address, &self.options).await;
        *state = match &opened {
            Ok(connection) => ConnectionState {
                connection: Some(Arc::clone(connection)),
                failed: None,
            },
            Err(error) => ConnectionState {
                connection: None,
                failed: Some((Instant::now(), error.clone())),
            },
        };
        opened
    }

    /// A connection without other users.
    pub(super) async fn exclusive(&self, address: &Address) -> Result<Arc<Connection>, CallError> {
        let idle = || lock(&self.idle).get_mut(address).and_then(Vec::pop);
        while let Some(connection) = idle() {
            if connection.is_open() && !connection.is_expiring() {
                return Ok(connection);
            }
        }
        dial(address, &self.options).await
    }

    /// Returns an exclusive connection without outstanding responses.
    pub(super) fn release(&self, address: &Address, connection: Arc<Connection>) {
        let mut idle = lock(&self.idle);
        let kept = idle.entry(address.clone()).or_default();
        if connection.is_open() && kept.len() < IDLE_MAX {
            kept.push(connection);
        }
    }
}

/// Whether no other caller waits for a response of the connection. A request after one in flight must not overtake it.
fn is_idle(connection: &Arc<Connection>) -> bool {
    Arc::strong_count(connection) == 1
}
