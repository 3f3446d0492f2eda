//! Processors, their circuits and their dead letters.

use super::{Answer, Body, Needs, Operation, Parameter};

const JSON: &str = "application/json";
const ANY: &str = r#"{"type":"object"}"#;

const WHY: Option<Body> = Some(Body {
    required: true,
    types: &[JSON],
    schema: r#"{"type":"object","additionalProperties":false,"properties":{"why":{"type":"string"}}}"#,
});

const WHICH: Option<Body> = Some(Body {
    required: true,
    types: &[JSON],
    schema: r#"{"type":"object","description":"which letters: docs/processing.md has the filters"}"#,
});

const FILTERS: &[Parameter] = &[
    Parameter {
        place: "query",
        name: "reason",
        about: "Letters whose last error contains this text",
        schema: r#"{"type":"string"}"#,
    },
    Parameter {
        place: "query",
        name: "key",
        about: "Letters whose event has this key",
        schema: r#"{"type":"string"}"#,
    },
    Parameter {
        place: "query",
        name: "max",
        about: "Letters, at most",
        schema: r#"{"type":"integer","minimum":1}"#,
    },
];

pub const PROCESSING: &[Operation] = &[
    Operation {
        method: "GET",
        path: "/api/processors",
        about: "The processors there are, and how far each has come",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "A line for each.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/processors/{processor}",
        about: "A processor and its partitions",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "The processor.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/circuits",
        about: "The circuits there are",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Which are open, since when and why.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/circuits/{processor}",
        about: "The circuit of a processor",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "The circuit.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "POST",
        path: "/api/circuits/{processor}/open",
        about: "Stop the deliveries of a processor",
        needs: Needs::Manage,
        parameters: &[],
        body: WHY,
        answer: Answer {
            status: 200,
            about: "Nothing is delivered from now on.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "POST",
        path: "/api/circuits/{processor}/close",
        about: "Resume the deliveries of a processor",
        needs: Needs::Manage,
        parameters: &[],
        body: WHY,
        answer: Answer {
            status: 200,
            about: "Deliveries go on.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/dead-letters",
        about: "How many dead letters each processor has",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "A number for each.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/dead-letters/{processor}",
        about: "The dead letters of a processor",
        needs: Needs::Listen,
        parameters: FILTERS,
        body: None,
        answer: Answer {
            status: 200,
            about: "Letters, oldest first, and where to read on.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "GET",
        path: "/api/dead-letters/{processor}/{id}",
        about: "One dead letter with its event and every failed try",
        needs: Needs::Listen,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "The letter.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "POST",
        path: "/api/dead-letters/{processor}/replay",
        about: "Hand dead letters to the processor's handler again",
        needs: Needs::Manage,
        parameters: &[],
        body: WHICH,
        answer: Answer {
            status: 200,
            about: "How many were handled, and which failed again.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "POST",
        path: "/api/dead-letters/{processor}/purge",
        about: "Forget dead letters, for good",
        needs: Needs::Manage,
        parameters: &[],
        body: WHICH,
        answer: Answer {
            status: 200,
            about: "How many are gone.",
            content: Some((JSON, ANY)),
        },
    },
    Operation {
        method: "GET",
        path: "/resume/{token}",
        about: "The page behind the link of a notification",
        needs: Needs::Nothing,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "A page that asks whether to resume.",
            content: Some(("text/html", r#"{"type":"string"}"#)),
        },
    },
    Operation {
        method: "POST",
        path: "/resume/{token}",
        about: "Resume the deliveries that the link is for, once",
        needs: Needs::Nothing,
        parameters: &[],
        body: None,
        answer: Answer {
            status: 200,
            about: "Deliveries go on.",
            content: Some(("text/html", r#"{"type":"string"}"#)),
        },
    },
];
