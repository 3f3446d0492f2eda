//! The list of processors.

use maud::{Markup, html};

use crate::format;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Tone};

#[derive(Clone, Debug, Default)]
pub struct ProcessorList {
    pub processors: Vec<ProcessorRow>,
    /// Processors beyond the shown ones.
    pub more: u64,
}

/// One processor in a list.
#[derive(Clone, Debug, Default)]
pub struct ProcessorRow {
    pub name: String,
    pub hub: String,
    /// `webhook` or `command`.
    pub handler: &'static str,
    /// The address or the program, without secrets.
    pub target: String,
    /// `closed`, `half-open` or `open`.
    pub circuit: &'static str,
    /// The error that stopped the pipeline of a partition.
    pub trouble: Option<String>,
    pub handled_per_second: f64,
    pub history: Vec<f64>,
    /// Events handled since the start.
    pub handled: u64,
    /// Failed calls since the start.
    pub failures: u64,
    /// Unknown while the groups are loading.
    pub behind: Option<u64>,
    pub dead_letters: u64,
}

impl ProcessorRow {
    /// The state of the processor as a pill.
    pub(crate) fn state(&self) -> Markup {
        let (tone, text) = match (self.circuit, &self.trouble, self.behind) {
            ("open", ..) => (Tone::Bad, "stopped"),
            ("half-open", ..) => (Tone::Warn, "probing"),
            (_, Some(_), _) => (Tone::Warn, "restarting"),
            (_, None, Some(0)) => (Tone::Good, "caught up"),
            _ => (Tone::Good, "delivering"),
        };
        parts::pill(tone, text)
    }
}

/// The colour of a circuit's state.
pub(crate) fn circuit_pill(state: &str) -> Markup {
    let tone = match state {
        "open" => Tone::Bad,
        "half-open" => Tone::Warn,
        _ => Tone::Good,
    };
    parts::pill(tone, state)
}

/// A number of dead letters, as a link to them.
pub(crate) fn letters_link(processor: &str, letters: u64) -> Markup {
    let address = format!(
        "/console/dead-letters?processor={}",
        format::segment(processor)
    );
    html! {
        @if letters == 0 { "0" } @else { a class="bad-text" href=(address) { (format::count(letters)) } }
    }
}

impl From<&ProcessorList> for View {
    fn from(list: &ProcessorList) -> View {
        let stopped = list.processors.iter().filter(|row| row.circuit == "open");
        let stopped = stopped.count() as u64;
        let heading = html! {
            h1 { "Processors" }
            @if stopped > 0 { (parts::pill(Tone::Bad, &format!("{} stopped", format::count(stopped)))) }
            span class="sub" { "each hands the events of a hub to a handler" }
        };
        let mut view = View::new(Screen::Processors, "Processors", heading);
        let content = match list.processors.is_empty() {
            true => parts::empty(
                "No processor is set up. A processor hands the events of a hub to a webhook or a program, with retries, \
                 a circuit and dead letters.",
                "[processors.charge]\nhub = \"orders\"\nhandler = { url = \"http://127.0.0.1:9000/charge\" }",
            ),
            false => html! {
                (parts::heading("Processors", "", html! { a href="/console/circuits" { "circuits" } }))
                (rows(&list.processors))
                @if list.more > 0 { div class="note" { (format::plural(list.more, "processor")) " more: GET /api/processors lists all." } }
            },
        };
        view.live("processors", Span::Full, content);
        view
    }
}

fn rows(processors: &[ProcessorRow]) -> Markup {
    html! {
        div class="scroll" { (parts::table(&["processor", "state", "from → to", "#handled", "~minute",
            "#failed calls", "#behind", "#dead letters", "circuit"], html! {
            @for row in processors {
                tr class=[row.trouble.as_ref().map(|_| "with")] {
                    td class="nowrap" { a href={ "/console/processors/" (format::segment(&row.name)) } { (parts::name(&row.name)) } }
                    td { (row.state()) }
                    td {
                        a href={ "/console/hubs/" (format::segment(&row.hub)) } { (parts::name(&row.hub)) }
                        " → " span class="sub" title=(row.target) { (format::shortened(&row.target, 28)) }
                    }
                    td class="num" { (format::rate(row.handled_per_second)) }
                    td { (parts::sparkline(&row.history, true)) }
                    td class="num" { (format::count(row.failures)) }
                    td class="num" { (behind(row.behind)) }
                    td class="num" { (letters_link(&row.name, row.dead_letters)) }
                    td { (circuit_pill(row.circuit)) }
                }
                @if let Some(trouble) = &row.trouble { tr { td class="trouble" colspan="9" { (trouble) } } }
            }
        })) }
    }
}

pub(crate) fn behind(events: Option<u64>) -> String {
    events.map_or("–".to_owned(), |events| format::plural(events, "event"))
}
