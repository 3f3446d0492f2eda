//! One connection to a broker: requests are pipelined, responses arrive in the same order.
//!
//! A task owns the socket. A request is in order once [`Connection::send`] is ready; the caller may await the response
//! later. Any violation, such as an unexpected response, an invalid length or a timeout, closes the connection, and
//! all waiting callers get the reason.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::dial::Address;
use super::options::Options;
use super::throttle::{self, Throttle};
use super::versions::Versions;
use crate::handlers::text;
use crate::shape;

/// The limit of requests to be written, and of requests that wait for a response.
const IN_FLIGHT_MAX: usize = 64;
/// The most memory that is reserved for a response before its bytes arrive.
const READ_BYTES: usize = 256 << 10;
const LENGTH_BYTES: usize = 4;
const CORRELATION_BYTES: usize = 4;
/// The share of a login's lifetime after which its connection is replaced.
const LIFETIME_SHARE: f64 = 0.85;

/// Why a request got no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The connection failed. The request may or may not have been executed.
    #[error("{0}")]
    Lost(String),
    /// A retry would not help.
    #[error("{0}")]
    Refused(String),
}

impl CallError {
    pub(super) fn with(self, address: &Address) -> CallError {
        match self {
            CallError::Lost(reason) => CallError::Lost(format!("{address}: {reason}")),
            CallError::Refused(reason) => CallError::Refused(format!("{address}: {reason}")),
        }
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> CallError {
        // The egress policy, a host without a valid name, and an invalid certificate.
        use io::ErrorKind::{InvalidData, InvalidInput, PermissionDenied};
        match error.kind() {
            PermissionDenied | InvalidInput | InvalidData => CallError::Refused(error.to_string()),
            _ => CallError::Lost(error.to_string()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    address: Address,
    client_id: String,
    versions: Versions,
    timeout: Duration,
    sent: AtomicI32,
    outgoing: mpsc::Sender<OutgoingRequest>,
    close: Arc<CloseState>,
    throttle: Throttle,
    /// The time to replace the connection, shortly before the broker ends its login.
    expires: Option<Instant>,
}

/// Requests the end of a connection, and holds the reason.
#[derive(Debug, Default)]
struct CloseState {
    requested: Notify,
    reason: OnceLock<String>,
}

#[derive(Debug)]
struct OutgoingRequest {
    frame: Bytes,
    pending: PendingReply,
}

#[derive(Debug)]
struct PendingReply {
    correlation: i32,
    response: oneshot::Sender<Bytes>,
}

/// Options of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions<'a> {
    pub version_max: i16,
    /// The client id, if not that of the client's options.
    pub client: Option<&'a str>,
    /// A later response closes the connection.
    pub timeout: Duration,
}

impl CallOptions<'_> {
    pub(super) fn with_timeout(timeout: Duration) -> CallOptions<'static> {
        CallOptions {
            version_max: i16::MAX,
            client: None,
            timeout,
        }
    }
}

/// A response in flight.
#[derive(Debug)]
pub(crate) struct Reply<R> {
    connection: Arc<Connection>,
    frame: oneshot::Receiver<Bytes>,
    version: i16,
    request: PhantomData<fn(R)>,
}

impl Connection {
    pub(super) fn start(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        address: &Address,
        options: &Options,
        versions: Versions,
    ) -> Connection {
        let (outgoing, requests) = mpsc::channel(IN_FLIGHT_MAX);
        let close = Arc::new(CloseState::default());
        let (reader, writer) = tokio::io::split(stream);
        let task = serve(
            reader,
            writer,
            requests,
            options.response_bytes_max,
            Arc::clone(&close),
        );
        tokio::spawn(task);
        Connection {
            address: address.clone(),
            client_id: options.client_id.clone(),
            versions,
            timeout: options.request_timeout,
            sent: AtomicI32::new(0),
            outgoing,
            close,
            throttle: Throttle::default(),
            expires: None,
        }
    }

    pub(super) fn set_versions(&mut self, versions: Versions) {
        self.versions = versions;
    }

    /// The broker ends the login, and the connection with it, after this time.
    pub(super) fn expire_after(&mut self, lifetime: Duration) {
        self.expires = Some(Instant::now() + lifetime.mul_f64(LIFETIME_SHARE));
    }

    pub(super) fn is_open(&self) -> bool {
        !self.outgoing.is_closed()
    }

    /// Whether the login ends soon, so that the connection is replaced when it has nothing in flight.
    pub(super) fn is_expiring(&self) -> bool {
        self.expires
            .is_some_and(|expires| Instant::now() >= expires)
    }

    /// Sends nothing for this long, as the broker has asked for.
    pub(super) fn hold(&self, pause: Duration) {
        self.throttle.hold(pause.min(self.timeout));
    }

    /// The version for a request of this type, at most `max`.
    pub(super) fn version<R: Request>(&self, max: i16) -> Result<i16, CallError> {
        self.versions.highest(R::KEY, max).ok_or_else(|| {
            let api = ApiKey::try_from(R::KEY);
            let api = api.map_or_else(|()| R::KEY.to_string(), |key| format!("{key:?}"));
            let reason = format!("no common version of {api}");
            CallError::Refused(reason).with(&self.address)
        })
    }

    /// Sends a request and waits for the response.
    pub(super) async fn call<R: Request>(
        &self,
        options: CallOptions<'_>,
        make: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, CallError> {
        let version = self.version::<R>(options.version_max)?;
        let frame = self.push(version, options.client, &make(version)).await?;
        self.receive::<R>(version, options.timeout, frame).await
    }

    /// Sends a request. It is in the order of this connection when the future is ready.
    pub(super) async fn send<R: Request>(
        self: &Arc<Self>,
        version: i16,
        request: &R,
    ) -> Result<Reply<R>, CallError> {
        Ok(Reply {
            frame: self.push(version, None, request).await?,
            connection: Arc::clone(self),
            version,
            request: PhantomData,
        })
    }

    async fn push<R: Request>(
        &self,
        version: i16,
        client: Option<&str>,
        request: &R,
    ) -> Result<oneshot::Receiver<Bytes>, CallError> {
        self.throttle.wait().await;
        let correlation = self.sent.fetch_add(1, Ordering::Relaxed);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation)
            .with_client_id(Some(text(client.unwrap_or(&self.client_id))));
        let frame = self.encode(version, &header, request)?;
        let (sender, response) = oneshot::channel();
        let pending = PendingReply {
            correlation,
            response: sender,
        };
        let sent = self.outgoing.send(OutgoingRequest { frame, pending }).await;
        sent.map_err(|_| self.lost())?;
        Ok(response)
    }

    fn encode<R: Request>(
        &self,
        version: i16,
        header: &RequestHeader,
        request: &R,
    ) -> Result<Bytes, CallError> {
        let refused = |reason: String| CallError::Refused(reason).with(&self.address);
        let mut frame = BytesMut::from(&[0; LENGTH_BYTES][..]);
        header
            .encode(&mut frame, R::header_version(version))
            .and_then(|()| request.encode(&mut frame, version))
            .map_err(|error| refused(format!("cannot encode a request: {error}")))?;
        let length = i32::try_from(frame.len() - LENGTH_BYTES)
            .map_err(|_| refused("a request is longer than 2 GiB".into()))?;
        (&mut frame[..LENGTH_BYTES]).put_i32(length);
        Ok(frame.freeze())
    }

    async fn receive<R: Request>(
        &self,
        version: i16,
        timeout: Duration,
        frame: oneshot::Receiver<Bytes>,
    ) -> Result<R::Response, CallError> {
        let frame = match tokio::time::timeout(timeout, frame).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(_)) => return Err(self.lost()),
            Err(_) => return Err(self.end(format!("no response within {timeout:?}"))),
        };
        let (response, pause) = decode::<R>(frame, version).map_err(|reason| self.end(reason))?;
        self.hold(pause);
        Ok(response)
    }

    /// Closes the connection for all callers.
    fn end(&self, reason: String) -> CallError {
        let _ = self.close.reason.set(reason);
        self.close.requested.notify_one();
        self.lost()
    }

    fn lost(&self) -> CallError {
        let reason = self.close.reason.get();
        let reason = reason.map_or("the connection has ended", String::as_str);
        CallError::Lost(reason.into()).with(&self.address)
    }
}

impl<R: Request> Reply<R> {
    async fn wait(self) -> Result<R::Response, CallError> {
        let timeout = self.connection.timeout;
        self.connection
            .receive::<R>(self.version, timeout, self.frame)
            .await
    }
}

impl Reply<ProduceRequest> {
    /// The throttle time of this response is at another position.
    pub(super) async fn produced(self) -> Result<ProduceResponse, CallError> {
        let connection = Arc::clone(&self.connection);
        let response = self.wait().await?;
        connection.hold(throttle::millis(response.throttle_time_ms));
        Ok(response)
    }
}

/// The response, and the pause that it asks for.
fn decode<R: Request>(mut frame: Bytes, version: i16) -> Result<(R::Response, Duration), String> {
    let malformed = |reason: &dyn std::fmt::Display| format!("malformed response: {reason}");
    ResponseHeader::decode(&mut frame, R::Response::header_version(version))
        .map_err(|error| malformed(&error))?;
    let key = ApiKey::try_from(R::KEY).map_err(|()| malformed(&"unknown API key"))?;
    shape::check_response(key, version, &frame).map_err(|error| malformed(&error))?;
    let pause = throttle::pause(key, version, &frame);
    let response = R::Response::decode(&mut frame, version).map_err(|error| malformed(&error))?;
    Ok((response, pause))
}

/// Runs until all senders are dropped, the end is requested, or the connection fails.
async fn serve<S: AsyncRead + AsyncWrite>(
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    requests: mpsc::Receiver<OutgoingRequest>,
    response_bytes_max: usize,
    close: Arc<CloseState>,
) {
    let (expect, expected) = mpsc::channel(IN_FLIGHT_MAX);
    let reason = tokio::select! {
        ended = write(writer, requests, expect) => ended.err().map(|error| error.to_string()),
        broken = read(reader, expected, response_bytes_max) => Some(broken),
        () = close.requested.notified() => None,
    };
    if let Some(reason) = reason {
        let _ = close.reason.set(reason);
    }
}

async fn write<S: AsyncRead + AsyncWrite>(
    mut writer: WriteHalf<S>,
    mut requests: mpsc::Receiver<OutgoingRequest>,
    expect: mpsc::Sender<PendingReply>,
) -> io::Result<()> {
    while let Some(OutgoingRequest { frame, pending }) = requests.recv().await {
        if expect.send(pending).await.is_err() {
            return Ok(());
        }
        writer.write_all(&frame).await?;
        writer.flush().await?;
    }
    Ok(())
}

/// Delivers responses until an error, which it returns.
async fn read<S: AsyncRead + AsyncWrite>(
    mut reader: ReadHalf<S>,
    mut expected: mpsc::Receiver<PendingReply>,
    response_bytes_max: usize,
) -> String {
    let mut buffer = BytesMut::new();
    loop {
        let frame = match next_frame(&mut reader, &mut buffer, response_bytes_max).await {
            Ok(frame) => frame,
            Err(reason) => return reason,
        };
        let correlation = frame.first_chunk().map(|head| i32::from_be_bytes(*head));
        let Ok(next) = expected.try_recv() else {
            return "unexpected response".into();
        };
        if correlation != Some(next.correlation) {
            return format!(
                "response with correlation id {correlation:?}, expected {}",
                next.correlation
            );
        }
        // The caller may be gone.
        let _ = next.response.send(frame);
    }
}

async fn next_frame<S: AsyncRead>(
    reader: &mut ReadHalf<S>,
    buffer: &mut BytesMut,
    bytes_max: usize,
) -> Result<Bytes, String> {
    loop {
        let length = buffer
            .first_chunk()
            .map(|length| i32::from_be_bytes(*length));
        let length = length.map(|length| match usize::try_from(length) {
            Ok(bytes) if (CORRELATION_BYTES..=bytes_max).contains(&bytes) => Ok(bytes),
            _ => Err(format!("invalid response length {length}")),
        });
        let missing = match length.transpose()? {
            Some(length) if buffer.len() >= LENGTH_BYTES + length => {
                let mut frame = buffer.split_to(LENGTH_BYTES + length);
                return Ok(frame.split_off(LENGTH_BYTES).freeze());
            }
            Some(length) => LENGTH_BYTES + length - buffer.len(),
            None => LENGTH_BYTES,
        };
        if buffer.capacity() - buffer.len() < missing.min(READ_BYTES) {
            buffer.reserve(missing.clamp(READ_BYTES / 16, READ_BYTES));
        }
        match reader.read_buf(buffer).await {
            Ok(0) => return Err("the broker closed the connection".into()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
