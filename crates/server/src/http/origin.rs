//! Refuses requests that a browser sends for pages of other sites.
//!
//! A browser remembers the key of a user, and sends it along with requests that foreign pages make; a node without keys
//! it reaches anyway, also for pages of other servers on this machine. Such requests say where they come from, in
//! `Origin` and `Sec-Fetch-Site`. Other clients send neither.

use hyper::header::{HOST, ORIGIN};
use hyper::{HeaderMap, Method};

use super::error::{Code, Error};

/// `allowed` are the origins of pages that may call the API. A link of another site may lead to a page of the node: the
/// person sees what it answers, the site does not.
pub(super) fn check(method: &Method, headers: &HeaderMap, allowed: &[String]) -> Result<(), Error> {
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
    let follows_link = *method == Method::GET
        && text("sec-fetch-mode") == Some("navigate")
        && text("sec-fetch-dest") == Some("document");
    match origin {
        Some(origin) if !is_own(origin) => Err(refused(origin)),
        _ if foreign_site && !follows_link => Err(refused("another site")),
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
        allows_method(&Method::GET, headers)
    }

    fn allows_method(method: &Method, headers: &[(&'static str, &str)]) -> bool {
        let pairs = headers.iter().map(|(name, value)| {
            let value = value.parse().unwrap();
            (hyper::header::HeaderName::from_static(name), value)
        });
        let allowed = ["https://console.example".to_owned()];
        check(method, &pairs.collect(), &allowed).is_ok()
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

    #[test]
    fn a_link_of_another_site_leads_to_a_page_and_sends_nothing() {
        let link = [
            ("host", "hub.example:8080"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(allows_method(&Method::GET, &link));
        assert!(!allows_method(&Method::POST, &link), "a form");
        let framed = [link[0], link[1], link[2], ("sec-fetch-dest", "iframe")];
        assert!(!allows_method(&Method::GET, &framed));
    }
}
