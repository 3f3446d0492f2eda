//! The events of a hub that a reader asks for: by offset, time, key and condition, a page at a time.

use std::sync::Arc;

use highwater_console::format::segment;
use highwater_console::hub::{BrowserError, BrowserField, EventBrowser, HubEvent, SearchedRange};
use highwater_console::parts::Pager;
use highwater_job::{EventCondition, LoadError};
use highwater_log::{Bounds, HubInfo, Offset, partition_for_key};

use super::Context;
use super::payload::{LIST_BYTES, payload, short_text};
use crate::http::error::Error;
use crate::http::read::{ISOLATION, StartPosition, partition_of};
use crate::http::search::{EventFilter, FoundEvents, SearchFrom, StoredEvent, search};
use crate::text::parameter;

/// Events of a page.
const EVENTS_SHOWN: usize = 25;

/// A longer condition is refused before it is compiled.
const CONDITION_BYTES_MAX: usize = 4 << 10;

/// The events that the query of the page's address asks for.
pub(super) async fn browse(
    context: &Context<'_>,
    hub: &HubInfo,
    bounds: &[Bounds],
) -> Result<EventBrowser, Error> {
    // A form writes a space as `+`.
    let query = context.query.map(|query| query.replace('+', "%20"));
    let field = |name: &str| {
        let value = parameter(query.as_deref(), name).unwrap_or_default();
        value.trim().to_owned()
    };
    let mut browser = EventBrowser {
        partition_text: field("partition"),
        from: field("from"),
        key: field("key"),
        condition: field("where"),
        ..EventBrowser::default()
    };
    let before = field("before").parse().ok().map(Offset);
    if let Err(error) = find(context, hub, bounds, before, &mut browser).await {
        browser.error = Some(error);
    }
    Ok(browser)
}

fn wrong(field: BrowserField) -> impl Fn(Error) -> BrowserError {
    move |error| {
        let text = match error.hint.is_empty() {
            true => format!("{} ({})", error.message, error.code.name()),
            false => format!("{} ({})\n{}", error.message, error.code.name(), error.hint),
        };
        BrowserError { field, text }
    }
}

async fn find(
    context: &Context<'_>,
    hub: &HubInfo,
    bounds: &[Bounds],
    before: Option<Offset>,
    browser: &mut EventBrowser,
) -> Result<(), BrowserError> {
    let app = context.app;
    browser.partition = partition_number(hub, bounds, browser)?;
    let partition = partition_of(app, hub, browser.partition);
    let partition = partition.map_err(wrong(BrowserField::Partition))?;
    let filter = EventFilter {
        key: (!browser.key.is_empty()).then(|| browser.key.clone().into_bytes()),
        condition: condition(&browser.condition)?,
    };
    let end = partition.bounds().visible(ISOLATION);
    let from = match (before, &*browser.from) {
        (Some(before), _) => SearchFrom::Before(before),
        (None, "" | "latest") => SearchFrom::Before(end),
        (None, text) => {
            let start = StartPosition::parse(text).map_err(wrong(BrowserField::From))?;
            let start = start.offset(&*partition).await;
            SearchFrom::Offset(start.map_err(wrong(BrowserField::From))?)
        }
    };
    let failed = match filter.condition {
        Some(_) => BrowserField::Condition,
        None => BrowserField::From,
    };
    let found = search(app, &*partition, from, &filter, EVENTS_SHOWN).await;
    let found = found.map_err(wrong(failed))?;
    browser.newest_first = matches!(from, SearchFrom::Before(_));
    browser.searched = SearchedRange {
        events: found.looked_at,
        from: found.from,
        next: found.next,
    };
    browser.pager = pager(hub, &partition.bounds(), browser, &found);
    let number = browser.partition;
    let events = found.events.into_iter().map(|event| shown(number, event));
    browser.events = events.collect();
    if browser.newest_first {
        browser.events.reverse();
    }
    Ok(())
}

/// The requested partition; otherwise the partition of the key, or the last one written.
fn partition_number(
    hub: &HubInfo,
    bounds: &[Bounds],
    browser: &EventBrowser,
) -> Result<u32, BrowserError> {
    if !browser.partition_text.is_empty() {
        let no_number = |_| BrowserError {
            field: BrowserField::Partition,
            text: "partitions are numbered from 0".to_owned(),
        };
        return browser.partition_text.parse().map_err(no_number);
    }
    if !browser.key.is_empty() && hub.partitions > 0 {
        return Ok(partition_for_key(browser.key.as_bytes(), hub.partitions));
    }
    let latest = (0..).zip(bounds).filter(|(_, of)| of.end > of.start);
    let latest = latest.max_by_key(|(number, of)| (of.last_time, std::cmp::Reverse(*number)));
    Ok(latest.map_or(0, |(number, _)| number))
}

fn condition(text: &str) -> Result<Option<Arc<EventCondition>>, BrowserError> {
    let failed = |text: String| BrowserError {
        field: BrowserField::Condition,
        text,
    };
    match text {
        "" => Ok(None),
        text if text.len() > CONDITION_BYTES_MAX => Err(failed(format!(
            "a condition has at most {CONDITION_BYTES_MAX} bytes"
        ))),
        text => {
            let compiled = EventCondition::compile(text, "where");
            let compiled = compiled.map_err(|error: LoadError| failed(error.to_string()))?;
            Ok(Some(Arc::new(compiled)))
        }
    }
}

/// The links to earlier and later events with the same key and condition.
fn pager(hub: &HubInfo, bounds: &Bounds, browser: &EventBrowser, found: &FoundEvents) -> Pager {
    let link = |parameter: &str, offset: i64| {
        let mut link = format!(
            "/console/hubs/{}?partition={}&{parameter}={offset}",
            segment(hub.name.as_str()),
            browser.partition
        );
        for (name, value) in [("key", &browser.key), ("where", &browser.condition)] {
            if !value.is_empty() {
                link.push_str(&format!("&{name}={}", segment(value)));
            }
        }
        link
    };
    let is_full = found.events.len() >= EVENTS_SHOWN;
    // A search backwards keeps the last matches: with a full page, earlier ones may be in what it looked at.
    let first = match (browser.newest_first && is_full, found.events.first()) {
        (true, Some(first)) => first.offset.0,
        _ => found.from,
    };
    let end = bounds.visible(ISOLATION).0;
    Pager {
        before: (first > bounds.start.0).then(|| link("before", first)),
        after: (found.next < end).then(|| link("from", found.next)),
        text: String::new(),
    }
}

fn shown(partition: u32, event: StoredEvent) -> HubEvent {
    let text = |bytes: Option<&[u8]>| bytes.map_or("null".to_owned(), short_text);
    let headers: Vec<(String, String)> = event
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), text(value.as_deref())))
        .collect();
    let content_type = headers.iter().find(|(name, _)| name == "content-type");
    let content_type = content_type.map(|(_, value)| value.as_str());
    HubEvent {
        partition,
        offset: event.offset.0,
        time_ms: event.time.0,
        key: event.key.as_deref().map(short_text),
        value: match &event.value {
            Some(value) => payload(value, event.value_bytes, content_type, LIST_BYTES),
            None => Default::default(),
        },
        headers,
    }
}
