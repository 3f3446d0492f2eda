//! A proxy between clients and a broker that applies a scripted action to each request: drops or truncates its
//! response, or responds itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, ResponseHeader};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The fixed part of a request header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead {
    pub key: i16,
    pub version: i16,
    correlation: i32,
}

impl RequestHead {
    pub(crate) fn is(&self, key: ApiKey) -> bool {
        self.key == key as i16
    }

    /// Responds in the broker's name.
    pub(crate) fn respond<R: Request>(&self, response: &R::Response) -> ProxyAction {
        let mut frame = Vec::new();
        ResponseHeader::default()
            .with_correlation_id(self.correlation)
            .encode(&mut frame, R::Response::header_version(self.version))
            .unwrap();
        response.encode(&mut frame, self.version).unwrap();
        ProxyAction::Respond(frame.into())
    }

    /// Responds with these bytes as the body.
    pub(crate) fn respond_raw(&self, body: &[u8]) -> ProxyAction {
        ProxyAction::Respond([&self.correlation.to_be_bytes()[..], body].concat().into())
    }
}

/// The action for a request.
#[derive(Clone, Debug)]
pub(crate) enum ProxyAction {
    Forward,
    /// The broker never sees the request, and the connection ends.
    Drop,
    /// The broker executes the request, and the connection ends before the response.
    DropResponse,
    /// The same, in the middle of the response.
    TruncateResponse,
    /// The broker never sees the request, and this is the response.
    Respond(Bytes),
    /// The same, without a frame around the bytes.
    SendRaw(Bytes),
}

type Script = Box<dyn FnMut(RequestHead) -> ProxyAction + Send>;

pub(crate) struct Proxy {
    pub address: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<RequestHead>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Proxy {
    pub(crate) async fn bind() -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        Proxy {
            address: listener.local_addr().unwrap(),
            listener: Mutex::new(Some(listener)),
            script: Arc::new(Mutex::new(Box::new(|_| ProxyAction::Forward))),
            seen: Arc::default(),
            tasks: Mutex::default(),
        }
    }

    /// Forwards bytes without reading requests, for TLS.
    pub(crate) fn serve_bytes(&self, upstream: SocketAddr) {
        let listener = self.listener.lock().unwrap().take().unwrap();
        self.tasks.lock().unwrap().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(upstream).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
    }

    pub(crate) fn serve(&self, upstream: SocketAddr) {
        let listener = self.listener.lock().unwrap().take().unwrap();
        let (script, seen) = (Arc::clone(&self.script), Arc::clone(&self.seen));
        self.tasks.lock().unwrap().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                connections.spawn(async move {
                    let Ok(server) = TcpStream::connect(upstream).await else {
                        return;
                    };
                    pass(client, server, script, seen).await;
                });
            }
        });
    }

    /// Sets the action for each request from now on.
    pub(crate) fn script(&self, script: impl FnMut(RequestHead) -> ProxyAction + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Applies `act` to the first `times` requests with this key.
    pub(crate) fn first(
        &self,
        key: ApiKey,
        times: usize,
        act: impl Fn(RequestHead) -> ProxyAction + Send + 'static,
    ) {
        let mut left = times;
        self.script(move |head| match head.is(key) && left > 0 {
            true => {
                left -= 1;
                act(head)
            }
            false => ProxyAction::Forward,
        });
    }

    /// The number of requests with this key.
    pub(crate) fn count(&self, key: ApiKey) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|head| head.is(key)).count()
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<RequestHead>>>,
) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (act, acts) = mpsc::unbounded_channel();
    tokio::select! {
        _ = requests(from_client, to_server, act, script, seen) => {}
        _ = responses(from_server, to_client, acts) => {}
    }
}

async fn frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let length = from.read_u32().await.ok()?;
    let mut frame = vec![0; length as usize];
    from.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    act: mpsc::UnboundedSender<ProxyAction>,
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<RequestHead>>>,
) -> Option<()> {
    loop {
        let frame = frame(&mut from).await?;
        let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
        let head = RequestHead {
            key: number(0),
            version: number(2),
            correlation: i32::from_be_bytes(frame[4..8].try_into().unwrap()),
        };
        seen.lock().unwrap().push(head);
        let decided = (*script.lock().unwrap())(head);
        let forwards = matches!(
            decided,
            ProxyAction::Forward | ProxyAction::DropResponse | ProxyAction::TruncateResponse
        );
        act.send(decided).ok()?;
        if forwards {
            to.write_u32(frame.len() as u32).await.ok()?;
            to.write_all(&frame).await.ok()?;
        }
    }
}

async fn responses(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut acts: mpsc::UnboundedReceiver<ProxyAction>,
) -> Option<()> {
    loop {
        match acts.recv().await? {
            ProxyAction::Drop => return None,
            ProxyAction::DropResponse => {
                frame(&mut from).await?;
                return None;
            }
            ProxyAction::TruncateResponse => {
                let frame = frame(&mut from).await?;
                to.write_u32(frame.len() as u32).await.ok()?;
                to.write_all(&frame[..frame.len() / 2]).await.ok()?;
                return None;
            }
            ProxyAction::Forward => {
                let frame = frame(&mut from).await?;
                to.write_u32(frame.len() as u32).await.ok()?;
                to.write_all(&frame).await.ok()?;
            }
            ProxyAction::Respond(frame) => {
                to.write_u32(frame.len() as u32).await.ok()?;
                to.write_all(&frame).await.ok()?;
            }
            ProxyAction::SendRaw(bytes) => to.write_all(&bytes).await.ok()?,
        }
    }
}
