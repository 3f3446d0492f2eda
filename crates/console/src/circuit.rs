//! The circuits: state, since when and why, failures over the last minutes, open and resume.

use maud::{Markup, html};

use crate::format::{self, Precision};
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Action, Tone};
use crate::processor_list::circuit_pill;

#[derive(Clone, Debug, Default)]
pub struct CircuitList {
    pub circuits: Vec<Circuit>,
    /// Circuits beyond the shown ones.
    pub more: u64,
}

/// The circuit of a processor.
#[derive(Clone, Debug, Default)]
pub struct Circuit {
    pub name: String,
    /// `closed`, `half-open` or `open`.
    pub state: &'static str,
    /// When it opened, unless it is closed.
    pub since_ms: Option<i64>,
    /// When it lets the next delivery probe the handler.
    pub until_ms: Option<i64>,
    pub why: Option<String>,
    pub rule: CircuitRule,
    pub failures: FailureHistory,
    /// Events that wait for it.
    pub waiting: Option<u64>,
    pub may_deploy: bool,
}

/// When a circuit opens and closes.
#[derive(Clone, Debug, Default)]
pub struct CircuitRule {
    /// More failures than this open it.
    pub failures_max: u32,
    pub window_seconds: f64,
    /// `None`: until a person resumes.
    pub open_for_seconds: Option<f64>,
    /// Successful probes that close it.
    pub successes: u32,
}

/// Failed calls in even intervals, oldest first.
#[derive(Clone, Debug, Default)]
pub struct FailureHistory {
    pub counts: Vec<u32>,
    pub interval_seconds: u32,
}

impl From<&CircuitList> for View {
    fn from(list: &CircuitList) -> View {
        let open = list
            .circuits
            .iter()
            .filter(|circuit| circuit.state == "open");
        let open = open.count() as u64;
        let heading = html! {
            h1 { "Circuits" }
            @match open {
                0 if list.circuits.is_empty() => {},
                0 => (parts::pill(Tone::Good, "none is open")),
                open => (parts::pill(Tone::Bad, &format!("{} open", format::count(open)))),
            }
            span class="sub" { "a circuit stops deliveries to a handler that is down, and loses nothing" }
        };
        let mut view = View::new(Screen::Circuits, "Circuits", heading);
        if list.circuits.is_empty() {
            let content = parts::empty(
                "No circuit exists. Every processor has one: it opens when its handler fails too often, and the events wait.",
                "[processors.charge]\nhub = \"orders\"\nhandler = { url = \"http://127.0.0.1:9000/charge\" }\n\
                 circuit = { failures = 10, window = \"30s\", open_for = \"30s\" }",
            );
            view.live("circuits", Span::Full, content);
            return view;
        }
        for circuit in &list.circuits {
            let id = format!("circuit-{}", circuit.name);
            let content = panel(
                circuit,
                html! {
                    a href={ "/console/processors/" (format::segment(&circuit.name)) } { (circuit.name) }
                },
            );
            view.live(id, Span::Half, content);
        }
        if list.more > 0 {
            let text = format::plural(list.more, "circuit");
            let content =
                html! { div class="body sub" { (text) " more: GET /api/circuits lists all." } };
            view.live("more", Span::Full, content);
        }
        view.dialogs = html! { @for circuit in &list.circuits { (open_dialog(circuit)) } };
        view
    }
}

/// A circuit with its chart and its actions.
pub(crate) fn panel(circuit: &Circuit, title: Markup) -> Markup {
    html! {
        header { h2 { (title) } span class="grow" {} (circuit_pill(circuit.state)) (actions(circuit)) }
        div class="body" {
            (explanation(circuit))
            (failure_chart(&circuit.failures))
            p class="sub below" { (rule_text(&circuit.rule)) }
        }
    }
}

/// Why the circuit has its state.
fn explanation(circuit: &Circuit) -> Markup {
    let waiting = match circuit.waiting {
        Some(events) => format!(
            "{} wait and are delivered in order.",
            format::plural(events, "event")
        ),
        None => "Events wait and are delivered in order.".to_owned(),
    };
    html! {
        @match circuit.state {
            "closed" => p class="sub above" { "Deliveries continue." },
            state => {
                p class="above" {
                    b class="bad-text" { @if state == "open" { "Deliveries have stopped" } @else { "Probing the handler" } }
                    @if let Some(since) = circuit.since_ms { " since " (parts::time(since, Precision::Full)) }
                    @if let Some(why) = &circuit.why { ": " (why) }
                }
                p class="sub above" {
                    (waiting)
                    @match (state, circuit.until_ms) {
                        ("open", Some(until)) => { " The next one probes the handler at " (parts::time(until, Precision::Second)) "." },
                        ("open", None) => " They wait until a person resumes.",
                        _ => "",
                    }
                }
            },
        }
    }
}

fn actions(circuit: &Circuit) -> Markup {
    let resume = Action {
        label: "Resume",
        call: format!(
            "POST /api/circuits/{}/close",
            format::segment(&circuit.name)
        ),
        done: format!("Deliveries of {} resume.", circuit.name),
        ..Action::default()
    };
    html! {
        @if circuit.may_deploy && circuit.state != "closed" { (parts::action(&resume)) }
        @if circuit.may_deploy && circuit.state != "open" { button type="button" data-dialog=(dialog_id(&circuit.name)) { "Open…" } }
    }
}

fn dialog_id(name: &str) -> String {
    format!("open-circuit-{name}")
}

/// Asks for the reason of opening a circuit by hand.
pub(crate) fn open_dialog(circuit: &Circuit) -> Markup {
    let id = dialog_id(&circuit.name);
    let title = format!("{id}-title");
    let call = format!("POST /api/circuits/{}/open", format::segment(&circuit.name));
    html! {
        @if circuit.may_deploy {
            dialog id=(id) aria-labelledby=(title) {
                form data-call=(call) data-done={ "Deliveries of " (circuit.name) " have stopped." } {
                    h2 id=(title) { "Stop the deliveries of " (circuit.name) "?" }
                    p class="sub" { "Its events wait until a person resumes. Nothing is lost." }
                    label class="field" { span { "Reason, shown while the circuit is open" } input name="why" maxlength="500" placeholder="maintenance of the handler"; }
                    (parts::dialog_buttons("Cancel", "danger", "Open the circuit"))
                }
            }
        }
    }
}

fn rule_text(rule: &CircuitRule) -> String {
    let window = format::seconds(rule.window_seconds);
    let after = match rule.open_for_seconds {
        Some(open_for) => format!(
            "it probes after {}, and {} it",
            format::seconds(open_for),
            match rule.successes {
                1 => "one success closes".to_owned(),
                many => format!("{many} successes close"),
            }
        ),
        None => "then a person resumes".to_owned(),
    };
    let failures = format::plural(rule.failures_max.into(), "failed call");
    format!("Opens after more than {failures} within {window}; {after}.")
}

/// Bars of failed calls, scaled to the largest.
pub(crate) fn failure_chart(history: &FailureHistory) -> Markup {
    let largest = history.counts.iter().copied().max().unwrap_or(0);
    let total: u64 = history.counts.iter().copied().map(u64::from).sum();
    let slots = history.counts.len().max(1);
    let width = 300.0 / slots as f64;
    let minutes = slots as f64 * f64::from(history.interval_seconds) / 60.0;
    let span = format!("{minutes:.0} min");
    let each = format::seconds(history.interval_seconds.into());
    html! {
        figure class="failures" {
            figcaption { b { (format::plural(total, "failed call")) } " in the last " (span) ", at most " (largest) " in " (each) }
            svg viewBox="0 0 300 48" preserveAspectRatio="none" role="img" aria-label={ (format::plural(total, "failed call")) " in the last " (span) } {
                line x1="0" y1="47.5" x2="300" y2="47.5" {}
                @for (at, count) in history.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    @let height = 44.0 * f64::from(*count) / f64::from(largest);
                    rect x=(format!("{:.1}", at as f64 * width)) y=(format!("{:.1}", 47.0 - height))
                        width=(format!("{:.1}", (width - 0.6).max(0.6))) height=(format!("{height:.1}")) {}
                }
            }
            div class="axis" aria-hidden="true" { span { "−" (span) } span { "now" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_circuit_tells_why_and_offers_to_resume() {
        let circuit = Circuit {
            name: "<b>".into(),
            state: "open",
            why: Some("<script>".into()),
            may_deploy: true,
            ..Circuit::default()
        };
        let shown = panel(&circuit, html! { (circuit.name) }).into_string();
        assert!(
            shown.contains("data-call=\"POST /api/circuits/%3Cb%3E/close\""),
            "{shown}"
        );
        assert!(
            shown.contains("&lt;script&gt;") && !shown.contains("<b>\""),
            "{shown}"
        );
        let seen = panel(
            &Circuit {
                may_deploy: false,
                ..circuit
            },
            html! {},
        )
        .into_string();
        assert!(!seen.contains("data-call"), "{seen}");
    }
}
