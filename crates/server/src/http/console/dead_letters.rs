//! Dead letters of all processors or of one, and the page of one dead letter.
//!
//! Reading them scans the dead-letter hub, so the live stream, which sends only the counts, does not.

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::dead_letter::{DeadLetterPage, DeliveryAttempt};
use highwater_console::dead_letter_list::{
    DeadLetterCount, DeadLetterList, DeadLetterQuery, DeadLetterRow,
};
use highwater_console::format::segment;
use highwater_console::payload::Payload;
use highwater_flow::{DeadLetterFilter, FailedAttempt, StoredDeadLetter};
use highwater_log::{EnqueueTime, Offset};

use super::payload::{PAGE_BYTES, payload, short_text};
use super::{Context, processors};
use crate::http::error::Error;
use crate::http::processors::circuits::state_name;
use crate::http::processors::dead_letters::{no_letter, unreadable};
use crate::http::processors::find;
use crate::http::read::unix_ms;
use crate::processors::Entry;
use crate::text::{percent_decode, time_text};

/// Dead letters of a page.
const ROWS_MAX: usize = 50;

/// Characters of a reason and of a key in a list.
const TEXT_SHOWN_MAX: usize = 300;

/// The processors whose dead-letter hub the caller may read, by name.
fn readable<'a>(context: &Context<'a>) -> Result<Vec<&'a Entry>, Error> {
    let processors = context.app.backend()?.processors.as_ref();
    let entries = processors.into_iter().flat_map(|all| all.entries());
    let may_read = |entry: &&Entry| context.may_see(Resource::Hub(entry.spec.dead.as_str()));
    let mut entries: Vec<&Entry> = entries.filter(may_read).collect();
    entries.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    Ok(entries)
}

pub(in crate::http) async fn list(context: &Context<'_>) -> Result<View, Error> {
    let entries = readable(context)?;
    let figures = &context.app.console.figures;
    let count = |entry: &&Entry| DeadLetterCount {
        processor: entry.spec.name.clone(),
        hub: entry.spec.dead.to_string(),
        letters: figures.dead_letters(&entry.spec.name),
        circuit: state_name(&entry.circuit.state()),
    };
    let mut list = DeadLetterList {
        processors: entries.iter().map(count).collect(),
        filter: query(context),
        ..DeadLetterList::default()
    };
    if context.live {
        return Ok(View::from(&list));
    }
    let chosen = |entry: &&&Entry| {
        list.filter.processor.is_empty() || list.filter.processor == entry.spec.name
    };
    let chosen: Vec<&Entry> = entries.iter().filter(chosen).copied().collect();
    let manageable = |entry: &&Entry| may_manage(context, entry);
    list.may_manage = !chosen.is_empty() && chosen.iter().all(manageable);
    match filter(&list.filter) {
        Ok(filter) => fill(&mut list, context, &chosen, &filter).await?,
        Err(error) => list.error = Some(format!("{}: {}", error.message, error.hint)),
    }
    Ok(View::from(&list))
}

fn query(context: &Context<'_>) -> DeadLetterQuery {
    let field = |name| context.field(name).unwrap_or_default();
    DeadLetterQuery {
        processor: field("processor"),
        reason: field("reason"),
        key: field("key"),
        id: field("id"),
        from: field("from"),
        until: field("until"),
        now: time_text(EnqueueTime(context.app.clock.unix_millis() + 1)),
    }
}

fn filter(query: &DeadLetterQuery) -> Result<DeadLetterFilter, Error> {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let id = some(&query.id).map(|id| id.parse());
    let wrong = |error: highwater_flow::EventIdError| Error::bad(error.to_string(), "");
    Ok(DeadLetterFilter {
        ids: id.transpose().map_err(wrong)?.into_iter().collect(),
        from_ms: unix_ms(some(&query.from).as_deref())?,
        until_ms: unix_ms(some(&query.until).as_deref())?,
        reason: some(&query.reason),
        key: some(&query.key).map(String::into_bytes),
        replays_max: None,
    })
}

/// A page of dead letters: processor by processor, each from its oldest one.
async fn fill(
    list: &mut DeadLetterList,
    context: &Context<'_>,
    entries: &[&Entry],
    filter: &DeadLetterFilter,
) -> Result<(), Error> {
    let first = context.field("at");
    let first = first.and_then(|name| entries.iter().position(|entry| entry.spec.name == name));
    let after = context.field("after").and_then(|text| text.parse().ok());
    let mut from = Offset(after.map_or(0, |after: i64| after.saturating_add(1).max(0)));
    for entry in entries.iter().skip(first.unwrap_or(0)) {
        let rows_left = ROWS_MAX - list.letters.len();
        let found = entry.letters.find(filter, from, rows_left).await;
        let found = found.map_err(unreadable)?;
        from = Offset(0);
        let rows = found.letters.iter().map(|stored| row(entry, stored));
        list.letters.extend(rows);
        if found.more {
            // If the page was full before, the next one begins at the first dead letter of this processor.
            let last = found.letters.last().map_or(-1, |last| last.offset.0);
            list.next = Some(next(&list.filter, &entry.spec.name, last));
            break;
        }
    }
    Ok(())
}

fn next(query: &DeadLetterQuery, processor: &str, after: i64) -> String {
    let fields = [
        ("processor", &query.processor),
        ("reason", &query.reason),
        ("key", &query.key),
        ("id", &query.id),
        ("from", &query.from),
        ("until", &query.until),
    ];
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    let fields: String = fields
        .map(|(name, value)| format!("{name}={}&", segment(value)))
        .collect();
    format!(
        "/console/dead-letters?{fields}at={}&after={after}",
        segment(processor)
    )
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn row(entry: &Entry, stored: &StoredDeadLetter) -> DeadLetterRow {
    let letter = &stored.letter;
    let last = letter.attempts.last();
    let key = letter.event.key().map(short_text);
    DeadLetterRow {
        processor: entry.spec.name.clone(),
        id: letter.event.id().to_string(),
        key: key.map(|key| cut(&key)),
        dead_ms: stored.dead_ms,
        tries: last.map_or(0, |last| last.number),
        replays: letter.replays,
        reason: last.map_or_else(String::new, |last| cut(&last.reason)),
    }
}

/// The oldest dead letters of a processor.
pub(super) async fn oldest(entry: &Entry, count: usize) -> Result<Vec<DeadLetterRow>, Error> {
    let all = DeadLetterFilter::default();
    let found = entry.letters.find(&all, Offset(0), count).await;
    let found = found.map_err(unreadable)?;
    let letters = found.letters.iter();
    Ok(letters.map(|stored| row(entry, stored)).collect())
}

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let [processor, id] = context.variables.all();
    let id = percent_decode(id);
    let entry = find(context.app, &percent_decode(processor))?;
    let event_id = id.parse();
    let wrong = |error: highwater_flow::EventIdError| processors::not_found(error.to_string());
    let filter = DeadLetterFilter {
        ids: [event_id.map_err(wrong)?].into(),
        ..DeadLetterFilter::default()
    };
    if context.live {
        // The page has no live panel but its heading, which does not change.
        let row = DeadLetterRow {
            processor: entry.spec.name.clone(),
            id: id.into_owned(),
            ..DeadLetterRow::default()
        };
        return Ok(View::from(&DeadLetterPage {
            row,
            may_manage: may_manage(context, entry),
            ..DeadLetterPage::default()
        }));
    }
    let found = entry.letters.find(&filter, Offset(0), 1).await;
    let mut found = found.map_err(unreadable)?;
    let none = || no_letter(&entry.spec.name, &id);
    let stored = found.letters.pop().ok_or_else(none)?;
    Ok(View::from(&page(context, entry, &stored)))
}

fn may_manage(context: &Context<'_>, entry: &Entry) -> bool {
    let hub = Resource::Hub(entry.spec.dead.as_str());
    context.caller.may(Right::Manage, hub)
}

fn page(context: &Context<'_>, entry: &Entry, stored: &StoredDeadLetter) -> DeadLetterPage {
    let event = &stored.letter.event;
    let source = event.topic_partition();
    let attempt = |attempt: &FailedAttempt| DeliveryAttempt {
        number: attempt.number,
        at_ms: attempt.at_ms,
        reason: attempt.reason.clone(),
    };
    let header = |(name, value): (&str, Option<&[u8]>)| {
        (cut(name), cut(&short_text(value.unwrap_or_default())))
    };
    DeadLetterPage {
        row: row(entry, stored),
        enqueued_ms: event.timestamp(),
        hub: source.hub.to_string(),
        partition: source.partition,
        offset: event.offset().0,
        headers: event.headers().map(header).collect(),
        value: event.value().map_or_else(Payload::default, |value| {
            payload(value, value.len(), None, PAGE_BYTES)
        }),
        attempts: stored.letter.attempts.iter().map(attempt).collect(),
        may_manage: may_manage(context, entry),
    }
}
