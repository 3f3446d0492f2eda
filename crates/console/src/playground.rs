//! The playground: a query and events in the browser, and their results. The script does the rest
//! (`assets/playground.js`): every change is run by `POST /api/playground`, which stores nothing.

use maud::{Markup, html};

use crate::layout::{Screen, Span, View};
use crate::parts::{self, none};

/// The page; it needs nothing of the node.
pub fn playground() -> View {
    let heading = html! {
        h1 { "Playground" }
        span class="sub" { "Nothing is stored." }
        span class="grow" {}
        button type="button" data-dialog="examples" { "Examples…" }
        button type="button" data-dialog="sample" { "Sample of a hub…" }
        button type="button" id="save-case" title="query, events and the rows of now, for highwater test" { "Save as case" }
        button type="button" id="save-job" title="query and events, for highwater run" { "Save as job" }
        button type="button" class="primary" id="copy-link" title="the link carries query, events and policy" { "Copy link" }
    };
    let mut view = View::new(Screen::Playground, "Playground", heading);
    view.fixed("query", Span::Half, query());
    view.fixed("policy", Span::Half, policy());
    view.fixed("events", Span::Half, events());
    view.fixed("time", Span::Half, picture());
    view.fixed("rows", Span::Half, rows());
    view.fixed("fate", Span::Half, fate());
    view.fixed("plan", Span::Full, plan());
    view.dialogs = dialogs();
    view.scripts = &["picture.js", "playground.js"];
    view
}

fn query() -> Markup {
    html! {
        (parts::heading("Query", "", html! { span id="verdict" class="pill quiet" role="status" { "…" } }))
        div class="body" {
            div class="editor" {
                pre id="highlighted" aria-hidden="true" {}
                textarea id="text" aria-label="Query" spellcheck="false" autocapitalize="off" autocomplete="off" wrap="off" {}
            }
            div id="problems" aria-live="polite" {}
        }
    }
}

/// A slider over durations; the script has the scale.
fn slider(name: &str, label: &str) -> Markup {
    html! { label class="slider" { (label) input type="range" name=(name) min="0" value="0"; b {} } }
}

fn choice(name: &str, label: &str) -> Markup {
    html! {
        label { (label) " " select name=(name) { option { "adjust" } option { "drop" } } }
    }
}

fn policy() -> Markup {
    html! {
        (parts::heading("Time policy", "", none()))
        form class="body" id="policy-form" {
            (slider("late_arrival", "late arrival"))
            (slider("out_of_order", "out of order"))
            (slider("early_arrival", "early arrival"))
            div class="legend tools" {
                (choice("late_events", "late:"))
                (choice("out_of_order_events", "out of order:"))
                (choice("early_events", "early:"))
            }
        }
    }
}

fn events() -> Markup {
    html! {
        header {
            h2 { "Events" }
            span class="sub" id="event-count" {}
            span class="grow" {}
            div class="tabs" role="group" aria-label="Input" id="inputs" {}
            div class="tabs" role="group" aria-label="Form" id="event-forms" {
                button type="button" data-form="table" aria-pressed="true" { "Table" }
                button type="button" data-form="lines" aria-pressed="false" { "JSON lines" }
            }
            button type="button" class="small" id="add-event" { "+ add" }
        }
        div class="scroll short" id="event-table" tabindex="0" role="region" aria-label="Events" {}
        div class="body" id="event-lines" hidden {
            textarea class="lines" id="lines" aria-label="Events as JSON lines" spellcheck="false" wrap="off" {}
            div class="tools" {
                label { "arrival from field " input id="arrival" size="10" placeholder="none"; }
                label { "partition from field " input id="partition" size="10" placeholder="none"; }
                label { input id="reference" type="checkbox"; " reference data" }
            }
        }
    }
}

fn picture() -> Markup {
    html! {
        (parts::heading("How time moved", "", none()))
        div class="body" {
            div class="picture" id="picture" {}
            div class="legend" {
                span { "● on time" } span { "○→● adjusted" } span class="bad-text" { "✕ dropped" } span class="p0" { "━ watermark" }
                span { "wheel: zoom, drag: move, double click: back" }
            }
        }
    }
}

fn fate() -> Markup {
    html! {
        (parts::heading("Fate of one event", "", none()))
        div class="body" id="fate-body" aria-live="polite" tabindex="0" {
            p class="sub" { "Click an event of the table or the picture to see its fate and the reason." }
        }
    }
}

fn rows() -> Markup {
    html! {
        header {
            h2 { "Rows" }
            span class="sub" id="row-count" {}
            span class="grow" {}
            div class="tabs" role="group" aria-label="Output" id="outputs" {}
            div class="tabs" role="group" aria-label="Form" id="row-forms" {
                button type="button" data-form="table" aria-pressed="true" { "Table" }
                button type="button" data-form="json" aria-pressed="false" { "JSON" }
            }
        }
        div class="scroll short" id="row-table" tabindex="0" role="region" aria-label="Rows" {}
    }
}

fn plan() -> Markup {
    html! {
        (parts::heading("Plan and what a start reads", "", none()))
        div class="body" { pre class="plain" id="explain" tabindex="0" {} }
    }
}

fn dialogs() -> Markup {
    html! {
        dialog id="examples" aria-labelledby="examples-title" {
            div class="body" {
                h2 id="examples-title" { "Examples" }
                ul class="problems" id="example-list" {}
                div class="buttons" { button type="button" data-close { "Close" } }
            }
        }
        dialog id="sample" aria-labelledby="sample-title" {
            form id="sample-form" {
                h2 id="sample-title" { "Sample of a hub" }
                p class="sub" { "The latest events of the hub replace those of the shown input; the node keeps the hub as it is." }
                label class="field" { span { "Hub" } select name="hub" {} }
                label class="field" { span { "Events" } input name="max" type="number" min="1" max="500" value="50"; }
                p class="field-error" role="alert" {}
                (parts::dialog_buttons("Cancel", "primary", "Take"))
            }
        }
    }
}
