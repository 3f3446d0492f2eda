//! An HTTP client with one connection, reopened when it breaks, and a timeout per response.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot reach {address}: {error}")]
    Connect {
        address: String,
        error: std::io::Error,
    },
    #[error("{0}")]
    Broken(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub body: Bytes,
}

impl Reply {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body)
            .chars()
            .take(300)
            .collect()
    }
}

pub struct Client {
    address: String,
    timeout: Duration,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// `address` is host and port.
    pub fn new(address: impl Into<String>, timeout: Duration) -> Client {
        Client {
            address: address.into(),
            timeout,
            connection: None,
        }
    }

    pub async fn get(&mut self, path: &str) -> Result<Reply, CallError> {
        self.call(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Reply, CallError> {
        let kind = [("content-type", "application/json")];
        self.call(method, path, &kind, body.to_string().into())
            .await
    }

    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Reply, CallError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| CallError::Broken(error.to_string()))?;
        let timeout = self.timeout;
        match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(CallError::Late(timeout)),
        }
    }

    /// The connection is kept only after a success.
    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, CallError> {
        let broken = |error: hyper::Error| CallError::Broken(error.to_string());
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => self.connect().await?,
        };
        connection.ready().await.map_err(broken)?;
        let (head, body) = connection
            .send_request(request)
            .await
            .map_err(broken)?
            .into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| CallError::Broken(error.to_string()))?;
        self.connection = Some(connection);
        Ok(Reply {
            status: head.status.as_u16(),
            body: body.to_bytes(),
        })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, CallError> {
        let stream = TcpStream::connect(&self.address).await;
        let stream = stream.map_err(|error| CallError::Connect {
            address: self.address.clone(),
            error,
        })?;
        let _ = stream.set_nodelay(true);
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) =
            handshake.map_err(|error| CallError::Broken(error.to_string()))?;
        // The request that meets an error reports it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}
