//! Refuses requests that a browser sends for pages of other sites.
//!
//! A browser remembers the key of a user, and sends it along with requests that foreign pages make. Such requests say where
//! they come from, in `Origin` and `Sec-Fetch-Site`. Other clients send neither.

use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};

use super::error::{Code, Error};

/// `allowed` are the origins of pages that may call the API.
pub(super) fn check(headers: &HeaderMap, allowed: &[String]) -> Result<(), Error> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text(ORIGIN.as_str());
    if origin.is_some_and(|origin| allowed.iter().any(|known| known == origin)) {
        return Ok(());
    }
    let is_own = |origin: &str| {
        let host = origin.split_once("://").map(|(_, host)| host);
        host.is_some() && host == text(HOST.as_str())
    };
    let site = text("sec-fetch-site");
    let foreign_site = site.is_some_and(|site| site != "same-origin" && site != "none");
    match origin {
        Some(origin) if !is_own(origin) => Err(refused(origin)),
        _ if foreign_site => Err(refused("another site")),
        _ => Ok(()),
    }
}

#[cold]
fn refused(origin: &str) -> Error {
    let message = format!("a page of {origin} may not call this node");
    let hint = "add its origin to http.allowed_origins, if you trust it";
    Error::new(Code::Forbidden, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(headers: &[(&'static str, &str)]) -> bool {
        let pairs = headers.iter().map(|(name, value)| {
            let value = value.parse().unwrap();
            (hyper::header::HeaderName::from_static(name), value)
        });
        let allowed = ["https://console.example".to_owned()];
        check(&pairs.collect(), &allowed).is_ok()
    }

    // proves U3
    #[test]
    fn requests_of_foreign_pages_are_refused() {
        let host = ("host", "hub.example:8080");
        for headers in [
            &[host][..],
            &[host, ("origin", "https://hub.example:8080")],
            &[host, ("sec-fetch-site", "none")],
            &[
                host,
                ("origin", "https://hub.example:8080"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[
                host,
                ("origin", "https://console.example"),
                ("sec-fetch-site", "cross-site"),
            ],
        ] {
            assert!(allows(headers), "{headers:?}");
        }
        for headers in [
            &[host, ("origin", "https://evil.example")][..],
            &[host, ("origin", "https://hub.example")],
            &[host, ("origin", "null")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site")],
            &[
                host,
                ("origin", "https://hub.example:8080"),
                ("sec-fetch-site", "cross-site"),
            ],
            &[("origin", "https://hub.example:8080")],
        ] {
            assert!(!allows(headers), "{headers:?}");
        }
    }
}
