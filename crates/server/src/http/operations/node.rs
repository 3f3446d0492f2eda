//! The node itself.

use super::{
    Access, Area, Operation, Scope, TEXT, WaitLimit, answer, empty, get, handler, object,
    schema_of, typed,
};
use crate::http::{cluster, node, websocket};
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Node",
    operations: OPERATIONS,
    schemas: SCHEMAS,
};

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/healthz", "Whether the process is alive", Access::Public, handler!(node::health))
        .answers(empty(200, "It is.")),
    get("/health", "The same, where the emulators of Azure have it", Access::Public, handler!(node::health))
        .answers(empty(200, "It is.")),
    get("/readyz", "Whether the node serves events, and its progress in recovering the log", Access::Public,
        handler!(node::ready))
        .answers(object("The node serves events.")),
    get("/metrics", "Metrics in Prometheus' text format", Access::Key(Right::Listen, Scope::Node),
        handler!(node::metrics))
        .answers(typed(200, "A line for each sample.", "text/plain", TEXT)),
    get("/$servicebus/websocket", "AMQP over WebSocket; clients authenticate inside AMQP", Access::Public, handler!(websocket::open))
        .waits(WaitLimit::Stream).answers(empty(101, "AMQP follows.")),
    get("/api/cluster", "The nodes over the cluster, and the owner, progress and blocking reason of each resource",
        Access::Key(Right::Listen, Scope::Node), handler!(cluster::describe))
        .answers(answer(200, "The nodes and a row for each queue, workflow, processor and job.", schema_of!("Cluster"))),
    get("/api/openapi.json", "This description", Access::Public, handler!(node::openapi_document))
        .answers(object("An OpenAPI document.")),
    get("/api/docs", "This description as a page for browsers", Access::Public, handler!(node::openapi_page))
        .answers(typed(200, "A page.", "text/html", TEXT)),
];

const SCHEMAS: &str = r#"{
  "Cluster": {
    "type": "object",
    "required": ["log", "node", "nodes", "rows"],
    "properties": {
      "log": {"enum": ["own", "kafka"]},
      "node": {"type": "string", "description": "the node that answers"},
      "nodes": {"type": "array", "items": {
        "type": "object",
        "required": ["name", "url", "version", "this", "slots", "why"],
        "properties": {
          "name": {"type": "string"},
          "url": {"type": "string", "description": "where other nodes reach it"},
          "version": {"type": "string"},
          "this": {"type": "boolean"},
          "slots": {"type": "integer", "description": "of the 256 slots of ownership"},
          "why": {"type": ["string", "null"], "description": "why its rows are missing"}
        }
      }},
      "rows": {"type": "array", "items": {
        "type": "object",
        "required": ["kind", "name", "node", "state", "backlog", "partitions", "why"],
        "properties": {
          "kind": {"enum": ["queue", "workflow", "processor", "job"]},
          "name": {"type": "string"},
          "node": {"type": ["string", "null"], "description": "null while it is handed over"},
          "state": {"type": "string", "examples": ["running", "opening", "moving", "waiting", "unknown"]},
          "backlog": {"type": ["integer", "null"], "description": "messages, instances or events that wait"},
          "partitions": {"type": ["integer", "null"], "description": "of a processor on this node"},
          "why": {"type": ["string", "null"], "description": "why it waits"}
        }
      }}
    }
  },
  "Error": {
    "type": "object",
    "required": ["code", "message", "hint"],
    "properties": {
      "code": {"type": "string", "description": "stable, for programs"},
      "message": {"type": "string", "description": "what is wrong"},
      "hint": {"type": "string", "description": "what to do about it"}
    }
  }
}"#;
