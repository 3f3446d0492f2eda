//! Several events of one request: grouped by partition, appended concurrently.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use highwater_log::batch::NewRecord;
use highwater_log::{AppendInfo, Partition};
use hyper::StatusCode;
use serde_json::{Value, json};

use super::destination::{Destination, MemberPartition};
use super::{Event, Target, write_stored};
use crate::http::app::App;
use crate::http::error::{Code, Error};
use crate::http::reply::{self, Reply};

/// The events of a request that were appended to one partition, with consecutive offsets from `appended.offset`.
pub(super) struct PartitionAppend {
    pub(super) partition: MemberPartition,
    pub(super) appended: AppendInfo,
    /// Their indexes in the request.
    events: Vec<usize>,
}

/// Appends all events, or answers which of them were not appended.
pub(super) async fn append(
    app: &App,
    to: &Destination,
    target: &Target<'_>,
    events: &[Event<'_>],
) -> Result<Vec<PartitionAppend>, Error> {
    let shares = share(app, to, target, events)?;
    let request_key = target.key();
    let pending = shares.iter().map(|share| {
        let all = share.events.iter().flat_map(|at| &events[*at].headers);
        let all: Vec<Header<'_>> = all.map(|(name, value)| (&**name, Some(&**value))).collect();
        let mut rest = &all[..];
        let record = |at: &usize| {
            let event = &events[*at];
            let (headers, after) = rest.split_at(event.headers.len());
            rest = after;
            NewRecord {
                key: event.key.as_ref().map(|key| key.as_bytes()).or(request_key),
                value: Some(&event.value),
                headers,
            }
        };
        let records: Vec<NewRecord<'_>> = share.events.iter().map(record).collect();
        share.handle.append_records(&records)
    });
    let answers = join_all(pending).await;
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for (share, answer) in shares.into_iter().zip(answers) {
        let Share {
            partition, events, ..
        } = share;
        match answer {
            Ok(appended) => done.push(PartitionAppend {
                partition,
                appended,
                events,
            }),
            Err(error) => failed.push(PartitionFailure {
                partition,
                events,
                error: Error::from(error),
            }),
        }
    }
    match failed.is_empty() {
        true => Ok(done),
        false => Err(partial_failure(to, &done, failed)),
    }
}

/// Name and value, as a record has them.
type Header<'a> = (&'a str, Option<&'a [u8]>);

/// The events of a request for one partition.
struct Share {
    partition: MemberPartition,
    handle: Arc<dyn Partition>,
    /// Their indexes in the request.
    events: Vec<usize>,
}

/// The events of a request that were not appended to their partition.
struct PartitionFailure {
    partition: MemberPartition,
    events: Vec<usize>,
    error: Error,
}

/// Events by partition. Events without a key go to one partition together.
fn share(
    app: &App,
    to: &Destination,
    target: &Target<'_>,
    events: &[Event<'_>],
) -> Result<Vec<Share>, Error> {
    let mut shares: Vec<Share> = Vec::new();
    let mut known: BTreeMap<MemberPartition, usize> = BTreeMap::new();
    let mut without_key = None;
    for (at, event) in events.iter().enumerate() {
        let own = event.key.as_ref().map(|key| key.as_bytes());
        let key = own.or(target.key());
        let partition = match (key, without_key) {
            (None, Some(partition)) => partition,
            _ => to.partition_for(app, target, key)?,
        };
        if key.is_none() {
            without_key = Some(partition);
        }
        let index = match known.get(&partition) {
            Some(index) => *index,
            None => {
                shares.push(Share {
                    partition,
                    handle: to.handle(app, partition)?,
                    events: Vec::new(),
                });
                known.insert(partition, shares.len() - 1);
                shares.len() - 1
            }
        };
        shares[index].events.push(at);
    }
    Ok(shares)
}

/// `{"count":3,"placed":[{"partition":1,"offset":42,"enqueued":"..","events":[0,2]},..]}`; `events` is
/// left out if one partition has all events.
pub(super) fn summary(to: &Destination, count: usize, appends: &[PartitionAppend]) -> Reply {
    let mut out = Vec::with_capacity(96 + appends.len() * 96);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"{\"count\":");
    out.extend_from_slice(digits.format(count).as_bytes());
    out.extend_from_slice(b",\"placed\":[");
    for (i, part) in appends.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_stored(&mut out, to, part.partition, &part.appended);
        if appends.len() > 1 {
            out.extend_from_slice(b",\"events\":[");
            for (j, event) in part.events.iter().enumerate() {
                if j > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(digits.format(*event).as_bytes());
            }
            out.push(b']');
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    reply::json_bytes(StatusCode::CREATED, out)
}

/// The worst error, with the partitions that stored their events and those that did not.
fn partial_failure(
    to: &Destination,
    done: &[PartitionAppend],
    failed: Vec<PartitionFailure>,
) -> Error {
    let located = |partition: MemberPartition, mut facts: Value| {
        facts["partition"] = partition.partition.into();
        if let Some(hub) = to.member_name(partition) {
            facts["hub"] = hub.into();
        }
        facts
    };
    let placed = |part: &PartitionAppend| {
        let time = crate::text::time_text(part.appended.time);
        let (offset, events) = (part.appended.offset.0, &part.events);
        let facts = json!({"offset": offset, "enqueued": time, "events": events});
        located(part.partition, facts)
    };
    let lost = |failure: &PartitionFailure| {
        let (code, message) = (failure.error.code.name(), &failure.error.message);
        let facts = json!({"events": failure.events, "code": code, "message": message});
        located(failure.partition, facts)
    };
    let placed: Vec<Value> = done.iter().map(placed).collect();
    let lost: Vec<Value> = failed.iter().map(lost).collect();
    let worst = failed
        .into_iter()
        .map(|failure| failure.error)
        .max_by_key(|error| (!error.code.retry(), error.code != Code::NoRoom));
    let mut error = worst.expect("this is called when something failed");
    error.details = Some(Box::new(json!({"placed": placed, "failed": lost})));
    error
}
