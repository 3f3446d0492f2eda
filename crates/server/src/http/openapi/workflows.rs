//! Workflows.

use super::{Answer, Body, Needs, Operation, Parameter};

const JSON: &str = "application/json";

const INSTANCE: Answer = Answer {
    status: 200,
    about: "What the instance is now.",
    content: Some((
        JSON,
        r##"{"$ref":"#/components/schemas/WorkflowInstance"}"##,
    )),
};

const NOTE: Option<Body> = Some(Body {
    required: true,
    types: &[JSON],
    schema: r#"{"type":"object","additionalProperties":false,"properties":{"note":{"type":"string"},"step":{"type":"string","description":"to skip"}}}"#,
});

const fn decision(path: &'static str, about: &'static str) -> Operation {
    Operation {
        method: "POST",
        path,
        about,
        needs: Needs::Manage,
        parameters: &[],
        body: NOTE,
        answer: INSTANCE,
    }
}

pub const WORKFLOWS: &[Operation] = &[
    Operation {
        method: "PUT",
        path: "/workflows/{workflow}/{id}",
        about: "Start an instance, unless there is or was one with this id",
        needs: Needs::Send,
        parameters: &[],
        body: Some(Body {
            required: true,
            types: &[JSON],
            schema: "{}",
        }),
        answer: Answer {
            status: 201,
            about: "Accepted, for good; 200 if it was known before.",
            content: Some((JSON, r##"{"$ref":"#/components/schemas/WorkflowStarted"}"##)),
        },
    },
    Operation {
        method: "GET",
        path: "/workflows/{workflow}/{id}",
        about: "Look at an instance",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: INSTANCE,
    },
    Operation {
        method: "GET",
        path: "/api/workflows",
        about: "All workflows",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Name, version and counts of each.",
            content: Some((JSON, r#"{"type":"object"}"#)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/workflows/{workflow}",
        about: "Instances, the newest first",
        needs: Needs::Listen,
        parameters: &[
            Parameter {
                place: "query",
                name: "state",
                about: "Only those in one of these states, such as parked,running",
                schema: r#"{"type":"string"}"#,
            },
            Parameter {
                place: "query",
                name: "limit",
                about: "How many at most",
                schema: r#"{"type":"integer","minimum":1,"maximum":10000,"default":100}"#,
            },
        ],
        body: None,
        answer: Answer {
            status: 200,
            about: "Their ids and states.",
            content: Some((JSON, r#"{"type":"object"}"#)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/workflows/{workflow}/{id}",
        about: "Look at an instance",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: INSTANCE,
    },
    decision(
        "/api/workflows/{workflow}/{id}/cancel",
        "Do not go on, and undo what was done",
    ),
    decision(
        "/api/workflows/{workflow}/{id}/retry",
        "Try again to undo what could not be undone",
    ),
    decision(
        "/api/workflows/{workflow}/{id}/skip",
        "Leave a step that cannot be undone as it is, and go on with the others",
    ),
    decision(
        "/api/workflows/{workflow}/{id}/resolve",
        "A person has taken care of what was left to undo",
    ),
    desk(
        "/api/workflows/{workflow}/failed/{partition}/claim",
        "Get instances that are to be undone, for as long as the lock lasts",
        r##"{"$ref":"#/components/schemas/WorkflowClaim"}"##,
        r##"{"$ref":"#/components/schemas/WorkflowOffer"}"##,
    ),
    desk(
        "/api/workflows/{workflow}/failed/{partition}/report",
        "Say how undoing went; answered when that is durable",
        r##"{"$ref":"#/components/schemas/WorkflowReport"}"##,
        r#"{"type":"object","required":["refused"],"properties":{"refused":{"type":"array","items":{"type":"string"}}}}"#,
    ),
    desk(
        "/api/workflows/{workflow}/failed/{partition}/return",
        "Give back whatever a lock is for",
        r#"{"type":"object","additionalProperties":false,"required":["lock"],"properties":{"lock":{"type":"string"}}}"#,
        r#"{"type":"object"}"#,
    ),
];

/// What supervisors in other processes say.
const fn desk(
    path: &'static str,
    about: &'static str,
    schema: &'static str,
    answer: &'static str,
) -> Operation {
    Operation {
        method: "POST",
        path,
        about,
        needs: Needs::Manage,
        parameters: &[],
        body: Some(Body {
            required: true,
            types: &[JSON],
            schema,
        }),
        answer: Answer {
            status: 200,
            about: "410 if the lock has run out.",
            content: Some((JSON, answer)),
        },
    }
}

pub const SCHEMAS: &str = r#"{
  "WorkflowClaim": {
    "type": "object",
    "additionalProperties": false,
    "required": ["most", "wait_ms", "lasts_ms"],
    "properties": {
      "lock": {"type": ["string", "null"], "description": "none at first"},
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
      "reason": {"type": "string", "description": "why it is not to be completed"},
      "blame": {"type": "string", "description": "the step that is to blame"},
      "started_ms": {"type": "integer"},
      "changed_ms": {"type": "integer"},
      "input": {},
      "steps": {"type": "array", "items": {"type": "object"}},
      "attempts": {"type": "array", "items": {"type": "object"}, "description": "those that failed"},
      "notes": {"type": "array", "items": {"type": "string"}}
    }
  }
}"#;
