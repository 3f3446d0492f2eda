//! Serves a service over HTTP, with fault injection.
//!
//! `GET` and `PUT /chaos` read and set the faults, `POST /chaos/down {"seconds": 20}` simulates an outage: the listener
//! is closed and connections are cut. All other requests go to the service.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::{Connection, Handler};
use super::{Answer, Request, Service};
use crate::chaos::{FaultInjector, FaultKind, Faults};

const CONNECTIONS_MAX: usize = 8192;

/// A service, its listener and its faults.
pub struct ServiceServer<S> {
    service: S,
    chaos: Mutex<FaultInjector>,
    /// Duration of the outage.
    closed: watch::Sender<Duration>,
}

impl<S: Service> ServiceServer<S> {
    pub fn new(service: S, faults: Faults, seed: u64) -> Arc<ServiceServer<S>> {
        Arc::new(ServiceServer {
            service,
            chaos: Mutex::new(FaultInjector::new(faults, seed)),
            closed: watch::Sender::new(Duration::ZERO),
        })
    }

    pub fn service(&self) -> &S {
        &self.service
    }

    /// Serves forever.
    pub async fn serve(self: Arc<Self>, mut listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        let mut closed = self.closed.subscribe();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(self.clone().connection(stream))),
                    // Out of file descriptors, or the client has disconnected.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                Some(_) = connections.join_next() => {}
                Ok(()) = closed.changed() => {
                    let pause = *closed.borrow_and_update();
                    drop(listener);
                    connections.shutdown().await;
                    tokio::time::sleep(pause).await;
                    listener = rebind(address).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let connection = Connection::new(stream);
        // After an error the client retries.
        let _ = connection.serve(&*self).await;
    }

    /// Handles requests to `/chaos` and `/healthz`.
    fn switch(&self, request: &Request<'_>) -> Option<Answer> {
        // Most requests are for the service: a cheap check first.
        if !matches!(request.path.as_bytes(), [b'/', b'c' | b'h', ..]) {
            return None;
        }
        let answer = match (&request.method, &request.parts()[..]) {
            (&Method::GET, ["chaos"]) => Answer::json(StatusCode::OK, self.chaos.lock().faults()),
            (&Method::PUT, ["chaos"]) => match request.json::<Faults>() {
                Ok(faults) => match faults.problem() {
                    Some(problem) => Answer::problem(StatusCode::BAD_REQUEST, problem),
                    None => {
                        self.chaos.lock().set(faults);
                        Answer::empty(StatusCode::NO_CONTENT)
                    }
                },
                Err(answer) => answer,
            },
            (&Method::POST, ["chaos", "down"]) => {
                match request.json::<Value>().map(|body| body["seconds"].as_f64()) {
                    Ok(Some(seconds)) if (0.0..=3600.0).contains(&seconds) => {
                        self.closed.send_replace(Duration::from_secs_f64(seconds));
                        Answer::empty(StatusCode::NO_CONTENT)
                    }
                    _ => Answer::problem(
                        StatusCode::BAD_REQUEST,
                        "`seconds` is missing: {\"seconds\": 20}, at most 3600",
                    ),
                }
            }
            (&Method::GET, ["healthz"]) => Answer::json(StatusCode::OK, &json!({"status": "OK"})),
            _ => return None,
        };
        Some(answer)
    }
}

impl<S: Service> Handler for ServiceServer<S> {
    async fn handle(&self, request: Request<'_>) -> Option<Answer> {
        if let Some(answer) = self.switch(&request) {
            return Some(answer);
        }
        let fault = self.chaos.lock().draw();
        if fault.delay > Duration::ZERO {
            tokio::time::sleep(fault.delay).await;
        }
        if fault.kind == FaultKind::Refused {
            return Some(injected_error());
        }
        let answer = self.service.answer(request).await;
        match fault.kind {
            FaultKind::DoneButError => Some(injected_error()),
            FaultKind::DoneButSilent => None,
            FaultKind::DoneButLate(pause) => {
                tokio::time::sleep(pause).await;
                Some(answer)
            }
            FaultKind::None | FaultKind::Refused => Some(answer),
        }
    }
}

fn injected_error() -> Answer {
    Answer::problem(
        StatusCode::INTERNAL_SERVER_ERROR,
        "chaos: this service fails now and then",
    )
}

/// Binds the port again as soon as the system releases it.
async fn rebind(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
