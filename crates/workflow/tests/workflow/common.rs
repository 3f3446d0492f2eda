//! A scripted service that records its requests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_env::RealClock;
use highwater_log::{Log, MemoryLog};
use highwater_workflow::View;
use highwater_workflow::call::Functions;
use highwater_workflow::{Definition, Handle, Options, Service, Supervision};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    pub line: String,
    pub key: String,
    pub body: String,
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer(u16, &'static str),
    /// Never.
    Silence,
    /// The connection is closed after the request was read.
    HangUp,
}

/// Scripted answers by method and path; the last one repeats.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    replies: Vec<(String, VecDeque<Reply>)>,
    asked: Vec<ReceivedRequest>,
}

impl Script {
    pub(crate) fn on(&self, line: &str, replies: &[Reply]) {
        let mut state = self.0.lock().unwrap();
        let replies = replies.iter().cloned().collect();
        state.replies.retain(|(known, _)| known != line);
        state.replies.push((line.to_owned(), replies));
    }

    fn answer(&self, asked: ReceivedRequest) -> Reply {
        let mut state = self.0.lock().unwrap();
        let line = asked.line.clone();
        state.asked.push(asked);
        let replies = state.replies.iter_mut().find(|(known, _)| *known == line);
        match replies {
            None => Reply::Answer(200, "{}"),
            Some((_, replies)) if replies.len() > 1 => replies.pop_front().unwrap(),
            Some((_, replies)) => replies.front().cloned().unwrap(),
        }
    }

    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.0.lock().unwrap().asked.clone()
    }

    /// Methods and paths, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// Waits for this request.
    pub(crate) async fn asked_for(&self, line: &str) {
        while !self.lines().iter().any(|asked| asked == line) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Listens and returns the address.
    pub(crate) async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = script.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| script.clone().reply(request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        format!("http://{address}")
    }

    async fn reply(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let line = format!("{} {}", request.method(), request.uri());
        let key = request.headers().get("idempotency-key");
        let key = key.map_or(String::new(), |key| key.to_str().unwrap().to_owned());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        match self.answer(ReceivedRequest { line, key, body }) {
            Reply::Answer(status, body) => {
                let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
                *response.status_mut() = status.try_into().unwrap();
                Ok(response)
            }
            Reply::Silence => std::future::pending::<Result<_, Infallible>>()
                .await
                .map_err(|never| match never {}),
            Reply::HangUp => Err(std::io::Error::other("as told")),
        }
    }
}

/// A workflow that runs until it is stopped.
pub(crate) struct Running {
    pub handle: Handle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

pub(crate) fn memory_log() -> Arc<dyn Log> {
    Arc::new(MemoryLog::new(|| 1_700_000_000_000))
}

impl Running {
    pub(crate) async fn start(log: &Arc<dyn Log>, definition: &Definition) -> Running {
        Running::with(log, definition, Functions::new()).await
    }

    pub(crate) async fn with(
        log: &Arc<dyn Log>,
        definition: &Definition,
        functions: Functions,
    ) -> Running {
        Running::part(log, definition, functions, Supervision::Here).await
    }

    pub(crate) async fn part(
        log: &Arc<dyn Log>,
        definition: &Definition,
        functions: Functions,
        supervision: Supervision,
    ) -> Running {
        let clock = Arc::new(RealClock::new());
        let (definition, options) = (definition.clone(), Options::default());
        let service = Service::open(log, clock, definition, functions, options, supervision)
            .await
            .unwrap();
        let handle = service.handle();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            service.run(stopped).await.unwrap();
        });
        Running { handle, stop, task }
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }

    /// Waits until the instance is in one of these states.
    pub(crate) async fn until(&self, id: &str, states: &[&str]) -> View {
        let waiting = async {
            loop {
                if let Some(view) = self.handle.show(id).await.unwrap()
                    && states.contains(&view.state.as_str())
                {
                    return view;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let view = tokio::time::timeout(Duration::from_secs(120), waiting).await;
        view.unwrap_or_else(|_| panic!("{id} was never one of {states:?}"))
    }
}

/// Three steps at one service, with quick retries.
pub(crate) fn delivery(url: &str) -> Definition {
    delivery_within(url, "200ms")
}

/// The same, with a timeout.
pub(crate) fn delivery_within(url: &str, timeout: &str) -> Definition {
    let toml = format!(
        r#"
name = "delivery"

[services.back]
url = "{url}"
timeout = "{timeout}"
retry = {{ tries = 3, delay = "1ms", delay_max = "5ms" }}

[[steps]]
name = "package"
service = "back"
call = "PUT /packages/{{{{id}}}}"
body = {{ size = "{{{{input.size}}}}" }}
undo = {{ call = "DELETE /packages/{{{{id}}}}", retry = {{ tries = 2, delay = "1ms" }} }}

[[steps]]
name = "drone"
service = "back"
call = "PUT /drones/{{{{id}}}}"
refuse = [409]
undo = {{ call = "DELETE /drones/{{{{id}}}}", retry = {{ tries = 2, delay = "1ms" }} }}

[[steps]]
name = "delivery"
service = "back"
call = "PUT /deliveries/{{{{id}}}}"
body = {{ drone = "{{{{steps.drone.body}}}}" }}
undo = {{ call = "DELETE /deliveries/{{{{id}}}}" }}
"#
    );
    Definition::from_toml("delivery.toml", &toml).unwrap_or_else(|error| panic!("{error}"))
}
