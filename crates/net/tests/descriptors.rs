//! A process without a free descriptor tries again. The limit is lowered for the whole process, so this is the only
//! test of its binary.
#![cfg(unix)]

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_net::{
    Accepted, Acceptors, ConnectionBudget, CountedConnection, Listener, Protocol, Stream,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

/// Sends one byte.
struct Greeting;

impl Protocol for Greeting {
    async fn serve<S: Stream>(self: Arc<Self>, mut stream: S, _: Accepted) {
        let _ = stream.write_all(b"!").await;
    }

    fn handshake_timeout(&self, _: &CountedConnection) -> Duration {
        Duration::ZERO
    }

    fn handshake_failed(&self, _: SocketAddr, _: &io::Error) {}
}

// proves G2
#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "it opens no data, only descriptors"
)]
async fn a_process_without_descriptors_accepts_again_when_it_has_some() {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await;
    let listener = listener.unwrap();
    let address = listener.address().unwrap();
    let budget = ConnectionBudget::new(10, 0, Arc::default());
    let mut acceptors = Acceptors::new(Arc::new(budget));
    acceptors.spawn(listener, Arc::new(Greeting));
    let client = TcpSocket::new_v4().unwrap();

    let limit = Rlimit {
        current: Some(128),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    let mut client = client.connect(address).await.unwrap();
    let early = timeout(Duration::from_millis(50), client.read_u8());
    assert!(early.await.is_err(), "no descriptor is free");
    drop(taken);
    let late = timeout(Duration::from_secs(10), client.read_u8());
    assert_eq!(late.await.unwrap().unwrap(), b'!');
}
