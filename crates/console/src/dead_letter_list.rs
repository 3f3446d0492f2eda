//! Dead letters of all processors or of one: filter, read, replay and purge.

use maud::{Markup, html};

use crate::bulk::{self, Bulk, BulkCall};
use crate::format::{self, Precision};
use crate::json::json_object;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, none};
use crate::processor_list::letters_link;

#[derive(Clone, Debug, Default)]
pub struct DeadLetterList {
    /// The processors whose dead letters the reader may see.
    pub processors: Vec<DeadLetterCount>,
    pub filter: DeadLetterQuery,
    /// What is wrong with the filter.
    pub error: Option<String>,
    pub letters: Vec<DeadLetterRow>,
    /// The address of the next page.
    pub next: Option<String>,
    /// Of the chosen processors.
    pub may_manage: bool,
}

/// The dead letters of a processor.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterCount {
    pub processor: String,
    /// The dead-letter hub.
    pub hub: String,
    pub letters: u64,
    /// `closed`, `half-open` or `open`.
    pub circuit: &'static str,
}

/// The filter as the reader wrote it; an empty text selects all.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterQuery {
    pub processor: String,
    pub reason: String,
    pub key: String,
    pub id: String,
    pub from: String,
    pub until: String,
    /// When the page was made. An operation on all that match leaves out later ones, such as those that it replayed in
    /// vain.
    pub now: String,
}

/// One dead letter in a list.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterRow {
    pub processor: String,
    /// `hub/partition@offset` of the event.
    pub id: String,
    pub key: Option<String>,
    pub dead_ms: i64,
    pub tries: u32,
    pub replays: u32,
    /// Of the last attempt.
    pub reason: String,
}

impl DeadLetterQuery {
    fn is_empty(&self) -> bool {
        let DeadLetterQuery {
            reason,
            key,
            id,
            from,
            until,
            ..
        } = self;
        [reason, key, id, from, until]
            .iter()
            .all(|text| text.is_empty())
    }

    /// The body of an operation on all that match.
    fn body(&self) -> String {
        json_object([
            ("reason", &*self.reason),
            ("key", &*self.key),
            ("id", &*self.id),
            ("from", &*self.from),
            (
                "until",
                if self.until.is_empty() {
                    &*self.now
                } else {
                    &*self.until
                },
            ),
        ])
    }
}

/// The address of a dead letter's page.
pub(crate) fn dead_letter_path(processor: &str, id: &str) -> String {
    let (processor, id) = (format::segment(processor), format::segment(id));
    format!("/console/dead-letters/{processor}/{id}")
}

impl From<&DeadLetterList> for View {
    fn from(list: &DeadLetterList) -> View {
        let total: u64 = list.processors.iter().map(|count| count.letters).sum();
        let of = match list.filter.processor.as_str() {
            "" => "of all processors".to_owned(),
            name => format!("of processor {name}"),
        };
        let heading = html! {
            h1 { "Dead letters" }
            span class="sub" { (of) " · events that failed for good, with the reason of each attempt" }
        };
        let mut view = View::new(Screen::DeadLetters, "Dead letters", heading);
        if list.processors.is_empty() {
            let content = parts::empty(
                "No processor, so no dead letters. A processor sets an event aside here when its handler refuses it for good.",
                "[processors.charge]\nhub = \"orders\"\nhandler = { url = \"http://127.0.0.1:9000/charge\" }",
            );
            view.live("letters", Span::Full, content);
            return view;
        }
        view.live("counts", Span::Full, counts(list, total));
        // The reader puts check marks on rows, so they must not move below them.
        view.fixed("letters", Span::Full, letters(list));
        view.dialogs = bulk::dialog();
        view.scripts = bulk::SCRIPT;
        view
    }
}

fn counts(list: &DeadLetterList, total: u64) -> Markup {
    html! {
        (parts::heading("Processors", &format!("{} in all", format::plural(total, "dead letter")), none()))
        div class="scroll" { (parts::table(&["processor", "dead-letter hub", "circuit", "#dead letters"], html! {
            @for count in &list.processors {
                tr {
                    td { a href={ "/console/processors/" (format::segment(&count.processor)) } { (parts::name(&count.processor)) } }
                    td { code { (count.hub) } }
                    td {
                        (count.circuit)
                        @if count.circuit != "closed" { span class="sub" { ": resume before you replay" } }
                    }
                    td class="num" { (letters_link(&count.processor, count.letters)) }
                }
            }
        })) }
    }
}

fn letters(list: &DeadLetterList) -> Markup {
    let all = list.filter.processor.is_empty();
    html! {
        (parts::heading("Letters", "oldest first", actions(list)))
        (filter(list))
        @if list.letters.is_empty() {
            @if list.error.is_some() {} @else if list.filter.is_empty() {
                (parts::empty("None waits: every event was handled.", &match &*list.filter.processor {
                    "" => "highwater dlq list PROCESSOR".to_owned(),
                    name => format!("highwater dlq list {name}"),
                }))
            } @else {
                div class="empty" { p { "No dead letter matches the filter." } a href="/console/dead-letters" { "Show all" } }
            }
        } @else { (dead_letter_rows(&list.letters, all, list.may_manage)) }
        (parts::next_page(list.next.as_deref()))
    }
}

/// Replay and purge: of those with a check mark, and of all that match.
fn actions(list: &DeadLetterList) -> Markup {
    if !list.may_manage || list.letters.is_empty() {
        return none();
    }
    let chosen = |count: &&DeadLetterCount| {
        list.filter.processor.is_empty() || list.filter.processor == count.processor
    };
    let calls = |verb: &str| -> Vec<BulkCall> {
        let call = |count: &DeadLetterCount| BulkCall {
            name: count.processor.clone(),
            path: format!(
                "/api/dead-letters/{}/{verb}",
                format::segment(&count.processor)
            ),
            body: list.filter.body(),
        };
        list.processors.iter().filter(chosen).map(call).collect()
    };
    let make = |label, verb, path: &str, selected, danger| Bulk {
        label,
        verb,
        noun: "dead letter",
        calls: calls(path),
        selected,
        danger,
        ..Bulk::default()
    };
    html! {
        (bulk::button(&make("Replay selected…", "Replay", "replay", true, false)))
        (bulk::button(&make("Purge selected…", "Purge", "purge", true, true)))
        (bulk::button(&make("Replay all that match…", "Replay", "replay", false, false)))
        (bulk::button(&make("Purge all that match…", "Purge", "purge", false, true)))
    }
}

fn filter(list: &DeadLetterList) -> Markup {
    let query = &list.filter;
    html! {
        form class="tools filter" method="get" action="/console/dead-letters" {
            label { "processor" select name="processor" {
                option value="" selected[query.processor.is_empty()] { "all" }
                @for count in &list.processors { option value=(count.processor) selected[count.processor == query.processor] { (count.processor) } }
            } }
            label { "reason" input name="reason" value=(query.reason) placeholder="contains" size="14"; }
            label { "key" input name="key" value=(query.key) size="10"; }
            label { "id" input name="id" value=(query.id) placeholder="hub/0@17" size="12"; }
            label { "from, UTC" input type="datetime-local" step="1" name="from" value=(query.from); }
            label { "until, UTC" input type="datetime-local" step="1" name="until" value=(query.until); }
            button { "Filter" }
            @if !query.is_empty() { a href="/console/dead-letters" { "clear" } }
            @if let Some(error) = &list.error { p class="field-error" role="alert" { (error) } }
        }
    }
}

/// Dead letters as rows; `of_all` names their processors, `selectable` has check marks.
pub(crate) fn dead_letter_rows(
    letters: &[DeadLetterRow],
    of_all: bool,
    selectable: bool,
) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr {
                @if selectable { th class="check" { input type="checkbox" data-check-all aria-label="Select all of this page"; } }
                th { "event" } @if of_all { th { "processor" } } th { "key" } th { "since" } th class="num" { "attempts" } th class="num" { "replays" } th { "last reason" }
            } }
            tbody {
                @for letter in letters {
                    tr {
                        @if selectable { td class="check" { input type="checkbox" data-item=(letter.id) data-of=(letter.processor) aria-label={ "Select " (letter.id) }; } }
                        td class="nowrap" { a href=(dead_letter_path(&letter.processor, &letter.id)) { (parts::name(&letter.id)) } }
                        @if of_all { td { (parts::name(&letter.processor)) } }
                        td { @match &letter.key { Some(key) => code { (parts::name(key)) }, None => span class="faint" { "none" } } }
                        td class="nowrap" { (parts::time(letter.dead_ms, Precision::Full)) }
                        td class="num" { (letter.tries) }
                        td class="num" { (letter.replays) }
                        td class="reason" { (letter.reason) }
                    }
                }
            }
        } }
    }
}
