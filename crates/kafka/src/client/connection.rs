//! One connection to a broker: requests go out as they come, answers come back in the same order.
//!
//! A task owns the socket. Whoever sends has a place in the order when [`Connection::send`] is ready, and may
//! wait for the answer later. Whatever is wrong, an answer that nobody asked for, a length that cannot be,
//! an answer that does not come, ends the connection, and everybody who waits is told why.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};

use super::dial::Address;
use super::options::Options;
use super::versions::Versions;
use crate::handlers::text;
use crate::shape;

/// Requests that may wait to be written, and as many that wait for their answers.
const UNDER_WAY_MAX: usize = 64;
/// However long an answer says it is, room is made for no more than this before it comes.
const READ_BYTES: usize = 256 << 10;
const LENGTH_BYTES: usize = 4;
const CORRELATION_BYTES: usize = 4;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The connection was not made or has ended. The request may have arrived or not.
    #[error("{0}")]
    Lost(String),
    /// Trying again would change nothing.
    #[error("{0}")]
    Refused(String),
}

impl CallError {
    pub fn with(self, address: &Address) -> CallError {
        match self {
            CallError::Lost(reason) => CallError::Lost(format!("{address}: {reason}")),
            CallError::Refused(reason) => CallError::Refused(format!("{address}: {reason}")),
        }
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> CallError {
        // What TLS has against a certificate comes as this, and stays.
        match error.kind() {
            io::ErrorKind::InvalidData => CallError::Refused(error.to_string()),
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
    ending: Arc<CloseState>,
}

/// How a connection is ended by those who use it, and why it has ended.
#[derive(Debug, Default)]
struct CloseState {
    wanted: Notify,
    reason: OnceLock<String>,
}

#[derive(Debug)]
struct OutgoingRequest {
    frame: Bytes,
    expected: PendingReply,
}

#[derive(Debug)]
struct PendingReply {
    correlation: i32,
    answer: oneshot::Sender<Bytes>,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions<'a> {
    pub version_max: i16,
    /// Under which name, if not that of the options.
    pub client: Option<&'a str>,
    /// An answer that takes longer ends the connection.
    pub timeout: Duration,
}

impl CallOptions<'_> {
    pub fn with_timeout(timeout: Duration) -> CallOptions<'static> {
        CallOptions {
            version_max: i16::MAX,
            client: None,
            timeout,
        }
    }
}

/// An answer to come.
#[derive(Debug)]
pub(crate) struct Reply<R> {
    connection: Arc<Connection>,
    frame: oneshot::Receiver<Bytes>,
    version: i16,
    request: PhantomData<fn(R)>,
}

impl Connection {
    pub fn start(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        address: &Address,
        options: &Options,
        versions: Versions,
    ) -> Connection {
        let (outgoing, requests) = mpsc::channel(UNDER_WAY_MAX);
        let ending = Arc::new(CloseState::default());
        let (reader, writer) = tokio::io::split(stream);
        let task = serve(
            reader,
            writer,
            requests,
            options.answer_bytes_max,
            Arc::clone(&ending),
        );
        tokio::spawn(task);
        Connection {
            address: address.clone(),
            client_id: options.client_id.clone(),
            versions,
            timeout: options.request_timeout,
            sent: AtomicI32::new(0),
            outgoing,
            ending,
        }
    }

    pub fn set_versions(&mut self, versions: Versions) {
        self.versions = versions;
    }

    pub fn is_open(&self) -> bool {
        !self.outgoing.is_closed()
    }

    /// The version in which a request of this kind is sent, `max` at most.
    pub fn version<R: Request>(&self, max: i16) -> Result<i16, CallError> {
        self.versions.of(R::KEY, max).ok_or_else(|| {
            let what = ApiKey::try_from(R::KEY);
            let what = what.map_or_else(|()| R::KEY.to_string(), |key| format!("{key:?}"));
            let reason = format!("it understands no version of {what} that we speak");
            CallError::Refused(reason).with(&self.address)
        })
    }

    /// Sends a request and waits for the answer.
    pub async fn call<R: Request>(
        &self,
        options: CallOptions<'_>,
        make: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, CallError> {
        let version = self.version::<R>(options.version_max)?;
        let frame = self.push(version, options.client, &make(version)).await?;
        self.answer::<R>(version, options.timeout, frame).await
    }

    /// Sends a request, which has its place in the order of this connection when this is ready.
    pub async fn send<R: Request>(
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
        let correlation = self.sent.fetch_add(1, Ordering::Relaxed);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation)
            .with_client_id(Some(text(client.unwrap_or(&self.client_id))));
        let frame = self.encode(version, &header, request)?;
        let (answer, frame_of_answer) = oneshot::channel();
        let expected = PendingReply {
            correlation,
            answer,
        };
        let sent = self
            .outgoing
            .send(OutgoingRequest { frame, expected })
            .await;
        sent.map_err(|_| self.lost())?;
        Ok(frame_of_answer)
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
            .map_err(|error| refused(format!("a request could not be written: {error}")))?;
        let length = i32::try_from(frame.len() - LENGTH_BYTES)
            .map_err(|_| refused("a request is longer than 2 GiB".into()))?;
        (&mut frame[..LENGTH_BYTES]).put_i32(length);
        Ok(frame.freeze())
    }

    async fn answer<R: Request>(
        &self,
        version: i16,
        timeout: Duration,
        frame: oneshot::Receiver<Bytes>,
    ) -> Result<R::Response, CallError> {
        let frame = match tokio::time::timeout(timeout, frame).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(_)) => return Err(self.lost()),
            Err(_) => return Err(self.end(format!("no answer within {timeout:?}"))),
        };
        decode::<R>(frame, version).map_err(|reason| self.end(reason))
    }

    /// Ends the connection for everybody.
    fn end(&self, reason: String) -> CallError {
        let _ = self.ending.reason.set(reason);
        self.ending.wanted.notify_one();
        self.lost()
    }

    fn lost(&self) -> CallError {
        let reason = self.ending.reason.get();
        let reason = reason.map_or("the connection has ended", String::as_str);
        CallError::Lost(reason.into()).with(&self.address)
    }
}

impl<R: Request> Reply<R> {
    pub async fn wait(self) -> Result<R::Response, CallError> {
        let timeout = self.connection.timeout;
        self.connection
            .answer::<R>(self.version, timeout, self.frame)
            .await
    }
}

fn decode<R: Request>(mut frame: Bytes, version: i16) -> Result<R::Response, String> {
    let malformed = |reason: &dyn std::fmt::Display| format!("an answer is malformed: {reason}");
    ResponseHeader::decode(&mut frame, R::Response::header_version(version))
        .map_err(|error| malformed(&error))?;
    let key = ApiKey::try_from(R::KEY).map_err(|()| malformed(&"of no known kind"))?;
    shape::check_answer(key, version, &frame).map_err(|error| malformed(&error))?;
    R::Response::decode(&mut frame, version).map_err(|error| malformed(&error))
}

/// Until nobody can send any more, somebody wants it to end, or it breaks.
async fn serve<S: AsyncRead + AsyncWrite>(
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    requests: mpsc::Receiver<OutgoingRequest>,
    answer_bytes_max: usize,
    ending: Arc<CloseState>,
) {
    let (expect, expected) = mpsc::channel(UNDER_WAY_MAX);
    let reason = tokio::select! {
        ended = write(writer, requests, expect) => ended.err().map(|error| error.to_string()),
        broken = read(reader, expected, answer_bytes_max) => Some(broken),
        () = ending.wanted.notified() => None,
    };
    if let Some(reason) = reason {
        let _ = ending.reason.set(reason);
    }
}

async fn write<S: AsyncRead + AsyncWrite>(
    mut writer: WriteHalf<S>,
    mut requests: mpsc::Receiver<OutgoingRequest>,
    expect: mpsc::Sender<PendingReply>,
) -> io::Result<()> {
    while let Some(OutgoingRequest { frame, expected }) = requests.recv().await {
        if expect.send(expected).await.is_err() {
            return Ok(());
        }
        writer.write_all(&frame).await?;
        writer.flush().await?;
    }
    Ok(())
}

/// Hands out answers until something is wrong, and says what.
async fn read<S: AsyncRead + AsyncWrite>(
    mut reader: ReadHalf<S>,
    mut expected: mpsc::Receiver<PendingReply>,
    answer_bytes_max: usize,
) -> String {
    let mut buffer = BytesMut::new();
    loop {
        let frame = match next_frame(&mut reader, &mut buffer, answer_bytes_max).await {
            Ok(frame) => frame,
            Err(reason) => return reason,
        };
        let correlation = frame.first_chunk().map(|head| i32::from_be_bytes(*head));
        let Ok(next) = expected.try_recv() else {
            return "it answered what nobody asked".into();
        };
        if correlation != Some(next.correlation) {
            return format!(
                "it answered {correlation:?} where {} was due",
                next.correlation
            );
        }
        // Who asked may have gone.
        let _ = next.answer.send(frame);
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
            _ => Err(format!("an answer cannot have {length} bytes")),
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
