//! Jobs on a whole node: handed over, run, stopped, changed, and still there after a restart.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{RealClock, disk};
use highwater_server::config::Sources;
use highwater_server::node::Node;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn start(folder: &Path, settings: &str) -> Node {
    let file = folder.join("highwater.toml");
    let base = "data = \"data\"\nhttp = { listen = \"127.0.0.1:0\" }\nkafka = { listen = \"127.0.0.1:0\" }\n";
    write(&file, &format!("{base}{settings}"));
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    let config = sources.load().unwrap().config;
    Node::start(config, Arc::new(RealClock::new()))
        .await
        .unwrap()
}

fn write(path: &Path, text: &str) {
    let mut file = disk::create_atomic(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.commit().unwrap();
}

struct Client(SocketAddr);

impl Client {
    fn of(node: &Node) -> Client {
        Client(node.http_address().unwrap())
    }

    async fn call(&self, line: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.text(line, body).await;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        (status, body)
    }

    async fn text(&self, line: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    async fn send(&self, hub: &str, events: &[Value]) {
        for event in events {
            let line = format!("POST /hubs/{hub}/messages?key=k");
            let (status, answer) = self.call(&line, &event.to_string()).await;
            assert_eq!(status, 201, "{answer}");
        }
    }

    /// The rows on a hub of one partition, once there are so many.
    async fn rows(&self, hub: &str, count: usize) -> Vec<Value> {
        for _ in 0..3_000 {
            let line = format!("GET /hubs/{hub}/partitions/0/messages?max=1000");
            let (_, page) = self.call(&line, "").await;
            let messages = page["messages"].as_array().cloned().unwrap_or_default();
            if messages.len() >= count {
                return messages
                    .into_iter()
                    .map(|mut message| message["value"].take())
                    .collect();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (_, jobs) = self.call("GET /api/jobs", "").await;
        panic!("the rows do not come: {jobs}");
    }
}

const HUBS: &str = "[hubs.in]\npartitions = 1\n[hubs.out]\npartitions = 1\n";

/// Doubles numbers, or does something else with them.
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
async fn a_job_goes_on_where_it_was_after_a_restart_and_writes_each_row_once() {
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
    let (_, seen) = client.call("GET /api/jobs/double", "").await;
    assert_eq!(seen["state"], "running", "{seen}");
    assert_eq!(seen["query"], DOUBLE);
    assert_eq!(seen["outputs"][0]["next"], 8);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_stopped_stays_stopped_and_takes_what_came_meanwhile_when_started() {
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
async fn a_job_that_is_wrong_is_refused_with_its_reason_and_the_old_one_runs_on() {
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

// proves L7, T17
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_settings_reads_several_hubs_as_one_and_is_counted() {
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
