//! Hubs: created, described, changed and deleted.

use super::{
    Access, Area, Operation, Scope, answer, delete, empty, get, handler, json, object, patch, post,
    schema_of,
};
use crate::http::hubs;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Hubs",
    operations: OPERATIONS,
    schemas: "{}",
};

const MANAGE: Access = Access::Key(Right::Manage, Scope::Hub);

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/hubs", "List the hubs", Access::Key(Right::Listen, Scope::Items), handler!(hubs::list))
        .answers(answer(200, "The hubs that the key may listen to, and the sharded hubs.",
            r##"{"type":"object","required":["hubs","sharded"],"properties":{
            "hubs":{"type":"array","items":{"$ref":"#/components/schemas/Hub"}},
            "sharded":{"type":"array","items":{"type":"object"}}}}"##)),
    post("/api/hubs", "Create a hub", Access::Key(Right::Manage, Scope::BodyName), handler!(hubs::create))
        .takes(json(schema_of!("NewHub"))).answers(answer(201, "The hub is durable.", schema_of!("Hub"))),
    get("/api/hubs/{hub}", "Describe a hub and its partitions", Access::Key(Right::Listen, Scope::Hub),
        handler!(hubs::describe))
        .answers(answer(200, "The bounds of each partition, and why it refuses writes if it does.",
            r##"{"anyOf":[{"$ref":"#/components/schemas/Hub"},{"type":"object"}]}"##)),
    patch("/api/hubs/{hub}", "Change the settings in the body", MANAGE, handler!(hubs::change))
        .takes(json(schema_of!("HubChange"))).answers(answer(200, "The hub after the change.", schema_of!("Hub"))),
    delete("/api/hubs/{hub}", "Delete a hub and its records", MANAGE, handler!(hubs::delete))
        .answers(empty(204, "The hub is deleted.")),
    post("/api/hubs/{hub}/partitions/{partition}/trim", "Delete the beginning of a partition", MANAGE,
        handler!(hubs::trim))
        .takes(json(r#"{"type":"object","required":["before"],"additionalProperties":false,"properties":{
            "before":{"oneOf":[{"type":"integer","minimum":0},{"type":"string"}],
                "description":"an offset, a time, or latest"}}}"#))
        .answers(answer(200, "The new start of the partition.",
            r#"{"type":"object","required":["partition","start"],"properties":{
            "partition":{"type":"integer"},"start":{"type":"integer"}}}"#)),
    post("/api/hubs/{hub}/partitions/{partition}/punctuate",
        "Write a punctuation: nothing arrived in the partition up to now", MANAGE, handler!(hubs::punctuate))
        .answers(object("Its offset and time, or null if an event arrived meanwhile.")),
];
