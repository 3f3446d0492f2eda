//! Several events of one request: grouped by partition, appended side by side.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use highwater_log::batch::NewRecord;
use highwater_log::{Appended, Partition};
use hyper::StatusCode;
use serde_json::{Value, json};

use super::destination::{Destination, Spot};
use super::{Event, Target, write_placed};
use crate::http::app::App;
use crate::http::error::{Code, Error};
use crate::http::reply::{self, Reply};

/// The events of a request that went to one partition: the first got `appended.offset`, the next the
/// one after it, and so on.
pub struct Placed {
    pub spot: Spot,
    pub appended: Appended,
    /// Their places in the request.
    pub events: Vec<usize>,
}

/// Appends all events, or says which of them were not.
pub async fn append(
    app: &App,
    to: &Destination,
    target: &Target<'_>,
    events: &[Event<'_>],
) -> Result<Vec<Placed>, Error> {
    let shares = share(app, to, target, events)?;
    let request_key = match target {
        Target::Key(key) => Some(key.as_bytes()),
        _ => None,
    };
    let pending = shares.iter().map(|(_, handle, places)| {
        let all = places.iter().flat_map(|at| &events[*at].headers);
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
        let records: Vec<NewRecord<'_>> = places.iter().map(record).collect();
        handle.append_records(&records)
    });
    let answers = join_all(pending).await;
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for ((spot, _, events), answer) in shares.into_iter().zip(answers) {
        match answer {
            Ok(appended) => done.push(Placed {
                spot,
                appended,
                events,
            }),
            Err(error) => failed.push((spot, events, Error::from(error))),
        }
    }
    match failed.is_empty() {
        true => Ok(done),
        false => Err(partly(to, done, failed)),
    }
}

/// Name and value, as a record has them.
type Header<'a> = (&'a str, Option<&'a [u8]>);

type Share = (Spot, Arc<dyn Partition>, Vec<usize>);

/// Events by partition. Those without a key go to one partition together.
fn share(
    app: &App,
    to: &Destination,
    target: &Target<'_>,
    events: &[Event<'_>],
) -> Result<Vec<Share>, Error> {
    let mut shares: Vec<Share> = Vec::new();
    let mut known: BTreeMap<Spot, usize> = BTreeMap::new();
    let mut without_key = None;
    for (at, event) in events.iter().enumerate() {
        let key = match (target, &event.key) {
            (_, Some(key)) => Some(key.as_bytes()),
            (Target::Key(key), None) => Some(key.as_bytes()),
            _ => None,
        };
        let spot = match (key, without_key) {
            (None, Some(spot)) => spot,
            _ => to.spot(app, target, key)?,
        };
        if key.is_none() {
            without_key = Some(spot);
        }
        let index = match known.get(&spot) {
            Some(index) => *index,
            None => {
                shares.push((spot, to.partition(app, spot)?, Vec::new()));
                known.insert(spot, shares.len() - 1);
                shares.len() - 1
            }
        };
        shares[index].2.push(at);
    }
    Ok(shares)
}

/// `{"count":3,"placed":[{"partition":1,"offset":42,"enqueued":"..","events":[0,2]},..]}`; `events` is
/// left out where one partition has them all.
pub fn summary(to: &Destination, count: usize, placed: &[Placed]) -> Reply {
    let mut out = Vec::with_capacity(96 + placed.len() * 96);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"{\"count\":");
    out.extend_from_slice(digits.format(count).as_bytes());
    out.extend_from_slice(b",\"placed\":[");
    for (i, part) in placed.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_placed(&mut out, to, part.spot, &part.appended);
        if placed.len() > 1 {
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

/// The worst error, with what was stored all the same and what was not.
fn partly(to: &Destination, done: Vec<Placed>, failed: Vec<(Spot, Vec<usize>, Error)>) -> Error {
    let told = |spot: Spot, mut facts: Value| {
        facts["partition"] = spot.partition.into();
        if let Some(hub) = to.told(spot) {
            facts["hub"] = hub.into();
        }
        facts
    };
    let placed = |part: &Placed| {
        let time = crate::text::time_text(part.appended.time);
        let (offset, events) = (part.appended.offset.0, &part.events);
        let facts = json!({"offset": offset, "enqueued": time, "events": events});
        told(part.spot, facts)
    };
    let lost = |(spot, events, error): &(Spot, Vec<usize>, Error)| {
        let (code, message) = (error.code.name(), &error.message);
        let facts = json!({"events": events, "code": code, "message": message});
        told(*spot, facts)
    };
    let placed: Vec<Value> = done.iter().map(placed).collect();
    let lost: Vec<Value> = failed.iter().map(lost).collect();
    let worst = failed
        .into_iter()
        .map(|(.., error)| error)
        .max_by_key(|error| (!error.code.retry(), error.code != Code::NoRoom));
    let mut error = worst.expect("this is called when something failed");
    error.more = Some(Box::new(json!({"placed": placed, "failed": lost})));
    error
}
