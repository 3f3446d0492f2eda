//! The overview: rates, problems with their remedies, and backlogs.

use maud::{Markup, html};

use crate::hub_list::HubRow;
use crate::job_list::{JobRow, job_rows};
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Action, Figure, Tone};
use crate::{format, parts::none};

#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub figures: Vec<Figure>,
    pub problems: Vec<Problem>,
    pub jobs: Vec<JobRow>,
    pub backlogs: Vec<Backlog>,
    pub hubs: Vec<HubRow>,
    /// How long the node has been up, in seconds.
    pub uptime_seconds: f64,
    pub version: String,
}

/// A problem, its cause and its remedy.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    pub tone: Tone,
    pub what: String,
    pub why: String,
    /// The remedy.
    pub advice: String,
    /// The page with more about it.
    pub link: String,
    pub action: Option<Action>,
}

/// A reader that has events to catch up with.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    pub kind: &'static str,
    pub name: String,
    pub link: String,
    pub events: u64,
    /// At the present rate; `None` if it does not catch up.
    pub seconds_left: Option<f64>,
}

impl From<&Overview> for View {
    fn from(overview: &Overview) -> View {
        let bad = overview
            .problems
            .iter()
            .filter(|problem| problem.tone == Tone::Bad);
        let state = match (bad.count() as u64, overview.problems.is_empty()) {
            (0, true) => parts::pill(Tone::Good, "all is well"),
            (0, false) => parts::pill(Tone::Warn, "needs a look"),
            (bad, _) => parts::pill(
                Tone::Bad,
                &format!("{} to solve", format::plural(bad, "problem")),
            ),
        };
        let heading = html! {
            h1 { "Overview" }
            (state)
            span class="sub" {
                "Highwater " (overview.version) " · up " (format::seconds(overview.uptime_seconds))
            }
        };
        let mut view = View::new(Screen::Overview, "Overview", heading);
        view.figures(&overview.figures);
        view.live("problems", Span::Main, problems(&overview.problems));
        view.live("backlogs", Span::Side, backlogs(&overview.backlogs));
        view.live("jobs", Span::Main, jobs(&overview.jobs));
        view.live("hubs", Span::Side, hubs(&overview.hubs));
        view
    }
}

fn problems(problems: &[Problem]) -> Markup {
    html! {
        (parts::heading("Needs attention", "", none()))
        @if problems.is_empty() {
            div class="empty" { "Nothing is broken: every job runs, every circuit is closed, nothing was set aside." }
        } @else {
            ul class="problems" {
                @for problem in problems {
                    li class=(problem.tone.class()) {
                        span class="dot" aria-hidden="true" {}
                        div {
                            b { a href=(problem.link) { (problem.what) } }
                            @if !problem.why.is_empty() { p { (problem.why) } }
                            @if !problem.advice.is_empty() { p { (problem.advice) } }
                        }
                        div class="act" {
                            @if let Some(action) = &problem.action { (parts::action(action)) }
                        }
                    }
                }
            }
        }
    }
}

fn backlogs(backlogs: &[Backlog]) -> Markup {
    html! {
        (parts::heading("Backlogs", "", none()))
        @if backlogs.is_empty() {
            div class="empty" { "Every job, processor and queue keeps up." }
        } @else {
            div class="scroll" { (parts::table(&["reader", "#events", "caught up in"], html! {
                @for backlog in backlogs {
                    tr {
                        td { a href=(backlog.link) { (parts::name(&backlog.name)) } " " span class="sub" { (backlog.kind) } }
                        td class="num" { (format::count(backlog.events)) }
                        td class="nowrap" {
                            @match backlog.seconds_left {
                                Some(seconds) => (format::seconds(seconds)),
                                None => span class="warn-text" { "not at this rate" },
                            }
                        }
                    }
                }
            })) }
        }
    }
}

fn jobs(jobs: &[JobRow]) -> Markup {
    html! {
        (parts::heading("Jobs", "", html! { a href="/console/jobs" { "all jobs" } }))
        @if jobs.is_empty() {
            (parts::empty("No job runs on this node. A job is a query over hubs.", parts::FIRST_JOB))
        } @else { (job_rows(jobs)) }
    }
}

fn hubs(hubs: &[HubRow]) -> Markup {
    html! {
        (parts::heading("Hubs", "busiest first", html! { a href="/console/hubs" { "all hubs" } }))
        @if hubs.is_empty() {
            (parts::empty("No hub has events yet.", "curl -d '{\"n\":1}' http://127.0.0.1:8080/hubs/first/messages"))
        } @else {
            div class="scroll" { (parts::table(&["hub", "#events", "~minute", "#stored"], html! {
                @for hub in hubs {
                    tr {
                        td { a href={ "/console/hubs/" (format::segment(&hub.name)) } { (parts::name(&hub.name)) } }
                        td class="num" { (format::rate(hub.per_second)) }
                        td { (parts::sparkline(&hub.history, true)) }
                        td class="num" { (format::bytes(hub.bytes)) }
                    }
                }
            })) }
        }
    }
}
