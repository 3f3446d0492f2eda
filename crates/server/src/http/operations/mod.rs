//! The table of HTTP operations: everything the API offers, declared once.
//!
//! Routes (`routes.rs`), authorisation (`access.rs`), dispatch (`dispatch.rs`) and the OpenAPI document and page
//! (`openapi/`) all read [`AREAS`], so an operation is routed, guarded and described or does not exist.
//!
//! To add an operation, declare it in the file of its area and write its handler, an
//! `async fn(ApiRequest<'_>) -> Result<Reply, Error>`. `security_page.rs` says how to write its right into the docs.
//! The rows are formatted by hand, to be read as a table: constructor, path, summary, right and handler, then the rest.

mod access;
mod atom;
mod console;
mod events;
mod groups;
mod hubs;
mod jobs;
mod keys;
mod messages;
mod node;
mod playground;
mod processors;
mod queues;
mod routes;
#[cfg(test)]
mod security_page;
mod topics;
mod workflows;

use std::pin::Pin;

use highwater_access::Right;
use hyper::Method;

use super::console::ViewFunction;
use super::dispatch::ApiRequest;
use super::error::Error;
use super::reply::Reply;
use super::send::{Dialect, PathTarget};
use crate::owners::OwnedKind;

pub(super) use access::{Access, Scope};
pub(super) use routes::{NoRoute, ROUTES, Route, Variables};

/// One operation of the API.
pub(super) struct Operation {
    pub(super) method: Method,
    /// With variables in braces. A variable is a whole segment.
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    /// Of the query and the headers; those of the path follow from `path`.
    pub(super) parameters: &'static [Parameter],
    /// `None`: the body is not read. A declared body is read up to `http.body_bytes_max` within `http.body_timeout`.
    pub(super) body: Option<RequestBody>,
    pub(super) wait: WaitLimit,
    /// The answer on success; every other answer is an error.
    pub(super) response: Response,
    pub(super) handler: Handler,
    /// It belongs to the administration API of Service Bus: clients that name an `api-version` read errors in XML, and
    /// sign paths in any case.
    pub(super) is_atom: bool,
}

/// How long a request may wait for data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitLimit {
    /// It does not wait.
    None,
    /// As long as its parameter `wait` says, up to `http.wait_max`.
    LongPoll,
    /// Until either side closes the stream.
    Stream,
}

/// A parameter of the query or the headers.
pub(super) struct Parameter {
    /// `query` or `header`.
    pub(super) location: &'static str,
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// A JSON schema.
    pub(super) schema: &'static str,
}

pub(super) struct RequestBody {
    pub(super) required: bool,
    pub(super) content_types: &'static [&'static str],
    /// A JSON schema.
    pub(super) schema: &'static str,
}

pub(super) struct Response {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) content: Option<Content>,
}

#[derive(Clone, Copy)]
pub(super) struct Content {
    pub(super) content_type: &'static str,
    /// A JSON schema.
    pub(super) schema: &'static str,
}

/// The function behind an operation.
pub(super) enum Handler {
    /// Appends the posted events to a hub. Most requests of a node are of this kind, and dispatch awaits it in place:
    /// no future is boxed.
    Append(Dialect, PathTarget),
    Boxed(for<'a> fn(ApiRequest<'a>) -> BoxedReply<'a>),
    /// A page of the console.
    Page(ViewFunction),
}

pub(super) type BoxedReply<'a> = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send + 'a>>;

/// The [`Handler`] that calls an async function with the request, and with further arguments if there are any.
macro_rules! handler {
    ($function:path $(, $argument:expr)*) => {
        $crate::http::operations::Handler::Boxed(|request| {
            Box::pin($function(request $(, $argument)*))
        })
    };
}
use handler;

/// Operations that belong together, and the types in their schemas.
pub(super) struct Area {
    pub(super) name: &'static str,
    pub(super) operations: &'static [Operation],
    /// A JSON object of schemas by name.
    pub(super) schemas: &'static str,
}

pub(super) const AREAS: &[Area] = &[
    events::AREA,
    hubs::AREA,
    groups::AREA,
    jobs::AREA,
    playground::AREA,
    workflows::AREA,
    messages::AREA,
    queues::AREA,
    topics::AREA,
    atom::AREA,
    processors::AREA,
    keys::AREA,
    node::AREA,
    console::AREA,
];

/// Every operation with its area.
pub(super) fn operations() -> impl Iterator<Item = (&'static Area, &'static Operation)> {
    let each = |area: &'static Area| area.operations.iter().map(move |o| (area, o));
    AREAS.iter().flat_map(each)
}

/// Whether paths of the API begin with this name. A hub or queue of this name would collide with them in the resource
/// of a signature.
pub(crate) fn begins_paths(name: &str) -> bool {
    !name.is_empty()
        && operations().any(|(_, operation)| operation.path.split('/').nth(1) == Some(name))
}

const fn operation(
    method: Method,
    path: &'static str,
    summary: &'static str,
    access: Access,
    handler: Handler,
) -> Operation {
    Operation {
        method,
        path,
        summary,
        access,
        parameters: &[],
        body: None,
        wait: WaitLimit::None,
        response: OBJECT,
        handler,
        is_atom: false,
    }
}

/// A constructor for each method.
macro_rules! methods {
    ($($name:ident: $method:ident,)*) => {$(
        const fn $name(
            path: &'static str,
            summary: &'static str,
            access: Access,
            handler: Handler,
        ) -> Operation {
            operation(Method::$method, path, summary, access, handler)
        }
    )*};
}

methods! {
    get: GET,
    post: POST,
    put: PUT,
    patch: PATCH,
    delete: DELETE,
}

impl Operation {
    /// Changes to hubs, queues, groups, keys and deployments, and decisions about them, go to the audit log.
    pub(super) fn is_audited(&self) -> bool {
        let changes = matches!(
            self.access,
            Access::Key(Right::Manage | Right::Deploy, _) | Access::Public
        );
        // A login is recorded by its handler, under the name of the key.
        changes && self.method != Method::GET && self.path != LOGIN_PATH
    }

    /// The bytes that are taken from the budget of answers before the handler runs. Handlers that wait, and those that
    /// answer with events, messages or rows, take them by themselves.
    pub(super) fn reserved_bytes(&self) -> usize {
        match (&self.handler, self.access) {
            (Handler::Page(_), _) => PAGE_BYTES,
            (Handler::Boxed(_), Access::Key(..))
                if self.method == Method::GET && self.wait == WaitLimit::None =>
            {
                DESCRIPTION_BYTES
            }
            _ => 0,
        }
    }

    /// The kind of the first variable of the path, if one node of a cluster owns it.
    pub(super) fn owned_kind(&self) -> Option<OwnedKind> {
        let first = self.path.split('/').find(|part| part.starts_with('{'));
        match first {
            Some("{queue}") => Some(OwnedKind::Queue),
            Some("{workflow}") => Some(OwnedKind::Workflow),
            _ => None,
        }
    }

    /// Whether it is a page of the console.
    pub(super) fn is_page(&self) -> bool {
        matches!(self.handler, Handler::Page(_))
    }

    const fn takes(mut self, body: RequestBody) -> Operation {
        self.body = Some(body);
        self
    }

    const fn parameters(mut self, parameters: &'static [Parameter]) -> Operation {
        self.parameters = parameters;
        self
    }

    const fn in_atom(mut self, parameters: &'static [Parameter]) -> Operation {
        self.is_atom = true;
        self.parameters(parameters)
    }

    const fn waits(mut self, limit: WaitLimit) -> Operation {
        self.wait = limit;
        self
    }

    /// The answer on success; without it, [`OBJECT`].
    const fn answers(mut self, response: Response) -> Operation {
        self.response = response;
        self
    }
}

/// A page of the console, whose lists have pages and whose values are cut.
pub(super) const PAGE_BYTES: usize = 512 << 10;
/// The description of one resource.
const DESCRIPTION_BYTES: usize = 64 << 10;

const LOGIN_PATH: &str = "/console/login";

const JSON: &str = "application/json";
const TEXT: &str = r#"{"type":"string"}"#;

const WAIT: Parameter = query(
    "wait",
    "How long to wait for data when there is none",
    r#"{"type":"string","pattern":"^[0-9]{1,3}ms$","examples":["100ms"]}"#,
);

const OBJECT: Response = object("Done.");

/// Content that is a type of the schemas of an area.
macro_rules! schema_of {
    ($name:literal) => {
        concat!(r##"{"$ref":"#/components/schemas/"##, $name, "\"}")
    };
}
use schema_of;

/// An answer with a JSON object whose description needs no schema.
const fn object(description: &'static str) -> Response {
    answer(200, description, r#"{"type":"object"}"#)
}

/// A JSON answer.
const fn answer(status: u16, description: &'static str, schema: &'static str) -> Response {
    typed(status, description, JSON, schema)
}

const fn typed(
    status: u16,
    description: &'static str,
    content_type: &'static str,
    schema: &'static str,
) -> Response {
    let content = Some(Content {
        content_type,
        schema,
    });
    Response {
        status,
        description,
        content,
    }
}

/// An answer without a body.
const fn empty(status: u16, description: &'static str) -> Response {
    Response {
        status,
        description,
        content: None,
    }
}

/// A JSON body that may not be left out.
const fn json(schema: &'static str) -> RequestBody {
    RequestBody {
        required: true,
        content_types: &[JSON],
        schema,
    }
}

const fn query(name: &'static str, description: &'static str, schema: &'static str) -> Parameter {
    Parameter {
        location: "query",
        name,
        description,
        schema,
    }
}

const fn header(name: &'static str, description: &'static str, schema: &'static str) -> Parameter {
    Parameter {
        location: "header",
        name,
        description,
        schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_begin_paths_are_known() {
        assert!(
            ["api", "hubs", "queues", "metrics", "console"]
                .into_iter()
                .all(begins_paths)
        );
        assert!(!["telemetry", "{hub}x", ""].into_iter().any(begins_paths));
    }

    #[test]
    fn a_long_poll_and_its_parameter_are_declared_together() {
        for (_, operation) in operations() {
            let wait = operation.parameters.iter().any(|p| p.name == "wait");
            assert_eq!(
                wait,
                operation.wait == WaitLimit::LongPoll,
                "{}",
                operation.path
            );
        }
    }
}
