//! The description as a page: plain HTML, no script, nothing fetched from elsewhere.

use std::fmt::Write;
use std::sync::OnceLock;

use crate::http::operations::{AREAS, Access, Operation, WaitLimit};

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Highwater API</title>\
<meta name=viewport content=\"width=device-width\"><style>\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b2733}\
h2{margin-top:2.5rem;border-bottom:1px solid #d5dde5}code{font:14px ui-monospace,monospace}\
details{border:1px solid #d5dde5;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}\
summary{cursor:pointer}b{display:inline-block;min-width:4.2rem}table{border-collapse:collapse}\
td{padding:.1rem 1rem .1rem 0;vertical-align:top}pre{white-space:pre-wrap;background:#f3f6f9;padding:.6rem}\
@media(prefers-color-scheme:dark){body{background:#10161c;color:#dfe7ee}pre{background:#1a232c}\
details,h2{border-color:#2b3947}}</style>\
<h1>The HTTP API</h1><p>Also as <a href=/api/openapi.json>OpenAPI</a>, for programs.";

/// The page at `/api/docs`.
pub(in crate::http) fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| {
        let mut page = HEAD.to_owned();
        for area in AREAS {
            let _ = write!(page, "<h2>{}</h2>", area.name);
            area.operations.iter().for_each(|o| show(o, &mut page));
        }
        page.push_str("<h2>Types</h2>");
        for area in AREAS.iter().filter(|area| area.schemas.len() > 2) {
            let _ = write!(page, "<pre>{}</pre>", escaped(area.schemas));
        }
        page
    })
}

fn show(operation: &Operation, page: &mut String) {
    // Writing into a text cannot fail.
    let _ = write!(
        page,
        "<details><summary><b>{}</b> <code>{}</code> {}</summary><table>",
        operation.method,
        operation.path,
        escaped(operation.summary)
    );
    let mut row = |name: &str, value: &str| {
        let _ = write!(page, "<tr><td>{name}<td>{}", escaped(value));
    };
    match operation.access {
        Access::Public => row("needs", "no key"),
        Access::Key(right, scope) => {
            let right = format!("the right to {} {}", right.name(), scope.describe());
            row("needs", &right);
        }
    }
    for parameter in operation.parameters {
        let name = format!("{} <code>{}</code>", parameter.location, parameter.name);
        let about = format!("{} {}", parameter.description, parameter.schema);
        row(&name, &about);
    }
    if let Some(body) = &operation.body {
        row("body", &body.content_types.join(", "));
        row("", body.schema);
        row("limits", "http.body_bytes_max, http.body_timeout");
    }
    match operation.wait {
        WaitLimit::None => {}
        WaitLimit::LongPoll => row("waits", "up to http.wait_max"),
        WaitLimit::Stream => row("waits", "until either side closes the stream"),
    }
    let response = &operation.response;
    row(&response.status.to_string(), response.description);
    if let Some(content) = response.content {
        row(content.content_type, content.schema);
    }
    page.push_str("</table></details>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
