//! The playground over HTTP: rows, fates, errors at their place, and the limits of a run.

use std::path::Path;
use std::sync::Arc;

use highwater_env::RealClock;
use highwater_server::node::Node;
use serde_json::{Value, json};

use crate::http::node::call;
use crate::whole_node;

async fn start(folder: &Path) -> Node {
    whole_node::start(folder, "", Arc::new(RealClock::new())).await
}

async fn post(node: &Node, request: &Value) -> (u16, Value) {
    let address = node.http_address().unwrap();
    let answer = call(address, "POST /api/playground", &[], &request.to_string()).await;
    let body = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
    (answer.status, body)
}

fn millis(clock: &str) -> i64 {
    let text = format!("2026-03-02T{clock}Z");
    let time = highwater_time::Instant::parse_iso(text.as_bytes()).unwrap();
    time.to_unix_millis()
}

const COUNTS: &str = "SELECT device, System.Timestamp() AS w, COUNT(*) AS n\nFROM input TIMESTAMP BY t\nGROUP BY device, TumblingWindow(minute, 5)";

/// The worked example of the manual: twelve events of three devices.
fn worked_example() -> Value {
    let events = [
        ("d1", "12:07", "12:07"),
        ("d2", "12:08", "12:08"),
        ("d1", "12:17", "12:11"),
        ("d3", "12:08", "12:13"),
        ("d1", "12:19", "12:16"),
        ("d3", "12:12", "12:17"),
    ];
    let lines = events.map(|(device, happened, arrived)| {
        let time = |clock: &str| format!("2026-03-02T{clock}:00Z");
        json!({"device": device, "t": time(happened), "a": time(arrived)}).to_string()
    });
    json!({
        "query": COUNTS,
        "time": {"late_arrival": "5m", "out_of_order": "2m", "early_arrival": "5m"},
        "inputs": {"input": {"arrival": "a", "text": lines.join("\n")}},
    })
}

// proves T18
#[tokio::test(flavor = "multi_thread")]
async fn a_query_gives_rows_fates_watermarks_and_its_plan() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let (status, answer) = post(&node, &worked_example()).await;
    assert_eq!((status, &answer["ok"]), (200, &json!(true)), "{answer}");
    let output = &answer["outputs"][0];
    assert_eq!(output["count"], 5, "{output}");
    let first = json!({"device": "d1", "w": "2026-03-02T12:10:00.0000000Z", "n": 1});
    assert_eq!(output["rows"][0], first);
    assert_eq!(
        output["sources"][0],
        json!({"events": [[0, 1]], "count": 1})
    );
    let events = answer["events"].as_array().unwrap();
    let verdicts: Vec<&str> = events
        .iter()
        .map(|e| e["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(
        verdicts,
        [
            "on_time",
            "on_time",
            "early",
            "on_time",
            "on_time",
            "out_of_order"
        ]
    );
    assert_eq!(events[2]["dropped"], true);
    assert_eq!(events[2]["timestamp"], Value::Null);
    assert_eq!(events[2]["windows"], json!([]));
    let moved = &events[5];
    assert_eq!(moved["line"], 6);
    assert_eq!(moved["arrived"], millis("12:17:00"));
    assert_eq!(moved["happened"], millis("12:12:00"));
    assert_eq!(moved["watermark"], millis("12:17:00"));
    assert_eq!(moved["timestamp"], millis("12:17:00"));
    let window = json!({"start": millis("12:15:00"), "end": millis("12:20:00")});
    assert_eq!(moved["windows"], json!([window]));
    let last = answer["watermarks"].as_array().unwrap().last().unwrap();
    assert_eq!(last["watermark"], millis("12:17:00"), "{answer}");
    let kinds = answer["plan"].as_array().unwrap().iter();
    let kinds: Vec<&str> = kinds.map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["source", "order", "window", "select", "output"]);
    assert_eq!(answer["plan"][2]["inputs"], json!(["order-0"]));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_query_has_its_place_and_a_lost_event_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut wrong = worked_example();
    wrong["query"] = "SELECT device\nFROM inptu".into();
    let (status, answer) = post(&node, &wrong).await;
    assert_eq!((status, &answer["ok"]), (200, &json!(false)));
    let found = &answer["diagnostics"][0];
    let place = json!([
        found["code"],
        found["line"],
        found["column"],
        found["length"]
    ]);
    assert_eq!(place, json!(["HW1201", 2, 6, 5]), "{answer}");
    assert!(found["hint"].as_str().unwrap().contains("`input`"));

    let lines = "{\"n\":\"8\",\"t\":\"2026-03-02T00:00:00Z\"}\n\n{\"n\":\n{\"n\":1}\n{\"n\":\"x\",\"t\":\"2026-03-02T00:00:01Z\"}";
    let request = json!({
        "query": "SELECT CAST(n AS bigint) AS n FROM input TIMESTAMP BY t",
        "time": {"late_arrival": "99d"}, "start": "2026-03-02T00:00:00Z",
        "inputs": {"input": {"text": lines}},
    });
    let (_, answer) = post(&node, &request).await;
    let events = answer["events"].as_array().unwrap();
    let verdict = |line: u64| {
        let event = events.iter().find(|event| event["line"] == line).unwrap();
        (event["verdict"].clone(), event["reason"].clone())
    };
    assert_eq!(verdict(1).0, "on_time", "{answer}");
    assert_eq!(verdict(3).0, "lost", "{answer}");
    assert!(
        verdict(4)
            .1
            .as_str()
            .unwrap()
            .starts_with("InvalidInputTimeStamp")
    );
    assert_eq!(answer["outputs"][0]["rows"], json!([{"n": 8}]));
    let failed = &answer["errors"][0];
    assert_eq!(
        (&failed["line"], &failed["query_line"]),
        (&json!(5), &json!(1))
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_substreams_and_reference_data_are_those_of_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let event = |key: &str, second: u32, partition: u32| {
        let at = format!("2026-03-02T00:00:{second:02}Z");
        json!({"value": {"k": key, "t": at}, "arrived": "2026-03-02T00:01:00Z", "partition": partition})
    };
    let events = [
        event("a", 10, 0),
        event("b", 2, 1),
        event("a", 3, 0),
        event("b", 3, 1),
    ];
    let request = json!({
        "query": "SELECT r.name, i.PartitionId AS p, System.Timestamp() AS at FROM input i TIMESTAMP BY t JOIN names r ON i.k = r.k",
        "time": {"late_arrival": "2m", "out_of_order_events": "drop"},
        "inputs": {
            "input": {"events": events},
            "names": {"reference": true, "text": "{\"k\":\"a\",\"name\":\"ann\"}\n{\"k\":\"b\",\"name\":\"bob\"}"},
        },
    });
    let (_, answer) = post(&node, &request).await;
    assert_eq!(answer["ok"], true, "{answer}");
    assert_eq!(answer["inputs"][0]["partitions"], 2);
    let names = answer["outputs"][0]["rows"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bob", "bob", "ann"], "{answer}");
    assert_eq!(answer["events"][2]["text"], "out of order: dropped");
    assert_eq!(answer["events"][3]["offset"], 1);

    let mut request = worked_example();
    request["query"] = COUNTS.replace("BY t", "BY t OVER device").into();
    let (_, answer) = post(&node, &request).await;
    assert_eq!(answer["events"][5]["verdict"], "on_time", "{answer}");
    assert_eq!(answer["events"][5]["substream"], "d3");
    node.stop().await;
}

// proves G2
#[tokio::test(flavor = "multi_thread")]
async fn a_request_beyond_the_limits_is_refused_and_a_query_beyond_them_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let lines = |count: usize| "{\"a\":1}\n".repeat(count);
    let ask =
        |query: &str, text: String| json!({"query": query, "inputs": {"input": {"text": text}}});
    let (status, refused) = post(&node, &ask("SELECT a FROM input", lines(1_001))).await;
    assert_eq!((status, &refused["code"]), (413, &json!("too_large")));
    let long = format!("SELECT a FROM input --{}", "x".repeat(70_000));
    assert_eq!(post(&node, &ask(&long, lines(1))).await.0, 413);
    let (status, refused) = post(&node, &json!({"query": "SELECT 1", "file": "x"})).await;
    assert_eq!((status, &refused["code"]), (400, &json!("bad_request")));

    // A thousand times a thousand rows, then each with a thousand.
    let explosion = "WITH pairs AS (SELECT l.a AS a FROM input l JOIN input r ON l.a = r.a AND DATEDIFF(hour, l, r) BETWEEN 0 AND 1), \
        more AS (SELECT l.a AS a FROM pairs l JOIN input r ON l.a = r.a AND DATEDIFF(hour, l, r) BETWEEN 0 AND 1) \
        SELECT l.a AS a, REPLICATE('x', 30000) AS b FROM more l JOIN input r ON l.a = r.a AND DATEDIFF(hour, l, r) BETWEEN 0 AND 1";
    let (status, answer) = post(&node, &ask(explosion, lines(1_000))).await;
    assert_eq!(status, 200);
    let problem = answer["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("for the playground"), "{answer}");
    assert_eq!(answer["outputs"], json!([]));

    let (_, answer) = post(
        &node,
        &ask("SELECT REPLICATE('x', 40000) AS b FROM input", lines(1)),
    )
    .await;
    assert!(
        answer["errors"][0]["text"]
            .as_str()
            .unwrap()
            .contains("32768 bytes"),
        "{answer}"
    );
    let hops = "SELECT COUNT(*) AS n FROM input GROUP BY HoppingWindow(Duration(day, 7), Hop(millisecond, 1))";
    let (_, answer) = post(&node, &ask(hops, lines(1))).await;
    let problem = answer["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("more than 1000 windows"), "{answer}");
    let (status, answer) = post(&node, &ask("SELECT udf.f(a) AS b FROM input", lines(1))).await;
    assert_eq!((status, &answer["ok"]), (200, &json!(false)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_can_be_posted_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let address = node.http_address().unwrap();
    let answer = call(address, "GET /api/playground/examples", &[], "").await;
    let listed: Value = serde_json::from_str(&answer.body).unwrap();
    for example in listed["examples"].as_array().unwrap() {
        let (status, answer) = post(&node, &example["request"]).await;
        assert_eq!(
            (status, &answer["ok"]),
            (200, &json!(true)),
            "{example}: {answer}"
        );
    }
    node.stop().await;
}
