//! Renders the calls of a definition with the data of an instance.

use std::sync::Arc;

use bytes::Bytes;
use highwater_settings::Secrets;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use super::{FunctionCall, PreparedCall, Request};
use crate::definition::{Action, Call, Service, Work};
use crate::expr::Scope;
use crate::machine::Instance;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Fills the templates. An error is final, because the data does not change.
pub(crate) fn render(instance: &Instance, step: usize, undo: bool) -> Result<PreparedCall, String> {
    let definition = &instance.definition;
    let work = work(instance, step, undo).ok_or("there is no way to undo it")?;
    let key = instance.idempotency_key(step, undo);
    match &work.action {
        Action::Call(call) => Ok(PreparedCall::Http {
            definition: Arc::clone(definition),
            service: call.service,
            of: Some((step, undo)),
            request: request(
                call,
                &definition.services[call.service],
                &instance.scope(),
                &key,
            )?,
        }),
        Action::Function(name) => Ok(PreparedCall::Function {
            name: name.clone(),
            call: FunctionCall::new(instance, key),
        }),
    }
}

/// The work of a step or of its undo.
pub(crate) fn work(instance: &Instance, step: usize, undo: bool) -> Option<&Work> {
    let definition = &instance.definition.steps[step];
    match undo {
        false => Some(&definition.work),
        true => definition.undo.as_ref(),
    }
}

fn request(
    call: &Call,
    service: &Service,
    scope: &Scope<'_>,
    key: &str,
) -> Result<Request, String> {
    let missing = |missing: crate::expr::MissingValue| missing.to_string();
    let path = call.path.url(scope)?;
    let mut headers = Vec::with_capacity(call.headers.len() + 2);
    headers.push((IDEMPOTENCY_KEY, header("Idempotency-Key", key)?));
    if let Some(body) = &call.body {
        let kind = HeaderValue::from_static(body.content_type());
        headers.push((CONTENT_TYPE, kind));
    }
    for (name, value) in &call.headers {
        let text = value.text_with_secrets(scope, &Secrets::default())?;
        let mut value = header(name, &text)?;
        value.set_sensitive(true);
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        if name == CONTENT_TYPE {
            headers.retain(|(other, _)| *other != CONTENT_TYPE);
        }
        headers.push((name, value));
    }
    let body = match &call.body {
        Some(body) => Bytes::from(body.render(scope).map_err(missing)?),
        None => Bytes::new(),
    };
    Ok(Request {
        method: Method::from_bytes(call.method.as_bytes()).map_err(|error| error.to_string())?,
        path: full_path(&service.target.base, path),
        headers,
        body,
    })
}

fn full_path(base: &str, path: String) -> String {
    match (base, path.as_str()) {
        ("", "") => "/".to_owned(),
        ("", path) if path.starts_with('?') => format!("/{path}"),
        ("", _) => path,
        (base, _) => format!("{base}{path}"),
    }
}

/// Headers hold visible ASCII; other characters of an id are percent-encoded.
fn header(name: &str, text: &str) -> Result<HeaderValue, String> {
    if let Ok(value) = HeaderValue::from_str(text) {
        return Ok(value);
    }
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte as char),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&encoded).map_err(|_| format!("the value of header {name} is not valid"))
}

/// The notice of a parked or failed instance.
pub(crate) fn notice(instance: &Instance) -> Option<PreparedCall> {
    let notify = instance.definition.notify.as_ref()?;
    let service = &instance.definition.services[notify.service];
    let key = format!(
        "{}/{}/notify/{}",
        instance.definition.name,
        instance.id,
        instance.phase.name()
    );
    let body = serde_json::to_vec(&instance.view()).ok()?;
    Some(PreparedCall::Http {
        request: Request {
            method: Method::POST,
            path: full_path(&service.target.base, notify.path.clone()),
            headers: vec![
                (IDEMPOTENCY_KEY, header("Idempotency-Key", &key).ok()?),
                (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            ],
            body: Bytes::from(body),
        },
        definition: Arc::clone(&instance.definition),
        service: notify.service,
        of: None,
    })
}
