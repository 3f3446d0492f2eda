//! Stands between clients and a broker and does to single requests what a test wants: loses their answers,
//! cuts them in the middle, answers in the broker's place.

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

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub key: i16,
    pub version: i16,
    correlation: i32,
}

impl Head {
    pub fn is(&self, key: ApiKey) -> bool {
        self.key == key as i16
    }

    /// Answers in the broker's place.
    pub fn say<R: Request>(&self, answer: &R::Response) -> Act {
        let mut frame = Vec::new();
        ResponseHeader::default()
            .with_correlation_id(self.correlation)
            .encode(&mut frame, R::Response::header_version(self.version))
            .unwrap();
        answer.encode(&mut frame, self.version).unwrap();
        Act::Say(frame.into())
    }

    /// The same with a body that need not be one.
    pub fn say_raw(&self, body: &[u8]) -> Act {
        Act::Say([&self.correlation.to_be_bytes()[..], body].concat().into())
    }
}

/// What is done to a request.
#[derive(Clone, Debug)]
pub enum Act {
    Forward,
    /// The broker never sees it, and the connection ends.
    Cut,
    /// The broker carries it out, and the connection ends before the answer.
    Lose,
    /// The same in the middle of the answer.
    LoseHalf,
    /// The broker never sees it and this is the answer.
    Say(Bytes),
    /// The answer is these bytes, whatever they are.
    Babble(Bytes),
}

type Script = Box<dyn FnMut(Head) -> Act + Send>;

pub struct Proxy {
    pub address: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<Head>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Proxy {
    pub async fn bind() -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        Proxy {
            address: listener.local_addr().unwrap(),
            listener: Mutex::new(Some(listener)),
            script: Arc::new(Mutex::new(Box::new(|_| Act::Forward))),
            seen: Arc::default(),
            tasks: Mutex::default(),
        }
    }

    /// Hands on what it does not understand, as TLS is not to be.
    pub fn serve_blindly(&self, upstream: SocketAddr) {
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

    pub fn serve(&self, upstream: SocketAddr) {
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

    /// What is done from now on.
    pub fn script(&self, script: impl FnMut(Head) -> Act + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Does `act` to the first `times` requests of a kind.
    pub fn first(&self, key: ApiKey, times: usize, act: impl Fn(Head) -> Act + Send + 'static) {
        let mut left = times;
        self.script(move |head| match head.is(key) && left > 0 {
            true => {
                left -= 1;
                act(head)
            }
            false => Act::Forward,
        });
    }

    /// How many requests of a kind came.
    pub fn count(&self, key: ApiKey) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|head| head.is(key)).count()
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<Head>>>,
) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (act, acts) = mpsc::unbounded_channel();
    tokio::select! {
        _ = requests(from_client, to_server, act, script, seen) => {}
        _ = answers(from_server, to_client, acts) => {}
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
    act: mpsc::UnboundedSender<Act>,
    script: Arc<Mutex<Script>>,
    seen: Arc<Mutex<Vec<Head>>>,
) -> Option<()> {
    loop {
        let frame = frame(&mut from).await?;
        let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
        let head = Head {
            key: number(0),
            version: number(2),
            correlation: i32::from_be_bytes(frame[4..8].try_into().unwrap()),
        };
        seen.lock().unwrap().push(head);
        let decided = (*script.lock().unwrap())(head);
        let forwards = matches!(decided, Act::Forward | Act::Lose | Act::LoseHalf);
        act.send(decided).ok()?;
        if forwards {
            to.write_u32(frame.len() as u32).await.ok()?;
            to.write_all(&frame).await.ok()?;
        }
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut acts: mpsc::UnboundedReceiver<Act>,
) -> Option<()> {
    loop {
        match acts.recv().await? {
            Act::Cut => return None,
            Act::Lose => {
                frame(&mut from).await?;
                return None;
            }
            Act::LoseHalf => {
                let frame = frame(&mut from).await?;
                to.write_u32(frame.len() as u32).await.ok()?;
                to.write_all(&frame[..frame.len() / 2]).await.ok()?;
                return None;
            }
            Act::Forward => {
                let frame = frame(&mut from).await?;
                to.write_u32(frame.len() as u32).await.ok()?;
                to.write_all(&frame).await.ok()?;
            }
            Act::Say(frame) => {
                to.write_u32(frame.len() as u32).await.ok()?;
                to.write_all(&frame).await.ok()?;
            }
            Act::Babble(bytes) => to.write_all(&bytes).await.ok()?,
        }
    }
}
