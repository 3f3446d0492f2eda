//! Requests of a load, built once and sent as bytes.

use std::net::SocketAddr;

use anyhow::Context;

use crate::client::Server;
use crate::exit::UsageError;

/// The address of the server of `command`, which speaks plain HTTP only.
pub(super) async fn plain_address(server: &Server, command: &str) -> anyhow::Result<SocketAddr> {
    if server.is_https() {
        let message = format!("{command} supports plain HTTP only: give an http:// server");
        return Err(UsageError(message).into());
    }
    let addresses = tokio::net::lookup_host(server.authority()).await;
    let mut addresses = addresses.context("cannot reach the server")?;
    addresses.next().context("the server has no address")
}

/// The head of requests that differ only in their bodies.
pub(super) struct RequestHead(Vec<u8>);

impl RequestHead {
    pub(super) fn post(server: &Server, path: &str) -> Result<RequestHead, UsageError> {
        let mut head = format!(
            "POST {}{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n",
            server.base_path(),
            server.authority(),
        );
        if let Some(key) = server.authorization()? {
            head.push_str(&format!("authorization: {key}\r\n"));
        }
        head.push_str("content-length: ");
        Ok(RequestHead(head.into_bytes()))
    }

    pub(super) fn with_body(&self, body: &[u8]) -> Vec<u8> {
        let length = body.len().to_string();
        [&self.0, length.as_bytes(), b"\r\n\r\n", body].concat()
    }
}
