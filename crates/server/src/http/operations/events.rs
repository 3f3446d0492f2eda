//! Events in and out of hubs.

use super::{
    Access, Area, Handler, JSON, Operation, Parameter, RequestBody, Response, Scope, TEXT,
    WaitLimit, answer, empty, get, handler, header, post, query, schema_of, typed,
};
use crate::http::read;
use crate::http::send::{Dialect, PathTarget};
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Events",
    operations: OPERATIONS,
    schemas: include_str!("hubs.json"),
};

const SEND: Access = Access::Key(Right::Send, Scope::Hub);
const READ: Access = Access::Key(Right::Listen, Scope::Hub);

const FROM: Parameter = query(
    "from",
    "earliest, latest, an offset, or a time such as 2026-01-01T00:00:00Z",
    r#"{"type":"string","examples":["earliest"]}"#,
);

const KEY: &[Parameter] = &[
    query("key", "The key of events that have none of their own", TEXT),
    header("x-partition-key", "As `key`", TEXT),
];

const EVENTS: RequestBody = RequestBody {
    required: true,
    content_types: &[
        JSON,
        "application/x-ndjson",
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "application/vnd.microsoft.servicebus.json",
        "application/octet-stream",
    ],
    schema: "{}",
};

const STORED: Response = answer(
    201,
    "The events are durable.",
    r##"{"oneOf":[{"$ref":"#/components/schemas/Stored"},{"$ref":"#/components/schemas/StoredMany"}]}"##,
);

const STORED_EVENT_HUBS: Response = empty(201, "The events are durable.");

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    post("/hubs/{hub}/messages", "Store events; the content type decides the form of the body", SEND,
        Handler::Append(Dialect::Highwater, PathTarget::Any))
        .parameters(KEY).takes(EVENTS).answers(STORED),
    post("/hubs/{hub}/partitions/{partition}/messages", "Store events in a partition", SEND,
        Handler::Append(Dialect::Highwater, PathTarget::Partition))
        .takes(EVENTS).answers(STORED),
    post("/{hub}/messages", "Store events, as clients of Event Hubs do", SEND,
        Handler::Append(Dialect::EventHubs, PathTarget::Any))
        .takes(EVENTS).answers(STORED_EVENT_HUBS),
    post("/{hub}/partitions/{partition}/messages", "Store events in a partition, as clients of Event Hubs do", SEND,
        Handler::Append(Dialect::EventHubs, PathTarget::Partition))
        .takes(EVENTS).answers(STORED_EVENT_HUBS),
    post("/{hub}/publishers/{publisher}/messages",
        "Store events whose key is the publisher, as clients of Event Hubs do", SEND,
        Handler::Append(Dialect::EventHubs, PathTarget::Publisher))
        .takes(EVENTS).answers(STORED_EVENT_HUBS),
    get("/hubs/{hub}/partitions/{partition}/messages", "Read a partition; with Accept: text/event-stream, live", READ,
        handler!(read::partition))
        .parameters(&[
            FROM,
            query("max", "The most events to answer with",
                r#"{"type":"integer","minimum":1,"maximum":10000,"default":100}"#),
            super::WAIT,
        ])
        .waits(WaitLimit::LongPoll)
        .answers(answer(200, "Events in the order of the partition, and the offset to read on from.",
            schema_of!("Page"))),
    get("/hubs/{hub}/messages", "Read all partitions, live: send Accept: text/event-stream", READ,
        handler!(read::all_partitions))
        .parameters(&[FROM]).waits(WaitLimit::Stream)
        .answers(typed(200, "Server-sent events.", "text/event-stream", TEXT)),
];
