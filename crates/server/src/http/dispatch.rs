//! Answers a request: finds its operation, checks the caller's right, calls the handler.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_access::{Principal, Resource};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONNECTION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request};
use serde::de::DeserializeOwned;

use super::app::App;
use super::auth;
use super::budget::Permit;
use super::error::{Code, Error};
use super::operations::{Access, Handler, NoRoute, Operation, ROUTES, Route, Variables, WaitLimit};
use super::reply::{self, Reply};
use super::{body, origin, read, send};

/// The connection of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// It was accepted from the reserve for clients with a key.
    pub(super) needs_key: bool,
}

/// Answers a request; errors become answers too.
pub(super) async fn answer(
    app: Arc<App>,
    connection: Connection,
    request: Request<Incoming>,
) -> Reply {
    let started = app.clock.elapsed();
    let answered = dispatch(&app, connection, request).await;
    let charged = answered.and_then(|mut reply| {
        reply.body_mut().charge(&app.budget)?;
        Ok(reply)
    });
    let reply = charged.unwrap_or_else(|error| {
        if error.code == Code::Internal {
            tracing::error!(message = error.message, "a request failed");
        }
        let mut reply = reply::error(&error);
        if connection.needs_key && error.code == Code::Unauthorized {
            let close = HeaderValue::from_static("close");
            reply.headers_mut().insert(CONNECTION, close);
        }
        reply
    });
    app.metrics
        .answered(reply.status(), app.clock.elapsed() - started);
    reply
}

async fn dispatch(
    app: &Arc<App>,
    connection: Connection,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (head, body) = request.into_parts();
    if connection.needs_key && !head.headers.contains_key(AUTHORIZATION) {
        return Ok(reply::too_many_connections());
    }
    let route = ROUTES.find(&head.method, head.uri.path());
    let caller = match &route {
        Ok(route) if matches!(route.operation.access, Access::Public) && !connection.needs_key => {
            Principal::Anonymous
        }
        // An unknown path needs a key too: without one, a caller learns nothing of the API.
        _ => auth::authenticate(app, &head.headers, signed_resource(head.uri.path()))?,
    };
    if matches!(caller, Principal::Key(_)) {
        origin::check(&head.headers, &app.options.allowed_origins)?;
    }
    let Route {
        operation,
        variables,
    } = match route {
        Ok(route) => route,
        Err(none) => return no_route(&head, &none),
    };
    operation.access.check(app, &caller, &variables)?;
    // A quota per key is taken here, and an audit record of a mutating operation is written around the handler: both
    // know the caller, the operation and its variables.
    let request = ApiRequest {
        app,
        caller,
        operation,
        variables,
        head: &head,
        body,
    };
    match operation.handler {
        Handler::Append(dialect, target) => send::send(request, dialect, target).await,
        Handler::Boxed(handle) => handle(request).await,
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
        return Err(Error::new(Code::NotFound, message, hint));
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
    operation: &'static Operation,
    body: Incoming,
}

impl<'a> ApiRequest<'a> {
    /// The values of the path for the variables of the operation's template.
    pub(super) fn variables<const N: usize>(&self) -> [&'a str; N] {
        self.variables.all()
    }

    pub(super) fn query(&self) -> Option<&'a str> {
        self.head.uri.query()
    }

    /// Checks the right of an operation whose body names the hub or queue.
    pub(super) fn authorise(&self, on: Resource<'_>) -> Result<(), Error> {
        match self.operation.access {
            Access::Public => Ok(()),
            Access::Key(right, _) => auth::require(&self.caller, right, on),
        }
    }

    pub(super) fn has_body(&self) -> bool {
        !self.body.is_end_stream()
    }

    /// The body, and its part of the budget, to hold until the request is answered.
    pub(super) async fn read_body(&mut self) -> Result<(Bytes, Permit), Error> {
        debug_assert!(self.operation.body.is_some(), "the body is not declared");
        body::read(self.app, &mut self.body).await
    }

    /// The body as JSON; `example` is for the hint.
    pub(super) async fn read_json<T: DeserializeOwned>(
        &mut self,
        example: &str,
    ) -> Result<T, Error> {
        let (body, _permit) = self.read_body().await?;
        parse_json(&body, example)
    }

    /// The body as JSON, or the default if there is none.
    pub(super) async fn read_optional_json<T: DeserializeOwned + Default>(
        &mut self,
        example: &str,
    ) -> Result<T, Error> {
        let (body, _permit) = self.read_body().await?;
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

pub(super) fn parse_json<'b, T: serde::Deserialize<'b>>(
    body: &'b [u8],
    example: &str,
) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body cannot be read: {error}");
        Error::bad(message, format!("such as {example}"))
    })
}
