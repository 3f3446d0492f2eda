//! The page behind the resume link of a notification. Viewing it changes nothing, because mail scanners follow links;
//! only its button does.

use highwater_flow::CircuitTrip;
use highwater_flow::circuit::CircuitEvent;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue, REFERRER_POLICY};

use super::processors;
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::reply::{self, Payload, Reply};
use crate::processors::notify::link::Link;

pub(in crate::http) async fn confirmation(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let Some((link, opening)) = current_link(&request)? else {
        return Ok(expired());
    };
    let text = format!(
        "<p>Deliveries to <b>{}</b> have stopped: {}</p><form method=\"post\"><button>Resume</button></form>",
        escaped(&link.circuit),
        escaped(&opening.why)
    );
    Ok(page(StatusCode::OK, "Resume deliveries?", &text))
}

pub(in crate::http) async fn resume(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let Some((link, _)) = current_link(&request)? else {
        return Ok(expired());
    };
    let circuits = processors(request.app)?.circuits();
    circuits
        .append_event(&link.circuit, &CircuitEvent::Closed)
        .await?;
    let text = format!(
        "<p>Deliveries to <b>{}</b> resume.</p>",
        escaped(&link.circuit)
    );
    Ok(page(StatusCode::OK, "Resumed", &text))
}

/// The link in the path, if its circuit is still open since the opening that the link is for.
fn current_link(request: &ApiRequest<'_>) -> Result<Option<(Link, CircuitTrip)>, Error> {
    let [token] = request.variables();
    let processors = processors(request.app)?;
    let link = processors
        .signer()
        .verify(token, request.app.clock.unix_millis() / 1000);
    let status = link
        .as_ref()
        .and_then(|link| processors.circuits().get(&link.circuit));
    let opening = status.and_then(|status| status.opening);
    Ok(link
        .zip(opening)
        .filter(|(link, opening)| opening.offset == link.opening))
}

fn expired() -> Reply {
    let text = "<p>This link is not valid any more: it was used, it is too old, or deliveries have resumed.</p>";
    page(StatusCode::GONE, "Nothing to resume", text)
}

fn page(status: StatusCode, title: &str, text: &str) -> Reply {
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <body style=\"font-family:sans-serif;max-width:40em;margin:4em auto\"><h1>{title}</h1>{text}"
    );
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let mut reply = reply::typed(status, kind, Payload::whole(html));
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        "content-security-policy",
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"),
    );
    reply
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
