//! The parts that pages are made of.

use maud::{Markup, PreEscaped, html};

use crate::format::{self, Precision};

/// The severity of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Quiet,
    Good,
    Warn,
    Bad,
}

impl Tone {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Tone::Quiet => "quiet",
            Tone::Good => "good",
            Tone::Warn => "warn",
            Tone::Bad => "bad",
        }
    }
}

/// One of the figures at the top of a page, with its last minutes.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    pub label: &'static str,
    pub value: String,
    pub tone: Tone,
    /// Oldest first, at even distances.
    pub history: Vec<f64>,
}

impl Figure {
    pub fn new(label: &'static str, value: String) -> Figure {
        Figure {
            label,
            value,
            ..Figure::default()
        }
    }

    pub fn history(self, history: Vec<f64>) -> Figure {
        Figure { history, ..self }
    }

    pub fn bad_if(self, is_bad: bool) -> Figure {
        let tone = if is_bad { Tone::Bad } else { self.tone };
        Figure { tone, ..self }
    }
}

/// The row of figures.
pub(crate) fn figures(figures: &[Figure]) -> Markup {
    html! {
        @for figure in figures {
            div class={ "panel kpi " (figure.tone.class()) } {
                small { (figure.label) }
                b title=(figure.value) { (figure.value) }
                (sparkline(&figure.history, false))
            }
        }
    }
}

pub(crate) fn pill(tone: Tone, text: &str) -> Markup {
    html! { span class={ "pill " (tone.class()) } { (text) } }
}

/// A line over the points, scaled to its own range; `inline` is the size of a table cell.
pub(crate) fn sparkline(points: &[f64], inline: bool) -> Markup {
    let class = if inline { "spark inline" } else { "spark" };
    let line = spark_path(points);
    html! {
        svg class=(class) viewBox="0 0 100 26" preserveAspectRatio="none" aria-hidden="true" {
            @if !line.is_empty() {
                path class="area" d={ (line) " L100,26 L0,26Z" } {}
                path class="line" d=(line) {}
            }
        }
    }
}

/// At most this many points of a sparkline are drawn: more would be indistinguishable.
const SPARK_POINTS_MAX: usize = 60;

fn spark_path(points: &[f64]) -> String {
    let points = &points[points.len().saturating_sub(SPARK_POINTS_MAX)..];
    if points.len() < 2 {
        return String::new();
    }
    let max = points.iter().copied().fold(f64::MIN, f64::max);
    let min = points.iter().copied().fold(f64::MAX, f64::min).min(0.0);
    let range = if max - min > 0.0 { max - min } else { 1.0 };
    let step = 100.0 / (points.len() - 1) as f64;
    let mut path = String::new();
    for (at, point) in points.iter().enumerate() {
        let begin = if at == 0 { 'M' } else { 'L' };
        let (x, y) = (step * at as f64, 23.0 - (point - min) / range * 20.0);
        path.push_str(&format!("{begin}{x:.1},{y:.1}"));
    }
    path
}

/// A bar that shows a share.
pub(crate) fn bar(share: f64, series: usize) -> Markup {
    let width = format!("{:.1}", share.clamp(0.0, 1.0) * 64.0);
    html! {
        svg class={ "bar p" (series % 4) } viewBox="0 0 64 6" preserveAspectRatio="none" aria-hidden="true" {
            rect class="rest" width="64" height="6" rx="3" {}
            rect width=(width) height="6" rx="3" {}
        }
    }
}

/// A time that the script shows in the reader's zone.
pub(crate) fn time(unix_ms: i64, precision: Precision) -> Markup {
    let short = match precision {
        Precision::Second => "s",
        Precision::Millisecond => "ms",
        Precision::Full => "full",
    };
    let iso = format::iso(unix_ms);
    html! {
        time datetime=(iso) title=(iso) data-ms=(unix_ms) data-p=(short) {
            (format::time(unix_ms, precision))
        }
    }
}

/// A name, cut in the middle if it is long.
pub(crate) fn name(name: &str) -> Markup {
    html! { span title=(name) { (format::shortened(name, 40)) } }
}

/// The address of a node in commands; a browser shows the one that it has reached.
const NODE_ADDRESS: &str = "http://127.0.0.1:8080";

/// How to get a first job on a running node.
pub(crate) const FIRST_JOB: &str = "highwater init my-project\n\
    highwater hub create readings\n\
    highwater hub create averages\n\
    highwater job start my-project/jobs/averages";

/// The text of an empty screen or panel: its usual content, and how to get it.
pub(crate) fn empty(sentence: &str, command: &str) -> Markup {
    html! {
        div class="empty" {
            p { (sentence) }
            @if !command.is_empty() {
                pre class="plain" {
                    @for (at, part) in command.split(NODE_ADDRESS).enumerate() {
                        @if at > 0 { span data-address="" { (NODE_ADDRESS) } }
                        (part)
                    }
                }
            }
        }
    }
}

/// A button that calls an operation of the API.
#[derive(Clone, Debug, Default)]
pub struct Action {
    pub label: &'static str,
    /// `POST /api/jobs/x/stop`
    pub call: String,
    /// A JSON text.
    pub body: Option<String>,
    /// The question before; none if empty.
    pub confirm: String,
    /// What to say when it is done; `{field}` is a field of the answer.
    pub done: String,
    /// The page to go to then.
    pub then: Option<String>,
    pub danger: bool,
}

pub(crate) fn action(action: &Action) -> Markup {
    let class = if action.danger { "danger" } else { "" };
    let confirm = (!action.confirm.is_empty()).then_some(&action.confirm);
    html! {
        button type="button" class=(class) data-call=(action.call) data-body=[&action.body]
            data-confirm=[confirm] data-done=(action.done) data-then=[&action.then] { (action.label) }
    }
}

/// The navigation of a list that is shown a page at a time.
#[derive(Clone, Debug, Default)]
pub struct Pager {
    /// Addresses of the pages before and after this one.
    pub before: Option<String>,
    pub after: Option<String>,
    /// What this page shows.
    pub text: String,
}

pub(crate) fn pages(pager: &Pager) -> Markup {
    let Pager {
        before,
        after,
        text,
    } = pager;
    html! {
        @if before.is_some() || after.is_some() || !text.is_empty() {
            div class="pages" {
                span { (text) }
                span class="grow" {}
                @if let Some(before) = before { a class="button small" href=(before) { "Earlier" } }
                @if let Some(after) = after { a class="button small" href=(after) { "Later" } }
            }
        }
    }
}

/// The heading of a panel; `more` stands at its right end.
pub(crate) fn heading(title: &str, sub: &str, more: Markup) -> Markup {
    html! {
        header {
            h2 { (title) }
            @if !sub.is_empty() { span class="sub" { (sub) } }
            span class="grow" {}
            (more)
        }
    }
}

/// A table. A heading that begins with `#` is that of a column of numbers, one with `~` is faint.
pub(crate) fn table(headings: &[&str], rows: Markup) -> Markup {
    html! {
        table {
            thead { tr {
                @for heading in headings {
                    @if let Some(number) = heading.strip_prefix('#') { th class="num" { (number) } }
                    @else if let Some(faint) = heading.strip_prefix('~') { th { span class="faint" { (faint) } } }
                    @else { th { (heading) } }
                }
            } }
            tbody { (rows) }
        }
    }
}

/// The end of a dialog's form: the button that does it, of this class, and one that closes the dialog.
pub(crate) fn dialog_buttons(close: &str, class: &str, go: &str) -> Markup {
    html! {
        div class="buttons" {
            button type="button" data-close { (close) }
            button class=(class) { (go) }
        }
    }
}

/// The link to the next page of a list, if there is one.
pub(crate) fn next_page(next: Option<&str>) -> Markup {
    html! {
        @if let Some(next) = next {
            div class="pages" { span class="grow" {} a class="button small" rel="next" href=(next) { "Next" } }
        }
    }
}

/// Nothing.
pub(crate) fn none() -> Markup {
    PreEscaped(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let shown = pill(Tone::Bad, "<script>alert(1)</script>").into_string();
        assert!(!shown.contains("<script>"), "{shown}");
        let action = Action {
            confirm: "\" onclick=\"x".to_owned(),
            ..Action::default()
        };
        let shown = super::action(&action).into_string();
        assert!(!shown.contains("\" onclick"), "{shown}");
    }

    #[test]
    fn a_sparkline_is_bounded_and_needs_two_points() {
        assert!(!sparkline(&[1.0], false).into_string().contains("path"));
        let many = vec![2.0; 10_000];
        assert!(sparkline(&many, true).into_string().len() < 2500);
    }
}
