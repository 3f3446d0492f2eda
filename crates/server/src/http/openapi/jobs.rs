//! Jobs.

use super::{Answer, Body, Needs, Operation};

const JSON: &str = "application/json";

const JOB: Option<(&str, &str)> = Some((JSON, r##"{"$ref":"#/components/schemas/Job"}"##));

pub const JOBS: &[Operation] = &[
    Operation {
        method: "GET",
        path: "/api/jobs",
        about: "The jobs there are, and what they do",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "A line for each.",
            content: Some((
                JSON,
                r##"{"type":"object","required":["jobs"],"properties":{
                    "jobs":{"type":"array","items":{"$ref":"#/components/schemas/Job"}}}}"##,
            )),
        },
    },
    Operation {
        method: "GET",
        path: "/api/jobs/{job}",
        about: "A job with its query, inputs, outputs and last checkpoint",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "The job.",
            content: JOB,
        },
    },
    Operation {
        method: "PUT",
        path: "/api/jobs/{job}",
        about: "Hand over a job, or a new version of one, and start it",
        needs: Needs::Manage,
        parameters: &[],
        body: Some(Body {
            required: true,
            types: &[JSON],
            schema: r#"{"type":"object","required":["files"],"additionalProperties":false,"properties":{
                "files":{"type":"object","additionalProperties":{"type":"string"},
                    "description":"the files of the job's folder by their paths, job.toml among them"},
                "start":{"type":"string","description":"resume, now, beginning or a time"}}}"#,
        }),
        answer: Answer {
            status: 200,
            about: "It is kept, for good, and starts.",
            content: JOB,
        },
    },
    Operation {
        method: "DELETE",
        path: "/api/jobs/{job}",
        about: "Stop a job and forget it and its state",
        needs: Needs::Manage,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 204,
            about: "It is gone.",
            content: None,
        },
    },
    Operation {
        method: "POST",
        path: "/api/jobs/{job}/start",
        about: "Start a job that is stopped; it goes on where it stopped unless told otherwise",
        needs: Needs::Manage,
        parameters: &[],
        body: Some(Body {
            required: true,
            types: &[JSON],
            schema: r#"{"type":"object","additionalProperties":false,"properties":{
                "start":{"type":"string","description":"resume, now, beginning or a time"}}}"#,
        }),
        answer: Answer {
            status: 200,
            about: "It starts.",
            content: JOB,
        },
    },
    Operation {
        method: "POST",
        path: "/api/jobs/{job}/stop",
        about: "Stop a job, which saves its state",
        needs: Needs::Manage,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "It has stopped.",
            content: JOB,
        },
    },
    Operation {
        method: "GET",
        path: "/api/jobs/{job}/logs",
        about: "What a job had to say lately",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Lines, oldest first.",
            content: Some((
                JSON,
                r#"{"type":"object","required":["lines"],"properties":{"lines":{"type":"array","items":{
                    "type":"object","required":["time","text"]}}}}"#,
            )),
        },
    },
];

pub const SCHEMAS: &str = r#"{
  "Job": {
    "type": "object",
    "required": ["name", "state", "alarms", "events", "backlog", "rows"],
    "properties": {
      "name": {"type": "string"},
      "state": {"enum": ["starting", "replaying", "running", "stopping", "stopped", "finished", "failed"]},
      "reason": {"type": ["string", "null"], "description": "why it failed"},
      "in_settings": {"type": "boolean"},
      "alarms": {"type": "array", "items": {"type": "string"}, "description": "what is wrong although it goes on"},
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
