//! The page of one dead letter: its event, headers and attempts.

use maud::{Markup, html};

use crate::bulk::{self, Bulk, BulkCall};
use crate::dead_letter_list::DeadLetterRow;
use crate::format::{self, Precision};
use crate::json::json_text;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Tone, none};
use crate::payload::Payload;

#[derive(Clone, Debug, Default)]
pub struct DeadLetterPage {
    pub row: DeadLetterRow,
    pub enqueued_ms: i64,
    pub hub: String,
    pub partition: u32,
    pub offset: i64,
    pub headers: Vec<(String, String)>,
    pub value: Payload,
    pub attempts: Vec<DeliveryAttempt>,
    pub may_manage: bool,
}

/// One attempt that failed.
#[derive(Clone, Debug, Default)]
pub struct DeliveryAttempt {
    pub number: u32,
    pub at_ms: Option<i64>,
    pub reason: String,
}

impl From<&DeadLetterPage> for View {
    fn from(page: &DeadLetterPage) -> View {
        let row = &page.row;
        let list = format!(
            "/console/dead-letters?processor={}",
            format::segment(&row.processor)
        );
        let heading = html! {
            h1 { (row.id) }
            (parts::pill(Tone::Bad, "dead letter"))
            span class="sub" { "of processor " a href=(list) { (row.processor) } }
            span class="grow" {}
            @if page.may_manage { (actions(row)) }
        };
        let mut view = View::new(Screen::DeadLetters, row.id.clone(), heading);
        view.fixed("attempts", Span::Main, attempts(page));
        view.fixed("facts", Span::Side, facts(page));
        view.fixed("event", Span::Main, event(page));
        view.fixed("headers", Span::Side, headers(page));
        view.dialogs = bulk::dialog();
        view.scripts = bulk::SCRIPT;
        view
    }
}

fn actions(row: &DeadLetterRow) -> Markup {
    let make = |label, verb, path: &str, danger| Bulk {
        label,
        verb,
        noun: "dead letter",
        calls: vec![BulkCall {
            name: row.processor.clone(),
            path: format!(
                "/api/dead-letters/{}/{path}",
                format::segment(&row.processor)
            ),
            body: format!("{{\"ids\":[{}]}}", json_text(&row.id)),
        }],
        danger,
        ..Bulk::default()
    };
    html! {
        (bulk::button(&make("Replay…", "Replay", "replay", false)))
        (bulk::button(&make("Purge…", "Purge", "purge", true)))
    }
}

fn attempts(page: &DeadLetterPage) -> Markup {
    html! {
        (parts::heading("Attempts", &format::plural(page.row.tries.into(), "attempt"), none()))
        div class="scroll" tabindex="0" { (parts::table(&["#number", "at", "reason"], html! {
            @for attempt in &page.attempts {
                tr {
                    td class="num" { (attempt.number) }
                    td class="nowrap" { @match attempt.at_ms { Some(at) => (parts::time(at, Precision::Full)), None => span class="sub" { "not attempted" } } }
                    td class="reason" { (attempt.reason) }
                }
            }
        })) }
        @if page.attempts.len() < page.row.tries as usize {
            div class="note" { "The first and the last attempts are kept." }
        }
    }
}

fn facts(page: &DeadLetterPage) -> Markup {
    let row = &page.row;
    let command = format!("highwater dlq show {} {}", row.processor, row.id);
    html! {
        (parts::heading("Facts", "", html! { button type="button" class="small" data-copy=(command) { "Copy command" } }))
        div class="body" { dl class="facts" {
            dt { "hub" } dd { a href={ "/console/hubs/" (format::segment(&page.hub)) } { (page.hub) } }
            dt { "partition" } dd { (page.partition) }
            dt { "offset" } dd { (page.offset) }
            dt { "key" } dd { @match &row.key { Some(key) => code { (key) }, None => span class="faint" { "none" } } }
            dt { "enqueued" } dd { (parts::time(page.enqueued_ms, Precision::Full)) }
            dt { "set aside" } dd { (parts::time(row.dead_ms, Precision::Full)) }
            dt { "replayed" } dd { (format::plural(row.replays.into(), "time")) }
        } }
    }
}

fn event(page: &DeadLetterPage) -> Markup {
    html! {
        (parts::heading("Event", &page.value.description(), none()))
        div class="body" { (page.value.body()) }
    }
}

fn headers(page: &DeadLetterPage) -> Markup {
    html! {
        (parts::heading("Headers", &format::count(page.headers.len() as u64), none()))
        @if page.headers.is_empty() { div class="empty" { "The event has no headers." } }
        @else { div class="body" { dl class="facts" {
            @for (name, value) in &page.headers { dt { (name) } dd { code { (value) } } }
        } } }
    }
}
