//! Queues: created, described, changed and deleted.

use super::{
    Access, Area, Operation, RequestBody, Scope, answer, delete, empty, get, handler, json, object,
    patch, post, schema_of,
};
use crate::http::queues::admin;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Queues",
    operations: OPERATIONS,
    schemas: "{}",
};

const MANAGE: Access = Access::Key(Right::Manage, Scope::Queue);
const SETTINGS: RequestBody = json(schema_of!("NewQueue"));

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/queues", "List the queues", Access::Key(Right::Listen, Scope::Items), handler!(admin::list))
        .answers(object("The queues that the key may listen to.")),
    post("/api/queues", "Create a queue", Access::Key(Right::Manage, Scope::BodyName), handler!(admin::create))
        .takes(SETTINGS).answers(answer(201, "The queue is durable.", schema_of!("Queue"))),
    get("/api/queues/{queue}", "Describe a queue: its settings and message counts",
        Access::Key(Right::Listen, Scope::Queue), handler!(admin::describe))
        .answers(answer(200, "The queue.", schema_of!("Queue"))),
    patch("/api/queues/{queue}", "Change the settings in the body", MANAGE, handler!(admin::change))
        .takes(SETTINGS).answers(answer(200, "The queue.", schema_of!("Queue"))),
    delete("/api/queues/{queue}", "Delete a queue and its messages", MANAGE, handler!(admin::delete))
        .answers(empty(204, "The queue is deleted.")),
];
