//! Workflows: instances, decisions about them, and the failed ones that supervisors elsewhere undo.

use highwater_workflow::OperatorCommand;

use super::{
    Access, Area, Handler, Operation, RequestBody, Response, Scope, TEXT, answer, get, handler,
    json, object, post, put, query, schema_of,
};
use crate::http::workflows::{self, bulk_decision, failed_instances};
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Workflows",
    operations: OPERATIONS,
    schemas: SCHEMAS,
};

const LISTEN: Access = Access::Key(Right::Listen, Scope::Workflow);
const MANAGE: Access = Access::Key(Right::Manage, Scope::Workflow);

const INSTANCE: Response = answer(200, "The instance.", schema_of!("WorkflowInstance"));

const NOTE: RequestBody = json(
    r#"{"type":"object","additionalProperties":false,"properties":{"note":{"type":"string"},"step":{"type":"string","description":"to skip"}}}"#,
);

const fn decision(path: &'static str, summary: &'static str, handler: Handler) -> Operation {
    post(path, summary, MANAGE, handler)
        .takes(NOTE)
        .answers(INSTANCE)
}

/// The same decision about many instances.
const fn bulk(path: &'static str, summary: &'static str, handler: Handler) -> Operation {
    post(path, summary, MANAGE, handler)
        .takes(json(schema_of!("WorkflowBulkDecision")))
        .answers(object(
            "How many were decided, which ones refused it, and where the next request continues.",
        ))
}

/// Requests of supervisors in other processes.
const fn supervision(
    path: &'static str,
    summary: &'static str,
    schema: &'static str,
    answered: &'static str,
    handler: Handler,
) -> Operation {
    post(path, summary, MANAGE, handler)
        .takes(json(schema))
        .answers(answer(200, "410 if the lock expired.", answered))
}

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    put("/workflows/{workflow}/{id}", "Start an instance, unless this id was started before",
        Access::Key(Right::Send, Scope::Workflow), handler!(workflows::start))
        .takes(json("{}"))
        .answers(answer(201, "The instance is durable; 200 if it was started before.", schema_of!("WorkflowStarted"))),
    get("/workflows/{workflow}/{id}", "Describe an instance", LISTEN, handler!(workflows::describe))
        .answers(INSTANCE),
    get("/api/workflows", "List the workflows", Access::Key(Right::Listen, Scope::Items), handler!(workflows::list))
        .answers(object("Name, version and counts of each.")),
    get("/api/workflows/{workflow}", "List instances, newest first", LISTEN, handler!(workflows::list_instances))
        .parameters(&[
            query("state", "Only instances in one of these states, such as parked,running", TEXT),
            query("version", "Only instances whose version begins with this text", TEXT),
            query("id", "Only instances whose id begins with this text", TEXT),
            query("from", "Only instances started at this time or later", TIME),
            query("until", "Only instances started before this time", TIME),
            query("after", "Continue after the page that answered this as `next`", TEXT),
            query("limit", "The most instances to answer with",
                r#"{"type":"integer","minimum":1,"maximum":10000,"default":100}"#),
        ])
        .answers(object("Their ids and states, and where the next page continues: instances in progress, then ended ones.")),
    get("/api/workflows/{workflow}/{id}", "Describe an instance", LISTEN, handler!(workflows::describe))
        .answers(INSTANCE),
    decision("/api/workflows/{workflow}/{id}/cancel", "Cancel an instance and undo its steps",
        handler!(workflows::decide, |note, _| OperatorCommand::Cancel { note })),
    decision("/api/workflows/{workflow}/{id}/retry", "Retry the undo of a parked instance",
        handler!(workflows::decide, |note, _| OperatorCommand::Retry { note })),
    decision("/api/workflows/{workflow}/{id}/skip", "Skip a step that cannot be undone, and undo the others",
        handler!(workflows::decide, |note, step| OperatorCommand::Skip { step, note })),
    decision("/api/workflows/{workflow}/{id}/resolve", "Mark a parked instance as resolved by a person",
        handler!(workflows::decide, |note, _| OperatorCommand::Resolve { note })),
    bulk("/api/workflows/{workflow}/cancel", "Cancel all running instances that match, and undo their steps",
        handler!(bulk_decision::decide_all, |note, _| OperatorCommand::Cancel { note })),
    bulk("/api/workflows/{workflow}/retry", "Retry the undo of all parked instances that match",
        handler!(bulk_decision::decide_all, |note, _| OperatorCommand::Retry { note })),
    bulk("/api/workflows/{workflow}/skip", "Skip a step that cannot be undone in all parked instances that match",
        handler!(bulk_decision::decide_all, |note, step| OperatorCommand::Skip { step, note })),
    bulk("/api/workflows/{workflow}/resolve", "Mark all parked instances that match as resolved by a person",
        handler!(bulk_decision::decide_all, |note, _| OperatorCommand::Resolve { note })),
    supervision("/api/workflows/{workflow}/failed/{partition}/claim",
        "Claim failed instances to undo, until the lock expires", schema_of!("WorkflowClaim"),
        schema_of!("WorkflowOffer"), handler!(failed_instances::claim)),
    supervision("/api/workflows/{workflow}/failed/{partition}/report",
        "Report the progress of undoing; answered when it is durable", schema_of!("WorkflowReport"),
        r#"{"type":"object","required":["refused"],"properties":{"refused":{"type":"array","items":{"type":"string"}}}}"#,
        handler!(failed_instances::report)),
    supervision("/api/workflows/{workflow}/failed/{partition}/return", "Return the instances of a lock",
        r#"{"type":"object","additionalProperties":false,"required":["lock"],"properties":{"lock":{"type":"string"}}}"#,
        r#"{"type":"object"}"#, handler!(failed_instances::release)),
];

const TIME: &str = r#"{"type":"string","format":"date-time"}"#;

const SCHEMAS: &str = r#"{
  "WorkflowBulkDecision": {
    "type": "object",
    "additionalProperties": false,
    "properties": {
      "note": {"type": "string"},
      "step": {"type": "string", "description": "to skip"},
      "ids": {"type": "array", "items": {"type": "string"}, "maxItems": 1000, "description": "these instances; the other filters do not count then"},
      "state": {"type": "string", "description": "as in the list; the default is the state in which the decision is made"},
      "version": {"type": "string"},
      "id": {"type": "string", "description": "the id begins with this text"},
      "from": {"type": "string", "format": "date-time"},
      "until": {"type": "string", "format": "date-time"},
      "after": {"type": "string", "description": "next of the answer before"},
      "max": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
      "dry_run": {"type": "boolean", "description": "answer with would_decide, the instances, and decide nothing"}
    }
  },
  "WorkflowClaim": {
    "type": "object",
    "additionalProperties": false,
    "required": ["most", "wait_ms", "lasts_ms"],
    "properties": {
      "lock": {"type": ["string", "null"], "description": "null in the first claim"},
      "most": {"type": "integer", "minimum": 0, "maximum": 10000},
      "wait_ms": {"type": "integer", "minimum": 0, "maximum": 60000},
      "lasts_ms": {"type": "integer", "minimum": 100, "maximum": 600000}
    }
  },
  "WorkflowOffer": {
    "type": "object",
    "required": ["lock", "definitions", "instances"],
    "properties": {
      "lock": {"type": "string"},
      "definitions": {"type": "object", "description": "by version"},
      "instances": {
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "string"}, "snapshot": {"type": "string", "format": "byte"}}}
      }
    }
  },
  "WorkflowReport": {
    "type": "object",
    "additionalProperties": false,
    "required": ["lock", "events"],
    "properties": {
      "lock": {"type": "string"},
      "events": {
        "type": "array",
        "items": {
          "type": "object",
          "additionalProperties": false,
          "required": ["id", "event"],
          "properties": {"id": {"type": "string"}, "event": {"type": "string", "format": "byte"}}
        }
      }
    }
  },
  "WorkflowStarted": {
    "type": "object",
    "required": ["workflow", "id", "state"],
    "properties": {
      "workflow": {"type": "string"},
      "id": {"type": "string"},
      "state": {"enum": ["running", "failing", "undoing", "parked", "completed", "refused", "failed", "cancelled", "resolved"]}
    }
  },
  "WorkflowInstance": {
    "type": "object",
    "required": ["workflow", "version", "id", "state", "started_ms", "changed_ms", "input", "steps"],
    "properties": {
      "workflow": {"type": "string"},
      "version": {"type": "string"},
      "id": {"type": "string"},
      "state": {"type": "string"},
      "reason": {"type": "string", "description": "why it failed"},
      "blame": {"type": "string", "description": "the step that failed"},
      "started_ms": {"type": "integer"},
      "changed_ms": {"type": "integer"},
      "input": {},
      "steps": {"type": "array", "items": {"type": "object"}},
      "attempts": {"type": "array", "items": {"type": "object"}, "description": "the failed attempts"},
      "notes": {"type": "array", "items": {"type": "string"}}
    }
  }
}"#;
