use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::tls::{self, Identity};
use crate::*;

const CERTIFICATE: &str = include_str!("../../kafka/tests/data/localhost.crt");
const KEY: &str = include_str!("../../kafka/tests/data/localhost.key");

/// Sends back what it reads. With `endless`, until the client ends; otherwise only until the server stops.
struct Echo {
    stop: watch::Sender<bool>,
    endless: bool,
    handshake_timeout: Duration,
    failures: Counter,
    timeouts: Counter,
}

impl Echo {
    fn new() -> Echo {
        Echo {
            stop: watch::Sender::new(false),
            endless: false,
            handshake_timeout: Duration::from_secs(10),
            failures: Counter::default(),
            timeouts: Counter::default(),
        }
    }
}

impl Protocol for Echo {
    async fn serve<S: Stream>(self: Arc<Self>, mut stream: S, accepted: Accepted) {
        assert_eq!(accepted.is_tls, accepted.certificate.is_some());
        let mut stop = self.stop.subscribe();
        loop {
            tokio::select! {
                _ = stop.changed(), if !self.endless => return,
                byte = stream.read_u8() => match byte {
                    Ok(byte) => stream.write_u8(byte).await.unwrap(),
                    Err(_) => return,
                }
            }
        }
    }

    fn handshake_timeout(&self, _: &CountedConnection) -> Duration {
        self.handshake_timeout
    }

    fn handshake_failed(&self, _: SocketAddr, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::TimedOut => self.timeouts.add(1),
            _ => self.failures.add(1),
        }
    }

    fn refuse(&self, mut stream: TcpStream) {
        tokio::spawn(async move { stream.write_all(b"-").await });
    }
}

struct Server {
    address: SocketAddr,
    echo: Arc<Echo>,
    counters: Arc<ConnectionCounters>,
    /// Whether all connections ended in time.
    finished: JoinHandle<bool>,
}

impl Server {
    async fn start(max: usize, reserved: usize, echo: Echo, with_tls: bool) -> Server {
        let tls = with_tls.then(server_config);
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), tls).await;
        let listener = listener.unwrap();
        let (address, echo) = (listener.address().unwrap(), Arc::new(echo));
        let counters = Arc::<ConnectionCounters>::default();
        let budget = ConnectionBudget::new(max, reserved, Arc::clone(&counters));
        let mut acceptors = Acceptors::new(Arc::new(budget));
        acceptors.spawn(listener, Arc::clone(&echo));
        let mut stop = echo.stop.subscribe();
        let finished = tokio::spawn(async move {
            stop.changed().await.unwrap();
            acceptors.finish(Duration::from_millis(200)).await
        });
        Server {
            address,
            echo,
            counters,
            finished,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn stop(&self) {
        self.echo.stop.send_replace(true);
    }
}

/// With a certificate, and for clients with the same one.
fn server_config() -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate],
            PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap(),
        );
    Arc::new(config.unwrap())
}

async fn echoed(stream: &mut (impl Stream + ?Sized)) -> bool {
    stream.write_u8(b'?').await.is_ok() && matches!(stream.read_u8().await, Ok(b'?'))
}

async fn until(what: impl Fn() -> bool) {
    let limit = timeout(Duration::from_secs(10), async {
        while !what() {
            tokio::task::yield_now().await;
        }
    });
    limit.await.unwrap();
}

// proves G2
#[tokio::test]
async fn a_connection_too_many_is_refused_until_another_ends() {
    let server = Server::start(2, 0, Echo::new(), false).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert!(echoed(&mut first).await && echoed(&mut second).await);
    let mut third = server.connect().await;
    assert_eq!(third.read_u8().await.unwrap(), b'-');
    assert_eq!(server.counters.open.get(), 2);
    drop(first);
    until(|| server.counters.open.get() == 1).await;
    assert!(echoed(&mut server.connect().await).await && echoed(&mut second).await);
    let counters = &server.counters;
    assert_eq!((counters.accepted.get(), counters.refused.get()), (3, 1));
}

#[test]
fn the_reserve_is_taken_last_and_is_at_most_half() {
    let counters = Arc::<ConnectionCounters>::default();
    let budget = ConnectionBudget::new(5, 100, Arc::clone(&counters));
    let mut taken: Vec<CountedConnection> = std::iter::from_fn(|| budget.take()).collect();
    let of_reserve: Vec<bool> = taken.iter().map(|counted| counted.of_reserve).collect();
    assert_eq!(of_reserve, [false, false, false, true, true]);
    taken.remove(0);
    assert!(!budget.take().unwrap().of_reserve);
    assert_eq!((counters.open.get(), counters.refused.get()), (4, 1));
    assert!(budget.take_below(4).is_none());
    assert!(budget.take_below(5).is_some());
}

#[tokio::test]
async fn a_stop_closes_the_listener_and_waits_for_connections() {
    let server = Server::start(2, 0, Echo::new(), false).await;
    let mut client = server.connect().await;
    assert!(echoed(&mut client).await);
    server.stop();
    assert!(server.finished.await.unwrap());
    assert!(!echoed(&mut client).await);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_connection_that_does_not_end_is_aborted() {
    let echo = Echo {
        endless: true,
        ..Echo::new()
    };
    let server = Server::start(2, 0, echo, false).await;
    let mut client = server.connect().await;
    assert!(echoed(&mut client).await);
    server.stop();
    until(|| server.finished.is_finished()).await;
    assert!(!server.finished.await.unwrap());
    until(|| server.counters.open.get() == 0).await;
    assert!(!echoed(&mut client).await);
}

#[tokio::test]
async fn a_client_certificate_reaches_the_protocol() {
    let server = Server::start(2, 0, Echo::new(), true).await;
    let identity = Identity {
        certificate: CERTIFICATE.into(),
        key: KEY.into(),
    };
    let config = tls::trust_only(CERTIFICATE, Some(&identity)).unwrap();
    let stream = tls::connect(config, "localhost", server.connect().await).await;
    assert!(echoed(&mut stream.unwrap()).await);

    let config = tls::trust_system_and(CERTIFICATE, None).unwrap();
    let stream = tls::connect(config.clone(), "localhost", server.connect().await).await;
    assert!(!echoed(&mut stream.unwrap()).await);
    until(|| server.echo.failures.get() == 1).await;

    let stream = tls::connect(config, "a b", server.connect().await).await;
    assert_eq!(stream.err().unwrap().kind(), io::ErrorKind::InvalidInput);
    let config = tls::trust_system_and("", None).unwrap();
    let stream = tls::connect(config, "localhost", server.connect().await).await;
    assert_eq!(stream.err().unwrap().kind(), io::ErrorKind::InvalidData);
}

// proves G2
#[tokio::test]
async fn a_handshake_has_a_time_limit_and_counts_as_a_connection() {
    let echo = Echo {
        handshake_timeout: Duration::from_millis(20),
        ..Echo::new()
    };
    let server = Server::start(1, 0, echo, true).await;
    let mut silent = server.connect().await;
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    until(|| server.counters.open.get() == 0).await;
    assert_eq!(server.echo.timeouts.get(), 1);
    assert_eq!(server.counters.accepted.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_given_up_is_bound() {
    let bind = |address: SocketAddr| Listener::bind(address, None);
    let predecessor = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = predecessor.address().unwrap();
    let refused = bind(address).await.err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    let successor = tokio::spawn(bind(address));
    tokio::time::sleep(Duration::from_millis(250)).await;
    drop(predecessor);
    assert_eq!(
        successor.await.unwrap().unwrap().address().unwrap(),
        address
    );
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let identity = |certificate: &str, key: &str| Identity {
        certificate: certificate.into(),
        key: key.into(),
    };
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let only = |pem: &str| tls::trust_only(pem, None).err().unwrap();
    assert_eq!(only(""), "no certificate authority found");
    assert_eq!(only(garbage), "no certificate authority found");
    assert!(tls::trust_only(&format!("{garbage}{CERTIFICATE}"), None).is_ok());
    let beside = tls::trust_system_and(garbage, None).err().unwrap();
    assert!(beside.starts_with("the certificate: "), "{beside}");

    let with = |certificate: &str, key: &str| {
        tls::trust_only(CERTIFICATE, Some(&identity(certificate, key))).err()
    };
    assert!(with(CERTIFICATE, KEY).is_none());
    for (certificate, key, reason) in [
        (
            "",
            KEY,
            "the client certificate: the file has no certificate",
        ),
        (
            CERTIFICATE,
            "",
            "the key of the client certificate: the file has no private key",
        ),
        (garbage, KEY, "the client certificate: "),
    ] {
        let error = with(certificate, key).unwrap();
        assert!(error.starts_with(reason), "{error}");
    }
}
