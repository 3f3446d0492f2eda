//! The page behind a link that resumes. Looking at it changes nothing, because programs that check
//! mails follow links too; only its button does.

use highwater_flow::circuit::CircuitEvent;
use hyper::header::{CACHE_CONTROL, HeaderValue, REFERRER_POLICY};
use hyper::{Method, StatusCode};

use super::super::app::App;
use super::super::error::Error;
use super::super::reply::{self, Payload, Reply};
use super::some;

pub async fn resume(app: &App, method: &Method, token: &str) -> Result<Reply, Error> {
    let processors = some(app)?;
    let link = processors.signer().verify(token, app.now_seconds());
    let status = link
        .as_ref()
        .and_then(|link| processors.circuits().get(&link.circuit));
    let opening = status.and_then(|status| status.opening);
    let current = link
        .zip(opening)
        .filter(|(link, opening)| opening.offset == link.opening);
    let Some((link, opening)) = current else {
        let text = "<p>This link is not good any more: it has been used, it is too old, or deliveries go on already.</p>";
        return Ok(page(StatusCode::GONE, "Nothing to resume", text));
    };
    let name = escaped(&link.circuit);
    if method == Method::POST {
        processors
            .circuits()
            .append_event(&link.circuit, &CircuitEvent::Closed)
            .await?;
        let text = format!("<p>Deliveries to <b>{name}</b> go on.</p>");
        return Ok(page(StatusCode::OK, "Resumed", &text));
    }
    let text = format!(
        "<p>Deliveries to <b>{name}</b> have stopped: {}</p><form method=\"post\"><button>Resume</button></form>",
        escaped(&opening.why)
    );
    Ok(page(StatusCode::OK, "Resume deliveries?", &text))
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
