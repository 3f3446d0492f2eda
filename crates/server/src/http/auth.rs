//! Who is asking: a key proven by its secret or by a signature, or anybody where there are no keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};

use super::app::App;
use super::error::{Code, Error};
use crate::keys::{Key, Right, sas};

/// Who is asking.
#[derive(Clone, Copy, Debug)]
pub enum Caller<'a> {
    /// The caller of a public operation, who has no rights.
    Anonymous,
    /// A node without keys trusts everyone who can connect.
    Anybody,
    Holder(&'a Key),
}

impl Caller<'_> {
    pub fn may(&self, right: Right, hub: Option<&str>) -> bool {
        match self {
            Caller::Anonymous => false,
            Caller::Anybody => true,
            Caller::Holder(key) => key.may(right, hub),
        }
    }

    /// The right over at least one hub.
    pub(super) fn must_somewhere(&self, right: Right) -> Result<(), Error> {
        match self {
            Caller::Holder(key) if key.rights.has(right) => Ok(()),
            _ => self.must(right, None),
        }
    }

    pub fn must(&self, right: Right, hub: Option<&str>) -> Result<(), Error> {
        if self.may(right, hub) {
            return Ok(());
        }
        let of = hub.map_or_else(|| "this node".to_owned(), |hub| format!("hub `{hub}`"));
        let message = format!("the key has no right to {} for {of}", right.name());
        Err(Error::new(
            Code::Forbidden,
            message,
            "use a key that has it",
        ))
    }
}

/// `resource` is what a signature must cover.
pub fn caller<'a>(app: &'a App, headers: &HeaderMap, resource: &str) -> Result<Caller<'a>, Error> {
    if app.keys.is_open() {
        return local(headers);
    }
    let Some(given) = headers.get(AUTHORIZATION) else {
        return Err(refused("this needs a key"));
    };
    let given = given
        .to_str()
        .map_err(|_| refused("the Authorization header is not text"))?;
    let (scheme, rest) = given.split_once(' ').unwrap_or((given, ""));
    let key = if scheme.eq_ignore_ascii_case("SharedAccessSignature") {
        sas::verify(&app.keys, rest.trim(), resource, app.now_seconds())
            .map_err(|error| refused(&error.to_string()))?
    } else if scheme.eq_ignore_ascii_case("Basic") {
        let pair = STANDARD.decode(rest.trim()).map_err(|_| wrong())?;
        prove(app, &String::from_utf8(pair).map_err(|_| wrong())?)?
    } else if scheme.eq_ignore_ascii_case("Bearer") {
        prove(app, rest.trim())?
    } else {
        return Err(refused(
            "the Authorization header has a scheme that is not known here",
        ));
    };
    Ok(Caller::Holder(key))
}

fn prove<'a>(app: &'a App, pair: &str) -> Result<&'a Key, Error> {
    let (name, secret) = pair.split_once(':').ok_or_else(wrong)?;
    app.keys.prove(name, secret.as_bytes()).ok_or_else(wrong)
}

fn wrong() -> Error {
    refused("the key or its secret is wrong")
}

fn refused(message: &str) -> Error {
    let hint = "send Authorization: Basic or Bearer with name:secret, or a SharedAccessSignature";
    Error::new(Code::Unauthorized, message, hint)
}

/// A node without keys listens on this machine only, but a browser on it runs the scripts of
/// strangers. Their requests come with a foreign origin, or by a name that was bent to point here.
fn local<'a>(headers: &HeaderMap) -> Result<Caller<'a>, Error> {
    let stranger = |name: HeaderName| {
        let value = headers.get(name)?.to_str().unwrap_or("?");
        (!is_local(value)).then(|| value.to_owned())
    };
    match stranger(HOST).or_else(|| stranger(ORIGIN)) {
        None => Ok(Caller::Anybody),
        Some(name) => Err(Error::new(
            Code::Forbidden,
            format!("a node without keys does not answer requests for or from `{name}`"),
            "use http://127.0.0.1 or http://localhost, or give the node keys",
        )),
    }
}

/// A host with or without scheme and port.
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
