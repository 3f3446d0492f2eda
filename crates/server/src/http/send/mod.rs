//! Events in: finds out what form a body has, picks partitions, appends and answers.
//!
//! The answer comes when the events are durable. Events of one request for one partition are stored
//! together or not at all; a request whose events have several keys may reach several partitions,
//! and then says which of them took theirs.

mod batch;
mod cloudevents;
mod destination;
mod eventhubs;
mod lines;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use highwater_log::Appended;
use highwater_log::batch::NewRecord;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};

use super::app::App;
use super::body;
use super::error::{Code, Error};
use super::json::write_where;
use super::reply::{self, Reply};
use crate::text::parameter;

pub use destination::{Destination, Spot, no_partition};
pub use eventhubs::Way;

/// Where the request itself wants its events to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// By the key of each event, else wherever.
    Any,
    Key(Cow<'a, str>),
    Partition(u32),
}

impl Target<'_> {
    pub fn partition(id: &str) -> Result<Target<'static>, Error> {
        let number = id.parse().map_err(|_| {
            Error::bad(
                format!("`{id}` is no partition"),
                "partitions are numbered from 0",
            )
        })?;
        Ok(Target::Partition(number))
    }
}

/// An event as a request holds it, mostly borrowed from the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    pub key: Option<Cow<'a, str>>,
    pub value: Cow<'a, [u8]>,
    pub headers: Vec<(Cow<'a, str>, Cow<'a, [u8]>)>,
}

/// The header of the key of a request's events.
pub const KEY_HEADER: &str = "x-partition-key";

pub async fn send(
    app: &App,
    to: &Destination,
    target: Target<'_>,
    way: Way,
    head: &Parts,
    incoming: Incoming,
) -> Result<Reply, Error> {
    let target = match target {
        Target::Any => way.key(head)?.map_or(Target::Any, Target::Key),
        given => given,
    };
    let (body, _permit) = body::read(app, incoming).await?;
    match form(&head.headers, &body) {
        Form::One(kind) => {
            let kind = kind.map(|kind| ("content-type", Some(kind)));
            match way {
                Way::Own => one(app, to, &target, way, &body, kind.as_slice()).await,
                Way::EventHubs => {
                    let properties = eventhubs::properties(&head.headers);
                    let headers: Vec<_> = kind.into_iter().chain(properties).collect();
                    one(app, to, &target, way, &body, &headers).await
                }
            }
        }
        Form::CloudEvent => {
            let event = cloudevents::binary(&head.headers, &body)?;
            several(app, to, &target, way, vec![event], true).await
        }
        Form::CloudEventObject => {
            let event = cloudevents::structured(&body)?;
            several(app, to, &target, way, vec![event], true).await
        }
        Form::CloudEventArray => {
            let events = cloudevents::batched(&body)?;
            several(app, to, &target, way, events, false).await
        }
        Form::Lines => several(app, to, &target, way, lines::lines(&body)?, false).await,
        Form::Array => several(app, to, &target, way, lines::array(&body)?, false).await,
        Form::EventHubsArray => {
            let events = eventhubs::batch(&body)?;
            several(app, to, &target, way, events, false).await
        }
    }
}

/// What a body holds.
#[derive(Debug, PartialEq, Eq)]
enum Form<'a> {
    /// One event, with its content type if it says something.
    One(Option<&'a [u8]>),
    Lines,
    Array,
    /// Attributes in headers.
    CloudEvent,
    CloudEventObject,
    CloudEventArray,
    EventHubsArray,
}

fn form<'a>(headers: &'a HeaderMap, body: &[u8]) -> Form<'a> {
    let kind = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let bare = |kind: &'a [u8]| {
        kind.split(|byte| *byte == b';')
            .next()
            .unwrap_or(kind)
            .trim_ascii()
    };
    let is = |name: &str| kind.is_some_and(|kind| bare(kind).eq_ignore_ascii_case(name.as_bytes()));
    if is("application/x-ndjson") || is("application/jsonl") {
        Form::Lines
    } else if is("application/cloudevents+json") {
        Form::CloudEventObject
    } else if is("application/cloudevents-batch+json") {
        Form::CloudEventArray
    } else if is("application/vnd.microsoft.servicebus.json") {
        Form::EventHubsArray
    } else if headers.contains_key("ce-specversion") {
        Form::CloudEvent
    } else if is("application/json") && body.trim_ascii_start().starts_with(b"[") {
        Form::Array
    } else {
        // What curl says when it was told nothing.
        let meant = !is("application/x-www-form-urlencoded");
        Form::One(kind.filter(|_| meant))
    }
}

/// The common case, and the one that has to be cheap.
async fn one(
    app: &App,
    to: &Destination,
    target: &Target<'_>,
    way: Way,
    value: &[u8],
    headers: &[(&str, Option<&[u8]>)],
) -> Result<Reply, Error> {
    check_size(app, value.len())?;
    let key = match target {
        Target::Key(key) => Some(key.as_bytes()),
        _ => None,
    };
    let spot = to.spot(app, target, key)?;
    let record = NewRecord {
        key,
        value: Some(value),
        headers,
    };
    let partition = to.partition(app, spot)?;
    let appended = partition.append_records(&[record]).await?;
    app.metrics.stored(1, value.len());
    Ok(way.done(|| placed(to, spot, &appended)))
}

async fn several(
    app: &App,
    to: &Destination,
    target: &Target<'_>,
    way: Way,
    events: Vec<Event<'_>>,
    single: bool,
) -> Result<Reply, Error> {
    if events.is_empty() {
        let hint = "send at least one event";
        return Err(Error::new(Code::BadEvent, "the body holds no event", hint));
    }
    for event in &events {
        check_size(app, event.value.len())?;
    }
    let done = batch::append(app, to, target, &events).await?;
    let bytes = events.iter().map(|event| event.value.len()).sum();
    app.metrics.stored(events.len(), bytes);
    Ok(way.done(|| match &done[..] {
        [only] if single => placed(to, only.spot, &only.appended),
        all => batch::summary(to, events.len(), all),
    }))
}

fn check_size(app: &App, bytes: usize) -> Result<(), Error> {
    let max = app.options.event_bytes_max;
    match bytes <= max {
        true => Ok(()),
        false => Err(Error::new(
            Code::TooLarge,
            format!("an event of {bytes} bytes is larger than {max}"),
            "store the payload elsewhere and send a reference, or raise http.event_bytes_max",
        )),
    }
}

/// `{"partition":1,"offset":42,"enqueued":"2026-11-15T12:11:04.123Z"}`
fn placed(to: &Destination, spot: Spot, appended: &Appended) -> Reply {
    let mut out = Vec::with_capacity(96);
    write_placed(&mut out, to, spot, appended);
    out.push(b'}');
    reply::json_bytes(StatusCode::CREATED, out)
}

/// Without the closing brace, so that more can follow.
fn write_placed(out: &mut Vec<u8>, to: &Destination, spot: Spot, appended: &Appended) {
    let hub = to.told(spot);
    write_where(out, hub, spot.partition, appended.offset, appended.time);
}

/// The key that a request of our own form gives all its events.
fn own_key(head: &Parts) -> Result<Option<Cow<'_, str>>, Error> {
    if let Some(value) = head.headers.get(KEY_HEADER) {
        let text = std::str::from_utf8(value.as_bytes());
        let wrong = |_| Error::bad(format!("{KEY_HEADER} is not UTF-8"), "send UTF-8");
        return text.map(|text| Some(Cow::Borrowed(text))).map_err(wrong);
    }
    Ok(parameter(head.uri.query(), "key"))
}
