//! The page of one queue: its messages, sessions, scheduled messages and dead letters.

use maud::{Markup, html};

use crate::format::{self, Precision};
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Action, Figure, Pager, Tone, none};
use crate::payload::Payload;
use crate::queue_list::QueueCounts;

#[derive(Clone, Debug, Default)]
pub struct QueuePage {
    pub name: String,
    pub figures: Vec<Figure>,
    pub counts: QueueCounts,
    /// Name and value.
    pub settings: Vec<(&'static str, String)>,
    /// Counters since the start of the node, name and value.
    pub totals: Vec<(&'static str, u64)>,
    pub has_sessions: bool,
    pub may_send: bool,
    pub may_manage: bool,
    /// `None` while the page is live: the lists stay as the reader asked for them.
    pub lists: Option<QueueLists>,
}

/// Messages and sessions, a page of each.
#[derive(Clone, Debug, Default)]
pub struct QueueLists {
    pub messages: Vec<QueueMessage>,
    pub pager: Pager,
    pub dead: Vec<QueueMessage>,
    pub dead_pager: Pager,
    /// Of dead letters that can be returned: how many, and why they are dead, such as `9 expired, 3 refused`.
    pub dead_unlocked: u64,
    pub dead_locked: u64,
    pub dead_reasons: String,
    /// Those that are due first.
    pub scheduled: Vec<QueueMessage>,
    pub sessions: Vec<QueueSession>,
    pub sessions_pager: Pager,
    /// Why the messages from the asked sequence number cannot be shown.
    pub error: Option<String>,
    /// As it was entered.
    pub from: String,
}

#[derive(Clone, Debug, Default)]
pub struct QueueMessage {
    pub sequence: u64,
    pub state: &'static str,
    /// When it was enqueued; of a scheduled one, when it is due.
    pub time_ms: i64,
    pub expires_ms: Option<i64>,
    pub deliveries: u64,
    pub id: Option<String>,
    pub session: Option<String>,
    pub content_type: Option<String>,
    pub properties: Vec<(String, String)>,
    pub dead_letter: Option<DeadLetterCause>,
    pub body: Payload,
}

#[derive(Clone, Debug, Default)]
pub struct DeadLetterCause {
    pub reason: String,
    pub description: String,
    pub time_ms: i64,
}

#[derive(Clone, Debug, Default)]
pub struct QueueSession {
    pub name: String,
    pub ready: u64,
    pub locked: u64,
    pub locked_until_ms: Option<i64>,
    pub state_bytes: u64,
}

impl From<&QueuePage> for View {
    fn from(queue: &QueuePage) -> View {
        let mut view = View::new(Screen::Queues, &queue.name, heading(queue));
        view.figures(&queue.figures);
        let Some(lists) = &queue.lists else {
            view.live("totals", Span::Side, totals(queue));
            return view;
        };
        view.fixed("messages", Span::Main, messages(queue, lists));
        view.fixed("settings", Span::Side, settings(queue));
        view.fixed("dead", Span::Main, dead_letters(queue, lists));
        view.live("totals", Span::Side, totals(queue));
        if !lists.scheduled.is_empty() {
            view.fixed("scheduled", Span::Main, scheduled(queue, lists));
        }
        if queue.has_sessions {
            view.fixed("sessions", Span::Main, sessions(lists));
        }
        if queue.may_send {
            view.dialogs = send_dialog(queue);
        }
        view.scripts = &["messages.js"];
        view
    }
}

fn path(queue: &QueuePage) -> String {
    format!("/console/queues/{}", format::segment(&queue.name))
}

fn heading(queue: &QueuePage) -> Markup {
    let segment = format::segment(&queue.name);
    html! {
        h1 { a class="up" href="/console/queues" { "Queues" } " / " (parts::name(&queue.name)) }
        @match queue.counts.dead {
            0 => (parts::pill(Tone::Good, "no dead letters")),
            dead => (parts::pill(Tone::Bad, &format::plural(dead, "dead letter"))),
        }
        span class="sub" { @if queue.has_sessions { "received by session" } @else { "first in, first out" } }
        span class="grow" {}
        @if queue.may_manage {
            (parts::action(&Action {
                label: "Purge",
                call: format!("POST /queues/{segment}/purge"),
                confirm: format!("Delete all messages of {} that are not locked: active, scheduled and deferred ones? They are lost. Dead letters stay.", queue.name),
                done: "{removed} messages are deleted.".into(),
                then: Some(path(queue)),
                danger: true,
                ..Action::default()
            }))
        }
        @if queue.may_send { button type="button" data-dialog="send" { "Send a message" } }
    }
}

fn messages(queue: &QueuePage, lists: &QueueLists) -> Markup {
    html! {
        (parts::heading("Messages", "peeked at: nothing is locked or delivered", html! {
            form class="tools" method="get" action=(path(queue)) {
                label { "from number " input name="from" size="8" inputmode="numeric" value=(lists.from) placeholder="1"; }
                button class="small" { "Peek" }
            }
        }))
        @if let Some(error) = &lists.error { p class="field-error note" role="alert" { (error) } }
        @else if lists.messages.is_empty() {
            (parts::empty("No message is here. Receivers take them as they come; send one:",
                &format!("highwater queue send {} '{{\"order\":1}}'", queue.name)))
        } @else { (message_list(queue, "enqueued", &lists.messages)) }
        (parts::pages(&lists.pager))
    }
}

fn dead_letters(queue: &QueuePage, lists: &QueueLists) -> Markup {
    let segment = format::segment(&queue.name);
    let stay = match lists.dead_locked {
        0 => String::new(),
        locked => format!(
            " Locked by receivers, so they stay: {}.",
            format::count(locked)
        ),
    };
    let all = Action {
        label: "All back to the queue",
        call: format!("POST /queues/{segment}/$deadletter/resubmit"),
        body: Some("{\"all\":true}".into()),
        confirm: format!(
            "Return {} to {}? {}.{stay} They are delivered again, with a count of 0.",
            format::plural(lists.dead_unlocked, "dead letter"),
            queue.name,
            lists.dead_reasons
        ),
        done: "{settled} dead letters are back in the queue.".into(),
        then: Some(path(queue)),
        danger: false,
    };
    let purge = Action {
        label: "Purge",
        call: format!("POST /queues/{segment}/$deadletter/purge"),
        confirm: format!(
            "Delete {} of {}? They are lost.",
            format::plural(lists.dead_unlocked, "dead letter"),
            queue.name
        ),
        done: "{removed} dead letters are deleted.".into(),
        then: Some(path(queue)),
        danger: true,
        ..Action::default()
    };
    html! {
        (parts::heading("Dead letters", &lists.dead_reasons, html! {
            @if queue.may_manage && lists.dead_unlocked > 0 { (parts::action(&all)) (parts::action(&purge)) }
        }))
        @if lists.dead.is_empty() { div class="empty" { "No message was set aside." } }
        @else { (message_list(queue, "enqueued", &lists.dead)) }
        (parts::pages(&lists.dead_pager))
    }
}

fn scheduled(queue: &QueuePage, lists: &QueueLists) -> Markup {
    html! {
        (parts::heading("Scheduled", "due first", none()))
        (message_list(queue, "due", &lists.scheduled))
    }
}

/// `time` says what the times of the messages are.
fn message_list(queue: &QueuePage, time: &str, messages: &[QueueMessage]) -> Markup {
    html! {
        div class="events messages" {
            div class="event-head" aria-hidden="true" { span { "number" } span { (time) } span { "state" } span { "body" } }
            @for message in messages { (message_entry(queue, message)) }
        }
    }
}

fn message_entry(queue: &QueuePage, message: &QueueMessage) -> Markup {
    let tone = match message.state {
        "locked" => Tone::Warn,
        "active" => Tone::Good,
        _ => Tone::Quiet,
    };
    html! {
        details class="event" {
            summary {
                span class="mono" { (message.sequence) }
                // A message may be due in years: a time of day alone would mislead.
                span class="mono" { @match message.state {
                    "scheduled" => (parts::time(message.time_ms, Precision::Full)),
                    _ => (parts::time(message.time_ms, Precision::Millisecond)),
                } }
                span {
                    @match &message.dead_letter {
                        Some(dead) => span class="bad-text" title=(dead.reason) { (dead.reason) },
                        None => (parts::pill(tone, message.state)),
                    }
                }
                span class="mono" { (message.body.preview()) }
            }
            div class="opened" {
                div { (message.body.body()) }
                div { (message_facts(message)) (message_action(queue, message)) }
            }
        }
    }
}

fn message_facts(message: &QueueMessage) -> Markup {
    let dead = message.dead_letter.as_ref();
    html! {
        dl class="facts" {
            dt { "Number" } dd { (message.sequence) }
            @if dead.is_none() { dt { "State" } dd { (message.state) } }
            dt { @if message.state == "scheduled" { "Due" } @else { "Enqueued" } } dd { (parts::time(message.time_ms, Precision::Full)) }
            dt { "Deliveries" } dd { (message.deliveries) }
            @if let Some(at) = message.expires_ms { dt { "Expires" } dd { (parts::time(at, Precision::Full)) } }
            @if let Some(dead) = dead {
                dt { "Set aside" } dd { (parts::time(dead.time_ms, Precision::Full)) }
                dt { "Reason" } dd { (dead.reason) }
                @if !dead.description.is_empty() { dt { "Description" } dd { (dead.description) } }
            }
            @if let Some(id) = &message.id { dt { "Id" } dd { (id) } }
            @if let Some(session) = &message.session { dt { "Session" } dd { (session) } }
            @if let Some(kind) = &message.content_type { dt { "Content type" } dd { (kind) } }
            dt { "Body" } dd { (message.body.description()) }
            @for (name, value) in &message.properties { dt { (name) } dd { (value) } }
        }
    }
}

fn message_action(queue: &QueuePage, message: &QueueMessage) -> Markup {
    let segment = format::segment(&queue.name);
    let body = format!("{{\"sequences\":[{}]}}", message.sequence);
    let (label, allowed, operation, done) = match (message.state, &message.dead_letter) {
        ("locked", _) => return none(),
        (_, Some(_)) => (
            "Back to the queue",
            queue.may_manage,
            "$deadletter/resubmit",
            "is back in the queue",
        ),
        ("scheduled", None) => ("Cancel it", queue.may_send, "cancel", "is cancelled"),
        _ => return none(),
    };
    html! {
        @if allowed {
            p { (parts::action(&Action {
                label,
                call: format!("POST /queues/{segment}/{operation}"),
                body: Some(body),
                done: format!("Message {} {done}.", message.sequence),
                then: Some(path(queue)),
                ..Action::default()
            })) }
        }
    }
}

fn sessions(lists: &QueueLists) -> Markup {
    html! {
        (parts::heading("Sessions", "", none()))
        @if lists.sessions.is_empty() { div class="empty" { "No session has a message, a lock or a state." } }
        @else {
            div class="scroll" { (parts::table(&["session", "#active", "#locked", "receiver", "#state"], html! {
                @for session in &lists.sessions {
                    tr {
                        td { (parts::name(&session.name)) }
                        td class="num" { (format::plural(session.ready, "message")) }
                        td class="num" { (format::plural(session.locked, "message")) }
                        td class="nowrap" {
                            @match session.locked_until_ms {
                                Some(until) => { "until " (parts::time(until, Precision::Second)) },
                                None => "none",
                            }
                        }
                        td class="num" { (format::bytes(session.state_bytes)) }
                    }
                }
            })) }
        }
        (parts::pages(&lists.sessions_pager))
    }
}

fn settings(queue: &QueuePage) -> Markup {
    html! {
        (parts::heading("Settings", "", none()))
        div class="body" { dl class="facts" {
            @for (name, value) in &queue.settings { dt { (name) } dd { (value) } }
        } }
    }
}

fn totals(queue: &QueuePage) -> Markup {
    html! {
        (parts::heading("Since the start of the node", "", none()))
        div class="body" { dl class="facts" {
            @for (name, count) in &queue.totals { dt { (name) } dd { (format::plural(*count, "message")) } }
        } }
    }
}

fn send_dialog(queue: &QueuePage) -> Markup {
    html! {
        dialog id="send" aria-labelledby="send-title" {
            form data-send={ "/queues/" (format::segment(&queue.name)) "/messages" }
                data-done="Message {sequence} is in the queue." data-then=(path(queue)) {
                h2 id="send-title" { "Send a message to " (parts::name(&queue.name)) }
                label class="field" {
                    span { "Body: JSON, or any text" }
                    textarea class="lines" name="body" rows="8" required spellcheck="false" { "{\n  \n}" }
                }
                @if queue.has_sessions {
                    label class="field" { span { "Session" } input data-header="x-session-id" required maxlength="128" autocomplete="off"; }
                }
                label class="field" { span { "Id, which detects duplicates" } input data-header="x-message-id" maxlength="128" autocomplete="off" placeholder="none"; }
                label class="field" { span { "Not before" } input data-header="x-schedule-at" autocomplete="off" placeholder="at once, or a time such as 2026-12-24T18:00:00Z"; }
                label class="field" { span { "Lives for" } input data-header="x-time-to-live" autocomplete="off" placeholder="as the queue says, or 90s"; }
                p class="field-error" role="alert" {}
                (parts::dialog_buttons("Close", "primary", "Send"))
            }
        }
    }
}
