//! A service behind its door, with the chaos switch.
//!
//! `GET` and `PUT /chaos` look at the switch and set it, `POST /chaos/down {"seconds": 20}` closes the door for a while:
//! the listener is gone and connections are cut, as if the machine were. Everything else goes to the service.

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
use crate::chaos::{Chaos, Ending, Faults};

const CONNECTIONS_MAX: usize = 8192;

/// A service behind its door.
pub struct Door<S> {
    service: S,
    chaos: Mutex<Chaos>,
    /// How long the door is to stay closed.
    closed: watch::Sender<Duration>,
}

impl<S: Service> Door<S> {
    pub fn new(service: S, faults: Faults, seed: u64) -> Arc<Door<S>> {
        Arc::new(Door {
            service,
            chaos: Mutex::new(Chaos::new(faults, seed)),
            closed: watch::Sender::new(Duration::ZERO),
        })
    }

    pub fn service(&self) -> &S {
        &self.service
    }

    /// Serves for ever.
    pub async fn serve(self: Arc<Self>, mut listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        let mut closed = self.closed.subscribe();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(self.clone().connection(stream))),
                    // Out of files, or the client was gone again.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                Some(_) = connections.join_next() => {}
                Ok(()) = closed.changed() => {
                    let pause = *closed.borrow_and_update();
                    drop(listener);
                    connections.shutdown().await;
                    tokio::time::sleep(pause).await;
                    listener = open_again(address).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let connection = Connection::new(stream);
        // One that ends early has a caller who tries again.
        let _ = connection.serve(&*self).await;
    }

    /// Requests to the chaos switch.
    fn switch(&self, request: &Request<'_>) -> Option<Answer> {
        // Most requests are for the service, and need not be looked at twice.
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
                        "say for how long: {\"seconds\": 20}, at most an hour",
                    ),
                }
            }
            (&Method::GET, ["healthz"]) => Answer::json(StatusCode::OK, &json!({"status": "OK"})),
            _ => return None,
        };
        Some(answer)
    }
}

impl<S: Service> Handler for Door<S> {
    async fn handle(&self, request: Request<'_>) -> Option<Answer> {
        if let Some(answer) = self.switch(&request) {
            return Some(answer);
        }
        let fate = self.chaos.lock().fate();
        if fate.delay > Duration::ZERO {
            tokio::time::sleep(fate.delay).await;
        }
        if fate.ending == Ending::Refused {
            return Some(trouble());
        }
        let answer = self.service.answer(request).await;
        match fate.ending {
            Ending::DoneButError => Some(trouble()),
            Ending::DoneButSilent => None,
            Ending::DoneButLate(pause) => {
                tokio::time::sleep(pause).await;
                Some(answer)
            }
            Ending::Fine | Ending::Refused => Some(answer),
        }
    }
}

fn trouble() -> Answer {
    Answer::problem(
        StatusCode::INTERNAL_SERVER_ERROR,
        "chaos: this service fails now and then",
    )
}

/// The port is ours again as soon as the system lets go of it.
async fn open_again(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
