//! A small HTTP server for services: whole bodies in, whole answers out, and the chaos switch between.
//!
//! `GET` and `PUT /chaos` look at the switch and set it, `POST /chaos/down {"seconds": 20}` closes the
//! door for a while: the listener is gone and connections are cut, as if the machine were. Everything
//! else goes to the service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::chaos::{Chaos, Ending, Faults};

const BODY_BYTES_MAX: usize = 256 << 10;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECTIONS_MAX: usize = 8192;

/// A request, complete.
pub struct Request {
    pub method: Method,
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Request {
    /// The segments of the path.
    pub fn parts(&self) -> Vec<&str> {
        self.path
            .split('/')
            .filter(|part| !part.is_empty())
            .collect()
    }

    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Answer> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Answer::problem(StatusCode::BAD_REQUEST, error.to_string()))
    }

    /// A parameter of the query; `%XX` is not decoded, because ids and numbers need none.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.as_deref()?.split('&');
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// What a service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
    pub kind: &'static str,
    pub location: Option<String>,
}

impl Answer {
    pub fn empty(status: StatusCode) -> Answer {
        Answer {
            status,
            body: Bytes::new(),
            kind: "",
            location: None,
        }
    }

    pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
        Answer {
            body: Bytes::from(text.into()),
            kind: "text/plain",
            ..Answer::empty(status)
        }
    }

    pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
        match serde_json::to_vec(value) {
            Ok(body) => Answer {
                body: body.into(),
                kind: "application/json",
                ..Answer::empty(status)
            },
            Err(error) => Answer::problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    pub fn problem(status: StatusCode, message: impl Into<String>) -> Answer {
        Answer::json(status, &json!({"message": message.into()}))
    }

    pub fn not_found() -> Answer {
        Answer::problem(StatusCode::NOT_FOUND, "there is no such thing here")
    }

    pub fn at(self, location: String) -> Answer {
        Answer {
            location: Some(location),
            ..self
        }
    }

    fn into_response(self) -> hyper::Response<Full<Bytes>> {
        let mut response = hyper::Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !self.kind.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        }
        if let Some(location) = self.location.and_then(|text| text.parse().ok()) {
            headers.insert(LOCATION, location);
        }
        response
    }
}

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request) -> impl Future<Output = Answer> + Send;
}

/// A service behind its door.
pub struct Door<S> {
    service: S,
    chaos: Mutex<Chaos>,
    /// Raised when every connection must go; its value means nothing.
    cut: watch::Sender<u64>,
    /// How long the door is to stay closed.
    closed: watch::Sender<Duration>,
}

impl<S: Service> Door<S> {
    pub fn new(service: S, faults: Faults, seed: u64) -> Arc<Door<S>> {
        Arc::new(Door {
            service,
            chaos: Mutex::new(Chaos::new(faults, seed)),
            cut: watch::Sender::new(0),
            closed: watch::Sender::new(Duration::ZERO),
        })
    }

    pub fn service(&self) -> &S {
        &self.service
    }

    /// Serves for ever.
    pub async fn serve(self: Arc<Self>, mut listener: TcpListener) -> std::io::Result<()> {
        let address = listener.local_addr()?;
        let mut closed = self.closed.subscribe();
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = places
                .clone()
                .acquire_owned()
                .await
                .map_err(std::io::Error::other)?;
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(tokio::spawn(self.clone().connection(stream, place))),
                    // Out of files, or the client was gone again.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                Ok(()) = closed.changed() => {
                    let pause = *closed.borrow_and_update();
                    drop(listener);
                    self.cut.send_modify(|cut| *cut += 1);
                    tokio::time::sleep(pause).await;
                    listener = open_again(address).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, _place: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        let mut cut = self.cut.subscribe();
        let service = service_fn(|request| self.handle(request));
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // A connection that ends early has a caller who tries again.
            _ = serving => {}
            _ = cut.changed() => {}
        }
    }

    async fn handle(
        &self,
        request: hyper::Request<Incoming>,
    ) -> Result<hyper::Response<Full<Bytes>>, Silence> {
        let request = match collect(request).await {
            Ok(request) => request,
            Err(answer) => return Ok(answer.into_response()),
        };
        if let Some(answer) = self.switch(&request) {
            return Ok(answer.into_response());
        }
        let fate = self.chaos.lock().fate();
        if fate.delay > Duration::ZERO {
            tokio::time::sleep(fate.delay).await;
        }
        if fate.ending == Ending::Refused {
            return Ok(trouble().into_response());
        }
        let answer = self.service.answer(request).await;
        match fate.ending {
            Ending::DoneButError => Ok(trouble().into_response()),
            Ending::DoneButSilent => Err(Silence),
            Ending::DoneButLate(pause) => {
                tokio::time::sleep(pause).await;
                Ok(answer.into_response())
            }
            Ending::Fine | Ending::Refused => Ok(answer.into_response()),
        }
    }

    /// Requests to the chaos switch.
    fn switch(&self, request: &Request) -> Option<Answer> {
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

fn trouble() -> Answer {
    Answer::problem(
        StatusCode::INTERNAL_SERVER_ERROR,
        "chaos: this service fails now and then",
    )
}

/// Makes hyper close the connection without a word.
#[derive(Debug, thiserror::Error)]
#[error("this request is not answered")]
struct Silence;

/// The port is ours again as soon as the system lets go of it.
async fn open_again(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Callers of the reference application write `/api/Deliveries` and `/api/deliveries`; ids stay as they
/// are.
fn collection_in_lower_case(path: &str) -> String {
    let mut path = path.to_owned();
    let end = path
        .match_indices('/')
        .nth(2)
        .map_or(path.len(), |(at, _)| at);
    path[..end].make_ascii_lowercase();
    path
}

async fn collect(request: hyper::Request<Incoming>) -> Result<Request, Answer> {
    let (head, body) = request.into_parts();
    let body = tokio::time::timeout(HEADER_TIMEOUT, whole(body)).await;
    let body = match body {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return Err(Answer::problem(StatusCode::BAD_REQUEST, error)),
        Err(_) => {
            return Err(Answer::problem(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not come",
            ));
        }
    };
    Ok(Request {
        method: head.method,
        path: collection_in_lower_case(head.uri.path()),
        query: head.uri.query().map(str::to_owned),
        headers: head.headers,
        body,
    })
}

/// Most bodies come in one piece, which is taken as it is.
async fn whole(body: Incoming) -> Result<Bytes, String> {
    let mut body = Limited::new(body, BODY_BYTES_MAX);
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        if first.is_empty() && joined.is_empty() {
            first = piece;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&piece);
        }
    }
    Ok(match joined.is_empty() {
        true => first,
        false => joined.freeze(),
    })
}
