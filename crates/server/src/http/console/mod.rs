//! The console: makes the views of `highwater-console` out of the node's services, one file per screen.
//!
//! A page and its live stream come from the same function, which the operation names ([`ViewFunction`]): the page has
//! the view in its frame, the stream sends the panels of the view that changed. Actions are not operations of the
//! console: its script calls the `/api` operations, so rights, limits and audit are those of the table.

pub(super) mod circuits;
pub(super) mod cluster;
pub(super) mod dead_letters;
mod figures;
pub(super) mod hub;
mod hub_events;
pub(super) mod hubs;
pub(super) mod job;
pub(super) mod jobs;
mod live;
mod login;
pub(super) mod overview;
mod paging;
mod payload;
pub(super) mod processors;
pub(super) mod queue;
pub(super) mod queues;
mod sessions;
pub(super) mod workflows;

use std::pin::Pin;

use highwater_access::{Principal, Resource, Right, percent_encode};
use highwater_console::message::Message;
use highwater_console::{Asset, CONTENT_SECURITY_POLICY, NavCounts, Shell, View};
use hyper::StatusCode;
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY as POLICY_HEADER, ETAG, HeaderValue,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::operations::{Operation, Variables};
use super::reply::{self, Payload, Reply};
use crate::text::form_field;

use figures::Figures;
pub(super) use figures::sample;
pub(super) use live::live;
pub(super) use login::{log_in, log_out, login_page, session};
pub(super) use sessions::{CSRF_HEADER, Sessions};

/// The state of the console.
#[derive(Default)]
pub(super) struct Console {
    pub(super) sessions: Sessions,
    pub(super) figures: Figures,
    pub(super) streams: live::Streams,
}

/// Makes the view of a screen.
pub(super) type ViewFunction = for<'a> fn(&'a Context<'a>) -> BoxedView<'a>;

pub(super) type BoxedView<'a> = Pin<Box<dyn Future<Output = Result<View, Error>> + Send + 'a>>;

/// The inputs of a screen's view.
pub(super) struct Context<'a> {
    pub(super) app: &'a App,
    pub(super) caller: &'a Principal,
    pub(super) variables: Variables<'a>,
    /// The query of the page's address.
    pub(super) query: Option<&'a str>,
    /// Only the live panels are rendered, so the others need no data.
    pub(super) live: bool,
}

impl Context<'_> {
    /// Whether the caller may read it.
    pub(super) fn may_see(&self, on: Resource<'_>) -> bool {
        self.caller.may(Right::Listen, on)
    }

    /// A field of the form that made the query; none if it is empty.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        form_field(self.query?, name).filter(|value| !value.is_empty())
    }
}

/// The playground has no data of the node.
pub(super) async fn playground(_: &Context<'_>) -> Result<View, Error> {
    Ok(highwater_console::playground())
}

/// A screen, whose operation has the function that makes its view.
pub(super) async fn page(request: ApiRequest<'_>, view: ViewFunction) -> Result<Reply, Error> {
    check_enabled(request.app)?;
    let context = Context {
        app: request.app,
        caller: &request.caller,
        variables: request.variables,
        query: request.query(),
        live: false,
    };
    let view = view(&context).await?;
    let shell = shell(&context, request.head).await;
    Ok(html(StatusCode::OK, highwater_console::page(&shell, &view)))
}

/// The frame around a view for this caller.
async fn shell(context: &Context<'_>, head: &Parts) -> Shell {
    let Context { app, caller, .. } = context;
    let session = app.console.sessions.of_request(&head.headers, app);
    Shell {
        counts: counts(context),
        csrf: session
            .map(|session| session.csrf.to_string())
            .unwrap_or_default(),
        key: match caller {
            Principal::Key(key) => Some(key.name.clone()),
            Principal::Anonymous | Principal::Trusted(_) => None,
        },
    }
}

/// The numbers of the navigation: what the caller may see.
fn counts(context: &Context<'_>) -> NavCounts {
    let app = context.app;
    let Ok(backend) = app.backend() else {
        return NavCounts::default();
    };
    let jobs = backend.jobs.as_ref().map(|jobs| jobs.names());
    let jobs = jobs.into_iter().flatten();
    let workflows = workflows::visible(context, backend);
    let running: usize = workflows.iter().map(|flow| flow.running()).sum();
    NavCounts {
        jobs: jobs
            .filter(|name| context.may_see(Resource::Deployment(name)))
            .count() as u64,
        hubs: hubs::visible(context, backend).len() as u64,
        queues: queues::visible(context, backend).len() as u64,
        processors: processors::visible(context, backend).len() as u64,
        workflows: running as u64,
        attention: app.console.figures.attention(context, backend),
    }
}

/// A file of the console.
pub(super) async fn asset(request: ApiRequest<'_>) -> Result<Reply, Error> {
    check_enabled(request.app)?;
    let [name] = request.variables();
    let none = || Error::not_found(format!("there is no asset `{name}`"), "");
    let Asset {
        content_type,
        bytes,
        ..
    } = highwater_console::asset(name).ok_or_else(none)?;
    let tag = format!("\"{}\"", highwater_console::version());
    let known = request.head.headers.get(IF_NONE_MATCH);
    let mut reply = match known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        true => reply::empty(StatusCode::NOT_MODIFIED),
        false => reply::typed(
            StatusCode::OK,
            HeaderValue::from_static(content_type),
            Payload::constant(bytes.as_slice()),
        ),
    };
    let headers = reply.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(reply)
}

fn check_enabled(app: &App) -> Result<(), Error> {
    match app.options.console {
        true => Ok(()),
        false => Err(Error::not_found(
            "the console of this node is off",
            "set console.enabled = true, and restart the node",
        )),
    }
}

/// A page of the console. It loads nothing from elsewhere and is shown in no frame.
fn html(status: StatusCode, page: String) -> Reply {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let mut reply = reply::typed(status, kind, Payload::whole(page));
    let headers = reply.headers_mut();
    for (name, value) in [
        (POLICY_HEADER, CONTENT_SECURITY_POLICY),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Whether the request is the navigation of a browser.
fn opens_page(operation: &Operation, head: &Parts) -> bool {
    operation.is_page() && accepts_html(head)
}

/// Whether the request is that of a browser, not of a program.
fn accepts_html(head: &Parts) -> bool {
    let accept = head.headers.get(ACCEPT);
    let kinds = accept.and_then(|value| value.to_str().ok());
    kinds.is_some_and(|kinds| kinds.contains("text/html"))
}

/// An error as a page, for a person; otherwise the error itself.
pub(super) fn show_error(
    operation: &Operation,
    head: &Parts,
    error: Error,
) -> Result<Reply, Error> {
    if !opens_page(operation, head) {
        return Err(error);
    }
    let status = error.code.status();
    let message = Message {
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        text: format!("{} ({})", error.message, error.code.name()),
        hint: error.hint,
    };
    Ok(html(status, message.page()))
}

/// The way to the login, for a person without a session; otherwise the error. To a script it does not name the scheme
/// Basic: the browser would ask the person for a password on its own.
pub(super) fn ask_for_login(
    operation: Option<&Operation>,
    head: &Parts,
    error: Error,
) -> Result<Reply, Error> {
    let mode = head.headers.get("sec-fetch-mode");
    if error.code == Code::Unauthorized && mode.is_some_and(|mode| mode != "navigate") {
        let mut reply = reply::error(&error);
        reply.headers_mut().remove(WWW_AUTHENTICATE);
        return Ok(reply);
    }
    let is_page = operation.is_some_and(|operation| opens_page(operation, head));
    if error.code != Code::Unauthorized || !is_page {
        return Err(error);
    }
    let page = head.uri.path_and_query().map_or("/", |page| page.as_str());
    let page = percent_encode(page);
    Ok(redirect(&format!("/console/login?next={page}")))
}

/// To another page of the console.
fn redirect(path: &str) -> Reply {
    let mut reply = reply::empty(StatusCode::SEE_OTHER);
    let path = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    reply.headers_mut().insert(LOCATION, path);
    reply
}
