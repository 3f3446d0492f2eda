//! Login and logout of people.

use highwater_access::AuditEvent;
use highwater_console::login::Login;
use hyper::header::{HeaderValue, SET_COOKIE};
use hyper::{Method, StatusCode};

use super::{accepts_html, check_enabled, html, redirect};
use crate::http::auth::wrong_key;
use crate::http::dispatch::{ApiRequest, delay_wrong_login};
use crate::http::error::{Code, Error};
use crate::http::operations::ROUTES;
use crate::http::origin;
use crate::http::reply::{self, Reply};
use crate::text::form_field;

/// Longer names and secrets are no key of a node.
const FIELD_LEN_MAX: usize = 4096;

pub(in crate::http) async fn login_page(request: ApiRequest<'_>) -> Result<Reply, Error> {
    check_enabled(request.app)?;
    let next = own_path(request.query().and_then(|query| form_field(query, "next")));
    let session = request
        .app
        .console
        .sessions
        .of_request(&request.head.headers, request.app);
    if request.app.keys.is_empty() || session.is_some() {
        return Ok(redirect(&next));
    }
    let login = Login {
        next,
        ..Login::default()
    };
    Ok(html(StatusCode::OK, login.page()))
}

pub(in crate::http) async fn log_in(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    check_enabled(request.app)?;
    // The caller of a public operation is not checked before.
    origin::check(&request.head.method, &request.head.headers, &[])?;
    let app = request.app;
    let (body, _share) = request.read_body().await?;
    let form = std::str::from_utf8(&body).unwrap_or_default();
    let (Some(name), Some(secret)) = (field(form, "name"), field(form, "secret")) else {
        let hint = "send name=..&secret=.. as application/x-www-form-urlencoded";
        return Err(Error::bad("a login needs a name and a secret", hint));
    };
    let next = own_path(field(form, "next"));
    let now_ms = app.clock.unix_millis();
    let authenticated = app.keys.authenticate(&name, secret.as_bytes(), now_ms);
    match authenticated.await {
        Some(key) => {
            let failed = |error: std::io::Error| {
                Error::new(Code::Internal, error.to_string(), "see the log of the node")
            };
            let cookie = app.console.sessions.open(key, app).map_err(failed)?;
            app.audit(AuditEvent {
                who: name,
                from: Some(request.peer()),
                operation: "login".into(),
                resource: String::new(),
                outcome: "ok".into(),
            });
            Ok(with_cookie(redirect(&next), &cookie))
        }
        None => {
            delay_wrong_login(app, request.peer(), &name).await;
            let error = wrong_key();
            if !accepts_html(request.head) {
                return Err(error);
            }
            let login = Login {
                next,
                name,
                error: Some(format!("{} ({})", error.message, error.code.name())),
            };
            Ok(html(StatusCode::UNAUTHORIZED, login.page()))
        }
    }
}

/// Whether the caller is logged in: any answer proves it.
pub(in crate::http) async fn session(_: ApiRequest<'_>) -> Result<Reply, Error> {
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

pub(in crate::http) async fn log_out(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let app = request.app;
    let reply = reply::empty(StatusCode::NO_CONTENT);
    match app.console.sessions.of_request(&request.head.headers, app) {
        Some(session) => Ok(with_cookie(
            reply,
            &app.console.sessions.close(&session, app),
        )),
        None => Ok(reply),
    }
}

fn with_cookie(mut reply: Reply, cookie: &str) -> Reply {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        reply.headers_mut().insert(SET_COOKIE, cookie);
    }
    reply
}

/// A field of the posted form.
fn field(form: &str, name: &str) -> Option<String> {
    form_field(form, name).filter(|value| value.len() <= FIELD_LEN_MAX)
}

/// A page of the console to go to after the login; anything else is the overview.
fn own_path(next: Option<String>) -> String {
    let next = next.unwrap_or_default();
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let plain = next.starts_with('/')
        && !next.starts_with("//")
        && next
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let route = ROUTES.find(&Method::GET, path);
    match route {
        Ok(route) if plain && route.operation.is_page() => next,
        _ => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U3
    #[test]
    fn a_login_leads_only_to_pages_of_the_console() {
        let to = |next: &str| own_path(Some(next.into()));
        for own in ["/", "/console/jobs", "/console/jobs?state=failed"] {
            assert_eq!(to(own), own);
        }
        for other in [
            "https://evil.example/",
            "//evil.example/console/jobs",
            "/\\evil.example",
            "console/jobs",
            "/api/jobs",
            "/console/login",
            "/console/assets/shell.js",
            "/console/jobs\r\nset-cookie: a=b",
            "javascript:alert(1)",
            "",
        ] {
            assert_eq!(to(other), "/", "{other}");
        }
    }
}
