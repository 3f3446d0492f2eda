//! The overview: rates, problems with their remedies, and backlogs.

use highwater_access::Resource;
use highwater_console::View;
use highwater_console::format::{bytes, plural, rate, seconds, segment};
use highwater_console::hub_list::HubRow;
use highwater_console::job_list::JobRow;
use highwater_console::overview::{Backlog, Overview, Problem};
use highwater_console::parts::{Action, Figure, Tone};
use highwater_flow::circuit::CircuitState;

use super::figures::Figures;
use super::{Context, hubs, jobs, processors, queues, workflows};
use crate::http::app::Backend;
use crate::http::error::Error;
use crate::http::processors::{Position, is_open, positions};
use crate::jobs::HistoryPoint;
use crate::processors::Entry;

/// Rows of each list.
const ROWS_MAX: usize = 10;

/// A backlog that is read within this time is not shown.
const BACKLOG_SECONDS: f64 = 2.0;

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let backend = context.app.backend()?;
    let views = jobs::visible(context)?;
    let jobs: Vec<JobRow> = views.iter().map(|job| jobs::row(context, job)).collect();
    let hubs = hub_rows(context, backend);
    let mut overview = Overview {
        figures: figures(context, &jobs, &hubs),
        problems: problems(context, backend, &jobs),
        backlogs: backlogs(context, backend, &jobs).await,
        jobs,
        hubs,
        uptime_seconds: context.app.clock.elapsed().as_secs_f64(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    overview
        .problems
        .sort_by_key(|problem| problem.tone != Tone::Bad);
    overview.problems.truncate(ROWS_MAX);
    overview
        .jobs
        .sort_by(|a, b| b.events_per_second.total_cmp(&a.events_per_second));
    overview.jobs.truncate(ROWS_MAX);
    overview.hubs.truncate(ROWS_MAX);
    Ok(View::from(&overview))
}

/// Figures over what the caller may see, so that a key of one hub learns nothing of the others.
fn figures(context: &Context<'_>, jobs: &[JobRow], hubs: &[HubRow]) -> Vec<Figure> {
    let add = |a: f64, b: f64| a + b;
    let hub_history = hubs.iter().map(|hub| hub.history.clone()).collect();
    let histories = jobs.iter().map(|job| jobs::history(context, &job.name));
    let histories: Vec<Vec<HistoryPoint>> = histories.collect();
    let of_jobs = |value: fn(&HistoryPoint) -> f64, join: fn(f64, f64) -> f64| {
        let series = histories.iter().map(|points| jobs::series(points, value));
        joined(series.collect(), join)
    };
    let per_second = |of: fn(&JobRow) -> f64| rate(jobs.iter().map(of).sum());
    let delays = jobs.iter().filter_map(|job| job.watermark_delay_seconds);
    let delay = delays.reduce(f64::max).map_or("–".to_owned(), seconds);
    let backlog = plural(jobs.iter().map(|job| job.backlog).sum(), "event");
    vec![
        Figure::new(
            "events in",
            rate(hubs.iter().map(|hub| hub.per_second).sum()),
        )
        .history(joined(hub_history, add)),
        Figure::new(
            "events read by jobs",
            per_second(|job| job.events_per_second),
        )
        .history(of_jobs(|point| point.events_per_second, add)),
        Figure::new("rows out", per_second(|job| job.rows_per_second))
            .history(of_jobs(|point| point.rows_per_second, add)),
        Figure::new("watermark delay", delay).history(of_jobs(jobs::delay, f64::max)),
        Figure::new("backlog of jobs", backlog).history(of_jobs(|point| point.backlog as f64, add)),
        Figure::new(
            "stored in hubs",
            bytes(hubs.iter().map(|hub| hub.bytes).sum()),
        ),
    ]
}

/// Several series as one, aligned at their ends.
fn joined(series: Vec<Vec<f64>>, join: fn(f64, f64) -> f64) -> Vec<f64> {
    let length = series.iter().map(Vec::len).max().unwrap_or(0);
    let point = |back: usize| {
        let points = series
            .iter()
            .filter_map(|points| points.iter().rev().nth(back));
        points.copied().reduce(join).unwrap_or(0.0)
    };
    (0..length).rev().map(point).collect()
}

/// The busiest first.
fn hub_rows(context: &Context<'_>, backend: &Backend) -> Vec<HubRow> {
    let visible = hubs::visible(context, backend);
    let rows = visible.iter().map(|hub| hubs::row(context, backend, hub));
    let mut rows: Vec<HubRow> = rows.collect();
    rows.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    rows
}

fn problems(context: &Context<'_>, backend: &Backend, jobs: &[JobRow]) -> Vec<Problem> {
    let mut problems: Vec<Problem> = jobs.iter().filter_map(job_problem).collect();
    problems.extend(stopped_partitions(context, backend));
    for entry in processors::visible(context, backend) {
        problems.extend(processor_problems(&context.app.console.figures, entry));
    }
    for workflow in workflows::visible(context, backend) {
        let parked = context.app.console.figures.parked(workflow.name());
        if parked > 0 {
            problems.push(Problem {
                tone: Tone::Bad,
                what: format!("{} of workflow {} parked", plural(parked, "instance"), workflow.name()),
                why: "A compensation failed for good, so the instance can neither continue nor be undone.".into(),
                advice: "Look at the steps, repair the cause, then retry, skip or resolve.".into(),
                link: format!("/console/workflows?workflow={}&state=parked", segment(workflow.name())),
                action: None,
            });
        }
    }
    for queue in queues::visible(context, backend) {
        let dead = queue.counters().0.dead;
        if dead > 0 {
            problems.push(Problem {
                tone: Tone::Warn,
                what: format!("{} in queue {}", plural(dead, "dead letter"), queue.name()),
                advice: "Read why, then send them back to the queue or purge them.".into(),
                link: format!("/console/queues/{}", segment(queue.name())),
                ..Problem::default()
            });
        }
    }
    problems
}

fn job_problem(job: &JobRow) -> Option<Problem> {
    let link = format!("/console/jobs/{}", segment(&job.name));
    let why = job.trouble.clone()?;
    Some(match job.state {
        "failed" => Problem {
            tone: Tone::Bad,
            what: format!("Job {} failed", job.name),
            why,
            advice: "Repair the cause, then start it: it resumes from its last checkpoint.".into(),
            action: Some(Action {
                label: "Start",
                call: format!("POST /api/jobs/{}/start", segment(&job.name)),
                body: Some("{}".into()),
                done: format!("{} starts.", job.name),
                ..Action::default()
            }),
            link,
        },
        _ => Problem {
            tone: Tone::Warn,
            what: format!("Job {} has an alarm", job.name),
            why,
            advice: "The job retries by itself, and loses nothing meanwhile.".into(),
            link,
            action: None,
        },
    })
}

fn stopped_partitions(context: &Context<'_>, backend: &Backend) -> Vec<Problem> {
    let status = backend.hub.as_ref().map(|hub| hub.status());
    let partitions = status.into_iter().flat_map(|status| status.partitions);
    let stopped =
        partitions.filter_map(|partition| Some((partition.topic_partition, partition.stopped?)));
    stopped
        .filter(|(of, _)| context.may_see(Resource::Hub(of.hub.as_str())))
        .map(|(of, why)| Problem {
            tone: Tone::Bad,
            what: format!("Partition {of} accepts no writes"),
            why,
            advice: "Repair the disk and restart the node; what was acknowledged is kept.".into(),
            link: format!("/console/hubs/{}", segment(of.hub.as_str())),
            action: None,
        })
        .collect()
}

fn processor_problems(figures: &Figures, entry: &Entry) -> Vec<Problem> {
    let name = &entry.spec.name;
    let mut problems = Vec::new();
    if let CircuitState::Open { why, .. } = entry.circuit.state() {
        problems.push(Problem {
            tone: Tone::Bad,
            what: format!("The circuit of processor {name} is open"),
            why: why.to_string(),
            advice: "Repair the handler, then resume: the events that wait are delivered in order."
                .into(),
            link: "/console/circuits".into(),
            action: Some(Action {
                label: "Resume",
                call: format!("POST /api/circuits/{}/close", segment(name)),
                done: format!("Deliveries of {name} resume."),
                ..Action::default()
            }),
        });
    }
    let letters = figures.dead_letters(name);
    if letters > 0 {
        problems.push(Problem {
            tone: Tone::Warn,
            what: format!("{} of processor {name}", plural(letters, "dead letter")),
            advice: "Read why they were set aside, then replay or purge them.".into(),
            link: format!("/console/dead-letters?processor={}", segment(name)),
            ..Problem::default()
        });
    }
    problems
}

async fn backlogs(context: &Context<'_>, backend: &Backend, jobs: &[JobRow]) -> Vec<Backlog> {
    let mut all: Vec<Backlog> = jobs
        .iter()
        .filter(|job| job.backlog as f64 > job.events_per_second * BACKLOG_SECONDS)
        .map(|job| Backlog {
            kind: "job",
            name: job.name.clone(),
            link: format!("/console/jobs/{}", segment(&job.name)),
            events: job.backlog,
            seconds_left: (job.events_per_second > 0.0)
                .then(|| job.backlog as f64 / job.events_per_second),
        })
        .collect();
    for entry in processors::visible(context, backend) {
        // Unknown while groups are loading.
        let Ok(positions) = positions(context.app, entry).await else {
            continue;
        };
        let behind: i64 = positions.iter().map(Position::behind).sum();
        if behind > 0 && is_open(entry) {
            all.push(Backlog {
                kind: "processor",
                name: entry.spec.name.clone(),
                link: "/console/processors".into(),
                events: behind as u64,
                seconds_left: None,
            });
        }
    }
    all.sort_by_key(|backlog| std::cmp::Reverse(backlog.events));
    all.truncate(ROWS_MAX);
    all
}
