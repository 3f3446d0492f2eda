//! Data of released versions opens in this one.
//!
//! `tests/formats/VERSION` holds the data folder of a node of that version and the node's own answers about it
//! (`tests/formats/make`). This version must give the same answers, and its jobs must continue with the same rows.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use highwater_amqp::Value as AmqpValue;
use highwater_env::{SimClock, disk};
use highwater_server::config::{Config, Sources};
use highwater_server::node::{Node, NodeError};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::amqp::body_of;
use crate::http::node::call;
use crate::service_bus::{annotation, receive, send, sender};
use crate::service_bus_topics::receiver;

const VERSIONS: [&str; 1] = ["0.1"];

/// Further data of these versions that has jobs only.
const JOBS: [&str; 1] = ["0.1-patterns"];

/// Further data of these versions that has topics and groups of Kafka clients only.
const KAFKA: [&str; 1] = ["0.1-kafka"];

/// Further data of these versions that has a topic of Service Bus only, whose subscriptions have copies of its
/// messages.
const TOPICS: [&str; 1] = ["0.1-topics"];

/// Further data of these versions that has a node over the log of another only.
const CLUSTER: [&str; 1] = ["0.1-cluster"];

/// Further data of these versions that has jobs which instances share only.
const SHARED: [&str; 1] = ["0.1-shared"];

/// A copy of a version's data, and the answers expected about it.
struct Fixture {
    folder: tempfile::TempDir,
    expected: Value,
}

impl Fixture {
    fn open(version: &str) -> Fixture {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/formats");
        let source = source.join(version);
        let folder = tempfile::tempdir().unwrap();
        unpack(&source.join("data.tar.zst"), folder.path());
        let expected = disk::read_to_string(source.join("expected.json")).unwrap();
        let expected = serde_json::from_str(&expected).unwrap();
        Fixture { folder, expected }
    }

    /// The clock shows the time at which the data was made, so that no lock, retention or retry is due.
    async fn start(&self) -> Result<Node, NodeError> {
        Node::start(self.config(), Arc::new(self.clock())).await
    }

    fn clock(&self) -> SimClock {
        let made_ms = self.expected["made_ms"].as_i64().unwrap();
        SimClock::at_unix_nanos(i128::from(made_ms) * 1_000_000)
    }

    fn config(&self) -> Config {
        self.config_in(".")
    }

    fn config_in(&self, folder: &str) -> Config {
        let sources = Sources {
            file: Some(self.path(folder).join("highwater.toml")),
            ..Sources::default()
        };
        sources.load().unwrap().config
    }

    /// Lets the Kafka listener, and the jobs or the node that use it, have an address that is free here.
    fn move_brokers(&self) {
        let recorded = self.expected["kafka"].as_str().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut moved = 0;
        for file in self
            .find_below(".", "highwater.toml")
            .into_iter()
            .chain(self.find_below(".", "job.toml"))
        {
            let text = disk::read_to_string(&file).unwrap();
            moved += usize::from(text.contains(recorded));
            write(&file, text.replace(recorded, &address).as_bytes());
        }
        assert!(moved > 1, "{moved} files name {recorded}");
    }

    /// Starts a node whose clock goes on from the time at which the data was made, ten times as fast as it should, so
    /// that the membership of the killed instance expires soon. The task moves it.
    async fn start_moving(&self) -> (Node, JoinHandle<()>) {
        let clock = Arc::new(self.clock());
        let node = Node::start(self.config(), clock.clone()).await.unwrap();
        (node, move_clock(clock))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn find(&self, ending: &str) -> PathBuf {
        self.find_all(ending).pop().expect(ending)
    }

    /// The files below the data folder whose paths end like this.
    fn find_all(&self, ending: &str) -> Vec<PathBuf> {
        self.find_below("data", ending)
    }

    fn find_below(&self, folder: &str, ending: &str) -> Vec<PathBuf> {
        let mut folders = vec![self.path(folder)];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for path in disk::list(&folder).unwrap() {
                match path.is_dir() {
                    true => folders.push(path),
                    false if path.to_string_lossy().ends_with(ending) => found.push(path),
                    false => {}
                }
            }
        }
        found
    }
}

fn move_clock(clock: Arc<SimClock>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            clock.advance(Duration::from_millis(100));
        }
    })
}

/// A plain tar: a block of 512 bytes with name and size, then the contents in whole blocks.
fn unpack(archive: &Path, folder: &Path) {
    let packed = read(archive);
    let mut archive = zstd::stream::read::Decoder::new(&packed[..]).unwrap();
    let mut header = [0; 512];
    while archive.read_exact(&mut header).is_ok() && header[0] != 0 {
        let text = |range: std::ops::Range<usize>| {
            let text = std::str::from_utf8(&header[range]).unwrap();
            text.trim_matches(['\0', ' ']).to_owned()
        };
        let (name, prefix) = (text(0..100), text(345..500));
        let size = usize::from_str_radix(&text(124..136), 8).unwrap();
        let mut contents = vec![0; size.next_multiple_of(512)];
        archive.read_exact(&mut contents).unwrap();
        let path = folder.join(prefix).join(name);
        match header[156] {
            b'5' => disk::create_folder(&path).unwrap(),
            _ => write(&path, &contents[..size]),
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut file = disk::open(path).unwrap();
    file.read_to_end(&mut contents).unwrap();
    contents
}

fn write(path: &Path, contents: &[u8]) {
    disk::create_folder(path.parent().unwrap()).unwrap();
    let mut file = disk::create_atomic(path).unwrap();
    file.write_all(contents).unwrap();
    file.commit().unwrap();
}

struct Client(SocketAddr);

impl Client {
    fn of(node: &Node) -> Client {
        Client(node.http_address().unwrap())
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let json = ["content-type: application/json"];
        let answer = call(self.0, &format!("{method} {path}"), &json, body).await;
        let body = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
        (answer.status, body)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.call("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// The rows of `HUB/PARTITION`.
    async fn partition_rows(&self, partition: &str) -> Vec<Value> {
        let (hub, number) = partition.split_once('/').unwrap();
        let path = format!("/hubs/{hub}/partitions/{number}/messages?from=earliest&max=10000");
        let mut messages = self.get(&path).await["messages"].take();
        let messages = messages.as_array_mut().unwrap();
        messages
            .iter_mut()
            .map(|message| message["value"].take())
            .collect()
    }

    /// The rows of a hub, once there are as many as expected.
    async fn rows(&self, hub: &str, count: usize) -> Value {
        let path = format!("/hubs/{hub}/partitions/0/messages?from=earliest&max=10000");
        let mut rows = Vec::new();
        for _ in 0..1_500 {
            let messages = self.get(&path).await["messages"].take();
            rows = messages.as_array().unwrap().clone();
            if rows.len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let rows = rows.iter_mut().map(|message| message["value"].take());
        Value::Array(rows.collect())
    }
}

/// The answer without the fields that the recorded one does not have: later versions say more.
fn as_recorded(answer: Value, recorded: &Value) -> Value {
    match (answer, recorded) {
        (Value::Object(fields), Value::Object(known)) => {
            let known = |(name, value)| {
                let recorded = known.get(&name)?;
                Some((name, as_recorded(value, recorded)))
            };
            fields.into_iter().filter_map(known).collect()
        }
        (Value::Array(items), Value::Array(known)) if items.len() == known.len() => {
            let items = items.into_iter().zip(known);
            items
                .map(|(item, known)| as_recorded(item, known))
                .collect()
        }
        (answer, _) => answer,
    }
}

/// Over the log of another node: journals as topics, their claims, and the group in which the killed node still is.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_over_a_cluster_goes_on_from_the_topics_of_released_versions() {
    // proves X1
    for version in CLUSTER {
        let fixture = Fixture::open(version);
        fixture.move_brokers();
        let clock = Arc::new(fixture.clock());
        let moving = move_clock(clock.clone());
        let log = Node::start(fixture.config_in("log"), clock.clone());
        let log = log.await.unwrap();
        let node = Node::start(fixture.config_in("node"), clock).await.unwrap();
        let client = Client::of(&node);
        let asked = fixture.expected["asked"].as_array().unwrap();
        let owned = async {
            for asked in asked {
                let path = asked["path"].as_str().unwrap();
                while client.call("GET", path, "").await.0 == 503 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let owned = tokio::time::timeout(Duration::from_secs(60), owned).await;
        owned.expect("the node owns its queues and workflows");
        moving.abort();
        check_answers(&fixture, &client, version).await;
        locked_messages_can_be_settled(&client, &fixture.expected["tokens"]).await;
        node.stop().await;
        log.stop().await;
    }
}

/// This version gives the same answers about the data.
async fn check_answers(fixture: &Fixture, client: &Client, version: &str) {
    for asked in fixture.expected["asked"].as_array().unwrap() {
        let (path, recorded) = (asked["path"].as_str().unwrap(), &asked["answer"]);
        let answer = as_recorded(client.get(path).await, recorded);
        assert_eq!(answer, *recorded, "{version} {path}");
    }
}

/// Batches with both times, settings of topics, compacted segments, groups of the consumer protocol and transactions.
#[tokio::test(flavor = "multi_thread")]
async fn topics_and_groups_of_kafka_clients_of_released_versions_are_read() {
    // proves K4
    for version in KAFKA {
        let fixture = Fixture::open(version);
        assert_eq!(fixture.find_all("compacted").len(), 2, "{version}");
        let node = fixture.start().await.unwrap();
        check_answers(&fixture, &Client::of(&node), version).await;
        node.stop().await;
    }
}

/// Before a body was stored once for all subscriptions, each had copies of its own. Copies and references are delivered
/// in their order, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_messages_in_subscriptions_of_released_versions_mix_with_references() {
    // proves A3
    for version in TOPICS {
        let fixture = Fixture::open(version);
        let node = fixture.start().await.unwrap();
        let client = Client::of(&node);
        check_answers(&fixture, &client, version).await;
        let mut sending = sender(&node, "prices").await;
        send(&mut sending, &["new"]).await;
        node.stop().await;
        let node = fixture.start().await.unwrap();
        for (address, expected) in [
            ("prices/Subscriptions/all", &["m3", "m4", "m5", "new"][..]),
            ("prices/Subscriptions/red", &["m0", "m2", "m4"]),
            ("prices/Subscriptions/all/$DeadLetterQueue", &["m1"]),
        ] {
            let mut receiving = receiver(&node, address).await;
            for body in expected {
                let (_, _, message) = receive(&mut receiving).await;
                assert_eq!(body_of(&message), body.as_bytes(), "{version} {address}");
                let priority = annotation(&message, "priority");
                let expected = address.ends_with("red").then(|| AmqpValue::string("high"));
                assert_eq!(priority, expected, "{version} {address} {body}");
            }
        }
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_groups_queues_workflows_and_circuits_of_released_versions_are_read() {
    for version in VERSIONS {
        let fixture = Fixture::open(version);
        let node = fixture.start().await.unwrap();
        let client = Client::of(&node);
        check_answers(&fixture, &client, version).await;
        every_big_record_is_there(&client, &fixture.expected["big"]).await;
        locked_messages_can_be_settled(&client, &fixture.expected["tokens"]).await;
        node.stop().await;
    }
}

/// They fill more than one segment.
async fn every_big_record_is_there(client: &Client, expected: &Value) {
    let info = client.get("/api/hubs/big").await;
    assert_eq!(info["places"][0]["segments"], expected["segments"]);
    let (mut next, mut count) = (json!(0), 0);
    while next != expected["records"] {
        let path = format!("/hubs/big/partitions/0/messages?from={next}&max=100");
        let page = client.get(&path).await;
        let messages = page["messages"].as_array().unwrap();
        assert!(!messages.is_empty(), "nothing at {next}");
        count += messages.len();
        next = page["next"].clone();
    }
    assert_eq!(json!(count), expected["records"]);
}

async fn locked_messages_can_be_settled(client: &Client, tokens: &Value) {
    let body = json!({"tokens": [tokens["work"]]}).to_string();
    let (status, answer) = client.call("POST", "/queues/work/complete", &body).await;
    assert_eq!(status, 200, "{answer}");
    let session = json!({"session": "s1", "token": tokens["session"]}).to_string();
    let release = "/queues/sessions/sessions/release";
    let (status, answer) = client.call("POST", release, &session).await;
    assert!(status < 300, "{status} {answer}");
    let note = json!({"note": "by hand"}).to_string();
    let resolve = "/api/workflows/transfer/parked-1/resolve";
    let (status, answer) = client.call("POST", resolve, &note).await;
    assert!(status < 300, "{status} {answer}");
    let parked = client.get("/workflows/transfer/parked-1").await;
    assert_eq!(parked["state"], "resolved");
}

/// Windows, joins, patterns, substreams and held events are restored from the checkpoint as if the job had never
/// stopped.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_resume_from_the_checkpoints_of_released_versions() {
    for version in VERSIONS.into_iter().chain(JOBS) {
        let fixture = Fixture::open(version);
        let node = fixture.start().await.unwrap();
        let client = Client::of(&node);
        let rows = |key: &str| fixture.expected[key].as_object().unwrap().clone();
        for (hub, rows) in rows("rows_before") {
            let count = rows.as_array().unwrap().len();
            assert_eq!(client.rows(&hub, count).await, rows, "{version} {hub}");
        }
        let then = &fixture.expected["then"];
        for sent in then["events"].as_array().unwrap() {
            let path = format!("/hubs/{}/messages", sent["hub"].as_str().unwrap());
            let (status, answer) = client.call("POST", &path, &sent["event"].to_string()).await;
            assert_eq!(status, 201, "{answer}");
        }
        for (hub, rows) in then["rows"].as_object().unwrap() {
            let count = rows.as_array().unwrap().len();
            assert_eq!(client.rows(hub, count).await, *rows, "{version} {hub}");
        }
        node.stop().await;
    }
}

/// Changes a file of the newest fixture and starts a node over it.
async fn start_with(ending: &str, change: fn(Vec<u8>) -> Vec<u8>) -> Result<Node, NodeError> {
    let fixture = Fixture::open(VERSIONS[VERSIONS.len() - 1]);
    let path = fixture.find(ending);
    write(&path, &change(read(&path)));
    fixture.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_of_a_later_version_or_damaged_is_refused_with_what_to_do() {
    let later = |catalogue| {
        let text = String::from_utf8(catalogue).unwrap();
        text.replacen("highwater catalogue 1", "highwater catalogue 3", 1)
            .into_bytes()
    };
    let refused = start_with("catalogue.json", later).await.err().unwrap();
    let refused = refused.to_string();
    assert!(refused.contains("has version 3"), "{refused}");
    assert!(
        refused.contains("use the one that wrote it, or a later one"),
        "{refused}"
    );

    let damaged = |mut catalogue: Vec<u8>| {
        *catalogue.last_mut().unwrap() = b'x';
        catalogue
    };
    let refused = start_with("catalogue.json", damaged).await.err().unwrap();
    let refused = refused.to_string();
    assert!(refused.contains("restore a copy of it"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_checkpoints_are_of_a_later_version_says_what_to_do() {
    let fixture = Fixture::open(VERSIONS[VERSIONS.len() - 1]);
    for path in fixture.find_all(".checkpoint") {
        let mut checkpoint = read(&path);
        if checkpoint.starts_with(b"HWCHECKP") {
            checkpoint[8] = 99;
            let header = crc32c::crc32c(&checkpoint[..24]);
            checkpoint[24..28].copy_from_slice(&header.to_le_bytes());
            write(&path, &checkpoint);
        }
    }
    let node = fixture.start().await.unwrap();
    let client = Client::of(&node);
    let mut job = Value::Null;
    for _ in 0..500 {
        job = client.get("/api/jobs/devices").await;
        if job["state"] == "failed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said = job.to_string();
    assert!(said.contains("--start beginning"), "{said}");
    let logs = client.get("/api/jobs/devices/logs").await.to_string();
    assert!(logs.contains("version 99"), "{logs}");
    node.stop().await;
}

/// Over their own listener, jobs that instances share go on from claims, time journals, the exchange, manifests,
/// checkpoints, reference data and the identity in the store, all of a node that was killed.
#[tokio::test(flavor = "multi_thread")]
async fn shared_jobs_go_on_from_the_state_of_released_versions() {
    // proves X1 X3
    for version in SHARED {
        let fixture = Fixture::open(version);
        fixture.move_brokers();
        let (node, clock) = fixture.start_moving().await;
        let client = Client::of(&node);
        let rows = fixture.expected["rows_before"].as_object().unwrap();
        for (partition, rows) in rows {
            let found = client.partition_rows(partition).await;
            let before = &found[..rows.as_array().unwrap().len()];
            assert_eq!(before, rows.as_array().unwrap(), "{version} {partition}");
        }
        let then = &fixture.expected["then"];
        for sent in then["events"].as_array().unwrap() {
            let key = format!("x-partition-key: {}", sent["key"].as_str().unwrap());
            let headers = ["content-type: application/json", &key];
            let body = sent["event"].to_string();
            let answer = call(client.0, "POST /hubs/a/messages", &headers, &body).await;
            assert_eq!(answer.status, 201, "{}", answer.body);
        }
        for (partition, rows) in then["rows"].as_object().unwrap() {
            let expected = rows.as_array().unwrap();
            let found = async {
                loop {
                    let found = client.partition_rows(partition).await;
                    if found.len() >= expected.len() {
                        return found;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let found = tokio::time::timeout(Duration::from_secs(120), found).await;
            let found = found.unwrap_or_else(|_| panic!("{version}: no rows in {partition}"));
            assert_eq!(found, *expected, "{version} {partition}");
        }
        clock.abort();
        node.stop().await;
    }
}

/// An instance of an earlier version refuses the state that a later one has written.
#[tokio::test(flavor = "multi_thread")]
async fn a_shared_job_whose_state_is_of_a_later_version_says_what_to_do() {
    // proves X1
    for ending in [".identity", ".manifest", ".decision"] {
        let fixture = Fixture::open(SHARED[SHARED.len() - 1]);
        fixture.move_brokers();
        for path in fixture.find_below("jobs", ending) {
            let mut object = read(&path);
            object[8] = 99;
            let whole = object.len() - 4;
            let sum = crc32c::crc32c(&object[..whole]);
            object[whole..].copy_from_slice(&sum.to_le_bytes());
            write(&path, &object);
        }
        let (node, clock) = fixture.start_moving().await;
        let client = Client::of(&node);
        let failed = async {
            loop {
                // It has reference data, so it has objects of all kinds.
                let job = client.get("/api/jobs/rated").await;
                if job["state"] == "failed" {
                    return job["reason"].to_string();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let failed = tokio::time::timeout(Duration::from_secs(60), failed).await;
        let reason = failed.unwrap_or_else(|_| panic!("{ending}: it runs"));
        let says = "version 99 is unknown to this version of Highwater: use the one that wrote it";
        assert!(reason.contains(says), "{ending}: {reason}");
        clock.abort();
        node.stop().await;
    }
}
