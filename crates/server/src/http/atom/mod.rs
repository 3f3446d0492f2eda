//! The administration API of Service Bus, which the administration clients of Microsoft's SDKs call: queues, topics,
//! subscriptions and rules as ATOM entries.
//!
//! The operations are rows of the table like all others (`operations/atom.rs`): rights, limits and audit follow from
//! it. A client that names an `api-version` gets errors in the form that it reads. Names are found in any case, as over
//! AMQP; the right is checked again for the name that was found.

mod answer;
mod description;
mod duration;
pub(super) mod entities;
mod rule;
pub(super) mod rules;
pub(super) mod subscriptions;
mod xml;

pub(super) use answer::error;
pub(super) use description::Described;

use highwater_log::EnqueueTime;

use super::dispatch::ApiRequest;
use super::error::Error;
use crate::text::time_text;
use xml::Element;

const PAGE: &str = "docs/servicebus.md has the administration API";

/// Whether a request has the form of this API.
pub(super) fn is_atom_request(query: Option<&str>) -> bool {
    crate::text::parameter(query, "api-version").is_some()
}

/// The description in the entry that a client has sent.
async fn read_description(request: &mut ApiRequest<'_>, names: &[&str]) -> Result<Element, Error> {
    let (body, _share) = request.read_body().await?;
    let wrong = |message: String| Error::bad(message, PAGE);
    let entry = Element::parse(&body).map_err(|error| wrong(error.to_string()))?;
    let content = entry.child("content");
    let content = content.ok_or_else(|| wrong("the entry has no content".to_owned()))?;
    let mut described = content.children().iter();
    let found = described.find(|child| names.contains(&child.name.as_str()));
    let missing = || wrong(format!("the content has no {}", names.join(" or ")));
    found.cloned().ok_or_else(missing)
}

/// Whether a request changes an entity; otherwise it creates one.
fn is_update(request: &ApiRequest<'_>) -> bool {
    request.head.headers.contains_key(hyper::header::IF_MATCH)
}

/// A time in answers. Unknown times are the beginning of 1970.
fn time(at_ms: Option<i64>) -> String {
    time_text(EnqueueTime(at_ms.unwrap_or(0)))
}

/// The item of a name, else the only one whose name differs in case alone.
fn find_named<T>(items: Vec<T>, name: &str, name_of: impl Fn(&T) -> &str) -> Option<T> {
    let exact = items.iter().position(|item| name_of(item) == name);
    let alike = |item: &T| name_of(item).eq_ignore_ascii_case(name);
    let at = exact.or_else(|| {
        let first = items.iter().position(&alike)?;
        let is_only = items.iter().filter(|item| alike(item)).count() == 1;
        is_only.then_some(first)
    })?;
    items.into_iter().nth(at)
}
