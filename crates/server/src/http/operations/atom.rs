//! The administration API of Service Bus, under the paths that the administration clients call. A key has the rights
//! over a topic that it has over a queue of its name; they hold for its subscriptions, too.

use super::{
    Access, Area, Operation, Parameter, RequestBody, Response, Scope, TEXT, delete, empty, get,
    handler, put, query, typed,
};
use crate::http::atom::{Described, entities, rules, subscriptions};
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Administration of Service Bus",
    operations: OPERATIONS,
    schemas: "{}",
};

const MANAGE: Access = Access::Key(Right::Manage, Scope::Queue);
const EACH: Access = Access::Key(Right::Manage, Scope::Items);
const ATOM: &str = "application/atom+xml";
const ENTRY: RequestBody = RequestBody {
    required: true,
    content_types: &[ATOM],
    schema: TEXT,
};
const ENTITY: Response = typed(200, "An ATOM entry; 201 if it was created.", ATOM, TEXT);
const FEED: Response = typed(200, "An ATOM feed of entries.", ATOM, TEXT);
const DELETED: Response = empty(200, "It is deleted.");
const VERSION: Parameter = query("api-version", "Asks for errors in XML, too", TEXT);
const NUMBER: &str = r#"{"type":"integer","minimum":0}"#;
const VERSIONED: &[Parameter] = &[VERSION];
const PAGED: &[Parameter] = &[
    VERSION,
    query("$skip", "Entries to leave out", NUMBER),
    query("$top", "Entries of a page, 100 at most", NUMBER),
];

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/$namespaceinfo", "Describe the node as a namespace", Access::Key(Right::Manage, Scope::Node), handler!(entities::namespace))
        .in_atom(VERSIONED).answers(ENTITY),
    get("/$Resources/Queues", "List the queues", EACH, handler!(entities::list, Described::Queue)).in_atom(PAGED).answers(FEED),
    get("/$Resources/Topics", "List the topics", EACH, handler!(entities::list, Described::Topic)).in_atom(PAGED).answers(FEED),
    get("/{entity}", "Describe a queue or topic", MANAGE, handler!(entities::describe)).in_atom(VERSIONED).answers(ENTITY),
    put("/{entity}", "Create a queue or topic, or change it with `If-Match: *`", MANAGE, handler!(entities::put))
        .in_atom(VERSIONED).takes(ENTRY).answers(ENTITY),
    delete("/{entity}", "Delete a queue or topic and its messages", MANAGE, handler!(entities::delete))
        .in_atom(VERSIONED).answers(DELETED),
    get("/{topic}/Subscriptions", "List the subscriptions of a topic", MANAGE, handler!(subscriptions::list))
        .in_atom(PAGED).answers(FEED),
    get("/{topic}/Subscriptions/{subscription}", "Describe a subscription", MANAGE, handler!(subscriptions::describe))
        .in_atom(VERSIONED).answers(ENTITY),
    put("/{topic}/Subscriptions/{subscription}", "Create a subscription, or change it with `If-Match: *`", MANAGE,
        handler!(subscriptions::put))
        .in_atom(VERSIONED).takes(ENTRY).answers(ENTITY),
    delete("/{topic}/Subscriptions/{subscription}", "Delete a subscription and its messages", MANAGE,
        handler!(subscriptions::delete))
        .in_atom(VERSIONED).answers(DELETED),
    get("/{topic}/Subscriptions/{subscription}/Rules", "List the rules of a subscription", MANAGE, handler!(rules::list))
        .in_atom(PAGED).answers(FEED),
    get("/{topic}/Subscriptions/{subscription}/Rules/{rule}", "Describe a rule", MANAGE, handler!(rules::describe))
        .in_atom(VERSIONED).answers(ENTITY),
    put("/{topic}/Subscriptions/{subscription}/Rules/{rule}", "Add a rule, or replace it with `If-Match: *`", MANAGE,
        handler!(rules::put))
        .in_atom(VERSIONED).takes(ENTRY).answers(ENTITY),
    delete("/{topic}/Subscriptions/{subscription}/Rules/{rule}", "Remove a rule", MANAGE, handler!(rules::delete))
        .in_atom(VERSIONED).answers(DELETED),
];
