//! The list of jobs.

use maud::{Markup, html};

use crate::format;
use crate::layout::{Screen, Span, View};
use crate::parts::{self, Tone, none};

#[derive(Clone, Debug, Default)]
pub struct JobList {
    pub jobs: Vec<JobRow>,
}

/// One job in a list.
#[derive(Clone, Debug, Default)]
pub struct JobRow {
    pub name: String,
    pub state: &'static str,
    /// Why it failed, or its first alarm.
    pub trouble: Option<String>,
    pub events_per_second: f64,
    pub rows_per_second: f64,
    pub history: Vec<f64>,
    pub watermark_delay_seconds: Option<f64>,
    pub backlog: u64,
    pub rows: u64,
}

/// The colour of a job's state.
pub(crate) fn state_tone(state: &str, troubled: bool) -> Tone {
    match state {
        "failed" => Tone::Bad,
        "running" | "replaying" | "starting" if troubled => Tone::Warn,
        "running" => Tone::Good,
        "starting" | "replaying" | "stopping" => Tone::Warn,
        _ => Tone::Quiet,
    }
}

impl From<&JobList> for View {
    fn from(list: &JobList) -> View {
        let running = list
            .jobs
            .iter()
            .filter(|job| job.state == "running")
            .count();
        let heading = html! {
            h1 { "Jobs" }
            span class="sub" { (format::count(running as u64)) " of " (list.jobs.len()) " running" }
        };
        let mut view = View::new(Screen::Jobs, "Jobs", heading);
        let content = match list.jobs.is_empty() {
            true => parts::empty(
                "No job is deployed. A job is a streaming query with its inputs and outputs.",
                parts::FIRST_JOB,
            ),
            false => html! { (parts::heading("Jobs", "", none())) (job_rows(&list.jobs)) },
        };
        view.live("jobs", Span::Full, content);
        view
    }
}

pub(crate) fn job_rows(jobs: &[JobRow]) -> Markup {
    html! {
        div class="scroll" { (parts::table(&["job", "state", "#events in", "~minute", "#rows out", "#delay",
            "#backlog"], html! {
            @for job in jobs {
                tr class=[job.trouble.as_ref().map(|_| "with")] {
                    td class="nowrap" { a href={ "/console/jobs/" (format::segment(&job.name)) } { (parts::name(&job.name)) } }
                    td {
                        (parts::pill(state_tone(job.state, job.trouble.is_some()), job.state))
                    }
                    td class="num" { (format::rate(job.events_per_second)) }
                    td { (parts::sparkline(&job.history, true)) }
                    td class="num" { (format::rate(job.rows_per_second)) }
                    td class="num" { @match job.watermark_delay_seconds { Some(delay) => (format::seconds(delay)), None => "–" } }
                    td class="num nowrap" { (format::plural(job.backlog, "event")) }
                }
                @if let Some(trouble) = &job.trouble { tr { td class="trouble" colspan="7" { (trouble) } } }
            }
        })) }
    }
}
