//! Processors, their circuits and their dead letters.

use super::{
    Access, Area, Operation, Parameter, RequestBody, Scope, TEXT, get, handler, json, object, post,
    query, typed,
};
use crate::http::processors::{self, circuits, dead_letters, resume};
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Processors",
    operations: OPERATIONS,
    schemas: "{}",
};

const LISTEN_ITEMS: Access = Access::Key(Right::Listen, Scope::Items);
const LISTEN: Access = Access::Key(Right::Listen, Scope::Deployment);
const DEPLOY: Access = Access::Key(Right::Deploy, Scope::Deployment);
const READ_DEAD_LETTERS: Access = Access::Key(Right::Listen, Scope::DeadLetters);
const MANAGE_DEAD_LETTERS: Access = Access::Key(Right::Manage, Scope::DeadLetters);

const REASON: RequestBody = json(
    r#"{"type":"object","additionalProperties":false,"properties":{"why":{"type":"string"}}}"#,
);

const TIME: &str = r#"{"type":"string","format":"date-time"}"#;

const SELECTION: RequestBody = json(
    r#"{"type":"object","additionalProperties":false,"description":"which dead letters: docs/processing.md has the filters","properties":{
        "id":{"type":"string"},"ids":{"type":"array","items":{"type":"string"},"maxItems":1000},
        "reason":{"type":"string"},"key":{"type":"string"},
        "from":{"type":"string","format":"date-time"},"until":{"type":"string","format":"date-time"},
        "after":{"type":"integer"},"max":{"type":"integer","minimum":1,"maximum":1000},
        "dry_run":{"type":"boolean"},"force":{"type":"boolean"}}}"#,
);

const FILTERS: &[Parameter] = &[
    query(
        "reason",
        "Dead letters whose last error contains this text",
        TEXT,
    ),
    query("key", "Dead letters whose event has this key", TEXT),
    query(
        "id",
        "The dead letter of this event, such as orders/0@7",
        TEXT,
    ),
    query("from", "Dead-lettered at this time or later", TIME),
    query("until", "Dead-lettered before this time", TIME),
    query(
        "after",
        "Continue after this offset, which the page before answered as `next`",
        r#"{"type":"integer"}"#,
    ),
    query(
        "max",
        "The most dead letters to answer with",
        r#"{"type":"integer","minimum":1}"#,
    ),
];

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/processors", "List the processors and their progress", LISTEN_ITEMS, handler!(processors::list))
        .answers(object("A summary of each processor.")),
    get("/api/processors/{processor}", "Describe a processor and its partitions", LISTEN,
        handler!(processors::describe))
        .answers(object("The processor.")),
    get("/api/circuits", "List the circuits", LISTEN_ITEMS, handler!(circuits::list))
        .answers(object("Which circuits are open, since when and why.")),
    get("/api/circuits/{processor}", "Describe the circuit of a processor", LISTEN, handler!(circuits::describe))
        .answers(object("The circuit.")),
    post("/api/circuits/{processor}/open", "Stop the deliveries of a processor", DEPLOY, handler!(circuits::open))
        .takes(REASON).answers(object("Deliveries have stopped.")),
    post("/api/circuits/{processor}/close", "Resume the deliveries of a processor", DEPLOY, handler!(circuits::close))
        .takes(REASON).answers(object("Deliveries resume.")),
    get("/api/dead-letters", "Count the dead letters of each processor", LISTEN_ITEMS, handler!(dead_letters::count))
        .answers(object("A count for each processor.")),
    get("/api/dead-letters/{processor}", "List the dead letters of a processor", READ_DEAD_LETTERS,
        handler!(dead_letters::list))
        .parameters(FILTERS).answers(object("Dead letters, oldest first, and the offset to continue after.")),
    get("/api/dead-letters/{processor}/{id}", "Describe a dead letter with its event and failed attempts",
        READ_DEAD_LETTERS, handler!(dead_letters::describe))
        .answers(object("The dead letter.")),
    post("/api/dead-letters/{processor}/replay", "Deliver dead letters to the processor's handler again",
        MANAGE_DEAD_LETTERS, handler!(dead_letters::replay))
        .takes(SELECTION).answers(object("How many were handled, and which ones failed again.")),
    post("/api/dead-letters/{processor}/purge", "Delete dead letters", MANAGE_DEAD_LETTERS,
        handler!(dead_letters::purge))
        .takes(SELECTION).answers(object("How many were deleted.")),
    // The signature in the link is the key of these two.
    get("/resume/{token}", "The page behind the link of a notification", Access::Public,
        handler!(resume::confirmation))
        .answers(typed(200, "A page that asks whether to resume.", "text/html", TEXT)),
    post("/resume/{token}", "Resume the deliveries that the link names, once", Access::Public,
        handler!(resume::resume))
        .answers(typed(200, "Deliveries resume.", "text/html", TEXT)),
];
