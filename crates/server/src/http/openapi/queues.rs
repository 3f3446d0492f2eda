//! Queues and their messages.

use super::{Answer, Body, Needs, Operation, Parameter};

pub const SCHEMAS: &str = include_str!("queues.json");

const JSON: &str = "application/json";

const fn operation(
    method: &'static str,
    path: &'static str,
    about: &'static str,
    needs: Needs,
    parameters: &'static [Parameter],
    body: Option<Body>,
    answer: Answer,
) -> Operation {
    Operation {
        method,
        path,
        about,
        needs,
        parameters,
        body,
        answer,
    }
}

const fn json(schema: &'static str) -> Option<Body> {
    Some(Body {
        required: true,
        types: &[JSON],
        schema,
    })
}

const fn answer(status: u16, about: &'static str, schema: &'static str) -> Answer {
    Answer {
        status,
        about,
        content: Some((JSON, schema)),
    }
}

const fn parameter(
    place: &'static str,
    name: &'static str,
    about: &'static str,
    schema: &'static str,
) -> Parameter {
    Parameter {
        place,
        name,
        about,
        schema,
    }
}

const TEXT: &str = r#"{"type":"string"}"#;
const MAX: Parameter = parameter(
    "query",
    "max",
    "Messages, at most",
    r#"{"type":"integer","minimum":1,"maximum":10000}"#,
);
const WAIT: Parameter = parameter(
    "query",
    "wait",
    "When there is nothing, wait this long for something",
    r#"{"type":"string","pattern":"^[0-9]{1,3}ms$","examples":["100ms"]}"#,
);
const MODE: Parameter = parameter(
    "query",
    "mode",
    "lock: settle it later; delete: it is gone",
    r#"{"enum":["lock","delete"],"default":"lock"}"#,
);
const SESSION: Parameter = parameter("query", "session", "The session", TEXT);
const SESSION_TOKEN: Parameter =
    parameter("query", "session_token", "What accepting it answered", TEXT);

const PEEK: &[Parameter] = &[
    parameter(
        "query",
        "from",
        "From this number on",
        r#"{"type":"integer","minimum":1,"default":1}"#,
    ),
    MAX,
];
const RECEIVE: &[Parameter] = &[MAX, WAIT, MODE, SESSION, SESSION_TOKEN];
const ACCEPT: &[Parameter] = &[SESSION, WAIT];
const MESSAGE_HEAD: &[Parameter] = &[
    parameter("header", "x-message-id", "Known for a repeat by it", TEXT),
    parameter("header", "x-session-id", "The session it belongs to", TEXT),
    parameter(
        "header",
        "x-schedule-at",
        "Not to be received before",
        r#"{"type":"string","format":"date-time"}"#,
    ),
    parameter(
        "header",
        "x-time-to-live",
        "How long it is worth delivering",
        r#"{"type":"string","examples":["90s"]}"#,
    ),
];

const ANY: Option<Body> = Some(Body {
    required: true,
    types: &[JSON, "text/plain", "application/octet-stream"],
    schema: "{}",
});
const TOKENS: Option<Body> = json(r##"{"$ref":"#/components/schemas/Tokens"}"##);
const HANDED_IN: Option<Body> = Some(Body {
    required: false,
    types: &[JSON],
    schema: r##"{"$ref":"#/components/schemas/HandedIn"}"##,
});
const SEQUENCES: Option<Body> = json(r##"{"$ref":"#/components/schemas/Sequences"}"##);
const HELD: Option<Body> = json(r##"{"$ref":"#/components/schemas/HeldSession"}"##);
const NEW_QUEUE: Option<Body> = json(r##"{"$ref":"#/components/schemas/NewQueue"}"##);

const SENT: Answer = answer(
    201,
    "Accepted, for good.",
    r##"{"$ref":"#/components/schemas/SentMessage"}"##,
);
const SENT_MANY: Answer = answer(
    201,
    "All accepted, for good.",
    r#"{"type":"object","required":["count","messages"]}"#,
);
const MESSAGES_OUT: Answer = answer(
    200,
    "Messages, or none.",
    r##"{"$ref":"#/components/schemas/Messages"}"##,
);
const EXCHANGED: Answer = answer(
    200,
    "Messages, or none; and with how many of those that were handed in it went well, and why not with the others.",
    r##"{"$ref":"#/components/schemas/Exchanged"}"##,
);
const SETTLED: Answer = answer(
    200,
    "How many it went well with, and why not with the others.",
    r##"{"$ref":"#/components/schemas/Settled"}"##,
);
const QUEUE: Answer = answer(
    200,
    "The queue.",
    r##"{"$ref":"#/components/schemas/Queue"}"##,
);
const CREATED: Answer = answer(
    201,
    "It is there, for good.",
    r##"{"$ref":"#/components/schemas/Queue"}"##,
);
const OBJECT: Answer = answer(200, "What there is to tell.", r#"{"type":"object"}"#);
const DONE: Answer = Answer {
    status: 204,
    about: "Done.",
    content: None,
};

/// What is done to messages by their tokens.
const fn settle(path: &'static str, about: &'static str) -> Operation {
    operation("POST", path, about, Needs::Listen, &[], TOKENS, SETTLED)
}

pub const MESSAGES: &[Operation] = &[
    operation(
        "POST",
        "/queues/{queue}/messages",
        "Send a message: the body is the message",
        Needs::Send,
        MESSAGE_HEAD,
        ANY,
        SENT,
    ),
    operation(
        "POST",
        "/queues/{queue}/batch",
        "Send several, all or none",
        Needs::Send,
        &[],
        json(r##"{"type":"array","items":{"$ref":"#/components/schemas/NewMessage"}}"##),
        SENT_MANY,
    ),
    operation(
        "POST",
        "/queues/{queue}/cancel",
        "Cancel scheduled messages",
        Needs::Send,
        &[],
        SEQUENCES,
        SETTLED,
    ),
    operation(
        "GET",
        "/queues/{queue}/messages",
        "Look at messages, whatever their state",
        Needs::Listen,
        PEEK,
        None,
        MESSAGES_OUT,
    ),
    operation(
        "POST",
        "/queues/{queue}/receive",
        "Receive messages, and settle those of before",
        Needs::Listen,
        RECEIVE,
        HANDED_IN,
        EXCHANGED,
    ),
    operation(
        "POST",
        "/queues/{queue}/deferred",
        "Receive deferred messages by their numbers",
        Needs::Listen,
        RECEIVE,
        SEQUENCES,
        MESSAGES_OUT,
    ),
    settle("/queues/{queue}/complete", "Done with them: they are gone"),
    settle("/queues/{queue}/abandon", "Give them back"),
    settle("/queues/{queue}/defer", "Set them aside"),
    settle("/queues/{queue}/dead-letter", "Make them dead letters"),
    settle("/queues/{queue}/renew", "Lock them for longer"),
    operation(
        "POST",
        "/queues/{queue}/purge",
        "Remove all messages that nobody has locked",
        Needs::Manage,
        &[],
        None,
        OBJECT,
    ),
    operation(
        "GET",
        "/queues/{queue}/$deadletter/messages",
        "Look at dead letters, whatever their state",
        Needs::Listen,
        PEEK,
        None,
        MESSAGES_OUT,
    ),
    operation(
        "POST",
        "/queues/{queue}/$deadletter/receive",
        "Receive dead letters, and settle those of before",
        Needs::Listen,
        RECEIVE,
        HANDED_IN,
        EXCHANGED,
    ),
    operation(
        "POST",
        "/queues/{queue}/$deadletter/deferred",
        "Receive deferred dead letters by their numbers",
        Needs::Listen,
        RECEIVE,
        SEQUENCES,
        MESSAGES_OUT,
    ),
    settle(
        "/queues/{queue}/$deadletter/complete",
        "Done with them: they are gone",
    ),
    settle("/queues/{queue}/$deadletter/abandon", "Give them back"),
    settle("/queues/{queue}/$deadletter/defer", "Set them aside"),
    settle(
        "/queues/{queue}/$deadletter/dead-letter",
        "Make them dead letters",
    ),
    settle("/queues/{queue}/$deadletter/renew", "Lock them for longer"),
    operation(
        "POST",
        "/queues/{queue}/$deadletter/resubmit",
        "Make dead letters messages again",
        Needs::Manage,
        &[],
        SEQUENCES,
        SETTLED,
    ),
    operation(
        "POST",
        "/queues/{queue}/$deadletter/purge",
        "Remove all dead letters that nobody has locked",
        Needs::Manage,
        &[],
        None,
        OBJECT,
    ),
    operation(
        "POST",
        "/queues/{queue}/sessions/accept",
        "Lock a session: this one, or any that has a message",
        Needs::Listen,
        ACCEPT,
        None,
        OBJECT,
    ),
    operation(
        "POST",
        "/queues/{queue}/sessions/renew",
        "Lock a session for longer",
        Needs::Listen,
        &[],
        HELD,
        OBJECT,
    ),
    operation(
        "POST",
        "/queues/{queue}/sessions/release",
        "Give a session back",
        Needs::Listen,
        &[],
        HELD,
        DONE,
    ),
    operation(
        "POST",
        "/queues/{queue}/sessions/state",
        "Set or ask for the state of a session",
        Needs::Listen,
        &[],
        HELD,
        OBJECT,
    ),
];

pub const QUEUES: &[Operation] = &[
    operation(
        "GET",
        "/api/queues",
        "The queues there are",
        Needs::Listen,
        &[],
        None,
        OBJECT,
    ),
    operation(
        "POST",
        "/api/queues",
        "Make a queue",
        Needs::Manage,
        &[],
        NEW_QUEUE,
        CREATED,
    ),
    operation(
        "GET",
        "/api/queues/{queue}",
        "A queue: its settings and how many messages are where",
        Needs::Listen,
        &[],
        None,
        QUEUE,
    ),
    operation(
        "PATCH",
        "/api/queues/{queue}",
        "Change what the body names",
        Needs::Manage,
        &[],
        NEW_QUEUE,
        QUEUE,
    ),
    operation(
        "DELETE",
        "/api/queues/{queue}",
        "Delete a queue and all that is in it",
        Needs::Manage,
        &[],
        None,
        DONE,
    ),
];
