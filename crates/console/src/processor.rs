//! The page of a processor: its circuit, partitions, newest figures and settings.

use maud::{Markup, html};

use crate::circuit::{self, Circuit};
use crate::dead_letter_list::{DeadLetterRow, dead_letter_rows};
use crate::format;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Figure, none};
use crate::processor_list::{ProcessorRow, behind};

#[derive(Clone, Debug, Default)]
pub struct ProcessorPage {
    pub row: ProcessorRow,
    pub group: String,
    pub figures: Vec<Figure>,
    pub circuit: Circuit,
    pub partitions: Vec<ProcessorPartition>,
    /// The address of the next partitions.
    pub next: Option<String>,
    pub partitions_total: u64,
    /// The oldest dead letters; none without the right to read them.
    pub letters: Vec<DeadLetterRow>,
    pub may_read_letters: bool,
    /// The settings, by name.
    pub settings: Vec<(&'static str, String)>,
}

/// The position of a processor in a partition.
#[derive(Clone, Debug, Default)]
pub struct ProcessorPartition {
    pub number: u32,
    /// This node delivers its events.
    pub here: bool,
    /// The next offset to deliver.
    pub position: Option<i64>,
    pub end: i64,
    pub behind: u64,
    pub trouble: Option<String>,
}

impl From<&ProcessorPage> for View {
    fn from(page: &ProcessorPage) -> View {
        let row = &page.row;
        let heading = html! {
            h1 { (row.name) }
            (row.state())
            span class="sub" {
                "hub " a href={ "/console/hubs/" (format::segment(&row.hub)) } { (row.hub) }
                " → " (row.handler) " " code { (row.target) }
            }
        };
        let mut view = View::new(Screen::Processors, row.name.clone(), heading);
        view.figures(&page.figures);
        view.live(
            "circuit",
            Span::Half,
            circuit::panel(&page.circuit, html! { "Circuit" }),
        );
        view.live("settings", Span::Half, settings(page));
        view.live("partitions", Span::Full, partitions(page));
        // Reading them scans their hub, which is too much for every second.
        view.fixed("letters", Span::Full, letters(page));
        view.dialogs = circuit::open_dialog(&page.circuit);
        view
    }
}

fn settings(page: &ProcessorPage) -> Markup {
    html! {
        (parts::heading("Settings", &format!("[processors.{}]", page.row.name), none()))
        div class="body" { dl class="facts" {
            dt { "group" } dd { code { (page.group) } }
            @for (name, value) in &page.settings { dt { (name) } dd { (value) } }
        } }
    }
}

fn partitions(page: &ProcessorPage) -> Markup {
    let total = format::plural(page.partitions_total, "partition");
    html! {
        (parts::heading("Partitions", &total, none()))
        @if page.partitions.is_empty() {
            (parts::empty("The hub does not exist yet. It appears with its first event.", &format!(
                "curl -d '{{\"n\":1}}' http://127.0.0.1:8080/hubs/{}/messages", page.row.hub
            )))
        } @else {
            div class="scroll" tabindex="0" { (parts::table(&["partition", "delivered by", "#next offset", "#end",
                "#behind", "trouble"], html! {
                @for partition in &page.partitions {
                    tr {
                        td { (partition.number) }
                        td { @if partition.here { "this node" } @else { span class="sub" { "another instance" } } }
                        td class="num" { @match partition.position { Some(offset) => (format::count(offset.max(0) as u64)), None => span class="sub" { "none yet" } } }
                        td class="num" { (format::count(partition.end.max(0) as u64)) }
                        td class="num" { (behind(Some(partition.behind))) }
                        td { @if let Some(trouble) = &partition.trouble { span class="bad-text" { (trouble) } } @else { span class="faint" { "–" } } }
                    }
                }
            })) }
            (parts::next_page(page.next.as_deref()))
        }
    }
}

fn letters(page: &ProcessorPage) -> Markup {
    let all = format!(
        "/console/dead-letters?processor={}",
        format::segment(&page.row.name)
    );
    html! {
        (parts::heading("Dead letters", "oldest first", html! { a href=(all) { "all " (format::count(page.row.dead_letters)) } }))
        @if !page.may_read_letters {
            div class="empty" { "This key may not read the dead-letter hub of the processor." }
        } @else if page.letters.is_empty() {
            div class="empty" { "None. An event that fails for good is set aside here, with the reason of each attempt." }
        } @else { (dead_letter_rows(&page.letters, false, false)) }
    }
}
