//! Jobs.

use super::{
    Access, Area, Operation, Response, Scope, answer, delete, empty, get, handler, json, post, put,
    schema_of,
};
use crate::http::jobs;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Jobs",
    operations: OPERATIONS,
    schemas: SCHEMAS,
};

const LISTEN: Access = Access::Key(Right::Listen, Scope::Deployment);
const DEPLOY: Access = Access::Key(Right::Deploy, Scope::Deployment);

const fn job(description: &'static str) -> Response {
    answer(200, description, schema_of!("Job"))
}

const OPERATIONS: &[Operation] = &[
    get(
        "/api/jobs",
        "List the jobs and their states",
        Access::Key(Right::Listen, Scope::Items),
        handler!(jobs::list),
    )
    .answers(answer(
        200,
        "A summary of each job.",
        r##"{"type":"object","required":["jobs"],"properties":{
            "jobs":{"type":"array","items":{"$ref":"#/components/schemas/Job"}}}}"##,
    )),
    get(
        "/api/jobs/{job}",
        "Describe a job with its query, inputs, outputs and last checkpoint",
        LISTEN,
        handler!(jobs::describe),
    )
    .answers(job("The job.")),
    put(
        "/api/jobs/{job}",
        "Deploy a job, or a new version of one, and start it",
        DEPLOY,
        handler!(jobs::put),
    )
    .takes(json(
        r#"{"type":"object","required":["files"],"additionalProperties":false,"properties":{
            "files":{"type":"object","additionalProperties":{"type":"string"},
                "description":"the files of the job's folder by path, with job.toml"},
            "start":{"type":"string","description":"resume, now, beginning or a time"}}}"#,
    ))
    .answers(job("The job is durable and starts.")),
    delete(
        "/api/jobs/{job}",
        "Stop a job and delete it with its state",
        DEPLOY,
        handler!(jobs::delete),
    )
    .answers(empty(204, "The job is deleted.")),
    post(
        "/api/jobs/{job}/start",
        "Start a stopped job; it resumes from its checkpoint unless the body says otherwise",
        DEPLOY,
        handler!(jobs::start),
    )
    .takes(json(
        r#"{"type":"object","additionalProperties":false,"properties":{
            "start":{"type":"string","description":"resume, now, beginning or a time"}}}"#,
    ))
    .answers(job("The job starts.")),
    post(
        "/api/jobs/{job}/stop",
        "Stop a job; it stores a checkpoint first",
        DEPLOY,
        handler!(jobs::stop),
    )
    .answers(job("The job has stopped.")),
    get(
        "/api/jobs/{job}/logs",
        "The latest log lines of a job",
        LISTEN,
        handler!(jobs::logs),
    )
    .answers(answer(
        200,
        "Lines, oldest first.",
        r#"{"type":"object","required":["lines"],"properties":{"lines":{"type":"array","items":{
            "type":"object","required":["time","text"]}}}}"#,
    )),
];

const SCHEMAS: &str = r#"{
  "Job": {
    "type": "object",
    "required": ["name", "state", "alarms", "events", "backlog", "rows"],
    "properties": {
      "name": {"type": "string"},
      "state": {"enum": ["starting", "replaying", "running", "stopping", "stopped", "finished", "failed"]},
      "reason": {"type": ["string", "null"], "description": "why it failed"},
      "in_settings": {"type": "boolean"},
      "alarms": {"type": "array", "items": {"type": "string"}, "description": "problems that do not stop the job"},
      "events": {"type": "integer"},
      "backlog": {"type": "integer", "description": "events that it has not read yet"},
      "rows": {"type": "integer"},
      "watermark": {"type": ["string", "null"]},
      "watermark_delay_seconds": {"type": ["number", "null"]},
      "query": {"type": "string"},
      "replay": {"type": "object"},
      "inputs": {"type": "array", "items": {"type": "object"}},
      "outputs": {"type": "array", "items": {"type": "object"}},
      "runtime_errors": {"type": "integer"},
      "checkpoint": {"type": "object"}
    }
  }
}"#;
