//! The playground.

use super::{Access, Area, Operation, Scope, answer, get, handler, json, post, schema_of};
use crate::http::playground;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Playground",
    operations: OPERATIONS,
    schemas: SCHEMAS,
};

const LISTEN: Access = Access::Key(Right::Listen, Scope::Node);

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    post("/api/playground", "Run a query over the events in the request; nothing is stored, and two run at once",
        LISTEN, handler!(playground::run))
        .takes(json(schema_of!("PlaygroundRequest")))
        .answers(answer(200, "The result of the query, or its errors.", schema_of!("PlaygroundResult"))),
    get("/api/playground/examples", "Examples for the playground", LISTEN, handler!(playground::examples))
        .answers(answer(200, "Requests to post to the playground.",
            r##"{"type":"object","required":["examples"],"properties":{"examples":{"type":"array","items":{
            "type":"object","required":["name","title","text","request"],"properties":{
            "request":{"$ref":"#/components/schemas/PlaygroundRequest"}}}}}}"##)),
];

const SCHEMAS: &str = r#"{
  "PlaygroundRequest": {
    "type": "object",
    "required": ["query"],
    "additionalProperties": false,
    "properties": {
      "query": {"type": "string", "maxLength": 65536},
      "time": {
        "type": "object", "additionalProperties": false, "description": "as [time] of a job file",
        "properties": {
          "late_arrival": {"type": "string", "examples": ["5s"]},
          "out_of_order": {"type": "string"},
          "early_arrival": {"type": "string", "description": "a duration, or off"},
          "late_events": {"enum": ["adjust", "drop"]},
          "out_of_order_events": {"enum": ["adjust", "drop"]},
          "early_events": {"enum": ["adjust", "drop"]}
        }
      },
      "start": {"type": "string", "description": "when the first event arrives, unless it says so itself; now by default"},
      "inputs": {
        "type": "object", "maxProperties": 8,
        "additionalProperties": {
          "type": "object", "additionalProperties": false,
          "properties": {
            "text": {"type": "string", "description": "events as lines of JSON"},
            "arrival": {"type": "string", "description": "the field of a line with its arrival time"},
            "partition": {"type": "string", "description": "the field of a line with its partition"},
            "events": {
              "type": "array", "maxItems": 1000,
              "items": {
                "type": "object", "required": ["value"], "additionalProperties": false,
                "properties": {
                  "value": {},
                  "arrived": {"type": "string"},
                  "partition": {"type": "integer", "minimum": 0, "maximum": 15}
                }
              }
            },
            "reference": {"type": "boolean", "description": "a table without times"}
          }
        }
      }
    }
  },
  "PlaygroundResult": {
    "type": "object",
    "required": ["ok", "diagnostics", "problem", "outputs", "elapsed_ms"],
    "properties": {
      "ok": {"type": "boolean"},
      "diagnostics": {
        "type": "array",
        "items": {
          "type": "object",
          "required": ["severity", "code", "message", "line", "column", "length"],
          "properties": {
            "severity": {"enum": ["error", "warning"]},
            "code": {"type": "string"}, "message": {"type": "string"},
            "line": {"type": "integer"}, "column": {"type": "integer"}, "length": {"type": "integer"},
            "label": {"type": "string"}, "hint": {"type": ["string", "null"]}
          }
        }
      },
      "problem": {"type": ["string", "null"], "description": "why a correct query gave nothing"},
      "plan": {"type": "array", "items": {"type": "object"}},
      "explain": {"type": "string"},
      "state": {"type": "array", "items": {"type": "object"}},
      "lookback": {"type": "string"},
      "reads_back_by_arrival": {"type": ["string", "null"]},
      "inputs": {"type": "array", "items": {"type": "object"}},
      "events": {"type": "array", "items": {"type": "object"}, "description": "the fate of each event; times are milliseconds since 1970"},
      "watermarks": {"type": "array", "items": {"type": "object"}},
      "outputs": {
        "type": "array",
        "items": {
          "type": "object", "required": ["name", "count", "rows", "sources"],
          "properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "rows": {"type": "array", "items": {"type": "object"}},
            "sources": {
              "type": "array", "description": "the events of each row as [input, line]; empty if they were not looked for",
              "items": {
                "type": ["object", "null"], "required": ["events", "count"],
                "properties": {"events": {"type": "array"}, "count": {"type": "integer"}}
              }
            }
          }
        }
      },
      "errors": {"type": "array", "items": {"type": "object"}, "description": "rows that the query failed on"},
      "elapsed_ms": {"type": "integer"}
    }
  }
}"#;
