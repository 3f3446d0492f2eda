//! Requests for a queue or workflow of another node, forwarded to its owner.
//!
//! A request takes one hop: a node that gets one from another node answers it itself or refuses it, so two nodes with
//! different views of the owners cannot send it in circles. The caller's own Authorization header is forwarded, and the
//! owner checks it as for a direct request; nodes have no rights over each other.

mod peer;

use std::time::Duration;

use bytes::Bytes;
use highwater_access::Principal;
use highwater_flow::{NodeInfo, SlotOwner};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue, ORIGIN, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request};
use serde_json::{Value, json};

pub(crate) use peer::Peers;

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::operations::{Operation, Variables};
use super::reply::{Payload, Reply};
use crate::owners::{OwnedKind, Owners};
use crate::text::percent_decode;

/// The body of a forwarded request: the caller's as it comes, or one that was read.
pub(super) type RelayedBody = Either<Incoming, Full<Bytes>>;

/// Marks a request that another node has forwarded.
const FORWARDED: HeaderName = HeaderName::from_static("x-highwater-forwarded");
/// The node that answered.
const NODE: HeaderName = HeaderName::from_static("x-highwater-node");

/// For a request beyond its own waiting and its body.
const PATIENCE: Duration = Duration::from_secs(30);
/// For an answer of another node that becomes a part of this node's.
const GATHER_PATIENCE: Duration = Duration::from_secs(5);
const GATHER_BYTES_MAX: usize = 4 << 20;

/// Headers that belong to a connection, or to the node that the caller talks to. The origin of a browser was checked.
const OWN_HEADERS: [HeaderName; 9] = [
    CONNECTION,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    ORIGIN,
    COOKIE,
    HeaderName::from_static("keep-alive"),
];

/// The node to which a request must be forwarded; `None`: this one.
pub(super) fn target(
    app: &App,
    operation: &Operation,
    variables: &Variables<'_>,
    head: &Parts,
) -> Result<Option<NodeInfo>, Error> {
    let Some(kind) = operation.owned_kind() else {
        return Ok(None);
    };
    let Some(owners) = owners(app)? else {
        return Ok(None);
    };
    let name = percent_decode(variables.first().unwrap_or_default());
    let node = locate(app, owners, kind, &name, &head.headers)?;
    match node {
        Some(node) if operation.is_page() => Err(shown_elsewhere(kind, &name, &node)),
        node => Ok(node),
    }
}

/// Forwards a request whose body names the queue, if another node owns it.
pub(super) async fn by_name(
    request: &ApiRequest<'_>,
    kind: OwnedKind,
    name: &str,
    body: &Bytes,
) -> Result<Option<Reply>, Error> {
    let Some(owners) = owners(request.app)? else {
        return Ok(None);
    };
    match locate(request.app, owners, kind, name, &request.head.headers)? {
        None => Ok(None),
        Some(node) => {
            let body = Either::Right(Full::new(body.clone()));
            let sent = send(request.app, &request.caller, request.head, body, &node);
            sent.await.map(Some)
        }
    }
}

fn owners(app: &App) -> Result<Option<&Owners>, Error> {
    Ok(app.backend()?.owners.as_ref())
}

/// `None`: this node has it, or would have it if it existed.
fn locate(
    app: &App,
    owners: &Owners,
    kind: OwnedKind,
    name: &str,
    headers: &HeaderMap,
) -> Result<Option<NodeInfo>, Error> {
    let what = kind.name();
    match owners.locate(kind, name) {
        SlotOwner::Here if is_opening(app, owners, kind, name)? => {
            let why = owners.failure(kind, name);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let message = format!("{what} `{name}` is being opened by this node{why}");
            Err(Error::new(
                Code::Starting,
                message,
                "try again; GET /api/cluster has the state",
            ))
        }
        SlotOwner::Here => Ok(None),
        SlotOwner::Nobody => {
            let message = format!("{what} `{name}` is being handed over from one node to another");
            Err(Error::new(
                Code::Starting,
                message,
                "try again; GET /api/cluster has the state",
            ))
        }
        SlotOwner::Elsewhere(node) if headers.contains_key(FORWARDED) => {
            let message = format!("{what} `{name}` has moved to node `{}`", node.name);
            Err(Error::new(Code::Starting, message, "try again"))
        }
        SlotOwner::Elsewhere(node) => Ok(Some(node)),
    }
}

/// Whether this node has yet to open it.
fn is_opening(app: &App, owners: &Owners, kind: OwnedKind, name: &str) -> Result<bool, Error> {
    let backend = app.backend()?;
    Ok(match kind {
        OwnedKind::Queue => backend.queues.as_ref().is_some_and(|queues| {
            queues.get(name).is_none() && queues.stored_names().iter().any(|known| known == name)
        }),
        OwnedKind::Workflow => {
            let is_declared = owners.workflows().iter().any(|known| known == name);
            is_declared && backend.workflows.find(name).is_none()
        }
    })
}

/// The answer to a browser that opens the page of another node's queue: sessions of browsers are of one node.
fn shown_elsewhere(kind: OwnedKind, name: &str, node: &NodeInfo) -> Error {
    let message = format!("{} `{name}` is at node `{}`", kind.name(), node.name);
    let hint = format!(
        "open the console of that node: {}/console/cluster",
        node.url
    );
    Error::new(Code::Misdirected, message, hint)
}

/// Sends the request to its owner and returns the owner's answer.
pub(super) async fn send(
    app: &App,
    caller: &Principal,
    head: &Parts,
    body: RelayedBody,
    node: &NodeInfo,
) -> Result<Reply, Error> {
    check_credentials(app, caller, head, node)?;
    let peers = peers(app)?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = path.parse().map_err(|_| unusable_address(node))?;
    *request.headers_mut() = relayed_headers(&head.headers, &app.node_name());
    if let Either::Right(whole) = request.body() {
        let bytes = hyper::body::Body::size_hint(whole).exact().unwrap_or(0);
        request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    }
    let patience = app.options.body_timeout + app.options.wait_max + PATIENCE;
    let (answered, permit) = peers.send(node, request, patience).await?;
    let (mut parts, body) = answered.into_parts();
    OWN_HEADERS
        .iter()
        .for_each(|own| drop(parts.headers.remove(own)));
    if let Ok(name) = HeaderValue::from_str(&node.name) {
        parts.headers.insert(NODE, name);
    }
    Ok(Reply::from_parts(parts, Payload::relayed(body, permit)))
}

/// The other nodes' answers to the same caller's GET of `path`.
pub(super) async fn gather(request: &ApiRequest<'_>, path: &str) -> Vec<Gathered> {
    let app = request.app;
    let Ok(Some(owners)) = owners(app) else {
        return Vec::new();
    };
    if request.head.headers.contains_key(FORWARDED) {
        return Vec::new();
    }
    let asked = owners.others().into_iter().map(|node| async move {
        let answer = tokio::time::timeout(GATHER_PATIENCE, ask(request, path, &node)).await;
        let silent = |_| {
            Err(Error::new(
                Code::Starting,
                "it does not answer in time",
                "try again",
            ))
        };
        let answer = answer.unwrap_or_else(silent);
        (node, answer)
    });
    futures_util::future::join_all(asked).await
}

/// An answer of another node, or why there is none.
pub(super) type Gathered = (NodeInfo, Result<Value, Error>);

/// The rows of a list that other nodes answered with.
pub(super) fn rows<'a>(gathered: &'a [Gathered], list: &'a str) -> impl Iterator<Item = &'a Value> {
    let answers = gathered
        .iter()
        .filter_map(|(_, answer)| answer.as_ref().ok());
    answers.flat_map(move |answer| answer[list].as_array().into_iter().flatten())
}

/// The nodes whose rows are missing, as a field; none if all answered.
pub(super) fn unreachable(gathered: &[Gathered]) -> Value {
    let failed = gathered.iter().filter_map(|(node, answer)| {
        let error = answer.as_ref().err()?;
        Some(json!({"node": node.name, "why": error.message}))
    });
    let failed: Vec<Value> = failed.collect();
    match failed.is_empty() {
        true => json!({}),
        false => json!({"unreachable": failed}),
    }
}

async fn ask(request: &ApiRequest<'_>, path: &str, node: &NodeInfo) -> Result<Value, Error> {
    let app = request.app;
    check_credentials(app, &request.caller, request.head, node)?;
    let _share = app.budget.try_take(GATHER_BYTES_MAX)?;
    let mut asked = Request::new(Either::Right(Full::new(Bytes::new())));
    *asked.method_mut() = Method::GET;
    *asked.uri_mut() = path.parse().map_err(|_| unusable_address(node))?;
    let headers = asked.headers_mut();
    if let Some(credentials) = request.head.headers.get(AUTHORIZATION) {
        headers.insert(AUTHORIZATION, credentials.clone());
    }
    headers.insert(FORWARDED, header_value(&app.node_name()));
    let (answered, _permit) = peers(app)?.send(node, asked, GATHER_PATIENCE).await?;
    let status = answered.status();
    let body = Limited::new(answered.into_body(), GATHER_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|error| Error::new(Code::Starting, error.to_string(), "try again"))?;
    let value: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    match status.is_success() {
        true => Ok(value),
        false => {
            let message = value["message"].as_str().unwrap_or_default();
            Err(Error::new(
                Code::Starting,
                format!("{status}: {message}"),
                "see its log",
            ))
        }
    }
}

fn peers(app: &App) -> Result<&Peers, Error> {
    let none = || Error::new(Code::Internal, "this node knows no other nodes", "");
    owners(app)?.map(Owners::peers).ok_or_else(none)
}

/// The owner must be able to authenticate the caller, and the secret must not be readable in transit.
fn check_credentials(
    app: &App,
    caller: &Principal,
    head: &Parts,
    node: &NodeInfo,
) -> Result<(), Error> {
    let has_secret = head.headers.contains_key(AUTHORIZATION);
    if matches!(caller, Principal::Key(_)) && !has_secret {
        let message = format!(
            "this belongs to node `{}`, to which a session or a certificate cannot be handed on",
            node.name
        );
        let hint = format!("send Authorization, or ask that node: {}", node.url);
        return Err(Error::new(Code::Misdirected, message, hint));
    }
    if has_secret && !peers(app)?.may_see_secrets(&node.url) {
        let message = format!(
            "the secret would travel unencrypted to node `{}`",
            node.name
        );
        let hint = "let it advertise https, or set cluster.insecure = true";
        return Err(Error::new(Code::Misdirected, message, hint));
    }
    Ok(())
}

fn relayed_headers(headers: &HeaderMap, node: &str) -> HeaderMap {
    let mut relayed = headers.clone();
    // Headers that the connection names are its own.
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name: &HeaderName| *name != AUTHORIZATION && *name != CONTENT_LENGTH)
        .collect();
    for own in OWN_HEADERS.iter().chain(&named) {
        relayed.remove(own);
    }
    relayed.insert(FORWARDED, header_value(node));
    relayed
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("node"))
}

fn unusable_address(node: &NodeInfo) -> Error {
    let message = format!("node `{}` has no usable address: `{}`", node.name, node.url);
    Error::new(
        Code::Starting,
        message,
        "set cluster.advertise of that node",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves X1
    #[test]
    fn headers_of_the_connection_stay_and_the_callers_secret_goes_along() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Basic eDp5"),
            ("connection", "keep-alive, x-private, authorization"),
            ("x-private", "1"),
            ("cookie", "session=1"),
            ("origin", "http://here"),
            ("transfer-encoding", "chunked"),
            ("x-message-id", "7"),
        ] {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_static(value));
        }
        let relayed = relayed_headers(&headers, "node-1");
        let mut names: Vec<&str> = relayed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["authorization", "x-highwater-forwarded", "x-message-id"]
        );
    }
}
