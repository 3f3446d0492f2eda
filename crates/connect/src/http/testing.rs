//! A web server on this machine, for tests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// For 127.0.0.1, self-signed.
pub(crate) const CERTIFICATE: &str = include_str!("../../../server/tests/server/http/cert.pem");

type Handler = dyn Fn(Request<Bytes>) -> Response<Bytes> + Send + Sync;

pub(crate) struct Server {
    pub url: String,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(
        handler: impl Fn(Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Server {
        Server::start_with(None, Arc::new(handler)).await
    }

    /// The same over TLS, with [`CERTIFICATE`].
    pub(crate) async fn start_tls(
        handler: impl Fn(Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Server {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let key = include_bytes!("../../../server/tests/server/http/key.pem");
        let key = PrivateKeyDer::from_pem_slice(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Server::start_with(Some(acceptor), Arc::new(handler)).await
    }

    async fn start_with(tls: Option<TlsAcceptor>, handler: Arc<Handler>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(serve(listener, tls, handler, Arc::clone(&connections)));
        Server {
            url,
            connections,
            task,
        }
    }

    /// How many were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    handler: Arc<Handler>,
    connections: Arc<AtomicUsize>,
) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::SeqCst);
        let (handler, tls) = (Arc::clone(&handler), tls.clone());
        tasks.spawn(async move {
            match tls {
                None => talk(stream, handler).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        talk(stream, handler).await;
                    }
                }
            }
        });
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, handler: Arc<Handler>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let handler = Arc::clone(&handler);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let answer = handler(Request::from_parts(head, body));
            Ok::<_, Infallible>(answer.map(Full::new))
        }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}
