//! The telemetry of a running job: samples of its events, the fate of each, its plan with figures, data errors and
//! history.

use std::path::Path;
use std::sync::Arc;

use highwater_env::{Clock, RealClock};
use highwater_server::node::Node;
use highwater_time::{Duration, Instant};
use serde_json::{Value, json};

use crate::http::node::{Wire, request};
use crate::jobs::Client;
use crate::whole_node;

const HUBS: &str = "[hubs.in]\npartitions = 1\n[hubs.out]\npartitions = 1\n";

const COUNTS: &str = "SELECT k, COUNT(*) AS n INTO out FROM numbers TIMESTAMP BY t GROUP BY k, HoppingWindow(Duration(minute, 2), Hop(minute, 1))";

fn job(query: &str) -> String {
    let file = "query = \"q.saql\"\nstart = \"beginning\"\n[time]\nlate_arrival = \"1h\"\n\
        [inputs.numbers]\nhub = \"in\"\n[outputs.out]\ntype = \"hub\"\nhub = \"out\"\n[checkpoint]\nevery = \"100ms\"\n";
    json!({"files": {"job.toml": file, "q.saql": query}}).to_string()
}

/// A node with the job `counts`, and the time at its start.
async fn start(folder: &Path) -> (Node, Client, Instant) {
    let node = whole_node::start(folder, HUBS, Arc::new(RealClock::new())).await;
    let client = Client::of(&node);
    let (status, made) = client.call("PUT /api/jobs/counts", &job(COUNTS)).await;
    assert_eq!(status, 200, "{made}");
    client.until("GET /api/jobs/counts", is_running).await;
    let now = Instant::from_unix_nanos(RealClock::new().unix_nanos());
    (node, client, now)
}

fn is_running(job: &Value) -> bool {
    job["state"] == "running"
}

fn ago(now: Instant, seconds: i64) -> Instant {
    let at = now - Duration::from_secs(seconds);
    Instant::from_unix_millis(at.to_unix_millis())
}

fn event(at: Instant) -> Value {
    json!({"k": "a", "t": at.to_string()})
}

/// Sends an event, and returns its partition and offset. Punctuations have offsets, too.
async fn send(client: &Client, partition: usize, event: &Value) -> String {
    let line = format!("POST /hubs/in/partitions/{partition}/messages");
    let (status, answer) = client.call(&line, &event.to_string()).await;
    assert_eq!(status, 201, "{answer}");
    format!("{partition}/{}", answer["offset"])
}

async fn watch(node: &Node) -> Wire {
    let mut wire = Wire::connect(node.http_address().unwrap()).await;
    let close = ["connection: close"];
    wire.send(&request("GET /api/jobs/counts/samples", &close, b""))
        .await;
    let head = wire.head().await.unwrap();
    assert!(head.contains("text/event-stream"), "{head}");
    assert_eq!(wire.block().await.as_deref(), Some(": highwater"));
    wire
}

/// The sampled events until there are `count`, and the last watermark.
async fn sampled(wire: &mut Wire, count: usize) -> (Vec<Value>, Value) {
    let (mut events, mut watermark) = (Vec::new(), Value::Null);
    while events.len() < count {
        let block = wire.block().await.unwrap();
        let Some(data) = block.strip_prefix("event: samples\ndata: ") else {
            continue;
        };
        let data: Value = serde_json::from_str(data).unwrap();
        events.extend(data["events"].as_array().unwrap().iter().cloned());
        if let Some(last) = data["watermarks"].as_array().unwrap().last() {
            watermark = last.clone();
        }
    }
    (events, watermark)
}

// proves T18
#[tokio::test(flavor = "multi_thread")]
async fn watchers_see_events_with_verdicts_and_the_watermark() {
    let folder = tempfile::tempdir().unwrap();
    let (node, client, now) = start(folder.path()).await;
    let mut wire = watch(&node).await;
    let times = [ago(now, 10), ago(now, 20), ago(now, 7_200)];
    client.send("in", &times.map(event)).await;
    let (events, watermark) = sampled(&mut wire, 3).await;
    let fates: Vec<(&Value, &Value)> = events
        .iter()
        .map(|event| (&event["text"], &event["timestamp"]))
        .collect();
    let (on_time, moved) = (json!("on time"), json!(times[0].to_unix_millis()));
    assert_eq!(fates[0], (&on_time, &moved), "{events:?}");
    assert_eq!(fates[1], (&json!("out of order: adjusted"), &moved));
    assert_eq!(events[1]["watermark"], moved);
    assert_eq!(events[1]["happened"], times[1].to_unix_millis());
    assert_eq!(events[2]["verdict"], "late_and_out_of_order");
    assert_eq!(watermark["partition"], 0);
    assert!(watermark["watermark"].as_i64() >= moved.as_i64());
    let (_, stopped) = client.call("POST /api/jobs/counts/stop", "").await;
    assert_eq!(stopped["state"], "stopped");
    while wire.block().await.is_some() {}
    node.stop().await;
}

// proves T18
#[tokio::test(flavor = "multi_thread")]
async fn the_fate_of_an_event_is_known_by_sample_and_by_replay() {
    let folder = tempfile::tempdir().unwrap();
    let (node, client, now) = start(folder.path()).await;
    let times = [ago(now, 10), ago(now, 20)];
    send(&client, 0, &event(times[0])).await;
    let second = send(&client, 0, &event(times[1])).await;
    let without_time = send(&client, 0, &json!({"k": "b"})).await;
    let fate = async |path: &str| {
        let line = format!("GET /api/jobs/counts/events/{path}");
        client.call(&line, "").await
    };
    let (status, replayed) = fate(&format!("numbers/{second}")).await;
    assert_eq!(status, 200, "{replayed}");
    assert_eq!(replayed["source"], "replay");
    assert_eq!(replayed["text"], "out of order: adjusted");
    assert_eq!(replayed["timestamp"], times[0].to_unix_millis());
    assert_eq!(replayed["watermark"], times[0].to_unix_millis());
    assert_eq!(replayed["value"], event(times[1]));
    let windows = replayed["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 2, "{replayed}");
    for window in windows {
        let bound = |name: &str| window[name].as_i64().unwrap();
        assert_eq!(bound("end") - bound("start"), 120_000);
        let inside = bound("start") + 1..=bound("end");
        assert!(inside.contains(&times[0].to_unix_millis()), "{replayed}");
    }
    let (_, lost) = fate(&format!("0/{without_time}")).await;
    assert_eq!(
        (&lost["verdict"], &lost["dropped"]),
        (&json!("lost"), &json!(true))
    );
    assert!(
        lost["reason"]
            .as_str()
            .unwrap()
            .contains("InvalidInputTimeStamp"),
        "{lost}"
    );
    for path in ["numbers/0/999", "numbers/7/0", "others/0/0"] {
        assert_eq!(fate(path).await.0, 404, "{path}");
    }
    assert_eq!(fate("numbers/0/x").await.0, 400);

    let mut wire = watch(&node).await;
    client.send("in", &[event(ago(now, 30))]).await;
    let (events, _) = sampled(&mut wire, 1).await;
    let offset = events[0]["offset"].as_i64().unwrap();
    let (_, seen) = fate(&format!("numbers/0/{offset}")).await;
    assert_eq!(seen["source"], "sample", "{seen}");
    assert_eq!(seen["verdict"], events[0]["verdict"]);
    node.stop().await;
}

// proves T17
#[tokio::test(flavor = "multi_thread")]
async fn a_job_describes_its_steps_its_data_errors_and_its_last_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let (node, client, now) = start(folder.path()).await;
    // The last event ends the windows of the others, which are in the same two because their time is the same.
    let times = [ago(now, 600), ago(now, 600), ago(now, 1)];
    client.send("in", &times.map(event)).await;
    let without_time = send(&client, 0, &json!({"k": "b"})).await;
    let known = |job: &Value| {
        let step = |kind: &str| {
            let plan = job["plan"].as_array()?;
            plan.iter().find(|step| step["kind"] == kind).cloned()
        };
        let Some(window) = step("window") else {
            return false;
        };
        window["rows"] == 2
            && window["state_bytes"].as_u64() > Some(0)
            && window["watermark"].is_string()
            && step("source").is_some_and(|source| source["rows"] == 4)
            && step("output").is_some_and(|output| output["rows"] == 2)
            && job["history"]["points"]
                .as_array()
                .is_some_and(|points| points.len() > 1)
    };
    let seen = client.until("GET /api/jobs/counts", known).await;
    let error = &seen["data_errors"][0];
    assert_eq!(
        (&error["place"], &error["input"]),
        (&json!(format!("in/{without_time}")), &json!("numbers"))
    );
    assert_eq!(error["kind"], "InvalidInputTimeStamp");
    let ids: Vec<&str> = seen["plan"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["source-0", "order-0", "step-1", "step-2", "output-0"]);
    let point = &seen["history"]["points"][0];
    for name in [
        "time",
        "events_per_second",
        "rows_per_second",
        "backlog",
        "moved_share",
        "state_bytes",
    ] {
        assert!(point[name].is_number(), "{name}: {point}");
    }
    node.stop().await;
}

/// Sessions of the keys that a table has, without events that a condition leaves out.
const VISITS: &str = "SELECT names.name, COUNT(*) AS n INTO out FROM numbers TIMESTAMP BY t \
    JOIN names ON numbers.k = names.k WHERE numbers.n > 0 \
    GROUP BY names.name, SessionWindow(minute, 5, 60) OVER (PARTITION BY names.name)";

fn visits() -> String {
    let mut job: Value = serde_json::from_str(&job(VISITS)).unwrap();
    let file = job["files"]["job.toml"].as_str().unwrap();
    let file = format!("{file}[inputs.names]\nreference = true\npath = \"names.jsonl\"\n");
    job["files"]["job.toml"] = file.into();
    job["files"]["names.jsonl"] =
        "{\"k\":\"a\",\"name\":\"ann\"}\n{\"k\":\"b\",\"name\":\"bob\"}\n".into();
    job.to_string()
}

// proves T18
#[tokio::test(flavor = "multi_thread")]
async fn the_fate_of_an_event_has_the_bounds_of_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let hubs = HUBS.replacen("partitions = 1", "partitions = 2", 1);
    let node = whole_node::start(folder.path(), &hubs, Arc::new(RealClock::new())).await;
    let client = Client::of(&node);
    let (status, made) = client.call("PUT /api/jobs/visits", &visits()).await;
    assert_eq!(status, 200, "{made}");
    let now = Instant::from_unix_nanos(RealClock::new().unix_nanos());
    let minutes = |minutes: i64| ago(now, minutes * 60);
    // Per partition: key, minutes ago, and whether the query keeps it.
    let partitions = [
        vec![("a", 40, 1), ("a", 38, 1), ("b", 37, 0), ("a", 10, 1)],
        vec![("b", 39, 1), ("a", 36, 1), ("b", 9, 1)],
    ];
    let click = |(key, ago, kept): &(&str, i64, i64)| json!({"k": key, "t": minutes(*ago).to_string(), "n": kept});
    let mut places: [Vec<String>; 2] = Default::default();
    for (partition, events) in partitions.iter().enumerate() {
        for event in events {
            places[partition].push(send(&client, partition, &click(event)).await);
        }
    }
    client.until("GET /api/jobs/visits", is_running).await;
    let sessions = async |place: &str| {
        let line = format!("GET /api/jobs/visits/events/numbers/{place}");
        let (status, fate) = client.call(&line, "").await;
        assert_eq!(status, 200, "{fate}");
        assert_eq!(fate["sessions_exact"], true, "{fate}");
        fate["sessions"].clone()
    };
    let session = |from: i64, to: i64, state: &str| {
        let (start, end) = (minutes(from).to_unix_millis(), minutes(to).to_unix_millis());
        json!([{"start": start, "end": end, "state": state}])
    };
    // The events of one key in two partitions are one session, which the later ones of both partitions close.
    let [first, second] = &places;
    for place in [&first[0], &first[1], &second[1]] {
        assert_eq!(sessions(place).await, session(40, 31, "closed"), "{place}");
    }
    assert_eq!(sessions(&second[0]).await, session(39, 34, "closed"));
    assert_eq!(sessions(&first[3]).await, session(10, 5, "open"));
    assert_eq!(
        sessions(&first[2]).await,
        json!([]),
        "the query leaves it out"
    );
    // An event within the timeout makes an open session longer.
    let later = send(&client, 1, &click(&("a", 7, 1))).await;
    assert_eq!(sessions(&first[3]).await, session(10, 2, "open"));
    assert_eq!(sessions(&later).await, session(10, 2, "open"));
    node.stop().await;
}
