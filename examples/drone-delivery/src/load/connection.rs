//! The connection of a customer: opened when it is needed, with a request buffer that is used again.

use std::io;
use std::net::SocketAddr;

use highwater_devtools::LoadConnection;
use mio::{Registry, Token};

/// A connection with at most one request in flight.
#[derive(Default)]
pub(super) struct Connection {
    open: Option<LoadConnection>,
    request: Vec<u8>,
}

impl Connection {
    /// The buffer for the next request.
    pub(super) fn request(&mut self) -> &mut Vec<u8> {
        self.request.clear();
        &mut self.request
    }

    /// Sends the request from its beginning, over a new connection if necessary.
    pub(super) fn begin(
        &mut self,
        address: SocketAddr,
        poll: &Registry,
        slot: usize,
    ) -> io::Result<()> {
        let connection = match &mut self.open {
            Some(connection) => connection,
            closed => closed.insert(LoadConnection::open(address, poll, Token(slot))?),
        };
        connection.start_request(&self.request)
    }

    /// Continues the request in flight. Status and body, once the response is complete.
    pub(super) fn poll(&mut self) -> io::Result<Option<(u16, &[u8])>> {
        let Some(connection) = &mut self.open else {
            return Ok(None);
        };
        connection.send(&self.request)?;
        connection.receive()
    }

    /// Closes the connection; the next request opens another one.
    pub(super) fn close(&mut self) {
        self.open = None;
    }
}
