//! Which request is for whom. This is the whole table of the API.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};

use super::app::App;
use super::error::{Code, Error};
use super::reply::{self, Reply};
use super::send::{Target, Way};
use super::{
    admin, auth, groups, jobs, metrics, openapi, processing, queues, read, send, workflows,
};
use crate::keys::Right;
use crate::text::percent_decode;

/// Answers a request, whatever happens.
pub async fn answer(app: Arc<App>, request: Request<Incoming>) -> Reply {
    let started = app.clock.elapsed();
    let reply = match route(&app, request).await {
        Ok(reply) => reply,
        Err(error) => {
            if error.code == Code::Internal {
                tracing::error!(message = error.message, "a request failed");
            }
            reply::error(&error)
        }
    };
    app.metrics
        .answered(reply.status(), app.clock.elapsed() - started);
    reply
}

async fn route(app: &Arc<App>, request: Request<Incoming>) -> Result<Reply, Error> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let mut parts = [""; 6];
    let parts = split(path, &mut parts).ok_or_else(|| no_such(path))?;
    let query = head.uri.query();
    let post = head.method == Method::POST;
    let get = head.method == Method::GET;

    // A signature for `/telemetry` must cover `/hubs/telemetry/messages` too.
    let resource = path
        .strip_prefix("/hubs")
        .or_else(|| path.strip_prefix("/queues"))
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path);
    match parts {
        ["healthz"] if get => return Ok(reply::empty(StatusCode::OK)),
        ["readyz"] if get => return admin::ready(app),
        ["api", "openapi.json"] if get => {
            return Ok(reply::json_bytes(StatusCode::OK, openapi::document()));
        }
        ["api", "docs"] if get => return Ok(reply::html(openapi::page())),
        // The signature in the link is the key.
        ["resume", token] if get || post => {
            return processing::resume(app, &head.method, token).await;
        }
        _ => {}
    }
    let caller = auth::caller(app, &head.headers, resource)?;

    if queues::is_ours(parts) {
        return queues::route(app, &caller, parts, &head, body).await;
    }

    // Sending: our own paths, then those of Event Hubs.
    let way = match parts {
        ["hubs", hub, "messages"] if post => Some((hub, Target::Any, Way::Own)),
        ["hubs", hub, "partitions", id, "messages"] if post => {
            Some((hub, Target::partition(id)?, Way::Own))
        }
        [hub, "messages"] if post => Some((hub, Target::Any, Way::EventHubs)),
        [hub, "partitions", id, "messages"] if post => {
            Some((hub, Target::partition(id)?, Way::EventHubs))
        }
        [hub, "publishers", name, "messages"] if post => {
            Some((hub, Target::Key(percent_decode(name)), Way::EventHubs))
        }
        _ => None,
    };
    if let Some((hub, target, way)) = way {
        caller.must(Right::Send, Some(hub))?;
        let to = app.destination_to_send(hub, &caller).await?;
        return send::send(app, &to, target, way, &head, body).await;
    }

    // Where there is none of them, it is still the method that is wrong.
    let rare = matches!(
        parts,
        [
            "api",
            "jobs" | "processors" | "circuits" | "dead-letters",
            ..
        ]
    );
    if rare && !openapi::takes(&head.method, parts) {
        return Err(nothing(&head, parts));
    }
    if let ["api", "jobs", ..] = parts {
        let answer = jobs::route(app, &caller, parts, &head, body).await;
        return answer.unwrap_or_else(|| Err(nothing(&head, parts)));
    }
    if let ["workflows", ..] | ["api", "workflows", ..] = parts {
        let answer = workflows::route(app, &caller, parts, &head, body).await;
        return answer.unwrap_or_else(|| Err(nothing(&head, parts)));
    }
    match parts {
        ["hubs", hub, "messages"] if get => {
            caller.must(right_to_read(hub), Some(hub))?;
            read::all(app, hub, query, &head.headers)
        }
        ["hubs", hub, "partitions", id, "messages"] if get => {
            caller.must(right_to_read(hub), Some(hub))?;
            read::one(app, hub, id, query, &head.headers).await
        }
        ["metrics"] if get => {
            caller.must(Right::Listen, None)?;
            Ok(metrics::page(app).await)
        }
        ["api", "hubs"] if get => admin::list(app, &caller),
        ["api", "hubs"] if post => admin::create(app, &caller, body).await,
        ["api", "hubs", hub] if get => {
            caller.must(Right::Listen, Some(hub))?;
            admin::describe(app, hub)
        }
        ["api", "hubs", hub] if head.method == Method::PATCH => {
            caller.must(Right::Manage, Some(hub))?;
            admin::change(app, hub, body).await
        }
        ["api", "hubs", hub, "partitions", id, "trim"] if post => {
            caller.must(Right::Manage, Some(hub))?;
            admin::trim(app, hub, id, body).await
        }
        ["api", "hubs", hub, "partitions", id, "punctuate"] if post => {
            caller.must(Right::Manage, Some(hub))?;
            admin::punctuate(app, hub, id).await
        }
        ["api", "hubs", hub] if head.method == Method::DELETE => {
            caller.must(Right::Manage, Some(hub))?;
            admin::delete(app, hub).await
        }
        ["api", "groups"] if get => {
            caller.must(Right::Listen, None)?;
            groups::list(app).await
        }
        ["api", "groups", name] if get => {
            caller.must(Right::Listen, None)?;
            groups::describe(app, &percent_decode(name)).await
        }
        ["api", "groups", name] if head.method == Method::DELETE => {
            caller.must(Right::Manage, None)?;
            groups::delete(app, &percent_decode(name)).await
        }
        _ if processing::is_known(parts) => {
            processing::route(app, &caller, &head.method, parts, query, body).await
        }
        _ => Err(nothing(&head, parts)),
    }
}

/// For a request that fits no line of the table.
pub fn nothing(head: &Parts, parts: &[&str]) -> Error {
    let (path, method) = (head.uri.path(), &head.method);
    match openapi::is_known(parts) {
        true => Error::new(
            Code::MethodNotAllowed,
            format!("{path} does not take {method}"),
            "docs/http.md lists what there is",
        ),
        false => no_such(path),
    }
}

/// What the node keeps for itself, such as the positions of all groups, is for those who manage it.
fn right_to_read(hub: &str) -> Right {
    match hub.starts_with("__") {
        true => Right::Manage,
        false => Right::Listen,
    }
}

fn no_such(path: &str) -> Error {
    let hint = "docs/http.md lists what there is, such as POST /hubs/NAME/messages";
    Error::new(Code::NotFound, format!("there is nothing at {path}"), hint)
}

/// The parts of a path, without allocating; `None` if there are more than any path of ours has.
fn split<'p, 'b>(path: &'p str, parts: &'b mut [&'p str; 6]) -> Option<&'b [&'p str]> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut count = 0;
    for part in path.split('/') {
        *parts.get_mut(count)? = part;
        count += 1;
    }
    Some(&parts[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_their_slashes() {
        let mut parts = [""; 6];
        assert_eq!(
            split("/a/b//c/", &mut parts),
            Some(&["a", "b", "", "c"][..])
        );
        assert_eq!(split("/", &mut [""; 6]), Some(&[""][..]));
        assert_eq!(split("/1/2/3/4/5/6/7", &mut [""; 6]), None);
    }
}
