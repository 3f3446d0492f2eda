//! Jobs on a whole node: deployed, run, stopped, changed, and running again after a restart.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{RealClock, SimClock, disk};
use highwater_server::node::Node;
use serde_json::{Value, json};

use crate::http::node::call;
use crate::whole_node::{self, write};

async fn start(folder: &Path, settings: &str) -> Node {
    whole_node::start(folder, settings, Arc::new(RealClock::new())).await
}

pub(crate) struct Client(pub(crate) SocketAddr);

impl Client {
    pub(crate) fn of(node: &Node) -> Client {
        Client(node.http_address().unwrap())
    }

    pub(crate) async fn call(&self, line: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.text(line, body).await;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        (status, body)
    }

    async fn text(&self, line: &str, body: &str) -> (u16, String) {
        let answer = call(self.0, line, &[], body).await;
        (answer.status, answer.body)
    }

    pub(crate) async fn send(&self, hub: &str, events: &[Value]) {
        for event in events {
            let line = format!("POST /hubs/{hub}/messages?key=k");
            let (status, answer) = self.call(&line, &event.to_string()).await;
            assert_eq!(status, 201, "{answer}");
        }
    }

    /// Repeats the request until its answer passes the check.
    pub(crate) async fn until(&self, line: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Value::Null;
        for _ in 0..3_000 {
            (_, seen) = self.call(line, "").await;
            if holds(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{line} still answers {seen}");
    }

    /// The rows of a hub with one partition, once there are `count` of them.
    pub(crate) async fn rows(&self, hub: &str, count: usize) -> Vec<Value> {
        let (mut rows, mut next) = (Vec::new(), 0);
        for _ in 0..10 {
            let line =
                format!("GET /hubs/{hub}/partitions/0/messages?from={next}&max=1000&wait=10s");
            let (_, mut page) = self.call(&line, "").await;
            let messages = page["messages"].as_array_mut().into_iter().flatten();
            rows.extend(messages.map(|message| message["value"].take()));
            if rows.len() >= count {
                return rows;
            }
            next = page["next"].as_i64().unwrap_or(next);
        }
        let (_, jobs) = self.call("GET /api/jobs", "").await;
        panic!("the rows are missing: {jobs}");
    }
}

const HUBS: &str = "[hubs.in]\npartitions = 1\n[hubs.out]\npartitions = 1\n";

/// A job over numbers with this query.
fn job(query: &str) -> String {
    let file = "query = \"q.saql\"\nstart = \"beginning\"\n[inputs.numbers]\nhub = \"in\"\n[outputs.out]\ntype = \"hub\"\nhub = \"out\"\n";
    json!({"files": {"job.toml": file, "q.saql": query}}).to_string()
}

const DOUBLE: &str = "SELECT n * 2 AS n INTO out FROM numbers";

fn numbers(rows: &[Value]) -> Vec<i64> {
    rows.iter().map(|row| row["n"].as_i64().unwrap()).collect()
}

fn events(numbers: std::ops::Range<i64>) -> Vec<Value> {
    numbers.map(|n| json!({"n": n})).collect()
}

// proves S4
#[tokio::test(flavor = "multi_thread")]
async fn a_job_resumes_after_a_restart_and_writes_each_row_once() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    client.send("in", &events(0..5)).await;
    let (status, made) = client.call("PUT /api/jobs/double", &job(DOUBLE)).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(numbers(&client.rows("out", 5).await), [0, 2, 4, 6, 8]);
    node.stop().await;

    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    client.send("in", &events(5..8)).await;
    let rows = client.rows("out", 8).await;
    assert_eq!(numbers(&rows), [0, 2, 4, 6, 8, 10, 12, 14]);
    // A row is on the hub before the job says that it caught up.
    let seen = client
        .until("GET /api/jobs/double", |seen| seen["state"] == "running")
        .await;
    assert_eq!(seen["query"], DOUBLE);
    assert_eq!(seen["outputs"][0]["next"], 8);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_job_stays_stopped_and_catches_up_when_started() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    client.call("PUT /api/jobs/double", &job(DOUBLE)).await;
    client.send("in", &events(0..2)).await;
    client.rows("out", 2).await;
    let (status, stopped) = client.call("POST /api/jobs/double/stop", "").await;
    assert_eq!((status, &stopped["state"]), (200, &json!("stopped")));
    node.stop().await;

    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    client.send("in", &events(2..4)).await;
    let (_, seen) = client.call("GET /api/jobs/double", "").await;
    assert_eq!(seen["state"], "stopped", "{seen}");
    let (status, _) = client.call("POST /api/jobs/double/start", "").await;
    assert_eq!(status, 200);
    let (status, refused) = client.call("POST /api/jobs/double/start", "").await;
    assert_eq!((status, &refused["code"]), (409, &json!("conflict")));
    assert_eq!(numbers(&client.rows("out", 4).await), [0, 2, 4, 6]);
    let (status, _) = client.call("DELETE /api/jobs/double", "").await;
    assert_eq!(status, 204);
    let (_, listed) = client.call("GET /api/jobs", "").await;
    assert_eq!(listed["jobs"], json!([]));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_version_is_refused_with_its_reason_and_the_old_one_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    let put = async |body: &str| client.call("PUT /api/jobs/double", body).await;
    let (status, refused) = put(&job("SELECT n INTO out FROM nowhere")).await;
    assert_eq!(status, 400);
    assert!(
        refused["message"].as_str().unwrap().contains("nowhere"),
        "{refused}"
    );
    let of_files = job(DOUBLE).replace("hub = \\\"in\\\"", "path = \\\"numbers.jsonl\\\"");
    let (status, refused) = put(&of_files).await;
    assert_eq!(status, 400);
    let message = refused["message"].as_str().unwrap();
    let said = "input \"numbers\" follows numbers.jsonl in the job's folder";
    assert!(message.contains(said), "{refused}");
    let (_, listed) = client.call("GET /api/jobs", "").await;
    assert_eq!(listed["jobs"], json!([]));

    put(&job(DOUBLE)).await;
    let (status, _) = put(&job("SELECT FROM")).await;
    assert_eq!(status, 400);
    let outside = json!({"files": {"../../x": "y"}}).to_string();
    assert_eq!(put(&outside).await.0, 400);
    client.send("in", &events(0..1)).await;
    assert_eq!(numbers(&client.rows("out", 1).await), [0]);
    let (status, _) = client.call("PUT /api/jobs/__x", &job(DOUBLE)).await;
    assert_eq!(status, 400);
    node.stop().await;
}

// proves S3, S4
#[tokio::test(flavor = "multi_thread")]
async fn a_job_follows_a_folder_across_restarts_and_takes_every_line_once() {
    let folder = tempfile::tempdir().unwrap();
    let drop_in = folder.path().join("drop-in");
    disk::create_folder(&drop_in).unwrap();
    let put = |name: &str, numbers: std::ops::Range<i64>| {
        let lines = events(numbers).into_iter();
        let lines: String = lines.map(|event| format!("{event}\n")).collect();
        write(&drop_in.join(name), &lines);
    };
    let path = format!("path = \\\"{}\\\"", drop_in.display());
    let job = job(DOUBLE).replace("hub = \\\"in\\\"", &path);
    put("a.jsonl", 0..3);
    let settings = format!("jobs.folders = [\"drop-in\"]\n{HUBS}");
    let node = start(folder.path(), &settings).await;
    let client = Client::of(&node);
    let (status, made) = client.call("PUT /api/jobs/double", &job).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(numbers(&client.rows("out", 3).await), [0, 2, 4]);
    node.stop().await;

    put("a.jsonl", 0..5);
    let node = start(folder.path(), &settings).await;
    let client = Client::of(&node);
    assert_eq!(numbers(&client.rows("out", 5).await), [0, 2, 4, 6, 8]);
    put("b.jsonl", 5..6);
    assert_eq!(numbers(&client.rows("out", 6).await), [0, 2, 4, 6, 8, 10]);
    let (_, hubs) = client.call("GET /api/hubs", "").await;
    assert_eq!(hubs["hubs"].as_array().map(Vec::len), Some(2), "{hubs}");
    let kept = |node: &Path| disk::list(node.join("data/hubs")).unwrap_or_default().len();
    let before = kept(folder.path());
    assert_eq!(client.call("DELETE /api/jobs/double", "").await.0, 204);
    assert_eq!(
        kept(folder.path()) + 2,
        before,
        "what was taken goes with the job"
    );
    node.stop().await;
}

// proves T8, S4
#[tokio::test(flavor = "multi_thread")]
async fn a_job_reads_new_partitions_of_its_hub() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    let (status, made) = client.call("PUT /api/jobs/double", &job(DOUBLE)).await;
    assert_eq!(status, 200, "{made}");
    client.send("in", &events(0..3)).await;
    assert_eq!(numbers(&client.rows("out", 3).await), [0, 2, 4]);
    let grown = client
        .call("PATCH /api/hubs/in", "{\"partitions\":3}")
        .await;
    assert_eq!(grown.0, 200, "{}", grown.1);
    for partition in [2, 1] {
        let line = format!("POST /hubs/in/partitions/{partition}/messages");
        let event = json!({"n": partition * 10}).to_string();
        assert_eq!(client.call(&line, &event).await.0, 201);
    }
    let mut rows = numbers(&client.rows("out", 5).await);
    rows.sort();
    assert_eq!(rows, [0, 2, 4, 20, 40]);
    // A row may be out before it is counted. Counts continue.
    let counted = |job: &Value| job["events"] == 5 && job["rows"] == 5 && job["state"] == "running";
    let seen = client.until("GET /api/jobs/double", counted).await;
    let partitions = seen["inputs"][0]["partitions"].as_array();
    assert_eq!(partitions.map(Vec::len), Some(3), "{seen}");
    node.stop().await;
}

// proves L7, T17
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_settings_reads_a_sharded_hub_and_has_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("sum");
    disk::create_folder(&at).unwrap();
    let file = "query = \"q.saql\"\nstart = \"beginning\"\n[inputs.numbers]\nhub = \"all\"\n[outputs.out]\ntype = \"hub\"\nhub = \"out\"\n";
    write(&at.join("job.toml"), file);
    write(
        &at.join("q.saql"),
        "SELECT n INTO out FROM numbers PARTITION BY PartitionId",
    );
    let settings = "[sharded.all]\nhubs = [\"a\", \"b\"]\n[hubs.out]\npartitions = 1\n[jobs.sum]\npath = \"sum\"\n";
    let node = start(folder.path(), settings).await;
    let client = Client::of(&node);
    for n in 0..6 {
        let line = format!("POST /hubs/all/messages?key={n}");
        assert_eq!(
            client.call(&line, &json!({"n": n}).to_string()).await.0,
            201
        );
    }
    let mut found = numbers(&client.rows("out", 6).await);
    found.sort();
    assert_eq!(found, [0, 1, 2, 3, 4, 5]);
    let (_, page) = client.text("GET /metrics", "").await;
    for line in [
        "highwater_job_running{job=\"sum\"} 1",
        "highwater_job_input_events_total{job=\"sum\",input=\"numbers\"} 6",
        "highwater_job_output_events_total{job=\"sum\",output=\"out\"} 6",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    let (status, refused) = client.call("DELETE /api/jobs/sum", "").await;
    assert_eq!((status, &refused["code"]), (409, &json!("conflict")));
    node.stop().await;
}

// proves S3, S4
#[tokio::test(flavor = "multi_thread")]
async fn each_row_becomes_one_message_of_a_queue() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!("{HUBS}[queues.work]\n");
    let file = "query = \"q.saql\"\nstart = \"beginning\"\n[inputs.numbers]\nhub = \"in\"\n[outputs.out]\ntype = \"queue\"\nqueue = \"work\"\n";
    let job = json!({"files": {"job.toml": file, "q.saql": DOUBLE}}).to_string();
    let node = start(folder.path(), &settings).await;
    let client = Client::of(&node);
    assert_eq!(client.call("PUT /api/jobs/double", &job).await.0, 200);
    client.send("in", &events(0..3)).await;
    client
        .until("GET /api/jobs/double", |job| job["rows"] == 3)
        .await;
    node.stop().await;

    let node = start(folder.path(), &settings).await;
    let client = Client::of(&node);
    client.send("in", &events(3..5)).await;
    let full = |page: &Value| {
        page["messages"]
            .as_array()
            .is_some_and(|all| all.len() >= 5)
    };
    let page = client
        .until("GET /queues/work/messages?max=100", full)
        .await;
    let messages = page["messages"].as_array().unwrap();
    let texts: Vec<_> = messages
        .iter()
        .map(|message| (message["id"].clone(), message["body"]["n"].clone()))
        .collect();
    let expected = (0..5).map(|n| (json!(format!("double/out/{n}")), json!(n * 2)));
    assert_eq!(texts, expected.collect::<Vec<_>>(), "{page}");
    node.stop().await;
}

/// 2026-01-31T10:00:00Z
const TEN_MS: i64 = 1_769_853_600_000;

fn at(seconds: i64) -> highwater_time::Instant {
    highwater_time::Instant::from_unix_millis(TEN_MS + seconds * 1000)
}

// proves T7, T8
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_and_forward_loses_and_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimClock::at_unix_nanos(i128::from(TEN_MS) * 1_000_000));
    let set_to =
        |seconds: i64| clock.set_unix_nanos(i128::from(at(seconds).to_unix_millis()) * 1_000_000);
    let settings = format!("{HUBS}[hubs.again]\npartitions = 1\n");
    let query = "SELECT System.Timestamp() AS at, COUNT(*) AS n INTO out FROM numbers TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)";
    let event = |seconds: i64| [json!({"t": at(seconds).to_string()})];
    let row = |seconds: i64, n: i64| json!({"at": at(seconds).to_string(), "n": n});

    let node = whole_node::start(folder.path(), &settings, clock.clone()).await;
    let client = Client::of(&node);
    assert_eq!(
        client.call("PUT /api/jobs/counts", &job(query)).await.0,
        200
    );
    client.send("in", &event(1)).await;
    set_to(20);
    assert_eq!(client.rows("out", 1).await, [row(10, 1)]);
    // An hour back, and a restart of the node while it lasts: the event counts by its own time.
    set_to(-3600);
    client.send("in", &event(21)).await;
    node.stop().await;
    let node = whole_node::start(folder.path(), &settings, clock.clone()).await;
    let client = Client::of(&node);
    client.send("in", &event(22)).await;
    let caught_up =
        |job: &Value| job["state"] == "running" && job["events"] == 1 && job["backlog"] == 0;
    let seen = client.until("GET /api/jobs/counts", caught_up).await;
    assert_eq!(seen["alarms"], json!([]));
    // A day forward: pending windows are emitted.
    set_to(86_400);
    let expected = [row(10, 1), row(30, 2)];
    assert_eq!(client.rows("out", 2).await, expected);
    client.send("in", &event(86_401)).await;
    set_to(86_420);
    let expected = [&expected[..], &[row(86_410, 1)]].concat();
    assert_eq!(client.rows("out", 3).await, expected);
    // A later reader of the log gets the same rows.
    let again = job(query).replace("hub = \\\"out", "hub = \\\"again");
    assert_eq!(client.call("PUT /api/jobs/again", &again).await.0, 200);
    assert_eq!(client.rows("again", 3).await, expected);
    assert_eq!(client.rows("out", 3).await, expected);
    node.stop().await;
}

// proves G2
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_function_does_not_return_fails_and_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    let file = "query = \"q.saql\"\nstart = \"beginning\"\n[inputs.numbers]\nhub = \"in\"\n\
                [outputs.out]\ntype = \"hub\"\nhub = \"out\"\n[functions.slow]\npath = \"slow.js\"\n\
                [work]\nfunction_timeout = \"1s\"\n";
    let query = "SELECT udf.slow(n) AS n INTO out FROM numbers";
    // Inside of this native function no step is counted.
    let slow = "function main(n) { return n < 2 ? n : [].reverse.call({ length: 1e9 }).length; }";
    let files = json!({"job.toml": file, "q.saql": query, "slow.js": slow});
    let (status, made) = client
        .call("PUT /api/jobs/slow", &json!({"files": files}).to_string())
        .await;
    assert_eq!(status, 200, "{made}");
    client.send("in", &events(0..3)).await;
    let failed = client
        .until("GET /api/jobs/slow", |job| job["state"] == "failed")
        .await;
    let reason = "function 'slow' has not returned for 1s";
    assert!(failed.to_string().contains(reason), "{failed}");
    let (status, _) = client.call("POST /api/jobs/slow/stop", "").await;
    assert_eq!(status, 200);
    let (status, _) = client.call("DELETE /api/jobs/slow", "").await;
    assert!((200..300).contains(&status), "{status}");
    let (status, _) = client.call("GET /api/jobs/slow", "").await;
    assert_eq!(status, 404);
    node.stop().await;
}

/// Two keys that deploy jobs: `ops` for everything, `app` for the hub `in` and its own names.
const KEYS: &str = r#"
[[keys]]
name = "ops"
secret = "ops-secret"
rights = ["send", "listen", "manage", "deploy"]
[[keys]]
name = "app"
secret = "app-secret"
rights = ["send", "listen", "deploy"]
hubs = ["in", "app-out"]
"#;

async fn call_as(node: &Node, key: &str, line: &str, body: &str) -> (u16, Value) {
    use base64::Engine;
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{key}:{key}-secret"));
    let header = format!("authorization: Basic {login}");
    let answer = call(node.http_address().unwrap(), line, &[&header], body).await;
    let body = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
    (answer.status, body)
}

// proves G3
#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_the_rights_of_the_key_that_deployed_it() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!("{HUBS}[hubs.app-out]\npartitions = 1\n{KEYS}");
    let node = start(folder.path(), &settings).await;
    let put =
        async |key: &str, body: &str| call_as(&node, key, "PUT /api/jobs/app-double", body).await;
    let (status, refused) = put("app", &job(DOUBLE)).await;
    assert_eq!((status, &refused["code"]), (403, &json!("forbidden")));
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("send") && message.contains("`out`"),
        "{message}"
    );
    let own = job(DOUBLE).replace("hub = \\\"out\\\"", "hub = \\\"app-out\\\"");
    let internal = own.replace("hub = \\\"in\\\"", "hub = \\\"__groups\\\"");
    assert_eq!(put("app", &internal).await.0, 403);
    let (status, made) = put("app", &own).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(put("ops", &job(DOUBLE)).await.0, 200);
    assert_eq!(put("app", &own).await.0, 200);
    node.stop().await;

    let without_app = settings.split("[[keys]]\nname = \"app\"").next().unwrap();
    let node = start(folder.path(), without_app).await;
    let (_, seen) = call_as(&node, "ops", "GET /api/jobs/app-double", "").await;
    assert_eq!(seen["state"], "failed", "{seen}");
    let reason = seen["reason"].as_str().unwrap();
    assert!(reason.contains("not a valid key"), "{reason}");
    let (status, _) = call_as(&node, "ops", "POST /api/jobs/app-double/start", "").await;
    assert_eq!(status, 403);
    node.stop().await;
}

// proves G3, G4
#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_stops_when_its_key_is_revoked_or_expires() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), &format!("{HUBS}{KEYS}")).await;
    let address = node.http_address().unwrap();
    for (name, lifetime) in [("once", "1h"), ("brief", "3s")] {
        let key = json!({
            "name": name, "rights": ["send", "listen", "deploy"], "expires_in": lifetime,
        });
        let (status, added) = call_as(&node, "ops", "POST /api/keys", &key.to_string()).await;
        assert_eq!(status, 201, "{added}");
        let header = format!(
            "authorization: Bearer {name}:{}",
            added["secret"].as_str().unwrap()
        );
        let line = format!("PUT /api/jobs/of-{name}");
        let made = call(address, &line, &[&header], &job(DOUBLE)).await;
        assert_eq!(made.status, 200, "{}", made.body);
    }
    let (status, made) = call_as(&node, "ops", "PUT /api/jobs/other", &job(DOUBLE)).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(
        call_as(&node, "ops", "DELETE /api/keys/once", "").await.0,
        204
    );
    for name in ["once", "brief"] {
        let line = format!("GET /api/jobs/of-{name}");
        let mut seen = Value::Null;
        for _ in 0..1000 {
            seen = call_as(&node, "ops", &line, "").await.1;
            if seen["state"] == "failed" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let reason = seen["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(&format!("key `{name}`")), "{seen}");
    }
    let (_, other) = call_as(&node, "ops", "GET /api/jobs/other", "").await;
    assert_eq!(other["state"], "running", "{other}");
    let line = "GET /hubs/__audit/partitions/0/messages?wait=1s";
    let mut audit = String::new();
    for _ in 0..200 {
        audit = call_as(&node, "ops", line, "").await.1.to_string();
        if audit.matches("StopJob").count() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(audit.matches("key_invalid").count(), 2, "{audit}");
    node.stop().await;

    // It stays stopped, and another key may deploy it again.
    let node = start(folder.path(), &format!("{HUBS}{KEYS}")).await;
    let (_, stopped) = call_as(&node, "ops", "GET /api/jobs/of-once", "").await;
    assert_ne!(stopped["state"], "running", "{stopped}");
    let (status, again) = call_as(&node, "ops", "PUT /api/jobs/of-once", &job(DOUBLE)).await;
    assert_eq!(
        (status, &again["state"]),
        (200, &json!("starting")),
        "{again}"
    );
    node.stop().await;
}

// proves G3
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_node_without_keys_reaches_listed_folders_only() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    disk::create_folder(&other).unwrap();
    let node = start(folder.path(), HUBS).await;
    let client = Client::of(&node);
    let put = async |job: &str| {
        let body = json!({"files": {"job.toml": job}}).to_string();
        client.call("PUT /api/jobs/reach", &body).await
    };
    let hub = "[inputs.numbers]\nhub = \"in\"\n";
    let sql = "sql = \"SELECT n INTO out FROM numbers\"\n";
    let path = other.display();
    let input = format!("{sql}[inputs.numbers]\npath = \"{path}\"\n");
    let output = format!("{sql}{hub}[outputs.out]\ntype = \"files\"\npath = \"{path}/rows\"\n");
    let secret = format!(
        "{sql}{hub}[outputs.out]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:9/${{env:PATH}}\"\n"
    );
    for wrong in [input, output, secret] {
        let (status, refused) = put(&wrong).await;
        assert_eq!(status, 400, "{wrong}: {refused}");
    }
    for project in ["asaproj.json", "reach.asaproj"] {
        let body = json!({"files": {project: "{}"}}).to_string();
        let (status, refused) = client.call("PUT /api/jobs/reach", &body).await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            status == 400 && message.contains("send job.toml"),
            "{project}: {refused}"
        );
    }
    // Clients are on the same machine, so they can connect wherever the node can.
    let hook =
        format!("{sql}{hub}[outputs.out]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\n");
    let (status, made) = put(&hook).await;
    assert_eq!(status, 200, "{made}");
    node.stop().await;
}

// proves G3
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_key_reaches_listed_folders_and_hosts_only() {
    let folder = tempfile::tempdir().unwrap();
    let (listed, other) = (folder.path().join("listed"), folder.path().join("other"));
    disk::create_folder(&listed).unwrap();
    disk::create_folder(&other).unwrap();
    write(&other.join("q.saql"), "SELECT secret FROM numbers");
    let settings = format!("jobs.folders = [\"listed\"]\n{HUBS}{KEYS}");
    let node = start(folder.path(), &settings).await;
    let put_as = async |name: &str, job: &str| {
        let body = json!({"files": {"job.toml": job}}).to_string();
        call_as(&node, "ops", &format!("PUT /api/jobs/{name}"), &body).await
    };
    let put = async |job: &str| put_as("reach", job).await;
    let input = "[inputs.numbers]\nhub = \"in\"\n";
    let sql = "sql = \"SELECT n INTO out FROM numbers\"\nstart = \"beginning\"\n";
    let to = |path: &Path| {
        let path = path.display();
        format!("{sql}{input}[outputs.out]\ntype = \"files\"\npath = \"{path}\"\n")
    };
    let (status, made) = put(&to(&listed.join("rows"))).await;
    assert_eq!(status, 200, "{made}");
    let query = format!("query = \"{}\"\n{input}", other.join("q.saql").display());
    let files = format!("{sql}[inputs.numbers]\npath = \"{}\"\n", other.display());
    for wrong in [to(&other), query, files] {
        let (status, refused) = put(&wrong).await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            status == 400 && message.contains("jobs.folders"),
            "{wrong}: {refused}"
        );
        assert!(!message.contains("secret"), "{message}");
    }
    let hook =
        format!("{sql}{input}[outputs.out]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\n");
    assert_eq!(put_as("hook", &hook).await.0, 200);
    let line = "POST /hubs/in/messages?key=k";
    assert_eq!(call_as(&node, "ops", line, "{\"n\":1}").await.0, 201);
    let mut alarm = String::new();
    for _ in 0..500 {
        let (_, seen) = call_as(&node, "ops", "GET /api/jobs/hook", "").await;
        alarm = seen["alarms"].to_string();
        if alarm.contains("egress.allow") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(alarm.contains("egress.allow"), "{alarm}");
    let secret = hook.replace("http://127.0.0.1:9/", "http://h/${env:PATH}");
    let (status, refused) = put(&secret).await;
    assert_eq!(status, 400, "{refused}");
    node.stop().await;
}
