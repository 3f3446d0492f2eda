//! Answers in ATOM: entries, feeds of entries with pages, and errors.

use hyper::StatusCode;
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};

use super::xml::{push_element, push_text};
use crate::http::dispatch::ApiRequest;
use crate::http::error::{Code, Error};
use crate::http::json_answer::MeteredBuffer;
use crate::http::reply::{self, Payload, Reply};
use crate::text::parameter;

const ENTRY: HeaderValue =
    HeaderValue::from_static("application/atom+xml;type=entry;charset=utf-8");
const FEED: HeaderValue = HeaderValue::from_static("application/atom+xml;type=feed;charset=utf-8");
const XML: HeaderValue = HeaderValue::from_static("application/xml; charset=utf-8");
const NAMESPACE: &str = "http://www.w3.org/2005/Atom";

/// Entries of a page, as in Service Bus.
const PAGE_ENTRIES_MAX: usize = 100;

/// An entry of an entity.
pub(super) struct Entry {
    /// From the root, without a slash: clients take names from it.
    pub(super) path: String,
    pub(super) title: String,
    /// `2026-01-01T00:00:00.000Z`
    pub(super) created: String,
    /// The description in XML.
    pub(super) content: String,
}

impl Entry {
    pub(super) fn reply(&self, request: &ApiRequest<'_>, status: StatusCode) -> Reply {
        let mut out = String::with_capacity(self.content.len() + 1024);
        self.write(&base_url(request), &mut out);
        reply::typed(status, ENTRY, Payload::whole(out))
    }

    fn write(&self, base: &str, out: &mut String) {
        out.push_str(&format!("<entry xmlns=\"{NAMESPACE}\">"));
        let url = format!("{base}/{}", self.path);
        push_element(out, "id", &url);
        out.push_str("<title type=\"text\">");
        push_text(out, &self.title);
        out.push_str("</title>");
        push_element(out, "published", &self.created);
        push_element(out, "updated", &self.created);
        out.push_str("<author><name>highwater</name></author>");
        push_link(out, "self", &url);
        out.push_str("<content type=\"application/xml\">");
        out.push_str(&self.content);
        out.push_str("</content></entry>");
    }
}

fn push_link(out: &mut String, relation: &str, url: &str) {
    out.push_str(&format!("<link rel=\"{relation}\" href=\""));
    push_text(out, url);
    out.push_str("\"/>");
}

/// The scheme and host that the client has called.
fn base_url(request: &ApiRequest<'_>) -> String {
    let host = request.head.headers.get(HOST);
    let host = host
        .and_then(|host| host.to_str().ok())
        .unwrap_or("localhost");
    format!("{}://{host}", request.scheme())
}

/// The part of a list that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    skip: usize,
    top: usize,
}

impl Page {
    /// From `$skip` and `$top`, whose dollar sign some clients encode.
    pub(super) fn of(query: Option<&str>) -> Result<Page, Error> {
        let number = |plain, encoded, default| {
            let text = parameter(query, plain).or_else(|| parameter(query, encoded));
            let Some(text) = text else {
                return Ok(default);
            };
            let shown: String = text.chars().take(20).collect();
            let wrong = |_| Error::bad(format!("{plain} is `{shown}`, and no number"), "");
            // The client of Java asks for as many as it can count.
            text.parse::<u64>()
                .map(|number| usize::try_from(number).unwrap_or(usize::MAX))
                .map_err(wrong)
        };
        let top = number("$top", "%24top", PAGE_ENTRIES_MAX)?;
        Ok(Page {
            skip: number("$skip", "%24skip", 0)?,
            top: top.min(PAGE_ENTRIES_MAX),
        })
    }

    /// The items of this page.
    pub(super) fn of_items<'a, T>(&self, items: &'a [T]) -> &'a [T] {
        let rest = items.get(self.skip..).unwrap_or_default();
        &rest[..self.top.min(rest.len())]
    }

    /// Where the next page begins, if there is one.
    fn next(&self, count: usize) -> Option<usize> {
        let next = self.skip.checked_add(self.top)?;
        (self.top > 0 && next < count).then_some(next)
    }
}

/// A feed that is written entry by entry, each counted against the budget of answers.
pub(super) struct Feed {
    buffer: MeteredBuffer,
    base: String,
}

impl Feed {
    /// Begins a feed of a list at `path` with `count` items.
    pub(super) fn begin(
        request: &ApiRequest<'_>,
        path: &str,
        page: Page,
        count: usize,
    ) -> Result<Feed, Error> {
        let base = base_url(request);
        let mut out = format!("<feed xmlns=\"{NAMESPACE}\"><title type=\"text\">");
        let url = format!("{base}/{path}");
        push_text(&mut out, path);
        out.push_str("</title>");
        push_element(&mut out, "id", &url);
        // Clients take the second link for that to the next page.
        push_link(&mut out, "self", &url);
        if let Some(skip) = page.next(count) {
            let top = page.top;
            let version = parameter(request.query(), "api-version").unwrap_or("2021-05".into());
            let next = format!("{url}?$skip={skip}&$top={top}&api-version={version}");
            push_link(&mut out, "next", &next);
        }
        let mut buffer = MeteredBuffer::new(&request.app.budget);
        buffer.append(out.as_bytes())?;
        Ok(Feed { buffer, base })
    }

    pub(super) fn push(&mut self, entry: &Entry) -> Result<(), Error> {
        let mut out = String::with_capacity(entry.content.len() + 1024);
        entry.write(&self.base, &mut out);
        self.buffer.append(out.as_bytes())
    }

    pub(super) fn finish(mut self) -> Result<Reply, Error> {
        self.buffer.append(b"</feed>")?;
        Ok(reply::typed(
            StatusCode::OK,
            FEED,
            self.buffer.into_payload(),
        ))
    }
}

/// An error as the clients of the administration API read it.
pub(in crate::http) fn error(error: &Error) -> Reply {
    let status = error.code.status();
    let sub_code = match error.code {
        Code::Exists | Code::Conflict => "SubCode=40900. ",
        Code::NotFound => "SubCode=40400. ",
        // Without this one the client of JavaScript takes a missing right for a full quota.
        Code::Forbidden => "SubCode=40301. ",
        _ => "",
    };
    let mut detail = format!("{sub_code}{}", error.message);
    if !error.hint.is_empty() {
        detail.push_str(&format!(" ({})", error.hint));
    }
    let mut out = String::from("<Error>");
    push_element(&mut out, "Code", &status.as_u16().to_string());
    push_element(&mut out, "Detail", &detail);
    out.push_str("</Error>");
    let mut reply = reply::typed(status, XML, Payload::whole(out));
    if error.code.retry() {
        let seconds = error.retry_after.as_secs_f64().ceil().max(1.0) as u64;
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A3
    #[test]
    fn a_page_has_its_items_and_knows_whether_more_follow() {
        let items: Vec<u32> = (0..250).collect();
        let page = Page::of(Some("$skip=200&$top=100&api-version=1")).unwrap();
        assert_eq!(page.of_items(&items).len(), 50);
        assert_eq!(page.next(250), None);
        let page = Page::of(Some("%24skip=100&%24top=2147483647")).unwrap();
        assert_eq!(page.of_items(&items)[0], 100);
        assert_eq!(
            (page.of_items(&items).len(), page.next(250)),
            (100, Some(200))
        );
        let page = Page::of(Some("$skip=18446744073709551615")).unwrap();
        assert!(page.of_items(&items).is_empty());
        assert_eq!(page.next(250), None);
        assert!(
            Page::of(Some("$top=0"))
                .unwrap()
                .of_items(&items)
                .is_empty()
        );
        assert!(Page::of(Some("$skip=-1")).is_err());
    }
}
