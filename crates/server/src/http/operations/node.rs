//! The node itself.

use super::{Access, Area, Operation, Scope, TEXT, WaitLimit, empty, get, handler, object, typed};
use crate::http::{node, websocket};
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
    get("/$servicebus/websocket", "AMQP over WebSocket, where clients show who they are", Access::Public, handler!(websocket::open))
        .waits(WaitLimit::Stream).answers(empty(101, "AMQP follows.")),
    get("/api/openapi.json", "This description", Access::Public, handler!(node::openapi_document))
        .answers(object("An OpenAPI document.")),
    get("/api/docs", "This description as a page for browsers", Access::Public, handler!(node::openapi_page))
        .answers(typed(200, "A page.", "text/html", TEXT)),
];

const SCHEMAS: &str = r#"{
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
