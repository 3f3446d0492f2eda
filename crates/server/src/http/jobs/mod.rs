//! Jobs over HTTP: deployed, started, stopped, described.

mod event_fate;
mod samples;
pub(super) mod telemetry;

use std::borrow::Cow;
use std::sync::Arc;

use highwater_access::{Principal, Resource, Right};
use highwater_job::live::{
    Handle, InputStatus, JobState, JobStatus, OutputStatus, PartitionStatus,
};
use highwater_job::{JobStep, LoadError};
use highwater_time::{Instant, VerdictCounts};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::json_answer::JsonAnswer;
use super::reply::{self, Reply};
use crate::jobs::{Files, JobError, JobView, Jobs};
use crate::text::percent_decode;

pub(super) use event_fate::event_fate;
pub(super) use samples::samples;

fn jobs(app: &App) -> Result<&Jobs, Error> {
    let jobs = app.backend()?.jobs.as_ref();
    jobs.ok_or_else(|| {
        let hint = "run it with highwater up";
        Error::not_found("this node runs no jobs", hint)
    })
}

pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let visible = |name: &String| {
        let resource = Resource::Deployment(name);
        request.caller.may(Right::Listen, resource)
    };
    let jobs = jobs(request.app)?;
    let names = jobs.names().into_iter().filter(visible);
    // A job that was deleted meanwhile has no view.
    let views = names.filter_map(|name| jobs.view(&name).ok());
    let mut answer = JsonAnswer::new(&request.app.budget)?;
    answer.rows("jobs", views.map(|view| summary_json(&view)))?;
    answer.finish()
}

/// The jobs of the node, and the name in the path.
fn jobs_and_name<'a>(request: &ApiRequest<'a>) -> Result<(&'a Jobs, Cow<'a, str>), Error> {
    let [name] = request.variables();
    Ok((jobs(request.app)?, percent_decode(name)))
}

pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (jobs, name) = jobs_and_name(&request)?;
    let job = jobs.view(&name)?;
    let mut detail = detail_json(&job);
    let (handle, history) = (jobs.handle(&name)?, jobs.history(&name)?);
    if let (Some(handle), Some(status), Some(detail)) =
        (handle, &job.status, detail.as_object_mut())
    {
        telemetry::add(&handle, status, &history, detail);
    }
    Ok(reply::ok(&detail))
}

/// The instance of the job in the path that runs, or ran last.
fn handle_of(request: &ApiRequest<'_>) -> Result<Arc<Handle>, Error> {
    let name = percent_decode(request.variables.first().unwrap_or_default());
    let handle = jobs(request.app)?.handle(&name)?;
    handle.ok_or_else(|| {
        let message = format!("job `{name}` has not run since the start of the node");
        Error::new(
            Code::Conflict,
            message,
            "start it: POST /api/jobs/NAME/start",
        )
    })
}

pub(super) async fn logs(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (jobs, name) = jobs_and_name(&request)?;
    let job = jobs.view(&name)?;
    let lines: Vec<Value> = job
        .status
        .iter()
        .flat_map(|status| &status.log)
        .map(|line| json!({"time": line.time.to_string(), "text": line.text}))
        .collect();
    Ok(reply::ok(&json!({"lines": lines})))
}

pub(super) async fn files(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (jobs, name) = jobs_and_name(&request)?;
    let files = jobs.files(&name).await?;
    Ok(reply::ok(&json!({"files": files})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewJob {
    files: Files,
    start: Option<String>,
}

pub(super) async fn put(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (jobs, name) = jobs_and_name(&request)?;
    let example =
        "{\"files\":{\"job.toml\":\"..\",\"query.saql\":\"..\"}}; highwater job start sends it";
    let new: NewJob = request.read_json(example).await?;
    let author = match &request.caller {
        Principal::Key(key) => Some(key.name.clone()),
        Principal::Anonymous | Principal::Trusted(_) => None,
    };
    let job = jobs.put(&name, new.files, new.start, author).await?;
    Ok(reply::ok(&detail_json(&job)))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StartAt {
    start: Option<String>,
}

pub(super) async fn start(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (jobs, name) = jobs_and_name(&request)?;
    let example = "{\"start\":\"2026-01-01T00:00:00Z\"}, or no body";
    let at: StartAt = request.read_optional_json(example).await?;
    let job = jobs.start(&name, at.start).await?;
    Ok(reply::ok(&detail_json(&job)))
}

pub(super) async fn stop(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (jobs, name) = jobs_and_name(&request)?;
    let job = jobs.stop(&name).await?;
    Ok(reply::ok(&detail_json(&job)))
}

pub(super) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (jobs, name) = jobs_and_name(&request)?;
    jobs.delete(&name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

fn summary_json(job: &JobView) -> Value {
    let status = job.status.as_ref();
    let sum = |of: fn(&PartitionStatus) -> u64| -> u64 {
        let partitions = status.iter().flat_map(|status| &status.inputs);
        partitions.flat_map(|input| &input.partitions).map(of).sum()
    };
    let rows: u64 = status
        .iter()
        .flat_map(|status| &status.outputs)
        .map(|output| output.rows)
        .sum();
    json!({
        "name": job.name,
        "state": state_name(job),
        "reason": reason(job),
        "in_settings": job.declared,
        "alarms": status.map(|status| status.alarms.clone()).unwrap_or_default(),
        "events": sum(|partition| partition.events),
        "backlog": sum(|partition| partition.backlog),
        "rows": rows,
        "watermark": status.and_then(|status| time(status.watermark)),
        "watermark_delay_seconds":
            status.and_then(|status| status.watermark_delay).map(|delay| delay.as_secs_f64()),
    })
}

fn detail_json(job: &JobView) -> Value {
    let mut detail = summary_json(job);
    detail["query"] = job.query.clone().into();
    let Some(status) = &job.status else {
        return detail;
    };
    if let JobState::Replaying { events, of } = status.state {
        detail["replay"] = json!({"events": events, "of": of});
    }
    detail["inputs"] = status.inputs.iter().map(input).collect();
    detail["outputs"] = status.outputs.iter().map(output).collect();
    if let Some(share) = status.share {
        detail["share"] = json!({"partitions": share.streams, "combiners": share.combiners});
    }
    detail["runtime_errors"] = status.runtime_errors.into();
    detail["checkpoint"] = checkpoint(status);
    detail
}

/// The state of a job as the API names it.
pub(super) fn state_name(job: &JobView) -> &'static str {
    match (
        &job.problem,
        job.status.as_ref().map(|status| &status.state),
    ) {
        (Some(_), _) => "failed",
        (None, None) => "stopped",
        (None, Some(state)) => match state {
            JobState::Starting => "starting",
            JobState::Replaying { .. } => "replaying",
            JobState::Running => "running",
            JobState::Stopping => "stopping",
            JobState::Stopped => "stopped",
            JobState::Finished => "finished",
            JobState::Failed { .. } => "failed",
        },
    }
}

/// The status of a job that runs.
pub(super) fn running(job: &JobView) -> Option<&JobStatus> {
    let status = job.status.as_ref().filter(|_| job.problem.is_none());
    status.filter(|status| !status.state.is_over())
}

pub(super) fn reason(job: &JobView) -> Option<&str> {
    let failed = job.status.as_ref().and_then(|status| match &status.state {
        JobState::Failed { reason } => Some(reason.as_str()),
        _ => None,
    });
    job.problem.as_deref().or(failed)
}

fn input(input: &InputStatus) -> Value {
    let partitions: Vec<Value> = input.partitions.iter().map(partition).collect();
    json!({"name": input.name, "partitions": partitions})
}

fn partition(partition: &PartitionStatus) -> Value {
    json!({
        "hub": partition.place.hub.as_str(),
        "partition": partition.place.partition,
        "events": partition.events,
        "bytes": partition.bytes,
        "time": counts(&partition.time),
        "deserialization_errors": partition.deserialization_errors,
        "conversion_errors": partition.conversion_errors,
        "runtime_errors": partition.runtime_errors,
        "last_error": partition.last_error,
        "next": partition.next.0,
        "backlog": partition.backlog,
        "waiting": partition.waiting,
        "watermark": time(partition.watermark),
    })
}

fn counts(counts: &VerdictCounts) -> Value {
    json!({
        "early_adjusted": counts.early_adjusted, "early_dropped": counts.early_dropped,
        "late_adjusted": counts.late_adjusted, "late_dropped": counts.late_dropped,
        "out_of_order_adjusted": counts.out_of_order_adjusted,
        "out_of_order_dropped": counts.out_of_order_dropped,
    })
}

fn output(output: &OutputStatus) -> Value {
    json!({
        "name": output.name, "rows": output.rows, "next": output.next, "waiting": output.waiting,
        "dropped": output.dropped, "retries": output.retries, "trouble": output.problem,
    })
}

fn checkpoint(status: &JobStatus) -> Value {
    let last = &status.checkpoint;
    json!({
        "number": last.number, "at": last.at.and_then(time), "bytes": last.bytes,
        "pause_seconds": last.pause.as_secs_f64(), "trouble": last.problem,
    })
}

/// A step of the plan, without figures.
pub(super) fn step(step: &JobStep) -> Value {
    json!({
        "id": step.id,
        "kind": step.kind,
        "label": step.label,
        "inputs": step.inputs,
        "per_partition": step.is_per_partition,
    })
}

/// `None` before the first event and after the last.
fn time(time: Instant) -> Option<String> {
    time.is_in_calendar().then(|| time.to_string())
}

impl From<JobError> for Error {
    fn from(error: JobError) -> Error {
        let (code, hint) = match &error {
            JobError::Unknown(_) => (Code::NotFound, "GET /api/jobs lists them"),
            JobError::Name(_) => (Code::BadRequest, "choose another name"),
            JobError::Path(_) => (Code::BadRequest, "name each file by its path in the folder"),
            JobError::Declared(_) => (
                Code::Conflict,
                "to use its changed files, stop it and start it by name; otherwise change the settings and restart the node",
            ),
            JobError::Running(_) => (Code::Conflict, "stop it first"),
            JobError::Start(_) => (
                Code::BadRequest,
                "use resume, now, beginning or a time such as 2026-01-31T10:00:00Z",
            ),
            JobError::Load(LoadError::Access { .. }) => (
                Code::BadRequest,
                "the operator may list it in the settings, or have the job there",
            ),
            JobError::Load(_) => (Code::BadRequest, "highwater check shows what is wrong"),
            JobError::Follow(_) => (Code::BadRequest, "highwater run reads files once"),
            JobError::NotOnNode { .. } => (
                Code::BadRequest,
                "use absolute paths, or declare the job in the settings of the node",
            ),
            JobError::Right { .. } | JobError::AuthorRevoked(_) => (
                Code::Forbidden,
                "a job reads and writes with the rights of the key that deployed it",
            ),
            JobError::Project => (Code::BadRequest, "docs/jobs.md says what a job may reach"),
            JobError::FilesOverCluster(_) => {
                (Code::BadRequest, "docs/remote.md has what a cluster can do")
            }
            JobError::State(_) => (
                Code::BadRequest,
                "look at the section `state` of the job file",
            ),
            JobError::Shared(_) => (Code::Conflict, "GET /api/cluster shows where it runs"),
            JobError::NotApplied(_) => (Code::Stopped, "look at the job: GET /api/jobs/NAME"),
            JobError::Storage(_) => (Code::Stopped, "look at the node and its disk"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
