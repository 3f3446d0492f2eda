//! The console: its pages, their live stream and assets, login and logout.

use super::{
    Access, Area, Handler, Operation, Parameter, RequestBody, Response, Scope, TEXT, WaitLimit,
    empty, get, handler, post, query, typed,
};
use crate::http::console;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Console",
    operations: OPERATIONS,
    schemas: "{}",
};

/// A page shows each item that the caller may see.
const ITEMS: Access = Access::Key(Right::Listen, Scope::Items);

const PAGE: Response = typed(200, "A page for browsers.", "text/html", TEXT);

const fn page(
    path: &'static str,
    summary: &'static str,
    access: Access,
    view: Handler,
) -> Operation {
    get(path, summary, access, view).answers(PAGE)
}

/// The [`Handler`] of a page whose view an async function makes.
macro_rules! view {
    ($function:path) => {
        Handler::Page(|context| Box::pin($function(context)))
    };
}

const NEXT: Parameter = query("next", "The page to go to after the login", TEXT);

const NUMBER: &str = r#"{"type":"integer","minimum":0}"#;

const PAGE_NUMBER: Parameter = query("page", "The page of the list, from 1", NUMBER);

const LOGIN: RequestBody = RequestBody {
    required: true,
    content_types: &["application/x-www-form-urlencoded"],
    schema: r#"{"type":"object","required":["name","secret"],"properties":{
        "name":{"type":"string"},"secret":{"type":"string"},"next":{"type":"string"}}}"#,
};

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    page("/", "The console's overview", ITEMS, view!(console::overview::view)),
    page("/console/jobs", "The console's list of jobs", ITEMS, view!(console::jobs::list))
        .parameters(&[query("state", "Only jobs in this state", TEXT)]),
    page("/console/jobs/{job}", "The console's page of a job", Access::Key(Right::Listen, Scope::Deployment),
        view!(console::job::view)),
    page("/console/playground", "The console's playground", Access::Key(Right::Listen, Scope::Node),
        view!(console::playground)),
    page("/console/hubs", "The console's list of hubs", ITEMS, view!(console::hubs::list))
        .parameters(&[PAGE_NUMBER]),
    page("/console/hubs/{hub}", "The console's page of a hub, with events that match: looks at 10,000 at most",
        Access::Key(Right::Listen, Scope::Hub), view!(console::hub::view))
        .parameters(&[
            query("partition", "The partition to show", NUMBER),
            query("from", "As `from` of a read", TEXT),
            query("before", "Look backwards from this offset", NUMBER),
            query("key", "Only events with this key", TEXT),
            query("where", "Only events for which this condition holds", TEXT),
            query("partitions", "The page of the list of partitions", NUMBER),
        ]),
    page("/console/queues", "The console's list of queues", ITEMS, view!(console::queues::list))
        .parameters(&[PAGE_NUMBER]),
    page("/console/queues/{queue}", "The console's page of a queue, with messages peeked at",
        Access::Key(Right::Listen, Scope::Queue), view!(console::queue::view))
        .parameters(&[
            query("from", "The first sequence number", NUMBER),
            query("dead", "The first sequence number of dead letters", NUMBER),
            query("session", "List the sessions after this one", TEXT),
        ]),
    page("/console/processors", "The console's list of processors", ITEMS, view!(console::processors::list)),
    page("/console/processors/{processor}", "The console's page of a processor",
        Access::Key(Right::Listen, Scope::Deployment), view!(console::processors::view))
        .parameters(&[query("from", "The first partition to show", TEXT)]),
    page("/console/cluster", "The console's nodes over the cluster, and the resources of each",
        Access::Key(Right::Listen, Scope::Node), view!(console::cluster::view)),
    page("/console/circuits", "The console's circuits", ITEMS, view!(console::circuits::list)),
    page("/console/dead-letters", "The console's list of dead letters", ITEMS, view!(console::dead_letters::list))
        .parameters(&[
            query("processor", "Only dead letters of this processor", TEXT),
            query("reason", "Dead letters whose last error contains this text", TEXT),
            query("key", "Dead letters whose event has this key", TEXT),
            query("id", "The dead letter of this event", TEXT),
            query("from", "Dead-lettered at this time or later", TEXT),
            query("until", "Dead-lettered before this time", TEXT),
            query("at", "The processor to continue with", TEXT),
            query("after", "The offset to continue after", TEXT),
        ]),
    page("/console/dead-letters/{processor}/{id}", "The console's page of a dead letter",
        Access::Key(Right::Listen, Scope::DeadLetters), view!(console::dead_letters::view)),
    page("/console/workflows", "The console's list of workflows and instances", ITEMS,
        view!(console::workflows::list))
        .parameters(&[
            query("workflow", "Only instances of this workflow", TEXT),
            query("state", "Only instances in this state", TEXT),
            query("version", "Only instances whose version begins with this text", TEXT),
            query("id", "Only instances whose id begins with this text", TEXT),
            query("from", "Only instances started at this time or later", TEXT),
            query("until", "Only instances started before this time", TEXT),
            query("after", "Where the page before ended", TEXT),
        ]),
    page("/console/workflows/{workflow}/{id}", "The console's page of a workflow instance",
        Access::Key(Right::Listen, Scope::Workflow), view!(console::workflows::view)),
    get("/console/live", "The panels of a page of the console as they change", ITEMS, handler!(console::live))
        .parameters(&[query("page", "The path and query of the page", TEXT)]).waits(WaitLimit::Stream)
        .answers(typed(200, "Server-sent events: `hello`, `panel` with `id` and `html`, `logout`.",
            "text/event-stream", TEXT)),
    get("/console/assets/{file}", "A style sheet, script or picture of the console", Access::Public,
        handler!(console::asset))
        .answers(empty(200, "The file.")),
    get("/console/login", "The login page of the console", Access::Public, handler!(console::login_page))
        .parameters(&[NEXT]).answers(PAGE),
    post("/console/login", "Log in with the name and the secret of a key, and get a session cookie", Access::Public,
        handler!(console::log_in))
        .takes(LOGIN).answers(empty(303, "Logged in; the page to go to.")),
    get("/console/session", "Whether the caller is logged in", ITEMS, handler!(console::session))
        .answers(empty(204, "It is.")),
    post("/console/logout", "End the session of the browser", ITEMS, handler!(console::log_out))
        .answers(empty(204, "Logged out.")),
];
