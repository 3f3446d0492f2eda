//! The list of jobs.

use highwater_access::Resource;
use highwater_console::View;
use highwater_console::job_list::{JobList, JobRow};

use super::Context;
use crate::http::error::Error;
use crate::http::jobs::{reason, state_name};
use crate::jobs::{HistoryPoint, JobView};
use crate::text::parameter;

/// Points of a sparkline.
const POINTS_MAX: usize = 60;

pub(in crate::http) async fn list(context: &Context<'_>) -> Result<View, Error> {
    let state = parameter(context.query, "state");
    let mut jobs = visible(context)?;
    jobs.retain(|job| {
        state
            .as_deref()
            .is_none_or(|state| state == state_name(job))
    });
    Ok(View::from(&JobList {
        jobs: jobs.iter().map(|job| row(context, job)).collect(),
    }))
}

/// The jobs that the caller may see.
pub(super) fn visible(context: &Context<'_>) -> Result<Vec<JobView>, Error> {
    let jobs = context.app.backend()?.jobs.as_ref();
    let mut jobs = jobs.map(|jobs| jobs.list()).unwrap_or_default();
    jobs.retain(|job| context.may_see(Resource::Deployment(&job.name)));
    Ok(jobs)
}

pub(super) fn row(context: &Context<'_>, job: &JobView) -> JobRow {
    let status = job.status.as_ref();
    let history = history(context, &job.name);
    let alarm = status.and_then(|status| status.alarms.first());
    let partitions = status.iter().flat_map(|status| &status.inputs);
    let partitions = partitions.flat_map(|input| &input.partitions);
    let outputs = status.iter().flat_map(|status| &status.outputs);
    JobRow {
        name: job.name.clone(),
        state: state_name(job),
        trouble: reason(job).or(alarm.map(String::as_str)).map(str::to_owned),
        events_per_second: recent(&history, |point| point.events_per_second),
        rows_per_second: recent(&history, |point| point.rows_per_second),
        history: series(&history, |point| point.events_per_second),
        watermark_delay_seconds: status
            .and_then(|status| status.watermark_delay)
            .map(|delay| delay.as_secs_f64()),
        backlog: partitions.map(|partition| partition.backlog).sum(),
        rows: outputs.map(|output| output.rows).sum(),
    }
}

/// The last minutes of a job.
pub(super) fn history(context: &Context<'_>, job: &str) -> Vec<HistoryPoint> {
    let backend = context.app.backend().ok();
    let jobs = backend.and_then(|backend| backend.jobs.as_ref());
    let history = jobs.and_then(|jobs| jobs.history(job).ok());
    history.unwrap_or_default()
}

/// The mean of the last three seconds: a single one jumps.
pub(super) fn recent(history: &[HistoryPoint], value: fn(&HistoryPoint) -> f64) -> f64 {
    let last = &history[history.len().saturating_sub(3)..];
    last.iter().map(value).sum::<f64>() / last.len().max(1) as f64
}

/// The points of a sparkline: the mean of every few seconds, so that it shows all minutes.
pub(super) fn series(history: &[HistoryPoint], value: fn(&HistoryPoint) -> f64) -> Vec<f64> {
    let size = history.len().div_ceil(POINTS_MAX).max(1);
    let mean = |part: &[HistoryPoint]| part.iter().map(value).sum::<f64>() / part.len() as f64;
    history.chunks(size).map(mean).collect()
}

/// The watermark delay in seconds.
pub(super) fn delay(point: &HistoryPoint) -> f64 {
    point.watermark_delay.unwrap_or_default().as_secs_f64()
}
