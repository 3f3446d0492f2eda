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
use tokio::net::TcpListener;

type Handler = dyn Fn(Request<Bytes>) -> Response<Bytes> + Send + Sync;

pub(crate) struct Server {
    pub url: String,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start(
        handler: impl Fn(Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(serve(listener, Arc::new(handler), Arc::clone(&connections)));
        Server {
            url,
            connections,
            task,
        }
    }

    /// How many were made so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, handler: Arc<Handler>, connections: Arc<AtomicUsize>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::SeqCst);
        let handler = Arc::clone(&handler);
        let answer = service_fn(move |request: Request<Incoming>| {
            let handler = Arc::clone(&handler);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let answer = handler(Request::from_parts(head, body));
                Ok::<_, Infallible>(answer.map(Full::new))
            }
        });
        tasks.spawn(async move {
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}
