//! Consumer groups.

use super::{
    Access, Area, Operation, Scope, answer, delete, empty, get, handler, json, post, schema_of,
};
use crate::http::groups;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Groups",
    operations: OPERATIONS,
    schemas: "{}",
};

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/groups", "List the consumer groups", Access::Key(Right::Listen, Scope::Items), handler!(groups::list))
        .answers(answer(200, "Each group with its state and members.",
            r##"{"type":"object","required":["groups"],"properties":{
            "groups":{"type":"array","items":{"$ref":"#/components/schemas/Group"}}}}"##)),
    get("/api/groups/{group}", "Describe a group, its positions and their lag",
        Access::Key(Right::Listen, Scope::Group), handler!(groups::describe))
        .answers(answer(200, "The group.", schema_of!("Group"))),
    post("/api/groups/{group}/reset",
        "Set the positions of a group without members; with dry_run, only report the changes",
        Access::Key(Right::Manage, Scope::Group), handler!(groups::reset))
        .takes(json(r#"{"type":"object","additionalProperties":false,"required":["hub","to"],"properties":{
            "hub":{"type":"string","description":"the key needs the right to listen to it"},
            "partition":{"type":"integer","minimum":0,"maximum":4294967295},
            "to":{"oneOf":[{"type":"integer"},{"type":"string","examples":["earliest"]}],
                "description":"earliest, latest, an offset or a time"},
            "dry_run":{"type":"boolean"}}}"#))
        .answers(answer(200, "The positions before and after, and how many offsets are read again or skipped.",
            r#"{"type":"object","required":["dry_run","hub","members","again","skipped","positions"]}"#)),
    delete("/api/groups/{group}", "Delete a group without members, and its positions",
        Access::Key(Right::Manage, Scope::Group), handler!(groups::delete))
        .answers(empty(204, "The group is deleted.")),
];
