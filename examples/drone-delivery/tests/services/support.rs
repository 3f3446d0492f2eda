//! Services in this process, on ports of their own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drone_delivery::chaos::Faults;
use drone_delivery::client::{CallError, Client};
use drone_delivery::http::{Service, ServiceServer};
use highwater_env::{Clock, SimClock};
use hyper::Method;
use serde_json::Value;
use tokio::net::TcpListener;

pub(crate) const NOON: i128 = 1_763_208_000_000_000_000; // 2025-11-15T12:00:00Z

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SimClock::at_unix_nanos(NOON))
}

/// A service that runs until it is dropped.
pub(crate) struct Running {
    pub address: String,
    pub client: Client,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn run(service: impl Service, faults: Faults) -> Running {
    serve(ServiceServer::new(service, faults, 1)).await
}

pub(crate) async fn serve(server: Arc<ServiceServer<impl Service>>) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    Running {
        client: Client::new(address.clone(), Duration::from_secs(30)),
        address,
        task: tokio::spawn(server.serve(listener)),
    }
}

impl Running {
    pub(crate) async fn try_ask(
        &mut self,
        request: &str,
        body: Value,
    ) -> Result<(u16, Value), CallError> {
        let (method, path) = request.split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let reply = self.client.json(method, path, &body).await?;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let value = reply.json().unwrap_or(Value::String(text));
        Ok((reply.status, value))
    }

    /// `PUT /api/x` and so on.
    pub(crate) async fn ask(&mut self, request: &str, body: Value) -> (u16, Value) {
        self.try_ask(request, body).await.unwrap()
    }

    pub(crate) async fn status(&mut self, request: &str, body: Value) -> u16 {
        self.ask(request, body).await.0
    }
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) async fn store<S: drone_delivery::journal::State>(
    folder: &Path,
) -> drone_delivery::journal::Store<S> {
    drone_delivery::journal::Store::open(folder, clock())
        .await
        .unwrap()
}
