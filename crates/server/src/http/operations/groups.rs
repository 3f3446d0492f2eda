//! Consumer groups.

use super::{Access, Area, Operation, Scope, answer, delete, empty, get, handler, schema_of};
use crate::http::groups;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Groups",
    operations: OPERATIONS,
    schemas: "{}",
};

const OPERATIONS: &[Operation] = &[
    get(
        "/api/groups",
        "List the consumer groups",
        Access::Key(Right::Listen, Scope::Items),
        handler!(groups::list),
    )
    .answers(answer(
        200,
        "Each group with its state and members.",
        r##"{"type":"object","required":["groups"],"properties":{
            "groups":{"type":"array","items":{"$ref":"#/components/schemas/Group"}}}}"##,
    )),
    get(
        "/api/groups/{group}",
        "Describe a group, its positions and their lag",
        Access::Key(Right::Listen, Scope::Group),
        handler!(groups::describe),
    )
    .answers(answer(200, "The group.", schema_of!("Group"))),
    delete(
        "/api/groups/{group}",
        "Delete a group without members, and its positions",
        Access::Key(Right::Manage, Scope::Group),
        handler!(groups::delete),
    )
    .answers(empty(204, "The group is deleted.")),
];
