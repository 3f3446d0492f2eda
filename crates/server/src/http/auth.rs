//! Authenticates the caller: by the secret or a signature of a key, or not at all on a node without keys.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};

use super::app::App;
use super::error::{Code, Error};
use highwater_access::{Key, Principal, Resource, Right, sas};

/// A claimed name may be anything; more of it is of no use.
const CLAIMED_NAME_LEN_MAX: usize = 64;

/// Refuses a caller without the right.
pub(super) fn require(caller: &Principal, right: Right, on: Resource<'_>) -> Result<(), Error> {
    if caller.may(right, on) {
        return Ok(());
    }
    let message = format!("the key has no right to {right} for {on}");
    Err(Error::new(
        Code::Forbidden,
        message,
        "use a key that has it",
    ))
}

/// Authenticates the caller; `resource` is the path that a signature must cover.
pub(super) fn authenticate(
    app: &App,
    headers: &HeaderMap,
    resource: &str,
) -> Result<Principal, Error> {
    if app.keys.is_empty() {
        return local_caller(headers);
    }
    let Some(given) = headers.get(AUTHORIZATION) else {
        return Err(refused("this needs a key"));
    };
    let given = given
        .to_str()
        .map_err(|_| refused("the Authorization header is not text"))?;
    let (scheme, rest) = given.split_once(' ').unwrap_or((given, ""));
    let key = if scheme.eq_ignore_ascii_case("SharedAccessSignature") {
        sas::verify(
            &app.keys,
            rest.trim(),
            resource,
            app.clock.unix_millis() / 1000,
        )
        .map_err(|error| refused(&error.to_string()))?
    } else if scheme.eq_ignore_ascii_case("Basic") {
        let pair = STANDARD.decode(rest.trim()).map_err(|_| wrong())?;
        authenticate_pair(app, &String::from_utf8(pair).map_err(|_| wrong())?)?
    } else if scheme.eq_ignore_ascii_case("Bearer") {
        authenticate_bearer(app, rest.trim())?
    } else {
        return Err(refused("the Authorization header has an unknown scheme"));
    };
    Ok(Principal::Key(key))
}

/// `name:secret`, or a token of an identity provider, which has no colon.
fn authenticate_bearer(app: &App, bearer: &str) -> Result<Arc<Key>, Error> {
    match app.tokens() {
        Some(tokens) if !bearer.contains(':') => tokens
            .verify(bearer, app.clock.unix_millis())
            .map_err(|error| refused(&error.to_string())),
        _ => authenticate_pair(app, bearer),
    }
}

fn authenticate_pair(app: &App, pair: &str) -> Result<Arc<Key>, Error> {
    let (name, secret) = pair.split_once(':').ok_or_else(wrong)?;
    app.keys
        .authenticate(name, secret.as_bytes(), app.clock.unix_millis())
        .ok_or_else(wrong)
}

/// The name of the key that a request claims to have, for the audit log.
pub(super) fn claimed_name(headers: &HeaderMap) -> String {
    let given = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let (scheme, rest) = given
        .unwrap_or_default()
        .split_once(' ')
        .unwrap_or_default();
    let decoded = match scheme.eq_ignore_ascii_case("Basic") {
        true => STANDARD
            .decode(rest.trim())
            .ok()
            .and_then(|pair| String::from_utf8(pair).ok()),
        false => Some(rest.to_owned()),
    };
    let decoded = decoded.unwrap_or_default();
    let signer = decoded
        .split('&')
        .find_map(|part| part.strip_prefix("skn="));
    let name = signer.or_else(|| decoded.split_once(':').map(|(name, _)| name));
    name.unwrap_or_default()
        .chars()
        .take(CLAIMED_NAME_LEN_MAX)
        .collect()
}

fn wrong() -> Error {
    refused("the key or its secret is wrong")
}

fn refused(message: &str) -> Error {
    let hint = "send Authorization: Basic or Bearer with name:secret, or a SharedAccessSignature";
    Error::new(Code::Unauthorized, message, hint)
}

/// A node without keys listens on this machine only, but a browser there runs scripts of foreign sites. Their requests have
/// a foreign origin, or a host name that was rebound to this machine.
fn local_caller(headers: &HeaderMap) -> Result<Principal, Error> {
    let foreign = |name: HeaderName| {
        let value = headers.get(name)?.to_str().unwrap_or("?");
        (!is_local(value)).then(|| value.to_owned())
    };
    match foreign(HOST).or_else(|| foreign(ORIGIN)) {
        None => Ok(Principal::Trusted),
        Some(name) => Err(Error::new(
            Code::Forbidden,
            format!("a node without keys does not answer requests for or from `{name}`"),
            "use http://127.0.0.1 or http://localhost, or give the node keys",
        )),
    }
}

/// Whether a host, with or without scheme and port, is this machine.
fn is_local(host: &str) -> bool {
    let host = host.split_once("://").map_or(host, |(_, rest)| rest);
    if let Some(rest) = host.strip_prefix("[::1]") {
        return rest.is_empty() || rest.starts_with(':');
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8080",
            "127.1.2.3",
            "[::1]:1",
            "http://localhost:3",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]",
            "",
            "null",
            "http://evil:1",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
