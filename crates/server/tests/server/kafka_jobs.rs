//! Jobs from topic to topic of a cluster. The cluster is another node, which serves Kafka. // proves X4 S4

use std::path::Path;
use std::sync::Arc;

use highwater_env::{RealClock, disk};
use highwater_server::config::Sources;
use highwater_server::node::Node;
use serde_json::{Value, json};

use crate::http::node::call;
use crate::jobs::Client;
use crate::whole_node::{self, write};

/// A node with a Kafka listener, and its address.
async fn cluster(folder: &Path) -> (Node, String) {
    cluster_with(folder, "").await
}

/// With more lines in the settings.
async fn cluster_with(folder: &Path, lines: &str) -> (Node, String) {
    let file = folder.join("highwater.toml");
    let settings =
        "[hubs.in]\npartitions = 2\n[hubs.out]\npartitions = 1\n[hubs.by-hub]\npartitions = 1\n";
    write(&file, &format!("{settings}{lines}"));
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = Sources {
        file: Some(file),
        flags: vec![
            flag("data", &folder.join("data").display().to_string()),
            flag("http.listen", "127.0.0.1:0"),
            flag("kafka.listen", "127.0.0.1:0"),
            flag("amqp.listen", "off"),
        ],
        ..Sources::default()
    };
    let loaded = sources.load().unwrap_or_else(|error| panic!("{error}"));
    let node = Node::start(loaded.config, Arc::new(RealClock::new())).await;
    let node = node.unwrap();
    let address = node.kafka_addresses()[0].to_string();
    (node, address)
}

async fn start(folder: &Path) -> Node {
    whole_node::start(folder, "", Arc::new(RealClock::new())).await
}

const QUERY: &str = "SELECT n * 2 AS n INTO out FROM numbers";

fn job(input: &str, output: &str) -> String {
    let file = format!(
        "query = \"q.saql\"\nstart = \"beginning\"\n[checkpoint]\nevery = \"100ms\"\n\
         [inputs.numbers]\n{input}\n[outputs.out]\n{output}\n"
    );
    json!({"files": {"job.toml": file, "q.saql": QUERY}}).to_string()
}

fn topic(address: &str, name: &str) -> String {
    format!("type = \"kafka\"\nservers = [\"{address}\"]\ntopic = \"{name}\"")
}

fn numbers(rows: &[Value]) -> Vec<i64> {
    let mut numbers: Vec<i64> = rows.iter().map(|row| row["n"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

fn events(numbers: std::ops::Range<i64>) -> Vec<Value> {
    numbers.map(|n| json!({"n": n})).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_from_topic_to_topic_writes_each_row_once_over_restarts() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (remote, address) = cluster(folders[0].path()).await;
    let far = Client::of(&remote);
    // The same query over the cluster's own hubs.
    let hub = |name: &str| format!("type = \"hub\"\nhub = \"{name}\"");
    let own = job(&hub("in"), &hub("by-hub"));
    let (status, made) = far.call("PUT /api/jobs/own", &own).await;
    assert_eq!(status, 200, "{made}");
    let double = job(&topic(&address, "in"), &topic(&address, "out"));
    for round in 0..4 {
        far.send("in", &events(round * 5..round * 5 + 5)).await;
        let node = start(folders[1].path()).await;
        let near = Client::of(&node);
        if round == 0 {
            let (status, made) = near.call("PUT /api/jobs/double", &double).await;
            assert_eq!(status, 200, "{made}");
        }
        let count = (round as usize + 1) * 5;
        let rows = far.rows("out", count).await;
        let expected: Vec<i64> = (0..count as i64).map(|n| n * 2).collect();
        assert_eq!(numbers(&rows), expected);
        node.stop().await;
    }
    let [out, by_hub] = [far.rows("out", 20).await, far.rows("by-hub", 20).await];
    assert_eq!(out, by_hub);
    let (_, hubs) = far.call("GET /api/hubs", "").await;
    let journal = "_highwater-time.double.numbers.in";
    assert!(hubs.to_string().contains(journal), "{hubs}");
    remote.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_the_egress_policy_does_not_list_is_not_connected_to() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (remote, address) = cluster(folders[0].path()).await;
    let settings = "[egress]\nallow = [\"example.com\"]\n[[keys]]\nname = \"app\"\nsecret = \"app-secret\"\nrights = [\"deploy\", \"manage\", \"listen\"]\n";
    let node = whole_node::start(folders[1].path(), settings, Arc::new(RealClock::new())).await;
    let double = job(&topic(&address, "in"), &topic(&address, "out"));
    let near = node.http_address().unwrap();
    let key = ["authorization: Bearer app:app-secret"];
    let made = call(near, "PUT /api/jobs/double", &key, &double).await;
    assert_eq!(made.status, 200, "{}", made.body);
    for attempt in 0.. {
        let logs = call(near, "GET /api/jobs/double/logs", &key, "").await.body;
        if logs.contains("egress.allow") {
            break;
        }
        assert!(attempt < 3_000, "{logs}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    node.stop().await;
    remote.stop().await;
}

/// A node with a job that it shares with others through the state in `state`.
async fn instance(folder: &Path, state: &Path, address: &str) -> Node {
    let file = format!(
        "query = \"q.saql\"\nstart = \"beginning\"\n[checkpoint]\nevery = \"100ms\"\n\
         [inputs.numbers]\n{}\n[outputs.out]\n{}\n\
         [state]\npath = \"{}\"\nshared = true\nsession_timeout = \"6s\"\n",
        topic(address, "in"),
        topic(address, "out"),
        state.display(),
    );
    disk::create_folder(folder.join("double")).unwrap();
    write(&folder.join("double/job.toml"), &file);
    write(&folder.join("double/q.saql"), QUERY);
    let job = folder.join("double").display().to_string();
    let settings = format!("[jobs.double]\npath = \"{job}\"\n");
    whole_node::start(folder, &settings, Arc::new(RealClock::new())).await
}

/// Waits until the log of the job on a node has one of these texts.
async fn until_logged(client: &Client, texts: &[&str]) {
    for attempt in 0.. {
        let (_, logs) = client.call("GET /api/jobs/double/logs", "").await;
        let log = logs.to_string();
        if texts.iter().any(|text| log.contains(text)) {
            return;
        }
        assert!(attempt < 3_000, "no {texts:?}: {logs}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

// proves X1, X3
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_a_job_and_one_goes_on_when_the_other_leaves() {
    let folders = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let (remote, address) = cluster(folders[0].path()).await;
    let far = Client::of(&remote);
    let state = folders[3].path();
    let first = instance(folders[1].path(), state, &address).await;
    far.send("in", &events(0..10)).await;
    assert_eq!(far.rows("out", 10).await.len(), 10);
    until_logged(&Client::of(&first), &["takes the combiner"]).await;
    let second = instance(folders[2].path(), state, &address).await;
    until_logged(&Client::of(&second), &["takes `in/"]).await;
    // It learns of it from the group, or from the store, which comes first.
    let ends = ["has released `in/", "has lost `in/"];
    until_logged(&Client::of(&first), &ends).await;
    far.send("in", &events(10..20)).await;
    let rows = far.rows("out", 20).await;
    assert_eq!(numbers(&rows), (0..20).map(|n| n * 2).collect::<Vec<_>>());
    first.stop().await;
    until_logged(&Client::of(&second), &["takes the combiner"]).await;
    far.send("in", &events(20..30)).await;
    let rows = far.rows("out", 30).await;
    assert_eq!(numbers(&rows), (0..30).map(|n| n * 2).collect::<Vec<_>>());
    second.stop().await;
    remote.stop().await;
}

// proves X4
#[tokio::test(flavor = "multi_thread")]
async fn a_job_logs_in_to_its_cluster_by_scram() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let keys = "[[keys]]\nname = \"app\"\nsecret = \"app-secret\"\nrights = [\"manage\", \"listen\", \"send\"]\n";
    let (remote, address) = cluster_with(folders[0].path(), keys).await;
    let node = start(folders[1].path()).await;
    let login = |secret: &str| {
        format!("mechanism = \"SCRAM-SHA-512\"\nuser = \"app\"\npassword = \"{secret}\"\n")
    };
    let near = Client::of(&node);
    let of = |secret: &str| {
        let topic = |name: &str| topic(&address, name) + "\n" + &login(secret);
        job(&topic("in"), &topic("out"))
    };
    let (status, made) = near.call("PUT /api/jobs/wrong", &of("other")).await;
    assert_eq!(status, 200, "{made}");
    near.until("GET /api/jobs/wrong/logs", |logs| {
        logs.to_string().contains("the cluster of input")
    })
    .await;
    let (status, made) = near.call("PUT /api/jobs/double", &of("app-secret")).await;
    assert_eq!(status, 200, "{made}");
    let far = remote.http_address().unwrap();
    let key = ["authorization: Bearer app:app-secret"];
    let sent = call(far, "POST /hubs/in/messages?key=k", &key, "{\"n\": 21}").await;
    assert_eq!(sent.status, 201, "{}", sent.body);
    let line = "GET /hubs/out/partitions/0/messages?from=0&max=10&wait=10s";
    for attempt in 0.. {
        let read = call(far, line, &key, "").await.body;
        if read.contains("42") {
            break;
        }
        assert!(attempt < 6, "{read}");
    }
    node.stop().await;
    remote.stop().await;
}
