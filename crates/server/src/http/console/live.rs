//! The live stream of a page: renders its panels each second, and sends those that changed.
//!
//! The browser closes the stream of a hidden page, so a hidden page costs nothing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use highwater_access::{Principal, Usage};
use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::json;

use super::sessions::Session;
use super::{Context, ViewFunction, check_enabled, counts};
use crate::http::app::App;
use crate::http::budget::metered;
use crate::http::dispatch::ApiRequest;
use crate::http::error::{Code, Error};
use crate::http::operations::{Handler, PAGE_BYTES, ROUTES, Route};
use crate::http::reply::{self, Payload, Reply};
use crate::text::parameter;
use highwater_console::Shell;

/// The interval of the panels.
const INTERVAL: Duration = Duration::from_secs(1);

/// The most intervals without a byte: proxies close idle streams.
const SILENT_MAX: u32 = 15;

/// The most open streams of a node. Each costs up to two percent of a core.
const STREAMS_MAX: usize = 64;

/// The number of open streams.
#[derive(Clone, Default)]
pub(in crate::http) struct Streams(Arc<AtomicUsize>);

/// Counts one open stream until it is dropped.
struct StreamPermit(Arc<AtomicUsize>);

impl Streams {
    fn take(&self) -> Option<StreamPermit> {
        let permit = StreamPermit(self.0.clone());
        // A refused permit is dropped, and so counted down again.
        (self.0.fetch_add(1, Ordering::Relaxed) < STREAMS_MAX).then_some(permit)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(in crate::http) async fn live(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let app = request.app;
    check_enabled(app)?;
    let page = parameter(request.query(), "page").unwrap_or_default();
    let (path, query) = match page.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (&*page, None),
    };
    let (route, _) = page_route(path)?;
    let access = &route.operation.access;
    access.check(app, &request.caller, &route.variables)?;
    let full = || {
        let message = format!("{STREAMS_MAX} pages of the console are open");
        Error::new(Code::Full, message, "close some of them")
    };
    let live = LivePage {
        app: app.clone(),
        session: app.console.sessions.of_request(&request.head.headers, app),
        caller: request.caller.clone(),
        path: path.to_owned(),
        query,
        sent: HashMap::new(),
        state: StreamState::CircuitTrip,
        _permit: app.console.streams.take().ok_or_else(full)?,
    };
    let kind = HeaderValue::from_static("text/event-stream");
    let mut reply = reply::typed(StatusCode::OK, kind, Payload::live(live.into_stream()));
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(CACHE_CONTROL, no_store);
    Ok(reply)
}

/// The route of a page, and the function that makes its view.
fn page_route(path: &str) -> Result<(Route<'_>, ViewFunction), Error> {
    let route = ROUTES.find(&Method::GET, path).ok();
    let page = route.and_then(|route| match route.operation.handler {
        Handler::Page(view) => Some((route, view)),
        Handler::Append(..) | Handler::Boxed(_) => None,
    });
    page.filter(|_| path.starts_with('/')).ok_or_else(|| {
        let message = format!("the console has no page {path}");
        Error::not_found(message, "")
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    CircuitTrip,
    Open { silent: u32 },
    Ended,
}

struct LivePage {
    app: Arc<App>,
    session: Option<Session>,
    caller: Principal,
    path: String,
    query: Option<String>,
    /// The hash of each panel as it was last sent.
    sent: HashMap<String, u64>,
    state: StreamState,
    _permit: StreamPermit,
}

impl LivePage {
    fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut live| async move {
            let chunk = live.next().await?;
            if let Some(limiter) = live.caller.limiter() {
                let (bytes, now) = (chunk.len() as u64, live.app.clock.elapsed());
                tokio::time::sleep(limiter.charge(Usage::BytesOut, bytes, now)).await;
            }
            Some((chunk, live))
        })
        .boxed()
    }

    /// The next events; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        let mut silent = match self.state {
            StreamState::Ended => return None,
            StreamState::CircuitTrip => {
                self.state = StreamState::Open { silent: 0 };
                let version = json!({"version": highwater_console::version()});
                return Some(format!("event: hello\ndata: {version}\n\n").into());
            }
            StreamState::Open { silent } => silent,
        };
        loop {
            // The first panels follow at once: the page may be older than a lost connection.
            if !self.sent.is_empty() {
                tokio::select! {
                    biased;
                    () = self.app.stopped() => return None,
                    () = tokio::time::sleep(INTERVAL) => {}
                }
            }
            if !self.is_valid() {
                self.state = StreamState::Ended;
                return Some(Bytes::from_static(b"event: logout\ndata: {}\n\n"));
            }
            // A node without memory to spare skips a second of the panels.
            let Ok(mut reserved) = self.app.budget.try_take(PAGE_BYTES) else {
                self.sent.clear();
                tokio::time::sleep(INTERVAL).await;
                continue;
            };
            let events = match self.changed().await {
                Ok(events) => events,
                Err(error) => {
                    self.state = StreamState::Ended;
                    return Some(format!("event: error\ndata: {}\n\n", error.to_json()).into());
                }
            };
            silent += 1;
            if events.is_empty() && silent < SILENT_MAX {
                continue;
            }
            self.state = StreamState::Open { silent: 0 };
            if events.is_empty() {
                return Some(Bytes::from_static(b": still here\n\n"));
            }
            match reserved.resize(events.len()) {
                Ok(()) => return Some(metered(events, reserved)),
                Err(_) => self.sent.clear(),
            }
        }
    }

    /// Whether the caller's identity is unchanged: a revoked key is out at once.
    fn is_valid(&self) -> bool {
        let app = &self.app;
        match (&self.session, &self.caller) {
            (Some(session), _) => app.console.sessions.is_open(session, app),
            (None, Principal::Key(key)) => {
                let known = app.keys.get(&key.name, app.clock.unix_millis());
                known.is_some_and(|known| Arc::ptr_eq(&known, key))
            }
            (None, Principal::Trusted(_)) => app.keys.is_empty(),
            (None, Principal::Anonymous) => false,
        }
    }

    /// The panels that differ from those sent before, as events.
    async fn changed(&mut self) -> Result<Vec<u8>, Error> {
        let (route, view) = page_route(&self.path)?;
        let context = Context {
            app: &self.app,
            caller: &self.caller,
            variables: route.variables,
            query: self.query.as_deref(),
            live: true,
        };
        let view = view(&context).await?;
        let shell = Shell {
            counts: counts(&context),
            ..Shell::default()
        };
        let mut events = Vec::new();
        for (id, html) in view.live_parts(&shell) {
            let hash = hash_of(&html);
            if self.sent.insert(id.to_string(), hash) != Some(hash) {
                let data = json!({"id": id, "html": html});
                events.extend_from_slice(format!("event: panel\ndata: {data}\n\n").as_bytes());
            }
        }
        Ok(events)
    }
}

/// Tells versions of a panel apart.
fn hash_of(html: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    html.hash(&mut hasher);
    hasher.finish()
}
