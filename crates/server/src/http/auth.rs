//! Authenticates the caller: by the secret or a signature of a key, by a token or a certificate that names a key, by
//! the session of a browser, or not at all on a node without keys.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use hyper::http::request::Parts;

use super::app::App;
use super::console::CSRF_HEADER;
use super::error::{Code, Error};
use crate::text::is_local;
use highwater_access::{ClientCertificate, EverybodyRules, Key, Principal, Resource, Right, sas};

/// Claimed names are cut to this length, because they may be anything.
pub(super) const CLAIMED_NAME_LEN_MAX: usize = 64;

/// A certificate may have many names; the first ones tell which it is.
const CERTIFICATE_NAMES_SHOWN: usize = 4;

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

/// A request whose caller is not known yet.
pub(super) struct SignedRequest<'a> {
    pub(super) head: &'a Parts,
    /// The path that a signature must cover.
    pub(super) resource: &'a str,
    /// It is of the administration API of Service Bus, whose clients sign paths in any case.
    pub(super) is_atom: bool,
}

impl SignedRequest<'_> {
    /// The key that signed the token.
    fn verify(&self, app: &App, token: &str) -> Result<Arc<Key>, sas::SasError> {
        let now_seconds = app.clock.unix_millis() / 1000;
        match self.is_atom {
            false => sas::verify(&app.keys, token, self.resource, now_seconds),
            true => {
                let grant = sas::verify_signature(&app.keys, token, now_seconds)?;
                match grant.covers_ignoring_case(self.resource) {
                    true => Ok(grant.key),
                    false => Err(sas::SasError::OtherResource),
                }
            }
        }
    }
}

pub(super) async fn authenticate(
    app: &App,
    request: SignedRequest<'_>,
    certificate: Option<&ClientCertificate>,
) -> Result<Principal, Error> {
    let head = request.head;
    if app.keys.is_empty() {
        return local_caller(&head.headers);
    }
    let Some(given) = head.headers.get(AUTHORIZATION) else {
        return authenticate_session(app, head, certificate).map(Principal::Key);
    };
    let given = given
        .to_str()
        .map_err(|_| refused("the Authorization header is not text"))?;
    let (scheme, rest) = given.split_once(' ').unwrap_or((given, ""));
    let key = if scheme.eq_ignore_ascii_case("SharedAccessSignature") {
        let verified = request.verify(app, rest.trim());
        verified.map_err(|error| refused(&error.to_string()))?
    } else if scheme.eq_ignore_ascii_case("Basic") {
        let pair = STANDARD.decode(rest.trim()).map_err(|_| wrong_key())?;
        authenticate_pair(app, &String::from_utf8(pair).map_err(|_| wrong_key())?).await?
    } else if scheme.eq_ignore_ascii_case("Bearer") {
        authenticate_bearer(app, rest.trim()).await?
    } else {
        return Err(refused("the Authorization header has an unknown scheme"));
    };
    Ok(Principal::Key(key))
}

/// The key of a browser's session, or of the client's certificate. A request of a session that changes something
/// carries the session's token too.
fn authenticate_session(
    app: &App,
    head: &Parts,
    certificate: Option<&ClientCertificate>,
) -> Result<Arc<Key>, Error> {
    let Some(session) = app.console.sessions.of_request(&head.headers, app) else {
        return authenticate_certificate(app, certificate);
    };
    if head.method.is_safe() || session.has_token(&head.headers) {
        return Ok(session.key);
    }
    Err(Error::new(
        Code::Forbidden,
        "the request lacks the token of its session",
        format!("send the session's token in {CSRF_HEADER}, or a key in Authorization"),
    ))
}

fn authenticate_certificate(
    app: &App,
    certificate: Option<&ClientCertificate>,
) -> Result<Arc<Key>, Error> {
    let certificate = certificate.ok_or_else(|| refused("this needs a key"))?;
    let key = app
        .keys
        .of_certificate(certificate, app.clock.unix_millis());
    key.ok_or_else(|| {
        let names = certificate.names.iter().take(CERTIFICATE_NAMES_SHOWN);
        let names: Vec<&str> = names.map(String::as_str).collect();
        let names = names.join(", ");
        refused(&format!(
            "no key lists the certificate of the client ({names})"
        ))
    })
}

/// Whether a request carries credentials: an Authorization header or an open session.
pub(super) fn has_credentials(app: &App, headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) || app.console.sessions.of_request(headers, app).is_some()
}

/// `name:secret`, or a token of an identity provider, which has no colon.
async fn authenticate_bearer(app: &App, bearer: &str) -> Result<Arc<Key>, Error> {
    match app.tokens() {
        Some(tokens) if !bearer.contains(':') => tokens
            .verify(bearer, app.clock.unix_millis())
            .await
            .map(|login| login.key)
            .map_err(|error| refused(&error.to_string())),
        _ => authenticate_pair(app, bearer).await,
    }
}

async fn authenticate_pair(app: &App, pair: &str) -> Result<Arc<Key>, Error> {
    let (name, secret) = pair.split_once(':').ok_or_else(wrong_key)?;
    app.keys
        .authenticate(name, secret.as_bytes(), app.clock.unix_millis())
        .await
        .ok_or_else(wrong_key)
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
    name.unwrap_or_default().to_owned()
}

pub(super) fn wrong_key() -> Error {
    refused("the key or its secret is wrong")
}

fn refused(message: &str) -> Error {
    let hint = "send Authorization: Basic or Bearer with name:secret, or a SharedAccessSignature";
    Error::new(Code::Unauthorized, message, hint)
}

/// A node without keys listens on this machine only, but a browser there runs scripts of foreign sites. Their requests
/// have a foreign origin, or a host name that was rebound to this machine.
pub(super) fn local_caller(headers: &HeaderMap) -> Result<Principal, Error> {
    let foreign = |name: HeaderName| {
        let value = headers.get(name)?.to_str().unwrap_or("?");
        (!is_local(value)).then(|| value.to_owned())
    };
    match foreign(HOST).or_else(|| foreign(ORIGIN)) {
        None => Ok(Principal::Trusted(EverybodyRules::default())),
        Some(name) => Err(Error::new(
            Code::Forbidden,
            format!("a node without keys does not answer requests for or from `{name}`"),
            "use http://127.0.0.1 or http://localhost, or give the node keys",
        )),
    }
}
