//! The page of one hub: its events, partitions and consumer groups.

use maud::{Markup, html};

use crate::format::{self, Precision};
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Figure, Pager, Tone, none};
use crate::payload::Payload;

#[derive(Clone, Debug, Default)]
pub struct HubPage {
    pub name: String,
    pub partitions_total: u64,
    /// `7 d`, `forever`, `latest of each key`
    pub retention: String,
    pub created_ms: i64,
    pub figures: Vec<Figure>,
    pub partitions: Vec<HubPartition>,
    pub pager: Pager,
    pub groups: Vec<HubGroup>,
    pub groups_more: u64,
    /// Partitions that refuse writes.
    pub stopped: u64,
    pub may_send: bool,
    /// `None` while the page is live: the list stays as the reader asked for it.
    pub browser: Option<EventBrowser>,
}

#[derive(Clone, Debug, Default)]
pub struct HubPartition {
    pub number: u32,
    /// Events a second; `None` if the partition is not sampled.
    pub per_second: Option<f64>,
    pub bytes: u64,
    /// The first offset that is kept, and the next one to be written.
    pub start: i64,
    pub end: i64,
    pub last_ms: Option<i64>,
    pub segments: Option<u64>,
    /// Why it refuses writes.
    pub trouble: Option<String>,
}

/// A consumer group with positions in the hub.
#[derive(Clone, Debug, Default)]
pub struct HubGroup {
    pub name: String,
    pub state: String,
    pub members: u64,
    pub lag: u64,
    pub positions: Vec<GroupPosition>,
    pub positions_more: u64,
    pub may_reset: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct GroupPosition {
    pub partition: u32,
    pub offset: i64,
    pub end: i64,
    pub lag: u64,
}

/// The events that the reader asked for.
#[derive(Clone, Debug, Default)]
pub struct EventBrowser {
    pub partition: u32,
    /// The fields of the form, as they were entered.
    pub partition_text: String,
    pub from: String,
    pub key: String,
    pub condition: String,
    /// The field that is wrong, and why.
    pub error: Option<BrowserError>,
    pub events: Vec<HubEvent>,
    pub newest_first: bool,
    pub searched: SearchedRange,
    pub pager: Pager,
}

#[derive(Clone, Debug)]
pub struct BrowserError {
    pub field: BrowserField,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserField {
    Partition,
    From,
    Condition,
}

/// The searched range.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchedRange {
    pub events: u64,
    pub from: i64,
    pub next: i64,
}

#[derive(Clone, Debug, Default)]
pub struct HubEvent {
    pub partition: u32,
    pub offset: i64,
    pub time_ms: i64,
    pub key: Option<String>,
    pub headers: Vec<(String, String)>,
    pub value: Payload,
}

impl From<&HubPage> for View {
    fn from(hub: &HubPage) -> View {
        let mut view = View::new(Screen::Hubs, &hub.name, heading(hub));
        view.figures(&hub.figures);
        if let Some(browser) = &hub.browser {
            let content = html! { (event_browser(hub, browser)) (tail(hub)) };
            view.fixed("events", Span::Full, content);
        }
        view.live("partitions", Span::Main, partitions(hub));
        view.live("groups", Span::Side, groups(hub));
        view.dialogs = html! { @if hub.may_send { (send_dialog(hub)) } (reset_dialog(hub)) };
        view.scripts = &["messages.js"];
        view
    }
}

fn heading(hub: &HubPage) -> Markup {
    html! {
        h1 { a class="up" href="/console/hubs" { "Hubs" } " / " (parts::name(&hub.name)) }
        @match hub.stopped {
            0 => (parts::pill(Tone::Good, "takes events")),
            stopped => (parts::pill(Tone::Bad, &format!("{} refuse writes", format::plural(stopped, "partition")))),
        }
        span class="sub" {
            (format::plural(hub.partitions_total, "partition")) " · kept for " (hub.retention)
            " · created " (parts::time(hub.created_ms, Precision::Full))
        }
        span class="grow" {}
        @if hub.may_send { button type="button" data-dialog="send" { "Send an event" } }
    }
}

fn event_browser(hub: &HubPage, browser: &EventBrowser) -> Markup {
    let sub = format!(
        "partition {}{}",
        browser.partition,
        if browser.newest_first {
            ", newest first"
        } else {
            ""
        }
    );
    html! {
        (parts::heading("Events", &sub, html! {
            button type="button" id="tail-switch" aria-pressed="false" { "Follow" }
        }))
        (browser_form(hub, browser))
        div id="found-events" {
            @if browser.events.is_empty() { (nothing_found(hub, browser)) }
            @else { (event_list(&browser.events)) }
            @if browser.error.is_none() { (searched_range(browser)) }
        }
    }
}

fn browser_form(hub: &HubPage, browser: &EventBrowser) -> Markup {
    let error = |field: BrowserField| {
        let error = browser.error.as_ref().filter(|error| error.field == field);
        html! { @if let Some(error) = error { p class="field-error mono" role="alert" { (error.text) } } }
    };
    html! {
        form class="browse" method="get" action={ "/console/hubs/" (format::segment(&hub.name)) } {
            label class="field" {
                span { "Partition" }
                input name="partition" inputmode="numeric" size="6" value=(browser.partition_text)
                    placeholder=(browser.partition);
                (error(BrowserField::Partition))
            }
            label class="field" {
                span { "From" }
                input name="from" value=(browser.from) list="from-words" autocomplete="off"
                    placeholder="latest, offset or time";
                datalist id="from-words" { option value="earliest"; option value="latest"; }
                (error(BrowserField::From))
            }
            label class="field" { span { "Key" } input name="key" value=(browser.key) autocomplete="off" placeholder="any"; }
            label class="field broad" {
                span { "Where" }
                input class="mono" name="where" value=(browser.condition) autocomplete="off" spellcheck="false"
                    placeholder="TollId = 3 AND Toll > 5";
                (error(BrowserField::Condition))
            }
            div class="field buttons" {
                button class="primary" { "Look" }
                a class="button" href={ "/console/hubs/" (format::segment(&hub.name)) } { "Clear" }
            }
        }
    }
}

fn nothing_found(hub: &HubPage, browser: &EventBrowser) -> Markup {
    let filtered = !browser.key.is_empty() || !browser.condition.is_empty();
    match (&browser.error, filtered, browser.searched.events) {
        (Some(_), ..) => none(),
        (None, true, _) => html! { div class="empty" { "No event that was looked at matches." } },
        (None, false, 0) if browser.searched.next == browser.searched.from => parts::empty(
            "There is no event here. Send one:",
            &format!("highwater hub send {} '{{\"n\":1}}'", hub.name),
        ),
        _ => html! { div class="empty" { "There is no event between these offsets." } },
    }
}

/// The searched range, and the link to continue.
fn searched_range(browser: &EventBrowser) -> Markup {
    let SearchedRange { events, from, next } = browser.searched;
    let text = match next > from {
        true => format!(
            "Looked at {}, offsets {} to {}.",
            format::plural(events, "event"),
            format::count(from.max(0) as u64),
            format::count((next - 1).max(0) as u64)
        ),
        false => String::new(),
    };
    parts::pages(&Pager {
        text,
        ..browser.pager.clone()
    })
}

fn event_list(events: &[HubEvent]) -> Markup {
    html! {
        div class="events" {
            div class="event-head" aria-hidden="true" { span { "offset" } span { "enqueued" } span { "key" } span { "value" } }
            @for event in events { (event_entry(event)) }
        }
    }
}

fn event_entry(event: &HubEvent) -> Markup {
    html! {
        details class="event" {
            summary {
                span class="mono" { (event.offset) }
                span class="mono" { (parts::time(event.time_ms, Precision::Millisecond)) }
                span title=[&event.key] { @match &event.key { Some(key) => (key), None => span class="faint" { "–" } } }
                span class="mono" { (event.value.preview()) }
            }
            div class="opened" {
                div { (event.value.body()) }
                dl class="facts" {
                    dt { "Partition" } dd { (event.partition) }
                    dt { "Offset" } dd { (event.offset) }
                    dt { "Enqueued" } dd { (parts::time(event.time_ms, Precision::Full)) }
                    dt { "Key" } dd { @match &event.key { Some(key) => (key), None => "none" } }
                    dt { "Value" } dd { (event.value.description()) }
                    @for (name, value) in &event.headers { dt { (name) } dd { (value) } }
                }
            }
        }
    }
}

/// Filled by the script.
fn tail(hub: &HubPage) -> Markup {
    html! {
        div id="tail" hidden data-hub=(hub.name) {
            p class="note" { span id="tail-note" { "Waiting for events." } " " kbd { "p" } " pauses." }
            div class="events" id="tail-events" {}
        }
    }
}

fn partitions(hub: &HubPage) -> Markup {
    let number = |offset: i64| format::count(offset.max(0) as u64);
    html! {
        (parts::heading("Partitions", "", none()))
        div class="scroll" { (parts::table(&["#no.", "#events", "#stored", "#first offset", "#last offset",
            "last written", "state"], html! {
            @for part in &hub.partitions {
                tr class=[part.trouble.as_ref().map(|_| "with")] {
                    td class="num" { a href={ "/console/hubs/" (format::segment(&hub.name)) "?partition=" (part.number) } { (part.number) } }
                    td class="num" { @match part.per_second { Some(rate) => (format::rate(rate)), None => "–" } }
                    td class="num" { (format::bytes(part.bytes)) }
                    td class="num" { @if part.end > part.start { (number(part.start)) } @else { "–" } }
                    td class="num" { @if part.end > part.start { (number(part.end - 1)) } @else { "–" } }
                    td class="nowrap" { @match part.last_ms { Some(at) => (parts::time(at, Precision::Second)), None => "never" } }
                    td class="nowrap" {
                        @match &part.trouble {
                            Some(_) => (parts::pill(Tone::Bad, "stopped")),
                            None => (parts::pill(Tone::Good, "fine")),
                        }
                    }
                }
                @if let Some(trouble) = &part.trouble { tr { td class="trouble" colspan="7" { (trouble) } } }
            }
        })) }
        (parts::pages(&hub.pager))
    }
}

fn groups(hub: &HubPage) -> Markup {
    html! {
        (parts::heading("Consumer groups", "", none()))
        @if hub.groups.is_empty() {
            (parts::empty("No consumer group has a position in this hub. A Kafka consumer or a processor makes one:",
                &format!("kafka-console-consumer --bootstrap-server HOST:PORT --topic {} --group my-group", hub.name)))
        }
        @for group in &hub.groups { (group_entry(group)) }
        @if hub.groups_more > 0 {
            p class="note" { "And " (format::plural(hub.groups_more, "group")) " more: " code { "highwater hub groups" } }
        }
    }
}

fn group_entry(group: &HubGroup) -> Markup {
    html! {
        details class="group" {
            summary {
                b { (parts::name(&group.name)) }
                span class="sub" { (group.state) @if group.members > 0 { ", " (format::plural(group.members, "member")) } }
                span class="grow" {}
                span class=[(group.lag > 0).then_some("warn-text")] { (format::plural(group.lag, "event")) " behind" }
            }
            div class="scroll short" { (parts::table(&["#partition", "#position", "#end", "#behind"], html! {
                @for position in &group.positions {
                    tr {
                        td class="num" { (position.partition) }
                        td class="num" { (format::count(position.offset.max(0) as u64)) }
                        td class="num" { (format::count(position.end.max(0) as u64)) }
                        td class="num" { (format::plural(position.lag, "event")) }
                    }
                }
            })) }
            @if group.positions_more > 0 { p class="note" { "And " (format::plural(group.positions_more, "partition")) " more." } }
            @if group.may_reset {
                p class="note tools" {
                    @if group.members > 0 { "Stop its members to reset its positions." }
                    button type="button" class="small" data-reset=(group.name) { "Reset positions" }
                }
            }
        }
    }
}

fn send_dialog(hub: &HubPage) -> Markup {
    let path = format!("/hubs/{}", format::segment(&hub.name));
    html! {
        dialog id="send" aria-labelledby="send-title" {
            form data-send={ (path) "/messages" } data-to-partition={ (path) "/partitions/{}/messages" }
                data-done="Stored in partition {partition} at offset {offset}." {
                h2 id="send-title" { "Send an event to " (parts::name(&hub.name)) }
                label class="field" {
                    span { "Value: JSON, or any text; a JSON array is several events" }
                    textarea class="lines" name="body" rows="8" required spellcheck="false" { "{\n  \n}" }
                }
                label class="field" { span { "Key" } input data-query="key" autocomplete="off" placeholder="none"; }
                label class="field" {
                    span { "Partition" }
                    input data-partition inputmode="numeric" pattern="[0-9]*" autocomplete="off" placeholder="that of the key, or the next";
                }
                p class="field-error" role="alert" {}
                (parts::dialog_buttons("Close", "primary", "Send"))
            }
        }
    }
}

/// The script fills in the group and shows the preview.
fn reset_dialog(hub: &HubPage) -> Markup {
    html! {
        dialog id="reset" aria-labelledby="reset-title" {
            form data-hub=(hub.name) {
                h2 id="reset-title" { "Reset positions of " span id="reset-group" {} }
                label class="field" {
                    span { "To" }
                    input name="to" required list="from-words" autocomplete="off" placeholder="earliest, latest, an offset or a time";
                }
                label class="field" {
                    span { "Partition" }
                    input name="partition" inputmode="numeric" pattern="[0-9]*" autocomplete="off" placeholder="all";
                }
                div id="reset-preview" class="scroll short" {}
                p class="field-error" role="alert" {}
                div class="buttons" {
                    button type="button" data-close { "Cancel" }
                    button value="preview" class="primary" { "Preview" }
                    button value="reset" class="danger" disabled { "Reset" }
                }
            }
        }
    }
}
