//! Answers a request: finds its operation, checks the caller's right, calls the handler.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use highwater_access::{
    AuditEvent, ClientCertificate, ConnectionPermit, Limiter, Principal, Resource, Usage,
};
use highwater_env::MemoryShare;
use http_body_util::Either;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONNECTION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request};
use serde::de::DeserializeOwned;

use super::app::App;
use super::auth;
use super::error::{Code, Error};
use super::operations::{Access, Handler, NoRoute, Operation, ROUTES, Route, Variables, WaitLimit};
use super::reply::{self, Reply};
use super::{atom, body, console, forward, origin, read, send};
use crate::text::percent_decode;

/// The connection of a request.
#[derive(Debug)]
pub(super) struct Connection {
    peer: SocketAddr,
    /// The certificate of the client, which TLS has verified.
    certificate: Option<ClientCertificate>,
    /// It was accepted from the reserve for clients with a key.
    needs_key: bool,
    is_tls: bool,
    /// The limit that it counts against, and its permit.
    counted: Mutex<Option<(Arc<Limiter>, ConnectionPermit)>>,
}

impl Connection {
    pub(super) fn new(
        peer: SocketAddr,
        certificate: Option<ClientCertificate>,
        needs_key: bool,
        is_tls: bool,
    ) -> Connection {
        Connection {
            peer,
            certificate,
            needs_key,
            is_tls,
            counted: Mutex::default(),
        }
    }

    /// Checks the quota of a key before its request is handled.
    fn admit(&self, limiter: &Arc<Limiter>, now: Duration) -> Result<(), Error> {
        let mut counted = self.counted.lock().expect("no thread panics with the lock");
        if !matches!(&*counted, Some((known, _)) if Arc::ptr_eq(known, limiter)) {
            // The permit for another key is released first.
            *counted = None;
            let permit = limiter.connect();
            let too_many = || Error::over_quota(Duration::from_secs(1));
            *counted = Some((limiter.clone(), permit.ok_or_else(too_many)?));
        }
        match limiter.delay(now) {
            Duration::ZERO => {
                limiter.charge(Usage::Requests, 1, now);
                Ok(())
            }
            delay => Err(Error::over_quota(delay)),
        }
    }
}

/// Answers a request; errors become answers too.
pub(super) async fn answer(
    app: Arc<App>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Reply {
    let started = app.clock.elapsed();
    let answered = dispatch(&app, &connection, request).await;
    let charged = answered.and_then(|mut reply| {
        reply.body_mut().charge(&app.budget)?;
        Ok(reply)
    });
    let reply = charged.unwrap_or_else(|error| {
        log_failure(&error);
        let mut reply = reply::error(&error);
        if connection.needs_key && error.code == Code::Unauthorized {
            let close = HeaderValue::from_static("close");
            reply.headers_mut().insert(CONNECTION, close);
        }
        reply
    });
    app.metrics
        .record_response(reply.status(), app.clock.elapsed() - started);
    reply
}

fn log_failure(error: &Error) {
    if error.code == Code::Internal {
        tracing::error!(message = error.message, "a request failed");
    }
}

async fn dispatch(
    app: &Arc<App>,
    connection: &Connection,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (head, body) = request.into_parts();
    if lacks_needed_key(app, connection, &head.headers) {
        return Ok(reply::too_many_connections());
    }
    let route = ROUTES.find(&head.method, head.uri.path());
    let is_atom = matches!(&route, Ok(route) if route.operation.is_atom);
    let answered = dispatch_to(app, connection, &head, body, route).await;
    match answered {
        Err(error) if is_atom && atom::is_atom_request(head.uri.query()) => {
            log_failure(&error);
            Ok(atom::error(&error))
        }
        answered => answered,
    }
}

async fn authenticate_caller(
    app: &App,
    connection: &Connection,
    head: &Parts,
    route: &Result<Route<'_>, NoRoute>,
) -> Result<Principal, Error> {
    let operation = route.as_ref().ok().map(|route| route.operation);
    let is_public = |operation: &Operation| matches!(operation.access, Access::Public);
    // An unknown path needs a key too: without one, a caller learns nothing of the API.
    if operation.is_some_and(is_public) && !connection.needs_key {
        return Ok(Principal::Anonymous);
    }
    let request = auth::SignedRequest {
        head,
        resource: signed_resource(head.uri.path()),
        is_atom: operation.is_some_and(|operation| operation.is_atom),
    };
    auth::authenticate(app, request, connection.certificate.as_ref()).await
}

async fn dispatch_to(
    app: &Arc<App>,
    connection: &Connection,
    head: &Parts,
    body: Incoming,
    route: Result<Route<'_>, NoRoute>,
) -> Result<Reply, Error> {
    let caller = match authenticate_caller(app, connection, head, &route).await {
        Ok(caller) => caller,
        Err(error) => {
            let operation = route.as_ref().ok().map(|route| route.operation);
            return refuse_caller(app, connection, head, operation, error).await;
        }
    };
    let limiter = caller.limiter().cloned();
    if let Some(limiter) = &limiter {
        connection.admit(limiter, app.clock.elapsed())?;
    }
    if !matches!(caller, Principal::Anonymous) {
        origin::check(&head.method, &head.headers, &app.options.allowed_origins)?;
    }
    let (operation, variables) = match route {
        Ok(route) => (route.operation, route.variables),
        Err(none) => return no_route(head, &none),
    };
    let audit = || PendingAudit::new(connection, operation, &caller, &variables);
    let pending = operation.is_audited().then(audit);
    if let Err(error) = operation.access.check(app, &caller, &variables) {
        pending.unwrap_or_else(audit).record(app, error.code.name());
        return console::show_error(operation, head, error);
    }
    let answered = match forward::target(app, operation, &variables, head) {
        // Boxed, so that a posted event does not carry its memory.
        Ok(Some(node)) => {
            let body = Either::Left(body);
            Box::pin(forward::send(app, &caller, head, body, &node)).await
        }
        Err(error) => Err(error),
        Ok(None) => {
            let request = ApiRequest {
                app,
                connection,
                caller,
                operation,
                variables,
                head,
                body,
                pending_audit: pending.as_ref(),
            };
            handle(request).await
        }
    };
    if let Some(pending) = pending {
        pending.record_outcome(app, &answered);
    }
    if let (Some(limiter), Ok(reply)) = (limiter, &answered) {
        let bytes = reply.body().size_hint().exact().unwrap_or(0);
        limiter.charge(Usage::BytesOut, bytes, app.clock.elapsed());
    }
    answered.or_else(|error| console::show_error(operation, head, error))
}

/// Calls the handler of the operation. The bytes of the answer are taken from the budget before it is built.
async fn handle(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let operation = request.operation;
    let reserved = match operation.reserved_bytes() {
        0 => MemoryShare::default(),
        bytes => request.app.budget.try_take(bytes)?,
    };
    let mut reply = match operation.handler {
        Handler::Append(dialect, target) => send::send(request, dialect, target).await?,
        Handler::Boxed(handler) => handler(request).await?,
        // Boxed, so that a posted event does not carry the memory of a page.
        Handler::Page(view) => Box::pin(console::page(request, view)).await?,
    };
    reply.body_mut().settle(reserved)?;
    Ok(reply)
}

/// Whether the connection is one of those kept for clients with a key, and the request has none.
fn lacks_needed_key(app: &App, connection: &Connection, headers: &HeaderMap) -> bool {
    connection.needs_key && connection.certificate.is_none() && !auth::has_credentials(app, headers)
}

/// The answer to an unauthenticated caller. A wrong key is delayed, a request without any key is not; a browser that
/// opens a page of the console is redirected to the login.
#[cold]
async fn refuse_caller(
    app: &App,
    connection: &Connection,
    head: &Parts,
    operation: Option<&'static Operation>,
    error: Error,
) -> Result<Reply, Error> {
    if error.code == Code::Unauthorized && head.headers.contains_key(AUTHORIZATION) {
        delay_wrong_login(app, connection.peer, &auth::claimed_name(&head.headers)).await;
        return Err(error);
    }
    console::ask_for_login(operation, head, error)
}

/// Counts and records a login with a wrong key, and waits before it is answered.
pub(super) async fn delay_wrong_login(app: &App, peer: SocketAddr, name: &str) {
    app.metrics.logins_refused.add(1);
    app.audit(AuditEvent {
        who: name.chars().take(auth::CLAIMED_NAME_LEN_MAX).collect(),
        from: Some(peer),
        operation: "login".into(),
        resource: String::new(),
        outcome: Code::Unauthorized.name().into(),
    });
    let delay = app.keys.login_failed(peer.ip(), app.clock.elapsed());
    tokio::time::sleep(delay).await;
}

/// An event of the audit log whose outcome is not known yet.
pub(super) struct PendingAudit {
    event: AuditEvent,
    /// The name in the body of a request that creates something.
    body_name: OnceLock<String>,
}

impl PendingAudit {
    fn new(
        connection: &Connection,
        operation: &Operation,
        caller: &Principal,
        variables: &Variables<'_>,
    ) -> PendingAudit {
        PendingAudit {
            event: AuditEvent {
                who: caller.name().to_owned(),
                from: Some(connection.peer),
                operation: format!("{} {}", operation.method, operation.path),
                resource: percent_decode(variables.first().unwrap_or_default()).into_owned(),
                outcome: String::new(),
            },
            body_name: OnceLock::new(),
        }
    }

    fn record_outcome(self, app: &App, answered: &Result<Reply, Error>) {
        match answered {
            Err(error) => self.record(app, error.code.name()),
            // Another node refused it.
            Ok(reply) if reply.status().is_client_error() || reply.status().is_server_error() => {
                self.record(app, reply.status().as_str());
            }
            Ok(_) => self.record(app, "ok"),
        }
    }

    fn record(mut self, app: &App, outcome: &str) {
        if let Some(name) = self.body_name.take() {
            self.event.resource = name;
        }
        self.event.outcome = outcome.to_owned();
        app.audit(self.event);
    }
}

/// The resource that a signature must cover: one for `/telemetry` covers `/hubs/telemetry/messages` too.
fn signed_resource(path: &str) -> &str {
    path.strip_prefix("/hubs")
        .or_else(|| path.strip_prefix("/queues"))
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path)
}

#[cold]
fn no_route(head: &Parts, none: &NoRoute) -> Result<Reply, Error> {
    let path = head.uri.path();
    if none.allow.is_empty() {
        let hint = "docs/http.md lists the paths, such as POST /hubs/NAME/messages";
        let message = format!("there is nothing at {path}");
        return Err(Error::not_found(message, hint));
    }
    let error = Error::new(
        Code::MethodNotAllowed,
        format!("{path} does not take {}", head.method),
        "docs/http.md lists the paths and their methods",
    );
    let mut reply = reply::error(&error);
    let allow: Vec<&str> = none.allow.iter().map(Method::as_str).collect();
    if let Ok(allow) = HeaderValue::from_str(&allow.join(", ")) {
        reply.headers_mut().insert(ALLOW, allow);
    }
    Ok(reply)
}

/// A request whose caller may call the operation.
pub(super) struct ApiRequest<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) caller: Principal,
    pub(super) variables: Variables<'a>,
    pub(super) head: &'a Parts,
    connection: &'a Connection,
    operation: &'static Operation,
    body: Incoming,
    pending_audit: Option<&'a PendingAudit>,
}

impl<'a> ApiRequest<'a> {
    /// The values of the path for the variables of the operation's template.
    pub(super) fn variables<const N: usize>(&self) -> [&'a str; N] {
        self.variables.all()
    }

    /// The address of the caller.
    pub(super) fn peer(&self) -> SocketAddr {
        self.connection.peer
    }

    /// The scheme of the request.
    pub(super) fn scheme(&self) -> &'static str {
        match self.connection.is_tls {
            true => "https",
            false => "http",
        }
    }

    /// The certificate of the caller, which TLS has verified.
    pub(super) fn certificate(&self) -> Option<&'a ClientCertificate> {
        self.connection.certificate.as_ref()
    }

    pub(super) fn query(&self) -> Option<&'a str> {
        self.head.uri.query()
    }

    /// Checks the right of an operation whose body names the hub or queue.
    pub(super) fn authorise(&self, on: Resource<'_>) -> Result<(), Error> {
        if let Resource::NewHub(name) | Resource::Hub(name) | Resource::Queue(name) = on {
            self.set_audited(name);
        }
        match self.operation.access {
            Access::Public => Ok(()),
            Access::Key(right, _) => auth::require(&self.caller, right, on),
        }
    }

    /// The name of the new resource in the body, for the audit log.
    pub(super) fn set_audited(&self, name: &str) {
        if let Some(pending) = self.pending_audit {
            // Only the first name counts.
            let _ = pending.body_name.set(name.to_owned());
        }
    }

    /// Counts partitions that the caller creates against its quota.
    pub(super) fn charge_partitions(&self, count: u32) -> Result<(), Error> {
        charge_partitions(self.app, &self.caller, count)
    }

    pub(super) fn has_body(&self) -> bool {
        !self.body.is_end_stream()
    }

    /// The body, and its part of the budget, to hold until the request is answered.
    pub(super) async fn read_body(&mut self) -> Result<(Bytes, MemoryShare), Error> {
        debug_assert!(self.operation.body.is_some(), "the body is not declared");
        let (body, share) = body::read(self.app, &mut self.body).await?;
        if let Some(limiter) = self.caller.limiter() {
            let bytes = body.len() as u64;
            limiter.charge(Usage::BytesIn, bytes, self.app.clock.elapsed());
        }
        Ok((body, share))
    }

    /// The body as JSON; `example` is for the hint.
    pub(super) async fn read_json<T: DeserializeOwned>(
        &mut self,
        example: &str,
    ) -> Result<T, Error> {
        let (body, _share) = self.read_body().await?;
        parse_json(&body, example)
    }

    /// The body as JSON, or the default if there is none.
    pub(super) async fn read_optional_json<T: DeserializeOwned + Default>(
        &mut self,
        example: &str,
    ) -> Result<T, Error> {
        let (body, _share) = self.read_body().await?;
        match body.trim_ascii() {
            [] => Ok(T::default()),
            body => parse_json(body, example),
        }
    }

    /// The parameter `wait` of a long poll.
    pub(super) fn wait(&self) -> Result<Duration, Error> {
        debug_assert!(self.operation.wait == WaitLimit::LongPoll);
        read::wait(self.query(), self.app.options.wait_max)
    }
}

/// Refuses new partitions while the caller has created more than its quota.
pub(super) fn charge_partitions(app: &App, caller: &Principal, count: u32) -> Result<(), Error> {
    let Some(limiter) = caller.limiter() else {
        return Ok(());
    };
    let now = app.clock.elapsed();
    match limiter.partition_delay(now) {
        Duration::ZERO => {
            limiter.charge(Usage::Partitions, count.into(), now);
            Ok(())
        }
        delay => Err(Error::over_quota(delay)),
    }
}

pub(super) fn parse_json<'b, T: serde::Deserialize<'b>>(
    body: &'b [u8],
    example: &str,
) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body cannot be read: {error}");
        Error::bad(message, format!("such as {example}"))
    })
}
