//! Operations on many items: a button opens a dialog, which runs the operation dry, shows how many items and which, and
//! carries it out when the reader confirms. `assets/bulk.js` is its script.

use maud::{Markup, html};

use crate::json::json_text;

/// The script of pages with [`buttons`](button).
pub(crate) const SCRIPT: &[&str] = &["bulk.js"];

/// An operation on all items that match a filter, or on those with a check mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bulk {
    pub label: &'static str,
    /// `Replay`, as the button of the dialog says it.
    pub verb: &'static str,
    /// `dead letter`
    pub noun: &'static str,
    pub calls: Vec<BulkCall>,
    /// Only the items with a check mark.
    pub selected: bool,
    /// The dialog asks for a note.
    pub note: bool,
    /// The steps to choose from; none if empty.
    pub steps: Vec<String>,
    pub danger: bool,
}

/// An operation of the API that takes `dry_run`, `after` and `max`.
#[derive(Clone, Debug, Default)]
pub(crate) struct BulkCall {
    /// The processor or workflow.
    pub name: String,
    pub path: String,
    /// A JSON object: the filter.
    pub body: String,
}

/// The button of an operation. One for items with a check mark is disabled until there are any.
pub(crate) fn button(bulk: &Bulk) -> Markup {
    let class = if bulk.danger { "small danger" } else { "small" };
    html! {
        button type="button" class=(class) data-bulk=(spec(bulk)) data-selected[bulk.selected] disabled[bulk.selected] { (bulk.label) }
    }
}

/// The parameters of the script, as JSON.
fn spec(bulk: &Bulk) -> String {
    let calls: Vec<String> = bulk
        .calls
        .iter()
        .map(|call| {
            let body = if call.body.is_empty() {
                "{}"
            } else {
                &call.body
            };
            format!(
                "{{\"name\":{},\"path\":{},\"body\":{body}}}",
                json_text(&call.name),
                json_text(&call.path)
            )
        })
        .collect();
    let steps: Vec<String> = bulk.steps.iter().map(|step| json_text(step)).collect();
    format!(
        "{{\"verb\":{},\"noun\":{},\"look\":{},\"note\":{},\"steps\":[{}],\"calls\":[{}]}}",
        json_text(bulk.verb),
        json_text(bulk.noun),
        json_text(if bulk.danger { "danger" } else { "primary" }),
        bulk.note,
        steps.join(","),
        calls.join(",")
    )
}

/// The dialog that the buttons of a page share.
pub(crate) fn dialog() -> Markup {
    html! {
        dialog id="bulk" aria-labelledby="bulk-title" {
            form {
                h2 id="bulk-title" {}
                label class="field" id="bulk-step" hidden { span { "Step whose compensation is skipped" } select name="step" {} }
                label class="field" id="bulk-note" hidden {
                    span { "Note, kept with the instance" }
                    input name="note" maxlength="1000" autocomplete="off" placeholder="what you did about it";
                }
                p id="bulk-count" role="status" {}
                ul id="bulk-items" class="items" {}
                p class="field-error" role="alert" {}
                div class="buttons" {
                    button type="button" data-close { "Cancel" }
                    button id="bulk-go" disabled { "Go" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_leave_their_attribute() {
        let bulk = Bulk {
            calls: vec![BulkCall {
                name: "\"><script>".into(),
                ..BulkCall::default()
            }],
            ..Bulk::default()
        };
        let shown = button(&bulk).into_string();
        assert!(
            !shown.contains("<script>") && !shown.contains("\"\\\""),
            "{shown}"
        );
    }
}
