//! Topics: listed, described and deleted. A key has the rights over a topic that it has over a queue of its name.

use super::{Access, Area, Operation, Scope, delete, empty, get, handler, object};
use crate::http::topics;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Topics",
    operations: OPERATIONS,
    schemas: "{}",
};

const MANAGE: Access = Access::Key(Right::Manage, Scope::Queue);

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/topics", "List the topics", Access::Key(Right::Listen, Scope::Items), handler!(topics::list))
        .answers(object("The topics that the key may listen to, with their subscriptions and rules.")),
    get("/api/topics/{topic}", "Describe a topic: its subscriptions, their rules and message counts",
        Access::Key(Right::Listen, Scope::Queue), handler!(topics::describe))
        .answers(object("The topic.")),
    delete("/api/topics/{topic}", "Delete a topic, its subscriptions and their messages", MANAGE, handler!(topics::delete))
        .answers(empty(204, "The topic is deleted.")),
    delete("/api/topics/{topic}/subscriptions/{subscription}", "Delete a subscription and its messages", MANAGE,
        handler!(topics::delete_subscription))
        .answers(empty(204, "The subscription is deleted.")),
];
