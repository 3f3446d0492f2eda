//! Clients that speak AMQP over WebSocket, through the HTTP listener.
//!
//! Binary messages are pieces of one stream of bytes, whatever their borders. A task moves them between the socket and
//! the connection, which does not know the difference. A message is no larger than a frame of AMQP, so that the memory
//! of clients is bounded by the number of sockets; tungstenite answers pings, joins fragments and refuses frames
//! without a mask.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use highwater_access::ClientCertificate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::listener::{Connections, ReservedConnection};

/// Each may hold a message in each direction, also before its client has logged in.
const SOCKETS_MAX: usize = 1000;
/// A frame of AMQP has 64 KiB; clients send each as a message.
const MESSAGE_BYTES_MAX: usize = (64 << 10) + 1024;
/// The buffers between the socket and the connection, and of reads from the socket.
const BUFFER_BYTES: usize = 16 << 10;
const READ_BUFFER_BYTES: usize = 4 << 10;
/// For the closing frame of a client that does not read.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes clients over from the HTTP listener.
pub(crate) struct WebSockets {
    connections: Arc<Connections>,
    free: Arc<Semaphore>,
}

/// A socket that counts as a connection, before the upgrade of its HTTP connection.
pub(crate) struct PendingSocket {
    connection: ReservedConnection,
    _permit: OwnedSemaphorePermit,
}

impl WebSockets {
    pub(super) fn new(connections: Arc<Connections>) -> WebSockets {
        WebSockets {
            connections,
            free: Arc::new(Semaphore::new(SOCKETS_MAX)),
        }
    }

    /// `None` if there are too many.
    pub(crate) fn take(&self) -> Option<PendingSocket> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(PendingSocket {
            connection: self.connections.take()?,
            _permit: permit,
        })
    }
}

impl PendingSocket {
    /// Serves the client until either side ends. The handshake has been answered.
    pub(crate) async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        from: SocketAddr,
        certificate: Option<ClientCertificate>,
    ) {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(2 * MESSAGE_BYTES_MAX)
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        let serving = self.connection.serve(far, from, certificate.as_ref());
        let ((), moved) = tokio::join!(serving, pump(socket, near));
        if let Err(error) = moved {
            tracing::debug!(client = %from.ip(), "WebSocket closed: {error}");
        }
    }
}

/// Moves bytes both ways until either side ends, and tells the other.
async fn pump<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    connection: DuplexStream,
) -> Result<(), Error> {
    let (mut sink, mut stream) = socket.split();
    let (mut from_connection, mut to_connection) = tokio::io::split(connection);
    let incoming = async {
        while let Some(message) = stream.next().await {
            match message? {
                Message::Binary(bytes) => to_connection.write_all(&bytes).await?,
                Message::Text(_) => return Ok(CloseCode::Unsupported),
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        Ok::<_, Error>(CloseCode::Normal)
    };
    let outgoing = async {
        loop {
            let bytes = read_some(&mut from_connection).await?;
            if bytes.is_empty() {
                return Ok::<_, Error>(CloseCode::Normal);
            }
            sink.send(Message::Binary(bytes)).await?;
        }
    };
    let ended = tokio::select! {
        ended = incoming => ended,
        ended = outgoing => ended,
    };
    // The connection sees the end of its stream.
    drop((from_connection, to_connection));
    let frame = CloseFrame {
        code: match &ended {
            Ok(code) => *code,
            Err(Error::Capacity(_)) => CloseCode::Size,
            Err(_) => CloseCode::Protocol,
        },
        reason: "".into(),
    };
    let closing = async {
        if sink.send(Message::Close(Some(frame))).await.is_err() {
            // The client has closed first: the answer to it is waiting.
            let _ = sink.flush().await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    ended.map(drop)
}

/// The next bytes of the connection; none at its end.
async fn read_some(from: &mut (impl AsyncRead + Unpin)) -> Result<Bytes, Error> {
    let mut bytes = BytesMut::with_capacity(BUFFER_BYTES);
    from.read_buf(&mut bytes).await?;
    Ok(bytes.freeze())
}
