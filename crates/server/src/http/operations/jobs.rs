//! Jobs.

use super::{
    Access, Area, Operation, Response, Scope, TEXT, WaitLimit, answer, delete, empty, get, handler,
    json, post, put, schema_of, typed,
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

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/jobs", "List the jobs and their states", Access::Key(Right::Listen, Scope::Items), handler!(jobs::list))
        .answers(answer(200, "A summary of each job.", r##"{"type":"object","required":["jobs"],"properties":{
            "jobs":{"type":"array","items":{"$ref":"#/components/schemas/Job"}}}}"##)),
    get("/api/jobs/{job}", "Describe a job with its query, inputs, outputs and last checkpoint", LISTEN,
        handler!(jobs::describe))
        .answers(job("The job.")),
    put("/api/jobs/{job}", "Deploy a job, or a new version of one, and start it", DEPLOY, handler!(jobs::put))
        .takes(json(r#"{"type":"object","required":["files"],"additionalProperties":false,"properties":{
            "files":{"type":"object","additionalProperties":{"type":"string"},
                "description":"the files of the job's folder by path, with job.toml"},
            "start":{"type":"string","description":"resume, now, beginning or a time"}}}"#))
        .answers(job("The job is durable and starts.")),
    get("/api/jobs/{job}/files", "The files of a deployed job's folder, as they were sent", DEPLOY,
        handler!(jobs::files))
        .answers(answer(200, "The files by path.", r#"{"type":"object","required":["files"],"properties":{
            "files":{"type":"object","additionalProperties":{"type":"string"}}}}"#)),
    delete("/api/jobs/{job}", "Stop a job and delete it with its state", DEPLOY, handler!(jobs::delete))
        .answers(empty(204, "The job is deleted.")),
    post("/api/jobs/{job}/start",
        "Start a stopped job; it resumes from its checkpoint unless the body says otherwise", DEPLOY,
        handler!(jobs::start))
        .takes(json(r#"{"type":"object","additionalProperties":false,"properties":{
            "start":{"type":"string","description":"resume, now, beginning or a time"}}}"#))
        .answers(job("The job starts.")),
    post("/api/jobs/{job}/stop", "Stop a job; it stores a checkpoint first", DEPLOY, handler!(jobs::stop))
        .answers(job("The job has stopped.")),
    get("/api/jobs/{job}/samples", "Live samples of the events of a job: verdicts, timestamps, watermarks", LISTEN,
        handler!(jobs::samples))
        .waits(WaitLimit::Stream)
        .answers(typed(200,
            "Server-sent events named samples, each a JSON object with events, watermarks and the number of events skipped.",
            "text/event-stream", TEXT)),
    get("/api/jobs/{job}/events/{input}/{partition}/{offset}",
        "The fate of an event of a job: verdict, times, watermark, windows, and the event itself", LISTEN,
        handler!(jobs::event_fate))
        .answers(answer(200, "The fate.", schema_of!("EventFate"))),
    get("/api/jobs/{job}/logs", "The latest log lines of a job", LISTEN, handler!(jobs::logs))
        .answers(answer(200, "Lines, oldest first.",
            r#"{"type":"object","required":["lines"],"properties":{"lines":{"type":"array","items":{
            "type":"object","required":["time","text"]}}}}"#)),
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
      "share": {"type": "object", "description": "what this node runs of a job that several share",
        "required": ["partitions", "combiners"]},
      "runtime_errors": {"type": "integer"},
      "checkpoint": {"type": "object"},
      "time": {"type": "object", "description": "the time policy, as [time] of a job file"},
      "plan": {"type": "array", "description": "the steps with rows, state_bytes, watermark and waiting",
        "items": {"type": "object", "required": ["id", "kind", "label", "inputs", "per_partition"]}},
      "data_errors": {"type": "array", "description": "the latest lost events and rows, the latest first",
        "items": {"type": "object", "required": ["time", "place", "kind", "text"]}},
      "history": {"type": "object", "description": "the last five minutes, a point each second",
        "required": ["every_ms", "points"]}
    }
  },
  "EventFate": {
    "type": "object",
    "required": ["input", "hub", "partition", "offset", "verdict", "text", "dropped", "windows", "source"],
    "properties": {
      "input": {"type": "string"}, "hub": {"type": "string"},
      "partition": {"type": "integer"}, "offset": {"type": "integer"},
      "arrived": {"type": ["integer", "null"], "description": "milliseconds since 1970, like all times here"},
      "happened": {"type": ["integer", "null"]},
      "timestamp": {"type": ["integer", "null"], "description": "null if it was dropped or lost"},
      "watermark": {"type": ["integer", "null"], "description": "the one that it met"},
      "verdict": {"enum": ["on_time", "late", "early", "out_of_order", "late_and_out_of_order", "early_and_out_of_order", "lost"]},
      "text": {"type": "string"}, "dropped": {"type": "boolean"},
      "substream": {"type": ["string", "null"]},
      "windows": {"type": "array", "items": {"type": "object", "required": ["start", "end"]}},
      "has_sessions": {"type": "boolean", "description": "the query has session windows over its input"},
      "sessions": {"type": "array", "description": "the session windows that it entered; missing if the query has none",
        "items": {"type": "object", "required": ["start", "end", "state"],
          "properties": {"start": {"type": "integer"}, "end": {"type": "integer"},
            "state": {"enum": ["open", "closed"], "description": "an open one may grow"}}}},
      "sessions_exact": {"type": "boolean", "description": "false if sessions may begin earlier or end later than listed, because only a part of the events was replayed"},
      "reason": {"type": ["string", "null"], "description": "why it was lost"},
      "source": {"enum": ["sample", "replay", "partial replay"]},
      "key": {}, "headers": {"type": "object"}, "value": {}, "value_base64": {"type": "string"}
    }
  }
}"#;
