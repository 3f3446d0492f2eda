//! Messages of queues: sent, received and settled. A queue and its dead letters take the same requests.

use highwater_queue::SubQueue;

use super::{
    Access, Area, Handler, JSON, Operation, Parameter, RequestBody, Response, Scope, TEXT, WAIT,
    WaitLimit, answer, empty, get, handler, header, json, post, query, schema_of,
};
use crate::http::queues::settle::{self, Settle};
use crate::http::queues::{receive, send, sessions};
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Messages",
    operations: OPERATIONS,
    schemas: include_str!("queues.json"),
};

const SEND: Access = Access::Key(Right::Send, Scope::Queue);
const LISTEN: Access = Access::Key(Right::Listen, Scope::Queue);
const MANAGE: Access = Access::Key(Right::Manage, Scope::Queue);

const MAX: Parameter = query(
    "max",
    "The most messages to answer with",
    r#"{"type":"integer","minimum":1,"maximum":10000}"#,
);
const MODE: Parameter = query(
    "mode",
    "lock: settle the message later; delete: remove it at once",
    r#"{"enum":["lock","delete"],"default":"lock"}"#,
);
const SESSION: Parameter = query("session", "The session", TEXT);
const SESSION_TOKEN: Parameter = query("session_token", "The token from accepting it", TEXT);

const PEEK: &[Parameter] = &[
    query(
        "from",
        "The first sequence number",
        r#"{"type":"integer","minimum":1,"default":1}"#,
    ),
    MAX,
];
const RECEIVE: &[Parameter] = &[MAX, WAIT, MODE, SESSION, SESSION_TOKEN];
const DEFERRED: &[Parameter] = &[MODE, SESSION, SESSION_TOKEN];
const ACCEPT: &[Parameter] = &[SESSION, WAIT];
const MESSAGE_HEADERS: &[Parameter] = &[
    header(
        "x-message-id",
        "The id for duplicate detection, if the queue has it",
        TEXT,
    ),
    header("x-session-id", "The session of the message", TEXT),
    header(
        "x-schedule-at",
        "The message is not received before this time",
        r#"{"type":"string","format":"date-time"}"#,
    ),
    header(
        "x-time-to-live",
        "How long the message is worth delivering",
        r#"{"type":"string","examples":["90s"]}"#,
    ),
];

const MESSAGE: RequestBody = RequestBody {
    required: true,
    content_types: &[JSON, "text/plain", "application/octet-stream"],
    schema: "{}",
};
const SETTLEMENTS: RequestBody = RequestBody {
    required: false,
    content_types: &[JSON],
    schema: schema_of!("HandedIn"),
};
const SEQUENCES: RequestBody = json(schema_of!("Sequences"));
const SESSION_LOCK: RequestBody = json(schema_of!("HeldSession"));

const MESSAGES: Response = answer(200, "Messages, or none.", schema_of!("Messages"));
const EXCHANGED: Response = answer(
    200,
    "Messages, or none; and the outcome of the settlements in the body.",
    schema_of!("Exchanged"),
);
const SETTLED: Response = answer(
    200,
    "How many succeeded, and why the others failed.",
    schema_of!("Settled"),
);

const fn peek(path: &'static str, summary: &'static str, handler: Handler) -> Operation {
    get(path, summary, LISTEN, handler)
        .parameters(PEEK)
        .answers(MESSAGES)
}

const fn receive(path: &'static str, summary: &'static str, handler: Handler) -> Operation {
    post(path, summary, LISTEN, handler)
        .parameters(RECEIVE)
        .waits(WaitLimit::LongPoll)
        .takes(SETTLEMENTS)
        .answers(EXCHANGED)
}

const fn deferred(path: &'static str, summary: &'static str, handler: Handler) -> Operation {
    post(path, summary, LISTEN, handler)
        .parameters(DEFERRED)
        .takes(SEQUENCES)
        .answers(MESSAGES)
}

/// Settles messages by their tokens.
const fn settle(path: &'static str, summary: &'static str, handler: Handler) -> Operation {
    post(path, summary, LISTEN, handler)
        .takes(json(schema_of!("Tokens")))
        .answers(SETTLED)
}

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    post("/queues/{queue}/messages", "Send a message: the body is the message", SEND, handler!(send::send_one))
        .parameters(MESSAGE_HEADERS).takes(MESSAGE)
        .answers(answer(201, "The message is durable.", schema_of!("SentMessage"))),
    post("/queues/{queue}/batch", "Send several messages, all or none", SEND, handler!(send::batch))
        .takes(json(r##"{"type":"array","items":{"$ref":"#/components/schemas/NewMessage"}}"##))
        .answers(answer(201, "All messages are durable.", r#"{"type":"object","required":["count","messages"]}"#)),
    post("/queues/{queue}/cancel", "Cancel scheduled messages", SEND, handler!(settle::cancel))
        .takes(SEQUENCES).answers(SETTLED),
    peek("/queues/{queue}/messages", "Peek at messages in any state", handler!(receive::peek, SubQueue::Main)),
    receive("/queues/{queue}/receive", "Receive messages, and settle earlier ones",
        handler!(receive::receive, SubQueue::Main)),
    deferred("/queues/{queue}/deferred", "Receive deferred messages by sequence number",
        handler!(receive::deferred, SubQueue::Main)),
    settle("/queues/{queue}/complete", "Complete messages: they are deleted",
        handler!(settle::settle, Settle::Complete)),
    settle("/queues/{queue}/abandon", "Abandon messages: they are delivered again",
        handler!(settle::settle, Settle::Abandon)),
    settle("/queues/{queue}/defer", "Defer messages", handler!(settle::settle, Settle::Defer)),
    settle("/queues/{queue}/dead-letter", "Dead-letter messages", handler!(settle::settle, Settle::DeadLetter)),
    settle("/queues/{queue}/renew", "Renew the locks of messages", handler!(settle::settle, Settle::Renew)),
    post("/queues/{queue}/purge", "Delete all messages that are not locked", MANAGE,
        handler!(settle::purge, SubQueue::Main)),
    peek("/queues/{queue}/$deadletter/messages", "Peek at dead letters in any state",
        handler!(receive::peek, SubQueue::DeadLetters)),
    receive("/queues/{queue}/$deadletter/receive", "Receive dead letters, and settle earlier ones",
        handler!(receive::receive, SubQueue::DeadLetters)),
    deferred("/queues/{queue}/$deadletter/deferred", "Receive deferred dead letters by sequence number",
        handler!(receive::deferred, SubQueue::DeadLetters)),
    settle("/queues/{queue}/$deadletter/complete", "Complete dead letters: they are deleted",
        handler!(settle::settle, Settle::Complete)),
    settle("/queues/{queue}/$deadletter/abandon", "Abandon dead letters: they are delivered again",
        handler!(settle::settle, Settle::Abandon)),
    settle("/queues/{queue}/$deadletter/defer", "Defer dead letters", handler!(settle::settle, Settle::Defer)),
    settle("/queues/{queue}/$deadletter/dead-letter", "Refused: they are dead letters already",
        handler!(settle::settle, Settle::DeadLetter)),
    settle("/queues/{queue}/$deadletter/renew", "Renew the locks of dead letters",
        handler!(settle::settle, Settle::Renew)),
    post("/queues/{queue}/$deadletter/resubmit", "Send dead letters to the queue again, some or all", MANAGE,
        handler!(settle::resubmit))
        .takes(json(r#"{"type":"object","additionalProperties":false,"properties":{
            "sequences":{"type":"array","items":{"type":"integer","minimum":0}},
            "all":{"type":"boolean","description":"all that are not locked"},
            "dry_run":{"type":"boolean","description":"with all: only count them, by reason"}}}"#))
        .answers(SETTLED),
    post("/queues/{queue}/$deadletter/purge", "Delete all dead letters that are not locked", MANAGE,
        handler!(settle::purge, SubQueue::DeadLetters)),
    post("/queues/{queue}/sessions/accept", "Lock a session: the named one, or any with a message", LISTEN,
        handler!(sessions::accept))
        .parameters(ACCEPT).waits(WaitLimit::LongPoll),
    post("/queues/{queue}/sessions/renew", "Renew the lock of a session", LISTEN, handler!(sessions::renew))
        .takes(SESSION_LOCK),
    post("/queues/{queue}/sessions/release", "Release a session", LISTEN, handler!(sessions::release))
        .takes(SESSION_LOCK).answers(empty(204, "The session is released.")),
    post("/queues/{queue}/sessions/state", "Set or get the state of a session", LISTEN, handler!(sessions::state))
        .takes(SESSION_LOCK),
];
