//! The list of hubs.

use maud::{Markup, html};

use crate::format;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Pager, Tone, none};

#[derive(Clone, Debug, Default)]
pub struct HubList {
    pub hubs: Vec<HubRow>,
    /// All that the reader may see.
    pub total: u64,
    pub pager: Pager,
    pub sharded: Vec<ShardedRow>,
    pub may_create: bool,
}

/// One hub in a list.
#[derive(Clone, Debug, Default)]
pub struct HubRow {
    pub name: String,
    pub partitions: u64,
    pub per_second: f64,
    pub history: Vec<f64>,
    pub bytes: u64,
    /// `7 d`, `forever`, `latest of each key`
    pub retention: String,
    /// Consumer groups with a position in it.
    pub groups: u64,
    /// Why it is unhealthy.
    pub trouble: Option<String>,
}

/// A name for several hubs.
#[derive(Clone, Debug, Default)]
pub struct ShardedRow {
    pub name: String,
    pub hubs: Vec<String>,
}

impl From<&HubList> for View {
    fn from(list: &HubList) -> View {
        let heading = html! {
            h1 { "Hubs" }
            span class="sub" { (format::plural(list.total, "hub")) }
            span class="grow" {}
            @if list.may_create { button type="button" data-dialog="new-hub" { "New hub" } }
        };
        let mut view = View::new(Screen::Hubs, "Hubs", heading);
        view.live("hubs", Span::Full, content(list));
        if !list.sharded.is_empty() {
            view.fixed("sharded", Span::Full, sharded(&list.sharded));
        }
        if list.may_create {
            view.dialogs = new_hub();
        }
        view
    }
}

fn content(list: &HubList) -> Markup {
    if list.total == 0 {
        return parts::empty(
            "No hub exists yet. A hub keeps events in partitions; it is made by the first event sent to it.",
            "highwater hub create first --partitions 4\ncurl -d '{\"n\":1}' http://127.0.0.1:8080/hubs/first/messages",
        );
    }
    html! {
        (parts::heading("Hubs", "", none()))
        div class="scroll" { (parts::table(&["hub", "#partitions", "#events", "~minute", "#stored", "kept for",
            "#groups", "state"], html! {
            @for hub in &list.hubs { (row(hub)) }
        })) }
        (parts::pages(&list.pager))
    }
}

fn row(hub: &HubRow) -> Markup {
    html! {
        tr class=[hub.trouble.as_ref().map(|_| "with")] {
            td class="nowrap" { a href={ "/console/hubs/" (format::segment(&hub.name)) } { (parts::name(&hub.name)) } }
            td class="num" { (format::count(hub.partitions)) }
            td class="num" { (format::rate(hub.per_second)) }
            td { (parts::sparkline(&hub.history, true)) }
            td class="num" { (format::bytes(hub.bytes)) }
            td class="nowrap" { (hub.retention) }
            td class="num" { (format::count(hub.groups)) }
            td {
                @match &hub.trouble {
                    Some(_) => (parts::pill(Tone::Bad, "refuses writes")),
                    None => (parts::pill(Tone::Good, "fine")),
                }
            }
        }
        @if let Some(trouble) = &hub.trouble { tr { td class="trouble" colspan="8" { (trouble) } } }
    }
}

fn sharded(rows: &[ShardedRow]) -> Markup {
    html! {
        (parts::heading("Sharded hubs", "one name for several hubs; a key goes to one of them", none()))
        div class="scroll" { (parts::table(&["name", "hubs"], html! {
            @for row in rows {
                tr {
                    td class="nowrap" { (parts::name(&row.name)) }
                    td {
                        @for hub in &row.hubs { a href={ "/console/hubs/" (format::segment(hub)) } { (hub) } " " }
                    }
                }
            }
        })) }
    }
}

fn new_hub() -> Markup {
    html! {
        dialog id="new-hub" aria-labelledby="new-hub-title" {
            form data-call="POST /api/hubs" data-done="Hub {name} is there." data-then="/console/hubs" {
                h2 id="new-hub-title" { "New hub" }
                label class="field" { span { "Name" } input name="name" required maxlength="200" autocomplete="off"; }
                label class="field" { span { "Partitions" } input name="partitions" data-type="number" type="number" min="1" value="4"; }
                label class="field" { span { "Events are kept for (12h, 7d, forever)" } input name="retention" placeholder="7d"; }
                p class="field-error" role="alert" {}
                (parts::dialog_buttons("Cancel", "primary", "Create"))
            }
        }
    }
}
