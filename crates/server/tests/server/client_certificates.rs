//! Mutual TLS: clients authenticate with a certificate, over HTTP and Kafka.
// proves G4

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_env::SimClock;
use highwater_server::node::Node;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::whole_node;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/http");

/// A certificate and its key in PEM form.
type Credentials = (&'static [u8], &'static [u8]);

const CLIENT: Credentials = (
    include_bytes!("http/client.pem"),
    include_bytes!("http/client.key"),
);

/// The same name, by an authority that the node does not know.
const FORGED: Credentials = (
    include_bytes!("http/other_client.pem"),
    include_bytes!("http/other_client.key"),
);

async fn start(folder: &std::path::Path, clock: &Arc<SimClock>) -> Node {
    let tls = format!("cert = \"{FILES}/cert.pem\"\nkey = \"{FILES}/key.pem\"\n");
    let client_ca = format!("client_ca = \"{FILES}/client_ca.pem\"\n");
    let settings = format!(
        "hubs.t.partitions = 1\n\
         [http.tls]\n{tls}{client_ca}client_auth = \"optional\"\n\
         [[kafka.listeners]]\nlisten = \"127.0.0.1:0\"\n[kafka.listeners.tls]\n{tls}{client_ca}\
         [[kafka.listeners]]\nlisten = \"127.0.0.1:0\"\n[kafka.listeners.tls]\n{tls}{client_ca}client_auth = \"optional\"\n\
         [[keys]]\nname = \"app\"\nsecret = \"app-secret\"\nrights = [\"send\"]\n\
         [[keys]]\nname = \"billing\"\nrights = [\"send\"]\ncertificates = [\"spiffe://example/billing\"]\n"
    );
    whole_node::start(folder, &settings, clock.clone()).await
}

async fn connect(
    address: SocketAddr,
    credentials: Option<Credentials>,
) -> Option<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    let server = CertificateDer::from_pem_slice(include_bytes!("http/cert.pem")).unwrap();
    roots.add(server).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match credentials {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key).unwrap();
            builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap()
        }
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.ok()
}

/// The status of a send; `None` if the node hangs up.
async fn send(address: SocketAddr, credentials: Option<Credentials>, header: &str) -> Option<u16> {
    let mut stream = connect(address, credentials).await?;
    let request = format!(
        "POST /hubs/t/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: text/plain\r\ncontent-length: 1\r\n{header}\r\n1"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // A peer that closes without a TLS goodbye is an error, after the answer has come.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// Asks for the metadata of all topics; the length of the response, or `None` if the node hangs up.
async fn metadata(stream: &mut TlsStream<TcpStream>) -> Option<i32> {
    // Length, key 3, version 0, correlation 1, no client id, no topics.
    let request = [0, 0, 0, 14, 0, 3, 0, 0, 0, 0, 0, 1, 255, 255, 0, 0, 0, 0];
    stream.write_all(&request).await.ok()?;
    stream.flush().await.ok()?;
    let length = stream.read_i32().await.ok()?;
    let mut response = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut response).await.ok()?;
    Some(length)
}

async fn kafka(address: SocketAddr, credentials: Option<Credentials>) -> Option<i32> {
    metadata(&mut connect(address, credentials).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_has_the_rights_of_the_key_that_lists_it() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let node = start(folder.path(), &clock).await;
    let http = node.http_address().unwrap();
    assert_eq!(send(http, Some(CLIENT), "").await, Some(201));
    assert_eq!(send(http, None, "").await, Some(401));
    let header = "authorization: Bearer app:app-secret\r\n";
    assert_eq!(send(http, None, header).await, Some(201));
    let wrong = "authorization: Bearer app:wrong-secret\r\n";
    let refused = send(http, Some(CLIENT), wrong).await;
    assert_eq!(
        refused,
        Some(401),
        "a wrong key counts before a certificate"
    );
    assert_eq!(send(http, Some(FORGED), "").await, None);

    let [required, optional] = *node.kafka_addresses() else {
        panic!("there are two listeners");
    };
    assert!(kafka(required, Some(CLIENT)).await.is_some());
    assert!(kafka(optional, Some(CLIENT)).await.is_some());
    for (address, credentials) in [
        (required, None),
        (required, Some(FORGED)),
        (optional, None),
        (optional, Some(FORGED)),
    ] {
        assert_eq!(kafka(address, credentials).await, None);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_ends_with_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let node = start(folder.path(), &clock).await;
    let address = node.kafka_addresses()[0];
    let mut stream = connect(address, Some(CLIENT)).await.unwrap();
    assert!(metadata(&mut stream).await.is_some());
    // Beyond the year 2126.
    clock.set_unix_nanos(5_000_000_000_000_000_000);
    assert_eq!(metadata(&mut stream).await, None);
    let http = node.http_address().unwrap();
    assert_eq!(send(http, Some(CLIENT), "").await, Some(401));
    node.stop().await;
}
