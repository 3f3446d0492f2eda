//! One keep-alive connection to a service, driven by its user: it has no task and no pool of its own.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use highwater_env::EgressPolicy;
use highwater_net::tls;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;

use super::{ANSWER_BYTES_MAX, CallError, Request};
use crate::definition::Target;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    used: bool,
}

/// `None` after the connection has ended, which may happen while an answer is still being read.
type Driver = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Polls the connection. Returns whether it has ended.
fn drive(driver: &mut Driver, context: &mut Context<'_>) -> bool {
    let ended = (driver.as_mut()).is_none_or(|driver| driver.as_mut().poll(context).is_ready());
    if ended {
        *driver = None;
    }
    ended
}

/// Why a request got no answer.
pub(crate) enum SendError {
    /// A kept-alive connection was closed, so the request may not have been received.
    Stale(Box<CallError>),
    Failed(CallError),
}

impl Connection {
    pub(crate) async fn open(
        target: &Target,
        egress: &EgressPolicy,
    ) -> Result<Connection, CallError> {
        let cannot = |error: &dyn std::fmt::Display| {
            CallError::transient(format!("cannot connect to {}: {error}", target.authority()))
        };
        let stream = egress.connect(&target.host, target.port).await;
        let stream = stream.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => CallError::permanent(error.to_string()),
            _ => cannot(&error),
        })?;
        // A call is one small write; Nagle's algorithm would only delay it.
        let _ = stream.set_nodelay(true);
        if !target.https {
            return Connection::over(TokioIo::new(stream))
                .await
                .map_err(|error| cannot(&error));
        }
        let config = tls_config().map_err(|error| cannot(&error))?;
        let stream = tls::connect(config, &target.host, stream).await;
        let stream = stream.map_err(|error| cannot(&error))?;
        Connection::over(TokioIo::new(stream))
            .await
            .map_err(|error| cannot(&error))
    }

    async fn over<I>(io: I) -> Result<Connection, hyper::Error>
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io).await?;
        let driver = Box::pin(async move {
            // The caller that waits for an answer learns how it ended.
            let _ = connection.await;
        });
        Ok(Connection {
            sender,
            driver: Some(driver),
            used: false,
        })
    }

    /// Returns the connection if another call may use it.
    pub(crate) async fn if_open(mut self) -> Option<Connection> {
        let ended = poll_fn(|context| Poll::Ready(drive(&mut self.driver, context)));
        (!ended.await && self.sender.is_ready()).then_some(self)
    }

    pub(crate) async fn call(
        &mut self,
        host: &HeaderValue,
        request: &Request,
    ) -> Result<Response, SendError> {
        let mut message = hyper::Request::new(Full::new(request.body.clone()));
        *message.method_mut() = request.method.clone();
        *message.uri_mut() = request.path.parse().map_err(|error| {
            let reason = format!("`{}` is no path: {error}", request.path);
            SendError::Failed(CallError::permanent(reason))
        })?;
        let headers = message.headers_mut();
        headers.insert(HOST, host.clone());
        for (name, value) in &request.headers {
            headers.append(name.clone(), value.clone());
        }
        let was_used = std::mem::replace(&mut self.used, true);
        let sent = self.sender.send_request(message);
        let answer = driven(&mut self.driver, sent).await.map_err(|error| {
            let unsent = error.is_canceled();
            let lost = CallError::transient(format!("the connection was lost: {error}"));
            match was_used && (unsent || error.is_incomplete_message()) {
                true => SendError::Stale(Box::new(lost.in_doubt())),
                false if unsent => SendError::Failed(lost),
                false => SendError::Failed(lost.in_doubt()),
            }
        })?;
        let status = answer.status().as_u16();
        let retry_after = (answer.headers().get(RETRY_AFTER))
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let body = driven(&mut self.driver, collect(answer.into_body())).await;
        let body = body.map_err(SendError::Failed)?;
        // The connection accepts the next call once it has seen the end of this one.
        let _ = driven(&mut self.driver, self.sender.ready()).await;
        Ok(Response {
            status,
            retry_after,
            body,
        })
    }
}

/// Drives the connection while waiting for `waited_for`.
async fn driven<T>(driver: &mut Driver, waited_for: impl Future<Output = T>) -> T {
    let mut waited_for = pin!(waited_for);
    poll_fn(|context| {
        drive(driver, context);
        waited_for.as_mut().poll(context)
    })
    .await
}

async fn collect(mut body: Incoming) -> Result<Bytes, CallError> {
    let mut all = BytesMut::new();
    loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let Some(frame) = frame else {
            // A copy, because a slice would keep the whole buffer of the connection.
            return Ok(all.freeze());
        };
        let frame = frame.map_err(|error| {
            CallError::transient(format!("the answer was cut off: {error}")).in_doubt()
        })?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.remaining() > ANSWER_BYTES_MAX {
                let reason = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(CallError::permanent(reason).in_doubt());
            }
            all.extend_from_slice(&data);
        }
    }
}

/// TLS with the system's root certificates, loaded on first use.
fn tls_config() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| tls::trust_system_and("", None));
    config.clone()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_though_the_connection_ends_behind_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\ntrue";
            stream.write_all(answer).await.unwrap();
        });
        let target = Target::parse(&format!("http://{address}")).unwrap();
        let Ok(mut connection) = Connection::open(&target, &EgressPolicy::default()).await else {
            panic!("no connection");
        };
        let request = Request {
            method: hyper::Method::GET,
            path: "/".into(),
            headers: Vec::new(),
            body: Bytes::new(),
        };
        let response = connection
            .call(&HeaderValue::from_static("h"), &request)
            .await;
        let expected = Response {
            status: 200,
            retry_after: None,
            body: Bytes::from_static(b"true"),
        };
        assert_eq!(response.ok(), Some(expected));
        assert!(connection.if_open().await.is_none());
    }
}
