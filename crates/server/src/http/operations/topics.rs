//! Topics, their subscriptions and rules: created, described, changed and deleted. A key has the rights over a topic
//! that it has over a queue of its name; they hold for its subscriptions, too.

use super::{
    Access, Area, Operation, RequestBody, Scope, answer, delete, empty, get, handler, json, object,
    patch, post, put, schema_of,
};
use crate::http::topics::{self, rules, subscriptions};
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Topics",
    operations: OPERATIONS,
    schemas: include_str!("topics.json"),
};

const LISTEN: Access = Access::Key(Right::Listen, Scope::Queue);
const MANAGE: Access = Access::Key(Right::Manage, Scope::Queue);
const TOPIC: RequestBody = json(schema_of!("NewTopic"));
const SUBSCRIPTION: RequestBody = json(schema_of!("NewSubscription"));
const RULE: RequestBody = json(schema_of!("NewRule"));
const ANY: &str = r#"{"type":"object"}"#;

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/topics", "List the topics", Access::Key(Right::Listen, Scope::Items), handler!(topics::list))
        .answers(object("The topics that the key may listen to, with their subscriptions and rules.")),
    post("/api/topics", "Create a topic", Access::Key(Right::Manage, Scope::BodyName), handler!(topics::create))
        .takes(TOPIC).answers(answer(201, "The topic is durable.", ANY)),
    get("/api/topics/{topic}", "Describe a topic: its settings, subscriptions, their rules and message counts", LISTEN,
        handler!(topics::describe))
        .answers(object("The topic.")),
    patch("/api/topics/{topic}", "Change the settings in the body", MANAGE, handler!(topics::change))
        .takes(TOPIC).answers(object("The topic.")),
    delete("/api/topics/{topic}", "Delete a topic, its subscriptions and their messages", MANAGE, handler!(topics::delete))
        .answers(empty(204, "The topic is deleted.")),
    post("/api/topics/{topic}/subscriptions", "Create a subscription", MANAGE, handler!(subscriptions::create))
        .takes(SUBSCRIPTION).answers(answer(201, "The subscription is durable.", ANY)),
    get("/api/topics/{topic}/subscriptions/{subscription}", "Describe a subscription: settings, rules and message counts",
        LISTEN, handler!(subscriptions::describe))
        .answers(object("The subscription.")),
    patch("/api/topics/{topic}/subscriptions/{subscription}", "Change the settings in the body", MANAGE,
        handler!(subscriptions::change))
        .takes(SUBSCRIPTION).answers(object("The subscription.")),
    delete("/api/topics/{topic}/subscriptions/{subscription}", "Delete a subscription and its messages", MANAGE,
        handler!(subscriptions::delete))
        .answers(empty(204, "The subscription is deleted.")),
    post("/api/topics/{topic}/subscriptions/{subscription}/rules", "Add a rule", MANAGE, handler!(rules::add))
        .takes(RULE).answers(answer(201, "The rule applies to every message that is sent from now on.", ANY)),
    put("/api/topics/{topic}/subscriptions/{subscription}/rules/{rule}", "Replace a rule", MANAGE, handler!(rules::change))
        .takes(RULE).answers(object("The rule.")),
    delete("/api/topics/{topic}/subscriptions/{subscription}/rules/{rule}", "Remove a rule", MANAGE, handler!(rules::remove))
        .answers(empty(204, "The rule is removed.")),
];
