//! The node itself.

use super::{Answer, Needs, Operation};

pub const NODE: &[Operation] = &[
    Operation {
        method: "GET",
        path: "/healthz",
        about: "Whether the process lives",
        needs: Needs::Nothing,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "It does.",
            content: None,
        },
    },
    Operation {
        method: "GET",
        path: "/readyz",
        about: "Whether events are served, and how far reading the log has come",
        needs: Needs::Nothing,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Events are served.",
            content: Some(("application/json", r#"{"type":"object"}"#)),
        },
    },
    Operation {
        method: "GET",
        path: "/metrics",
        about: "Counters, in Prometheus' text form",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "A line for each counter.",
            content: Some(("text/plain", r#"{"type":"string"}"#)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/openapi.json",
        about: "This description",
        needs: Needs::Nothing,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "An OpenAPI document.",
            content: Some(("application/json", r#"{"type":"object"}"#)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/docs",
        about: "This description, to be read in a browser",
        needs: Needs::Nothing,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "A page.",
            content: Some(("text/html", r#"{"type":"string"}"#)),
        },
    },
];

pub const SCHEMAS: &str = r#"{
  "Error": {
    "type": "object",
    "required": ["code", "message", "hint"],
    "properties": {
      "code": {"type": "string", "description": "stable, for programs"},
      "message": {"type": "string", "description": "what is wrong"},
      "hint": {"type": "string", "description": "how to mend it"}
    }
  }
}"#;
