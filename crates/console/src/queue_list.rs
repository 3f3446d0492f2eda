//! The list of queues.

use maud::{Markup, html};

use crate::format;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Pager, Tone, none};

#[derive(Clone, Debug, Default)]
pub struct QueueList {
    pub queues: Vec<QueueRow>,
    /// All that the reader may see.
    pub total: u64,
    pub pager: Pager,
    pub may_create: bool,
}

/// One queue in a list.
#[derive(Clone, Debug, Default)]
pub struct QueueRow {
    pub name: String,
    pub counts: QueueCounts,
    /// How long its oldest message has been waiting.
    pub oldest_seconds: Option<f64>,
    pub sent_per_second: f64,
    pub completed_per_second: f64,
    pub history: Vec<f64>,
    /// Why its state is unknown.
    pub trouble: Option<String>,
}

/// Messages of a queue by state.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCounts {
    pub active: u64,
    pub locked: u64,
    pub scheduled: u64,
    pub deferred: u64,
    pub dead: u64,
    pub bytes: u64,
}

impl From<&QueueList> for View {
    fn from(list: &QueueList) -> View {
        let heading = html! {
            h1 { "Queues" }
            span class="sub" { (format::plural(list.total, "queue")) }
            span class="grow" {}
            @if list.may_create { button type="button" data-dialog="new-queue" { "New queue" } }
        };
        let mut view = View::new(Screen::Queues, "Queues", heading);
        view.live("queues", Span::Full, content(list));
        if list.may_create {
            view.dialogs = new_queue();
        }
        view
    }
}

fn content(list: &QueueList) -> Markup {
    if list.total == 0 {
        return parts::empty(
            "No queue exists yet. A queue hands each message to one receiver, which settles it.",
            "highwater queue create orders\nhighwater queue send orders '{\"order\":1}'",
        );
    }
    html! {
        (parts::heading("Queues", "", none()))
        div class="scroll" { (parts::table(&["queue", "#active", "#locked", "#scheduled", "#deferred",
            "#dead letters", "#oldest", "#in", "#done", "~minute", "#size"], html! {
            @for queue in &list.queues { (row(queue)) }
        })) }
        (parts::pages(&list.pager))
    }
}

fn row(queue: &QueueRow) -> Markup {
    let QueueCounts {
        active,
        locked,
        scheduled,
        deferred,
        dead,
        bytes,
    } = queue.counts;
    html! {
        tr class=[queue.trouble.as_ref().map(|_| "with")] {
            td class="nowrap" {
                a href={ "/console/queues/" (format::segment(&queue.name)) } { (parts::name(&queue.name)) }
                @if queue.trouble.is_some() { " " (parts::pill(Tone::Bad, "stopped")) }
            }
            @for count in [active, locked, scheduled, deferred] { td class="num" { (format::count(count)) } }
            td class="num" { span class=[(dead > 0).then_some("bad-text")] { (format::count(dead)) } }
            td class="num" { @match queue.oldest_seconds { Some(age) => (format::seconds(age)), None => "–" } }
            td class="num" { (format::rate(queue.sent_per_second)) }
            td class="num" { (format::rate(queue.completed_per_second)) }
            td { (parts::sparkline(&queue.history, true)) }
            td class="num" { (format::bytes(bytes)) }
        }
        @if let Some(trouble) = &queue.trouble { tr { td class="trouble" colspan="11" { (trouble) } } }
    }
}

fn new_queue() -> Markup {
    html! {
        dialog id="new-queue" aria-labelledby="new-queue-title" {
            form data-call="POST /api/queues" data-done="Queue {name} is there." data-then="/console/queues" {
                h2 id="new-queue-title" { "New queue" }
                label class="field" { span { "Name" } input name="name" required maxlength="200" autocomplete="off"; }
                label class="field" { span { "A lock lasts" } input name="lock" placeholder="60s"; }
                label class="field" {
                    span { "Deliveries before a message is a dead letter" }
                    input name="deliveries_max" data-type="number" type="number" min="1" placeholder="10";
                }
                label class="field" { span { "Messages live for" } input name="time_to_live" placeholder="forever"; }
                label { input type="checkbox" name="sessions"; " received by session, in order" }
                p class="field-error" role="alert" {}
                (parts::dialog_buttons("Cancel", "primary", "Create"))
            }
        }
    }
}
