//! Posted events: detects the form of the body, chooses partitions, appends and answers.
//!
//! The answer follows the durable append. Events of one request for one partition are stored together or not at all;
//! events with several keys may go to several partitions, and then the answer lists the partitions that stored theirs.

mod batch;
mod cloudevents;
mod destination;
mod eventhubs;
mod lines;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use highwater_log::AppendInfo;
use highwater_log::batch::NewRecord;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::json::write_position;
use super::reply::{self, Reply};
use crate::text::{parameter, percent_decode};

pub(super) use destination::{Destination, MemberPartition, no_partition};
pub(super) use eventhubs::Dialect;

/// The partition of the events, as far as the path of the request has it.
#[derive(Clone, Copy)]
pub(super) enum PathTarget {
    Any,
    /// The second variable is the number of the partition.
    Partition,
    /// The second variable is the key.
    Publisher,
}

/// The partition that a request chooses for its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// By the key of each event, else round-robin.
    Any,
    Key(Cow<'a, str>),
    /// The key of the request is stored and does not choose the partition.
    Partition {
        number: u32,
        key: Option<Cow<'a, str>>,
    },
}

impl<'a> Target<'a> {
    /// The key of events without one of their own.
    fn key(&self) -> Option<&[u8]> {
        match self {
            Target::Any => None,
            Target::Key(key) => Some(key.as_bytes()),
            Target::Partition { key, .. } => key.as_ref().map(|key| key.as_bytes()),
        }
    }

    fn partition(id: &str, key: Option<Cow<'a, str>>) -> Result<Target<'a>, Error> {
        let number = id.parse().map_err(|_| {
            Error::bad(
                format!("`{id}` is no partition"),
                "partitions are numbered from 0",
            )
        })?;
        Ok(Target::Partition { number, key })
    }
}

/// An event as a request holds it, mostly borrowed from the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event<'a> {
    key: Option<Cow<'a, str>>,
    value: Cow<'a, [u8]>,
    headers: Vec<(Cow<'a, str>, Cow<'a, [u8]>)>,
}

/// The header with the key of the events.
pub(super) const KEY_HEADER: &str = "x-partition-key";

/// Appends the events in the body to the hub in the path.
pub(super) async fn send(
    mut request: ApiRequest<'_>,
    dialect: Dialect,
    target: PathTarget,
) -> Result<Reply, Error> {
    let (app, head) = (request.app, request.head);
    let target = match target {
        PathTarget::Any => None,
        PathTarget::Partition => {
            let [_, id] = request.variables();
            Some(Target::partition(id, dialect.key(head)?)?)
        }
        PathTarget::Publisher => {
            let [_, name] = request.variables();
            Some(Target::Key(percent_decode(name)))
        }
    };
    let hub = request.variables.first().unwrap_or_default();
    let to = app.destination_to_send(hub, &request.caller).await?;
    let target = match target {
        Some(target) => target,
        None => dialect.key(head)?.map_or(Target::Any, Target::Key),
    };
    let (body, _share) = request.read_body().await?;
    let appender = Appender {
        app,
        to: &to,
        target: &target,
        dialect,
    };
    match form(&head.headers, &body) {
        Form::One(content_type) => {
            let content_type = content_type.map(|kind| ("content-type", Some(kind)));
            match dialect {
                Dialect::Highwater => appender.send_one(&body, content_type.as_slice()).await,
                Dialect::EventHubs => {
                    let properties = eventhubs::properties(&head.headers);
                    let headers: Vec<_> = content_type.into_iter().chain(properties).collect();
                    appender.send_one(&body, &headers).await
                }
            }
        }
        Form::CloudEvent => {
            let event = cloudevents::binary(&head.headers, &body)?;
            appender.send_batch(vec![event], true).await
        }
        Form::CloudEventObject => {
            let event = cloudevents::structured(&body)?;
            appender.send_batch(vec![event], true).await
        }
        Form::CloudEventArray => {
            let events = cloudevents::batched(&body)?;
            appender.send_batch(events, false).await
        }
        Form::Lines => appender.send_batch(lines::lines(&body)?, false).await,
        Form::Array => appender.send_batch(lines::array(&body)?, false).await,
        Form::EventHubsArray => appender.send_batch(eventhubs::batch(&body)?, false).await,
    }
}

/// The form of a body.
#[derive(Debug, PartialEq, Eq)]
enum Form<'a> {
    /// One event, with its content type if it means one.
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
        // curl sends this by default.
        let meant = !is("application/x-www-form-urlencoded");
        Form::One(kind.filter(|_| meant))
    }
}

/// Where the events of a request go, and how it is answered.
struct Appender<'a> {
    app: &'a App,
    to: &'a Destination,
    target: &'a Target<'a>,
    dialect: Dialect,
}

impl Appender<'_> {
    /// One event: the common case, and the one that has to be cheap.
    async fn send_one(
        &self,
        value: &[u8],
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<Reply, Error> {
        let Appender {
            app, to, target, ..
        } = *self;
        check_size(app, value.len())?;
        let key = target.key();
        let partition = to.partition_for(app, target, key)?;
        let record = NewRecord {
            key,
            value: Some(value),
            headers,
        };
        let handle = to.handle(app, partition)?;
        let appended = handle.append_records(&[record]).await?;
        app.metrics.record_append(1, value.len());
        let reply = || stored_one(to, partition, &appended);
        Ok(self.dialect.stored(reply))
    }

    /// `single`: the answer is that of one event.
    async fn send_batch(&self, events: Vec<Event<'_>>, single: bool) -> Result<Reply, Error> {
        let Appender {
            app, to, target, ..
        } = *self;
        if events.is_empty() {
            let hint = "send at least one event";
            return Err(Error::new(Code::BadEvent, "the body holds no event", hint));
        }
        for event in &events {
            check_size(app, event.value.len())?;
        }
        let appends = batch::append(app, to, target, &events).await?;
        let bytes = events.iter().map(|event| event.value.len()).sum();
        app.metrics.record_append(events.len(), bytes);
        Ok(self.dialect.stored(|| match &appends[..] {
            [only] if single => stored_one(to, only.partition, &only.appended),
            all => batch::summary(to, events.len(), all),
        }))
    }
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
fn stored_one(to: &Destination, partition: MemberPartition, appended: &AppendInfo) -> Reply {
    let mut out = Vec::with_capacity(96);
    write_stored(&mut out, to, partition, appended);
    out.push(b'}');
    reply::json_bytes(StatusCode::CREATED, out)
}

/// Without the closing brace, so that more can follow.
fn write_stored(
    out: &mut Vec<u8>,
    to: &Destination,
    partition: MemberPartition,
    appended: &AppendInfo,
) {
    let hub = to.member_name(partition);
    let number = partition.partition;
    write_position(out, hub, number, appended.offset, appended.time);
}

/// The key that a request gives all its events.
fn request_key(head: &Parts) -> Result<Option<Cow<'_, str>>, Error> {
    if let Some(value) = head.headers.get(KEY_HEADER) {
        let text = std::str::from_utf8(value.as_bytes());
        let wrong = |_| Error::bad(format!("{KEY_HEADER} is not UTF-8"), "send UTF-8");
        return text.map(|text| Some(Cow::Borrowed(text))).map_err(wrong);
    }
    Ok(parameter(head.uri.query(), "key"))
}
