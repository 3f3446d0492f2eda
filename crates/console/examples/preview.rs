//! Writes every screen with made-up data into a folder, to look at the design without a node:
//! `cargo run -p highwater-console --example preview -- FOLDER`, then `python3 -m http.server` in it.

use std::path::Path;

use highwater_console::circuit::{Circuit, CircuitList, CircuitRule, FailureHistory};
use highwater_console::cluster::{Cluster, ClusterItem, ClusterNode};
use highwater_console::dead_letter::{DeadLetterPage, DeliveryAttempt};
use highwater_console::dead_letter_list::{
    DeadLetterCount, DeadLetterList, DeadLetterQuery, DeadLetterRow,
};
use highwater_console::hub::{
    BrowserError, BrowserField, EventBrowser, GroupPosition, HubEvent, HubGroup, HubPage,
    HubPartition, SearchedRange,
};
use highwater_console::hub_list::{HubList, HubRow};
use highwater_console::job::{
    CheckpointFacts, DataError, JobInput, JobPage, LogRow, OutputRow, PartitionRow, Verdicts,
};
use highwater_console::job_list::{JobList, JobRow};
use highwater_console::login::Login;
use highwater_console::message::Message;
use highwater_console::overview::{Backlog, Overview, Problem};
use highwater_console::parts::{Action, Figure, Pager, Tone};
use highwater_console::payload::{Payload, PayloadForm};
use highwater_console::plan::Step;
use highwater_console::processor::{ProcessorPage, ProcessorPartition};
use highwater_console::processor_list::{ProcessorList, ProcessorRow};
use highwater_console::queue::{
    DeadLetterCause, QueueLists, QueueMessage, QueuePage, QueueSession,
};
use highwater_console::queue_list::{QueueCounts, QueueList, QueueRow};
use highwater_console::workflow::{InstancePage, StepAttempt, StepRow};
use highwater_console::workflow_list::{
    InstanceQuery, InstanceRow, NextPage, WorkflowList, WorkflowRow,
};
use highwater_console::{Attention, NavCounts, Shell, View, asset, page, playground};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "preview".into());
    let folder = Path::new(&folder);
    let assets = folder.join("console/assets");
    std::fs::create_dir_all(&assets)?;
    for name in [
        "style.css",
        "theme.js",
        "shell.js",
        "picture.js",
        "job.js",
        "playground.js",
        "messages.js",
        "bulk.js",
        "icon.svg",
    ] {
        let asset = asset(name).expect("the asset exists");
        write(&assets.join(name), &asset.bytes)?;
    }
    let shell = Shell {
        counts: NavCounts {
            jobs: 4,
            hubs: 7,
            queues: 2,
            processors: 1,
            workflows: 318,
            attention: Attention {
                dead_letters: 12,
                circuits_open: 1,
                parked: 0,
            },
        },
        csrf: String::new(),
        key: Some("operations".into()),
    };
    let pages = [
        ("index.html", page(&shell, &View::from(&overview()))),
        (
            "jobs.html",
            page(&shell, &View::from(&JobList { jobs: jobs() })),
        ),
        ("job.html", page(&shell, &View::from(&job()))),
        ("playground.html", page(&shell, &playground())),
        ("processors.html", page(&shell, &View::from(&processors()))),
        ("processor.html", page(&shell, &View::from(&processor()))),
        ("circuits.html", page(&shell, &View::from(&circuits()))),
        ("cluster.html", page(&shell, &View::from(&cluster()))),
        (
            "dead-letters.html",
            page(&shell, &View::from(&dead_letters())),
        ),
        (
            "dead-letter.html",
            page(&shell, &View::from(&dead_letter())),
        ),
        ("workflows.html", page(&shell, &View::from(&workflows()))),
        ("workflow.html", page(&shell, &View::from(&instance()))),
        (
            "no-workflows.html",
            page(&Shell::default(), &View::from(&WorkflowList::default())),
        ),
        (
            "empty.html",
            page(&Shell::default(), &View::from(&Overview::default())),
        ),
        ("hubs.html", page(&shell, &View::from(&hub_list()))),
        ("hub.html", page(&shell, &View::from(&hub()))),
        (
            "no-hubs.html",
            page(&Shell::default(), &View::from(&HubList::default())),
        ),
        ("queues.html", page(&shell, &View::from(&queue_list()))),
        ("queue.html", page(&shell, &View::from(&queue()))),
        (
            "no-queues.html",
            page(&Shell::default(), &View::from(&QueueList::default())),
        ),
        (
            "no-jobs.html",
            page(&Shell::default(), &View::from(&JobList::default())),
        ),
        (
            "login.html",
            Login {
                next: "/".into(),
                name: "operations".into(),
                error: Some("the key or its secret is wrong (unauthorized)".into()),
            }
            .page(),
        ),
        (
            "message.html",
            Message {
                title: "Not found".into(),
                text: "there is no job `x` (not_found)".into(),
                hint: "GET /api/jobs lists them".into(),
            }
            .page(),
        ),
    ];
    for (name, text) in pages {
        write(&folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

#[allow(
    clippy::disallowed_methods,
    reason = "the preview is a tool, not part of a node"
)]
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::write(path, bytes)
}

fn wave(scale: f64, seed: usize) -> Vec<f64> {
    let value = |at: usize| {
        let at = (at + seed * 13) as f64;
        scale * (1.0 + 0.2 * (at / 5.0).sin() + 0.1 * (at * 1.7).cos())
    };
    (0..60).map(value).collect()
}

fn jobs() -> Vec<JobRow> {
    let job = |name: &str, state, trouble: Option<&str>, rate: f64| JobRow {
        name: name.into(),
        state,
        trouble: trouble.map(str::to_owned),
        events_per_second: rate,
        rows_per_second: rate * 0.4,
        history: wave(rate, name.len()),
        watermark_delay_seconds: (rate > 0.0).then_some(1.04),
        backlog: 0,
        rows: 120_412,
    };
    vec![
        job("toll-counts", "running", None, 24_960.0),
        job(
            "slow-cars",
            "running",
            Some("output tolls does not answer: connection refused"),
            312.4,
        ),
        job(
            "a-job-with-a-really-long-name-that-somebody-made-up",
            "stopped",
            None,
            0.0,
        ),
        job(
            "broken",
            "failed",
            Some("the state is larger than jobs.state_bytes_max"),
            0.0,
        ),
    ]
}

fn overview() -> Overview {
    let figure = |label, value: &str, scale, seed| Figure {
        label,
        value: value.into(),
        tone: Tone::Quiet,
        history: wave(scale, seed),
    };
    Overview {
        figures: vec![
            figure("events in", "24,960 /s", 24_960.0, 1),
            figure("rows out", "10,230 /s", 10_230.0, 2),
            figure("watermark delay, largest", "1.0 s", 1.0, 3),
            figure("backlog", "0", 0.0, 4),
            figure("messages waiting", "1,204", 1204.0, 5),
            figure("stored", "27 GB", 27.0, 6),
        ],
        problems: vec![
            Problem {
                tone: Tone::Bad,
                what: "The circuit of processor charge is open".into(),
                why: "5 failures within 60 s, the last: 503 Service Unavailable".into(),
                advice: "Repair http://127.0.0.1:9911/charge, then resume: the events that wait are delivered in order.".into(),
                link: "/console/circuits".into(),
                action: Some(Action { label: "Resume", call: "POST /api/processors/charge/resume".into(), ..Action::default() }),
            },
            Problem {
                tone: Tone::Bad,
                what: "Job broken has failed".into(),
                why: "the state is larger than jobs.state_bytes_max".into(),
                link: "/console/jobs/broken".into(),
                ..Problem::default()
            },
            Problem {
                tone: Tone::Warn,
                what: "12 dead letters of processor charge wait".into(),
                advice: "Read why they were set aside, then replay or purge them.".into(),
                link: "/console/dead-letters".into(),
                ..Problem::default()
            },
        ],
        jobs: jobs(),
        backlogs: vec![
            Backlog { kind: "job", name: "toll-counts".into(), link: "/console/jobs/toll-counts".into(), events: 12_400, seconds_left: Some(14.0) },
            Backlog { kind: "processor", name: "charge".into(), link: "/console/processors".into(), events: 4_112, seconds_left: None },
        ],
        hubs: (0..4)
            .map(|n| HubRow { name: format!("toll-{n}"), per_second: 1000.0 / f64::from(n + 1), history: wave(100.0, n as usize), bytes: 27_000_000, ..HubRow::default() })
            .collect(),
        uptime_seconds: 8040.0,
        version: "0.1.0".into(),
    }
}

const NOW_MS: i64 = 1_794_823_498_917;

fn job() -> JobPage {
    let step = |id: &str, label: &str, facts: &str, inputs: &[&str], tone| Step {
        id: id.into(),
        label: label.into(),
        inputs: inputs.iter().map(|&id| id.to_owned()).collect(),
        facts: facts.into(),
        watermark: Some("watermark 1.1 s ago".into()),
        tone,
    };
    let partition = |number: u32| PartitionRow {
        input: "Entry".into(),
        hub: format!("toll/{number}"),
        partition: number,
        offset: 744_018,
        per_second: Some(12_470.0),
        backlog: 0,
        watermark_ms: Some(NOW_MS - 1000 * i64::from(number + 1)),
        delay_seconds: Some(f64::from(number) + 1.1),
        delay_share: 0.5 * f64::from(number + 1),
        series: number as usize,
    };
    let output = |name: &str, trouble: Option<&str>| OutputRow {
        name: name.into(),
        rows: 1_230_400,
        waiting: if trouble.is_some() { 4096 } else { 0 },
        dropped: 0,
        retries: 1,
        trouble: trouble.map(str::to_owned),
    };
    JobPage {
        name: "toll-counts".into(),
        state: "running",
        may_deploy: true,
        inputs: vec![JobInput { name: "Entry".into(), hubs: vec!["toll".into(), "toll".into()] }],
        figures: vec![
            figure("events in", "24,960 /s", 1),
            figure("rows out", "10,230 /s", 2),
            figure("watermark delay", "1.0 s", 3),
            figure("backlog", "0", 4),
            figure("adjusted or dropped", "0.8 %", 5),
            figure("state", "27 MB", 6),
        ],
        late_bound_ms: Some(8000),
        verdicts: Verdicts { on_time: 1_488_201, adjusted: 12_004, dropped: 31 },
        plan: vec![
            step("source-0", "source toll", "24,960/s · per partition", &[], Tone::Quiet),
            step("order-0", "order, 2 s bound", "4,112 waiting", &["source-0"], Tone::Quiet),
            step("step-1", "tumbling 10 s by TollId", "10,230/s · 27 MB", &["order-0"], Tone::Warn),
            step("output-0", "hub counts", "10,230/s", &["step-1"], Tone::Quiet),
            step("output-1", "PostgreSQL tolls", "10,230/s · 4,096 waiting", &["step-1"], Tone::Bad),
        ],
        partitions: (0..2).map(partition).collect(),
        outputs: vec![
            output("Counts", None),
            output("Tolls", Some("connection refused: 127.0.0.1:5432, tried 4 times")),
        ],
        query: "SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, SUM(Toll) AS Takings\nINTO Counts FROM Entry TIMESTAMP BY EntryTime\n-- every ten seconds\nGROUP BY TollId, TumblingWindow(second, 10)".into(),
        data_errors: vec![DataError {
            time_ms: Some(NOW_MS),
            place: "toll/1/61002".into(),
            text: "Toll: text \"n/a\" is not a number".into(),
            event: "{\"TollId\":2,\"Toll\":\"n/a\"}".into(),
        }],
        errors_total: 3,
        log: vec![LogRow { time_ms: NOW_MS, text: "checkpoint 218 is stored".into() }],
        checkpoint: Some(CheckpointFacts { number: 218, time_ms: Some(NOW_MS), bytes: 27_000_000, pause_seconds: 0.012, trouble: None }),
        ..JobPage::default()
    }
}

fn figure(label: &'static str, value: &str, seed: usize) -> Figure {
    Figure {
        label,
        value: value.into(),
        tone: Tone::Quiet,
        history: wave(100.0, seed),
    }
}

fn hub_list() -> HubList {
    let hub = |name: &str, rate: f64, trouble: Option<&str>| HubRow {
        name: name.into(),
        partitions: 2,
        per_second: rate,
        history: wave(rate, name.len()),
        bytes: 27_300_000,
        retention: "7 d".into(),
        groups: 1,
        trouble: trouble.map(str::to_owned),
    };
    HubList {
        hubs: vec![
            hub("stolen", 0.4, None),
            hub("toll", 24_960.0, None),
            hub(
                "tolls-of-a-hub-with-a-very-long-name-in-the-north",
                0.0,
                Some("partition 1: the disk failed: Input/output error"),
            ),
        ],
        total: 3,
        may_create: true,
        ..HubList::default()
    }
}

fn json(text: &str) -> Payload {
    Payload {
        form: PayloadForm::Json,
        text: text.into(),
        bytes: text.as_bytes().to_vec(),
        length: text.len() as u64,
    }
}

fn hub() -> HubPage {
    let event = |at: i64| HubEvent {
        partition: 1,
        offset: 88_213 - at,
        time_ms: NOW_MS - at * 417,
        key: (at % 3 > 0).then(|| format!("car-{}", at * 7)),
        headers: vec![("content-type".into(), "application/json".into())],
        value: match at {
            4 => Payload {
                form: PayloadForm::Bytes,
                text: String::new(),
                bytes: (0..90).collect(),
                length: 90,
            },
            5 => Payload::default(),
            _ => json(
                "{\"TollId\":3,\"EntryTime\":\"2026-11-16T10:04:58.917Z\",\"LicensePlate\":\"JNB 7001\",\"State\":\"NY\",\"Toll\":7.5,\"Tag\":\"\"}",
            ),
        },
    };
    let partition = |number: u32| HubPartition {
        number,
        per_second: Some(12_480.0),
        bytes: 13_000_000,
        start: 0,
        end: 88_214,
        last_ms: Some(NOW_MS),
        segments: Some(2),
        trouble: None,
    };
    let group = |name: &str, members: u64, lag: u64| HubGroup {
        name: name.into(),
        state: if members > 0 { "stable" } else { "no members" }.into(),
        members,
        lag,
        positions: (0..2)
            .map(|partition| GroupPosition {
                partition,
                offset: 80_000,
                end: 88_214,
                lag: lag / 2,
            })
            .collect(),
        may_reset: true,
        ..HubGroup::default()
    };
    HubPage {
        name: "toll".into(),
        partitions_total: 2,
        retention: "7 d".into(),
        created_ms: NOW_MS,
        figures: vec![
            figure("events in", "24,960 /s", 1),
            figure("events kept", "176,428", 2),
            figure("stored", "27 MB", 3),
            figure("partitions", "2", 4),
            figure("consumer groups", "2", 5),
            figure("furthest behind", "8,214 events", 6),
        ],
        partitions: (0..2).map(partition).collect(),
        groups: vec![group("reports", 0, 8214), group("alerts", 2, 0)],
        may_send: true,
        browser: Some(EventBrowser {
            partition: 1,
            condition: "Toll >".into(),
            error: Some(BrowserError { field: BrowserField::Condition, text: "error[HW1002]: an expression is missing\n  where:1:7\n  |\n1 | Toll >\n  |       ^".into() }),
            events: (0..12).map(event).collect(),
            newest_first: true,
            searched: SearchedRange { events: 12, from: 88_202, next: 88_214 },
            pager: Pager { before: Some("#".into()), ..Pager::default() },
            ..EventBrowser::default()
        }),
        ..HubPage::default()
    }
}

fn counts() -> QueueCounts {
    QueueCounts {
        active: 1_204,
        locked: 16,
        scheduled: 2,
        deferred: 1,
        dead: 3,
        bytes: 512_000,
    }
}

fn queue_list() -> QueueList {
    let queue = |name: &str, rate: f64| QueueRow {
        name: name.into(),
        counts: counts(),
        oldest_seconds: Some(42.0),
        sent_per_second: rate,
        completed_per_second: rate,
        history: wave(rate, 3),
        trouble: None,
    };
    QueueList {
        queues: vec![queue("audits", 12.0), queue("orders", 0.0)],
        total: 2,
        may_create: true,
        ..QueueList::default()
    }
}

fn queue() -> QueuePage {
    let message = |sequence: u64, state| QueueMessage {
        sequence,
        state,
        time_ms: NOW_MS,
        deliveries: 2,
        id: Some("order-7".into()),
        content_type: Some("application/json".into()),
        body: json("{\"order\":7,\"lines\":[{\"sku\":\"a\",\"n\":2}]}"),
        ..QueueMessage::default()
    };
    let dead = |sequence: u64| QueueMessage {
        dead_letter: Some(DeadLetterCause {
            reason: "MaxDeliveryCountExceeded".into(),
            description: "10 deliveries".into(),
            time_ms: NOW_MS,
        }),
        ..message(sequence, "active")
    };
    QueuePage {
        name: "orders".into(),
        figures: vec![
            figure("active · sent", "1,204 · 12 /s", 1),
            figure("locked · completed", "16 · 12 /s", 2),
            figure("scheduled", "2", 3),
            figure("deferred", "1", 4),
            Figure {
                tone: Tone::Bad,
                ..figure("dead letters", "3", 5)
            },
            figure("oldest active", "42 s", 6),
        ],
        counts: counts(),
        settings: vec![
            ("Lock", "1 min".into()),
            ("Deliveries", "10 at most, then a dead letter".into()),
            ("Expired become dead letters", "no".into()),
        ],
        totals: vec![
            ("Sent", 120_412),
            ("Completed", 119_000),
            ("Locks expired", 3),
        ],
        has_sessions: true,
        may_send: true,
        may_manage: true,
        lists: Some(QueueLists {
            messages: vec![
                message(1, "locked"),
                message(2, "active"),
                message(3, "deferred"),
            ],
            dead: (4..7).map(dead).collect(),
            dead_unlocked: 3,
            dead_reasons: "3 × MaxDeliveryCountExceeded".into(),
            scheduled: vec![message(9, "scheduled")],
            sessions: vec![QueueSession {
                name: "customer 7".into(),
                ready: 3,
                locked: 1,
                locked_until_ms: Some(NOW_MS),
                state_bytes: 120,
            }],
            ..QueueLists::default()
        }),
    }
}

fn processors() -> ProcessorList {
    let row = |name: &str, circuit, trouble: Option<&str>, behind, dead_letters| ProcessorRow {
        name: name.into(),
        hub: "stolen".into(),
        handler: "webhook",
        target: "http://127.0.0.1:9911/police".into(),
        circuit,
        trouble: trouble.map(str::to_owned),
        handled_per_second: 42.0,
        history: wave(42.0, name.len()),
        handled: 120_300,
        failures: 71,
        behind: Some(behind),
        dead_letters,
    };
    ProcessorList {
        processors: vec![
            row("police", "open", None, 412, 12),
            row("mail", "half-open", None, 3, 0),
            row(
                "charge",
                "closed",
                Some("the hub has no such partition"),
                0,
                0,
            ),
            row("billing", "closed", None, 0, 0),
        ],
        more: 0,
    }
}

fn circuit(state: &'static str) -> Circuit {
    let count = |at: usize| match at {
        60..=64 | 80..=84 => (at % 5) as u32 + 1,
        _ => 0,
    };
    Circuit {
        name: "police".into(),
        state,
        since_ms: Some(NOW_MS - 90_000),
        until_ms: None,
        why: (state != "closed").then(|| {
            "11 failures within 30 s, the last: 503 Service Unavailable: the radio is silent".into()
        }),
        rule: CircuitRule {
            failures_max: 10,
            window_seconds: 30.0,
            open_for_seconds: (state != "open").then_some(30.0),
            successes: 3,
        },
        failures: FailureHistory {
            counts: (0..90).map(count).collect(),
            interval_seconds: 10,
        },
        waiting: Some(412),
        may_deploy: true,
    }
}

fn circuits() -> CircuitList {
    let named = |name: &str, state| Circuit {
        name: name.into(),
        ..circuit(state)
    };
    CircuitList {
        circuits: vec![
            named("police", "open"),
            named("mail", "half-open"),
            named("billing", "closed"),
        ],
        more: 0,
    }
}

fn cluster() -> Cluster {
    let node = |name: &str, this| ClusterNode {
        name: name.into(),
        url: format!("https://{name}:8080"),
        version: "0.1.0".into(),
        this,
        slots: 128,
    };
    let item = |kind: &str, name: &str, node: Option<&str>| ClusterItem {
        kind: kind.into(),
        name: name.into(),
        node: node.map(str::to_owned),
        state: "running".into(),
        backlog: Some(12),
        ..ClusterItem::default()
    };
    Cluster {
        nodes: vec![node("node-1", true), node("node-2", false)],
        rows: vec![
            item("queue", "jobs", Some("node-1")),
            ClusterItem {
                state: "moving".into(),
                backlog: None,
                why: Some("its former owner closes it first".into()),
                ..item("workflow", "delivery", None)
            },
        ],
        more: 0,
        shared: true,
    }
}

fn processor() -> ProcessorPage {
    let figure = |label, value: &str, seed| Figure {
        label,
        value: value.into(),
        tone: Tone::Quiet,
        history: wave(10.0, seed),
    };
    let mut list = processors();
    ProcessorPage {
        row: list.processors.remove(0),
        group: "police".into(),
        figures: vec![
            figure("handled", "42 /s", 1),
            figure("failed calls", "0.4 /s", 2),
            figure("behind", "412 events", 3),
            figure("dead letters", "12", 4),
            figure("calls since start", "120,371", 5),
            figure("restarts", "0", 6),
        ],
        circuit: circuit("open"),
        partitions: (0..3)
            .map(|number| ProcessorPartition {
                number,
                here: number < 2,
                position: Some(70_112),
                end: 70_524,
                behind: 412,
                trouble: None,
            })
            .collect(),
        next: None,
        partitions_total: 3,
        letters: dead_letters().letters,
        may_read_letters: true,
        settings: vec![
            ("dead-letter hub", "police.dead".into()),
            ("attempts", "4, then a dead letter".into()),
        ],
    }
}

fn dead_letters() -> DeadLetterList {
    let row = |offset: i64, reason: &str| DeadLetterRow {
        processor: "police".into(),
        id: format!("stolen/0@{offset}"),
        key: (offset % 2 == 0).then(|| "B 4711".into()),
        dead_ms: NOW_MS - 1000 * offset,
        tries: 4,
        replays: (offset % 3) as u32,
        reason: reason.into(),
    };
    DeadLetterList {
        processors: vec![DeadLetterCount {
            processor: "police".into(),
            hub: "police.dead".into(),
            letters: 12,
            circuit: "open",
        }],
        filter: DeadLetterQuery {
            processor: "police".into(),
            reason: "radio".into(),
            ..DeadLetterQuery::default()
        },
        error: None,
        letters: vec![
            row(17, "503 Service Unavailable: the radio is silent"),
            row(
                22,
                "422 Unprocessable Content: {\"error\":\"the plate `???` cannot be read, and nobody knows why it was sent at all\"}",
            ),
            row(31, "no answer within 5s"),
        ],
        next: Some("?after=31".into()),
        may_manage: true,
    }
}

fn dead_letter() -> DeadLetterPage {
    DeadLetterPage {
        row: dead_letters().letters.remove(1),
        enqueued_ms: NOW_MS - 60_000,
        hub: "stolen".into(),
        partition: 0,
        offset: 22,
        headers: vec![(
            "traceparent".into(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
        )],
        value: json("{\"TollId\":2,\"LicensePlate\":\"???\"}"),
        attempts: (1..=4)
            .map(|number| DeliveryAttempt {
                number,
                at_ms: Some(NOW_MS - 9000 + 2000 * i64::from(number)),
                reason: "422 Unprocessable Content".into(),
            })
            .collect(),
        may_manage: true,
    }
}

fn workflows() -> WorkflowList {
    let row = |id: &str, state: &str, reason: Option<&str>| InstanceRow {
        workflow: "fines".into(),
        id: id.into(),
        version: "9f3a0c41d07e1b22".into(),
        state: state.into(),
        started_ms: NOW_MS - 61_000,
        changed_ms: NOW_MS,
        step: Some("tow".into()),
        reason: reason.map(str::to_owned),
    };
    WorkflowList {
        workflows: vec![WorkflowRow {
            name: "fines".into(),
            version: "9f3a0c41d07e1b22".into(),
            running: 18,
            parked: 2,
            ended: 1204,
            steps: vec!["officer".into(), "tow".into()],
            may_manage: true,
        }],
        states: &["running", "parked", "completed", "refused"],
        filter: InstanceQuery {
            state: "parked".into(),
            ..InstanceQuery::default()
        },
        error: None,
        instances: vec![
            row(
                "B 4711, 2026-11-16T10:04:58Z",
                "parked",
                Some("409 Conflict: the fine was paid already"),
            ),
            row("M 12, 2026-11-16T10:04:11Z", "running", None),
            row(
                "HH 9, 2026-11-16T10:03:02Z",
                "refused",
                Some("409 Conflict"),
            ),
        ],
        next: vec![NextPage {
            workflow: "fines".into(),
            address: "?after=x".into(),
        }],
        live: true,
    }
}

fn instance() -> InstancePage {
    let start = NOW_MS - 20_000;
    let step = |name: &str, undo, state: &str, begun: i64, ended: i64, failures: u32| StepRow {
        name: name.into(),
        undo,
        state: state.into(),
        tries: failures + u32::from(matches!(state, "done" | "undone")),
        begun_ms: Some(start + begun),
        ended_ms: Some(start + ended),
        request: Some(format!(
            "{} http://127.0.0.1:9911/{name}s/B%204711",
            if undo { "DELETE" } else { "PUT" }
        )),
        request_body: (!undo).then(|| json("{\"plate\":\"B 4711\",\"booth\":\"2\"}")),
        status: matches!(state, "done" | "undone").then_some(200),
        answer: matches!(state, "done" | "undone").then(|| json("{\"booked\":true}")),
        attempts: (0..failures)
            .map(|n| StepAttempt {
                number: n + 1,
                begun_ms: start + begun + 900 * i64::from(n),
                ended_ms: start + begun + 900 * i64::from(n) + 120,
                reason: "500 Internal Server Error: the truck is stuck".into(),
            })
            .collect(),
        ..StepRow::default()
    };
    InstancePage {
        workflow: "fines".into(),
        id: "B 4711, 2026-11-16T10:04:58Z".into(),
        version: "9f3a0c41d07e1b22".into(),
        state: "parked".into(),
        reason: Some("409 Conflict: the fine was paid already".into()),
        blame: Some("fine".into()),
        started_ms: start,
        changed_ms: NOW_MS,
        input: json("{\"LicensePlate\":\"B 4711\",\"TollId\":2}"),
        steps: vec![
            step("officer", false, "done", 0, 400, 0),
            step("tow", false, "done", 400, 4000, 2),
            step("fine", false, "failed", 4000, 4300, 1),
            step("tow", true, "parked", 4300, 20_000, 4),
            StepRow {
                name: "officer".into(),
                undo: true,
                state: "waiting".into(),
                ..StepRow::default()
            },
        ],
        notes: vec![],
        may_manage: true,
    }
}
