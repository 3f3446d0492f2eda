//! The page of one job.

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::format::{bytes, count, percent, plural, rate, seconds};
use highwater_console::job::{
    CheckpointFacts, DataError, JobInput, JobPage, LogRow, OutputRow, PartitionRow, Verdicts,
};
use highwater_console::parts::{Figure, Tone};
use highwater_console::plan::Step;
use highwater_job::live::{
    Handle, InputStatus, JobState, JobStatus, OutputStatus, PartitionStatus,
};
use highwater_job::{DataErrorSample, JobPart, JobStep, plan_steps};
use highwater_time::{Duration, Instant};

use super::{Context, jobs};
use crate::http::error::Error;
use crate::http::jobs::telemetry::{StepFacts, step_facts};
use crate::http::jobs::{reason, state_name};
use crate::jobs::{HistoryPoint, JobView};
use crate::text::percent_decode;

/// Rows of each table.
const ROWS_MAX: usize = 50;

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let [name] = context.variables.all();
    let name = percent_decode(name);
    let jobs = context.app.backend()?.jobs.as_ref();
    let none = || Error::not_found("this node runs no jobs", "");
    let jobs = jobs.ok_or_else(none)?;
    let (job, handle) = (jobs.view(&name)?, jobs.handle(&name)?);
    Ok(View::from(&page(context, &job, handle.as_deref())))
}

fn page(context: &Context<'_>, job: &JobView, handle: Option<&Handle>) -> JobPage {
    let deployment = Resource::Deployment(&job.name);
    let mut page = JobPage {
        name: job.name.clone(),
        state: state_name(job),
        reason: reason(job).map(str::to_owned),
        in_settings: job.declared,
        may_deploy: context.caller.may(Right::Deploy, deployment),
        query: job.query.clone(),
        ..JobPage::default()
    };
    if let Some(status) = &job.status {
        page.figures = figures(status, &jobs::history(context, &job.name));
        fill(&mut page, context, status);
    }
    if let (Some(status), Some(handle)) = (&job.status, handle) {
        let late = handle.job().file.time.late_arrival;
        page.late_bound_ms = Some(late.ticks() / Duration::from_millis(1).ticks());
        page.plan = plan(context, status, handle);
        page.data_errors = handle.data_errors().into_iter().map(data_error).collect();
    }
    page
}

fn fill(page: &mut JobPage, context: &Context<'_>, status: &JobStatus) {
    if let JobState::Replaying { events, of } = status.state {
        page.progress_percent = (of > 0).then(|| events as f64 / of as f64 * 100.0);
    }
    page.alarms = status.alarms.clone();
    page.inputs = status.inputs.iter().map(input).collect();
    page.verdicts = verdicts(status);
    page.partitions = partitions(context, status);
    let all = status.inputs.iter().map(|input| input.partitions.len());
    page.partitions_more = all.sum::<usize>().saturating_sub(page.partitions.len()) as u64;
    page.outputs = outputs(status);
    page.errors_total = lost(status);
    page.log = log(status);
    let checkpoint = &status.checkpoint;
    let known = checkpoint.number > 0 || checkpoint.problem.is_some();
    page.checkpoint = known.then(|| CheckpointFacts {
        number: checkpoint.number,
        time_ms: checkpoint.at.and_then(unix_ms),
        bytes: checkpoint.bytes,
        pause_seconds: checkpoint.pause.as_secs_f64(),
        trouble: checkpoint.problem.clone(),
    });
}

/// The steps of the plan, coloured by delay and back-pressure.
fn plan(context: &Context<'_>, status: &JobStatus, handle: &Handle) -> Vec<Step> {
    let (steps, figures) = (plan_steps(handle.job()), handle.step_figures());
    let facts: Vec<StepFacts> = steps
        .iter()
        .map(|step| step_facts(step, status, &figures))
        .collect();
    let counters = facts.iter().map(|facts| facts.rows.unwrap_or(0)).collect();
    let (meter, now) = (
        format!("{} steps", status.name),
        context.app.clock.elapsed(),
    );
    let rates = context.app.console.figures.rates(meter, now, counters);
    let now_ms = context.app.clock.unix_millis();
    let late = handle.job().file.time.late_arrival;
    let late_seconds = late.ticks() as f64 / Duration::from_secs(1).ticks() as f64;
    let show = |(at, (step, facts)): (usize, (&JobStep, &StepFacts))| {
        let per_second = rates.as_ref().and_then(|rates| rates.get(at).copied());
        let load = StepLoad::of(step, facts, status, now_ms, late_seconds);
        Step {
            id: step.id.clone(),
            label: step.label.clone(),
            inputs: step.inputs.clone(),
            facts: step_text(facts, &load, per_second),
            watermark: load
                .delay_seconds
                .map(|delay| format!("watermark {} ago", seconds(delay))),
            tone: match status.state.is_over() {
                true => Tone::Quiet,
                false => load.tone(per_second),
            },
        }
    };
    steps.iter().zip(&facts).enumerate().map(show).collect()
}

fn step_text(facts: &StepFacts, load: &StepLoad, per_second: Option<f64>) -> String {
    let rows = facts.rows.unwrap_or(0);
    let mut parts = vec![match per_second {
        Some(per_second) => rate(per_second).replace("/s", "rows/s"),
        None => plural(rows, "row"),
    }];
    parts.extend(facts.state_bytes.filter(|size| *size > 0).map(bytes));
    let backlog = load.backlog.filter(|backlog| *backlog > 0);
    parts.extend(backlog.map(|backlog| format!("{} behind", count(backlog))));
    let waiting = facts.waiting.filter(|waiting| *waiting > 0);
    parts.extend(waiting.map(|waiting| format!("{} waiting", count(waiting))));
    parts.join(" · ")
}

/// Seconds of watermark delay, beyond what the policy waits for late events, from which a step is shown as slow and as
/// stalled.
const DELAY_WARN_SECONDS: f64 = 30.0;
const DELAY_BAD_SECONDS: f64 = 300.0;

/// Back-pressure: the backlog of a step takes this long at its present rate.
const QUEUE_WARN_SECONDS: f64 = 10.0;

/// Less than this is the work of one moment.
const QUEUE_MIN: u64 = 1_000;

/// The delay of a step.
struct StepLoad {
    /// Of its watermark.
    delay_seconds: Option<f64>,
    /// How long the policy waits for late events: the watermark of a silent partition is that far behind.
    late_seconds: f64,
    /// Events of a source that are not read yet.
    backlog: Option<u64>,
    /// The backlog of the step: events that are not read, or rows that an output has not taken.
    queued: u64,
    /// An output that takes no rows.
    is_blocked: bool,
}

impl StepLoad {
    fn of(
        step: &JobStep,
        facts: &StepFacts,
        status: &JobStatus,
        now_ms: i64,
        late_seconds: f64,
    ) -> StepLoad {
        let backlog = match step.part {
            JobPart::Source(input) => status.inputs.get(input).map(|input| {
                let partitions = input.partitions.iter();
                partitions.map(|partition| partition.backlog).sum()
            }),
            _ => None,
        };
        let output = match step.part {
            JobPart::Output(index) => status.outputs.get(index),
            _ => None,
        };
        let watermark = facts.watermark.and_then(unix_ms);
        StepLoad {
            delay_seconds: watermark.map(|time| (now_ms - time).max(0) as f64 / 1000.0),
            late_seconds,
            backlog,
            queued: backlog.or(output.map(|output| output.waiting)).unwrap_or(0),
            is_blocked: output.is_some_and(|output| output.problem.is_some()),
        }
    }

    fn tone(&self, per_second: Option<f64>) -> Tone {
        let rate = per_second.unwrap_or(0.0).max(1.0);
        let is_queued = self.queued >= QUEUE_MIN && self.queued as f64 / rate > QUEUE_WARN_SECONDS;
        match self.delay_seconds.map(|delay| delay - self.late_seconds) {
            _ if self.is_blocked => Tone::Bad,
            Some(delay) if delay >= DELAY_BAD_SECONDS => Tone::Bad,
            Some(delay) if delay >= DELAY_WARN_SECONDS => Tone::Warn,
            _ if is_queued => Tone::Warn,
            _ => Tone::Quiet,
        }
    }
}

fn input(input: &InputStatus) -> JobInput {
    let hubs = input.partitions.iter();
    JobInput {
        name: input.name.clone(),
        hubs: hubs
            .map(|partition| partition.place.hub.to_string())
            .collect(),
    }
}

fn all_partitions(status: &JobStatus) -> impl Iterator<Item = &PartitionStatus> {
    status.inputs.iter().flat_map(|input| &input.partitions)
}

fn figures(status: &JobStatus, history: &[HistoryPoint]) -> Vec<Figure> {
    let figure = |label, value: String, of: fn(&HistoryPoint) -> f64| {
        Figure::new(label, value).history(jobs::series(history, of))
    };
    let (events, rows) = (
        jobs::recent(history, |point| point.events_per_second),
        jobs::recent(history, |point| point.rows_per_second),
    );
    let backlog: u64 = all_partitions(status)
        .map(|partition| partition.backlog)
        .sum();
    let delay = status.watermark_delay.map(|delay| delay.as_secs_f64());
    let moved = history.iter().map(|point| point.moved_share).sum::<f64>();
    let moved = moved / history.len().max(1) as f64;
    vec![
        figure("events in", rate(events), |point| point.events_per_second),
        figure("rows out", rate(rows), |point| point.rows_per_second),
        figure(
            "watermark delay",
            delay.map_or("–".to_owned(), seconds),
            jobs::delay,
        ),
        figure("backlog", plural(backlog, "event"), |point| {
            point.backlog as f64
        }),
        figure("adjusted or dropped", percent(moved), |point| {
            point.moved_share
        }),
        figure("state", bytes(status.checkpoint.bytes), |point| {
            point.state_bytes as f64
        }),
    ]
}

fn verdicts(status: &JobStatus) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for partition in all_partitions(status) {
        let time = &partition.time;
        verdicts.adjusted += time.early_adjusted + time.late_adjusted + time.out_of_order_adjusted;
        verdicts.dropped += time.early_dropped + time.late_dropped + time.out_of_order_dropped;
        verdicts.on_time += partition.events;
    }
    verdicts.on_time = verdicts
        .on_time
        .saturating_sub(verdicts.adjusted + verdicts.dropped);
    verdicts
}

fn partitions(context: &Context<'_>, status: &JobStatus) -> Vec<PartitionRow> {
    let now_ms = context.app.clock.unix_millis();
    let shown = all_partitions(status).take(ROWS_MAX);
    let counters = shown.map(|partition| partition.events).collect();
    let (meter, now) = (
        format!("{} partitions", status.name),
        context.app.clock.elapsed(),
    );
    let rates = context.app.console.figures.rates(meter, now, counters);
    let delay_of = |partition: &PartitionStatus| {
        unix_ms(partition.watermark).map(|time| (now_ms - time).max(0) as f64 / 1000.0)
    };
    let largest = all_partitions(status)
        .filter_map(delay_of)
        .fold(0.0, f64::max);
    let inputs = status.inputs.iter().enumerate();
    let rows = inputs.flat_map(|(at, input)| {
        let numbered = input.partitions.iter().enumerate();
        numbered.map(move |(number, partition)| {
            let delay = delay_of(partition);
            PartitionRow {
                input: input.name.clone(),
                hub: partition.place.to_string(),
                partition: number as u32,
                offset: partition.next.0.max(0) as u64,
                per_second: None,
                backlog: partition.backlog,
                watermark_ms: unix_ms(partition.watermark),
                delay_seconds: delay,
                delay_share: delay.unwrap_or(0.0) / largest.max(0.001),
                // As in picture.js.
                series: (at * 2 + number) % 4,
            }
        })
    });
    let mut rows: Vec<PartitionRow> = rows.take(ROWS_MAX).collect();
    for (row, rate) in rows.iter_mut().zip(rates.into_iter().flatten()) {
        row.per_second = Some(rate);
    }
    rows
}

fn outputs(status: &JobStatus) -> Vec<OutputRow> {
    let outputs = status.outputs.iter().take(ROWS_MAX);
    let row = |output: &OutputStatus| OutputRow {
        name: output.name.clone(),
        rows: output.rows,
        waiting: output.waiting,
        dropped: output.dropped,
        retries: output.retries,
        trouble: output.problem.clone(),
    };
    outputs.map(row).collect()
}

/// Events that were lost to errors, and rows that the query failed on.
fn lost(status: &JobStatus) -> u64 {
    let of = |partition: &PartitionStatus| {
        partition.deserialization_errors + partition.conversion_errors + partition.runtime_errors
    };
    all_partitions(status).map(of).sum::<u64>() + status.runtime_errors
}

fn data_error(error: DataErrorSample) -> DataError {
    DataError {
        time_ms: error.time.and_then(unix_ms),
        place: error.place,
        text: error.reason,
        event: error.event,
    }
}

fn log(status: &JobStatus) -> Vec<LogRow> {
    let lines = status.log.iter().rev().take(ROWS_MAX);
    let rows = lines.map(|line| LogRow {
        time_ms: line.time.to_unix_millis(),
        text: line.text.clone(),
    });
    rows.collect()
}

/// `None` before the first event and after the last.
fn unix_ms(time: Instant) -> Option<i64> {
    time.is_in_calendar().then(|| time.to_unix_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(delay_seconds: f64, queued: u64, per_second: f64) -> Tone {
        let load = StepLoad {
            delay_seconds: Some(delay_seconds + 3600.0),
            late_seconds: 3600.0,
            backlog: None,
            queued,
            is_blocked: false,
        };
        load.tone(Some(per_second))
    }

    #[test]
    fn a_step_is_coloured_by_delay_and_by_what_waits_for_it() {
        assert_eq!(tone(1.0, 0, 10.0), Tone::Quiet);
        assert_eq!(tone(31.0, 0, 10.0), Tone::Warn);
        assert_eq!(tone(301.0, 0, 10.0), Tone::Bad);
        assert_eq!(tone(1.0, 20_000, 1_000.0), Tone::Warn, "20 s of rows wait");
        assert_eq!(tone(1.0, 20_000, 10_000.0), Tone::Quiet);
        assert_eq!(tone(1.0, 900, 0.0), Tone::Quiet, "the work of one moment");
    }
}
