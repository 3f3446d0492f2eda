//! Events, the hubs they are in, and the groups that read them.

use super::{Answer, Body, Needs, Operation, Parameter};

const JSON: &str = "application/json";

const FROM: Parameter = Parameter {
    place: "query",
    name: "from",
    about: "earliest, latest, an offset, or a time such as 2026-01-01T00:00:00Z",
    schema: r#"{"type":"string","examples":["earliest"]}"#,
};

const KEY: &[Parameter] = &[
    Parameter {
        place: "query",
        name: "key",
        about: "The key of events that have none of their own",
        schema: r#"{"type":"string"}"#,
    },
    Parameter {
        place: "header",
        name: "x-partition-key",
        about: "As `key`",
        schema: r#"{"type":"string"}"#,
    },
];

const EVENTS_IN: Option<Body> = Some(Body {
    required: true,
    types: &[
        "application/json",
        "application/x-ndjson",
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "application/vnd.microsoft.servicebus.json",
        "application/octet-stream",
    ],
    schema: "{}",
});

const STORED: Answer = Answer {
    status: 201,
    about: "Stored, for good.",
    content: Some((
        JSON,
        r##"{"oneOf":[{"$ref":"#/components/schemas/Stored"},{"$ref":"#/components/schemas/StoredMany"}]}"##,
    )),
};

const STORED_QUIETLY: Answer = Answer {
    status: 201,
    about: "Stored, for good.",
    content: None,
};

const HUB: Option<(&str, &str)> = Some((JSON, r##"{"$ref":"#/components/schemas/Hub"}"##));

const GONE: Answer = Answer {
    status: 204,
    about: "It is gone.",
    content: None,
};

pub const EVENTS: &[Operation] = &[
    Operation {
        method: "POST",
        path: "/hubs/{hub}/messages",
        about: "Store events; the content type says how the body holds them",
        needs: Needs::Send,
        parameters: KEY,
        body: EVENTS_IN,
        answer: STORED,
    },
    Operation {
        method: "POST",
        path: "/hubs/{hub}/partitions/{partition}/messages",
        about: "Store events in a partition",
        needs: Needs::Send,
        parameters: &[],
        body: EVENTS_IN,
        answer: STORED,
    },
    Operation {
        method: "POST",
        path: "/{hub}/messages",
        about: "Store events, as clients of Event Hubs do",
        needs: Needs::Send,
        parameters: &[],
        body: EVENTS_IN,
        answer: STORED_QUIETLY,
    },
    Operation {
        method: "POST",
        path: "/{hub}/partitions/{partition}/messages",
        about: "Store events in a partition, as clients of Event Hubs do",
        needs: Needs::Send,
        parameters: &[],
        body: EVENTS_IN,
        answer: STORED_QUIETLY,
    },
    Operation {
        method: "POST",
        path: "/{hub}/publishers/{publisher}/messages",
        about: "Store events whose key is the publisher, as clients of Event Hubs do",
        needs: Needs::Send,
        parameters: &[],
        body: EVENTS_IN,
        answer: STORED_QUIETLY,
    },
    Operation {
        method: "GET",
        path: "/hubs/{hub}/partitions/{partition}/messages",
        about: "Read a partition; with Accept: text/event-stream, live",
        needs: Needs::Listen,
        parameters: &[
            FROM,
            Parameter {
                place: "query",
                name: "max",
                about: "Events, at most",
                schema: r#"{"type":"integer","minimum":1,"maximum":10000,"default":100}"#,
            },
            Parameter {
                place: "query",
                name: "wait",
                about: "When there is nothing, wait this long for something",
                schema: r#"{"type":"string","pattern":"^[0-9]{1,3}ms$","examples":["100ms"]}"#,
            },
        ],
        body: None,
        answer: Answer {
            status: 200,
            about: "Events in the order of the partition, and where to read on.",
            content: Some((JSON, r##"{"$ref":"#/components/schemas/Page"}"##)),
        },
    },
    Operation {
        method: "GET",
        path: "/hubs/{hub}/messages",
        about: "Read all partitions, live: send Accept: text/event-stream",
        needs: Needs::Listen,
        parameters: &[FROM],
        body: None,
        answer: Answer {
            status: 200,
            about: "Server-sent events.",
            content: Some(("text/event-stream", r#"{"type":"string"}"#)),
        },
    },
];

pub const HUBS: &[Operation] = &[
    Operation {
        method: "GET",
        path: "/api/hubs",
        about: "The hubs there are",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Those that the key may listen to, and names that lead to several.",
            content: Some((
                JSON,
                r##"{"type":"object","required":["hubs","sharded"],"properties":{
                    "hubs":{"type":"array","items":{"$ref":"#/components/schemas/Hub"}},
                    "sharded":{"type":"array","items":{"type":"object"}}}}"##,
            )),
        },
    },
    Operation {
        method: "POST",
        path: "/api/hubs",
        about: "Make a hub",
        needs: Needs::Manage,
        parameters: &[],
        body: Some(Body {
            required: true,
            types: &[JSON],
            schema: r##"{"$ref":"#/components/schemas/NewHub"}"##,
        }),
        answer: Answer {
            status: 201,
            about: "It is there, for good.",
            content: HUB,
        },
    },
    Operation {
        method: "GET",
        path: "/api/hubs/{hub}",
        about: "A hub and its partitions",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Where each partition starts and ends, and why it takes no writes, if so.",
            content: Some((
                JSON,
                r##"{"anyOf":[{"$ref":"#/components/schemas/Hub"},{"type":"object"}]}"##,
            )),
        },
    },
    Operation {
        method: "PATCH",
        path: "/api/hubs/{hub}",
        about: "Change what the body names",
        needs: Needs::Manage,
        parameters: &[],
        body: Some(Body {
            required: true,
            types: &[JSON],
            schema: r##"{"$ref":"#/components/schemas/HubChange"}"##,
        }),
        answer: Answer {
            status: 200,
            about: "The hub as it is now.",
            content: HUB,
        },
    },
    Operation {
        method: "DELETE",
        path: "/api/hubs/{hub}",
        about: "Delete a hub and everything in it",
        needs: Needs::Manage,
        parameters: &[],
        body: None,
        answer: GONE,
    },
    Operation {
        method: "POST",
        path: "/api/hubs/{hub}/partitions/{partition}/trim",
        about: "Forget the beginning of a partition, for good",
        needs: Needs::Manage,
        parameters: &[],
        body: Some(Body {
            required: true,
            types: &[JSON],
            schema: r#"{"type":"object","required":["before"],"additionalProperties":false,"properties":{
                "before":{"oneOf":[{"type":"integer","minimum":0},{"type":"string"}],
                    "description":"an offset, a time, or latest"}}}"#,
        }),
        answer: Answer {
            status: 200,
            about: "Where the partition starts now.",
            content: Some((
                JSON,
                r#"{"type":"object","required":["partition","start"],"properties":{
                    "partition":{"type":"integer"},"start":{"type":"integer"}}}"#,
            )),
        },
    },
    Operation {
        method: "POST",
        path: "/api/hubs/{hub}/partitions/{partition}/punctuate",
        about: "Say that nothing came into a partition up to now",
        needs: Needs::Manage,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Where that stands, unless something came in between.",
            content: Some((JSON, r#"{"type":"object"}"#)),
        },
    },
];

pub const GROUPS: &[Operation] = &[
    Operation {
        method: "GET",
        path: "/api/groups",
        about: "The consumer groups there are",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Each with its state and members.",
            content: Some((
                JSON,
                r##"{"type":"object","required":["groups"],"properties":{
                    "groups":{"type":"array","items":{"$ref":"#/components/schemas/Group"}}}}"##,
            )),
        },
    },
    Operation {
        method: "GET",
        path: "/api/groups/{group}",
        about: "A group, its positions, and how far they are behind",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "The group.",
            content: Some((JSON, r##"{"$ref":"#/components/schemas/Group"}"##)),
        },
    },
    Operation {
        method: "DELETE",
        path: "/api/groups/{group}",
        about: "Forget a group that has no members, and its positions",
        needs: Needs::Manage,
        parameters: &[],
        body: None,
        answer: GONE,
    },
];

pub const SCHEMAS: &str = include_str!("hubs.json");
