//! A node whose log is a cluster. Another node is the cluster; the same checks pass on a node with a log of its own.
// proves X1

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use highwater_env::RealClock;
use highwater_env::random::Random;
use highwater_kafka::client::{ClusterNames, Options, Remote};
use highwater_log::batch::TimestampType;
use highwater_log::{HubName, HubSettings, HubSpec, Log, TimestampSettings};
use highwater_server::config::Sources;
use highwater_server::node::Node;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::node::{Wire, request};
use crate::processing::receiver::{OK, Receiver};
use crate::{http, owners, whole_node};

/// A node that serves Kafka clients.
async fn start_broker(folder: &Path) -> Node {
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = Sources {
        flags: vec![
            flag("data", &folder.join("broker").display().to_string()),
            flag("http.listen", "127.0.0.1:0"),
            flag("kafka.listen", "127.0.0.1:0"),
            flag("amqp.listen", "off"),
        ],
        ..Sources::default()
    };
    let config = sources.load().unwrap().config;
    Node::start(config, Arc::new(RealClock::new()))
        .await
        .unwrap()
}

pub(crate) struct Cluster {
    servers: String,
    prefix: String,
    /// `None` for a cluster elsewhere.
    broker: Option<Node>,
    folder: TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let broker = start_broker(folder.path()).await;
        Cluster {
            servers: broker.kafka_addresses()[0].to_string(),
            prefix: "plant.".into(),
            broker: Some(broker),
            folder,
        }
    }

    /// The cluster of `HIGHWATER_KAFKA`, with a prefix that no earlier run has used.
    fn elsewhere() -> Cluster {
        let servers = std::env::var("HIGHWATER_KAFKA").expect("HIGHWATER_KAFKA names a broker");
        Cluster {
            servers,
            prefix: format!("test-{:016x}.", Random::from_os().next_u64()),
            broker: None,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A node over the cluster; `cluster` are more settings of its table.
    pub(crate) async fn node(&self, cluster: &str, settings: &str) -> Node {
        self.node_in(self.folder.path(), cluster, settings).await
    }

    pub(crate) async fn node_in(&self, folder: &Path, cluster: &str, settings: &str) -> Node {
        let settings = self.settings(cluster, settings);
        whole_node::start(folder, &settings, Arc::new(RealClock::new())).await
    }

    /// Of the node that is the cluster.
    pub(crate) fn broker_address(&self) -> SocketAddr {
        let broker = self.broker.as_ref().unwrap();
        broker.http_address().unwrap()
    }

    /// Creates a hub with the times of producers.
    pub(crate) async fn create_with_producers_times(&self, hub: &str) {
        let options = Options {
            names: ClusterNames::of_node(&self.prefix),
            ..Options::new([self.servers.clone()])
        };
        let remote = Remote::connect(options, Arc::new(RealClock::new())).await;
        let settings = HubSettings {
            timestamps: TimestampSettings {
                kind: TimestampType::Create,
                ..TimestampSettings::default()
            },
            ..HubSettings::default()
        };
        let spec = HubSpec {
            name: HubName::new(hub).unwrap(),
            partitions: 1,
            settings,
        };
        remote.unwrap().create(spec).await.unwrap();
    }

    pub(crate) fn settings(&self, cluster: &str, settings: &str) -> String {
        format!(
            "log = \"kafka://{}\"\n[cluster]\nprefix = \"{}\"\n{cluster}\n{settings}",
            self.servers, self.prefix
        )
    }
}

pub(crate) async fn call(address: SocketAddr, line: &str, body: &str) -> Value {
    let answer = http::node::call(address, line, &[], body).await;
    assert!(
        answer.status < 300,
        "{line}: {} {}",
        answer.status,
        answer.body
    );
    match answer.body.is_empty() {
        true => Value::Null,
        false => answer.json(),
    }
}

async fn status(address: SocketAddr, line: &str, body: &str) -> u16 {
    http::node::call(address, line, &[], body).await.status
}

fn values(page: &Value) -> Vec<i64> {
    let messages = page["messages"].as_array().unwrap();
    let values = messages.iter().map(|message| message["value"].as_i64());
    values.map(Option::unwrap).collect()
}

/// Everything that HTTP does with hubs.
async fn check_hubs(at: SocketAddr) {
    let created = call(at, "POST /api/hubs", r#"{"name":"h","partitions":2}"#).await;
    assert_eq!(
        (&created["partitions"], &created["timestamps"]),
        (&json!(2), &json!("append"))
    );
    assert_eq!(status(at, "POST /api/hubs", r#"{"name":"h"}"#).await, 409);
    let path = "/hubs/h/partitions/1/messages";
    for n in 0..3 {
        let sent = call(at, &format!("POST {path}"), &n.to_string()).await;
        assert_eq!(sent["offset"], n);
    }
    let page = call(at, &format!("GET {path}?from=1"), "").await;
    assert_eq!(values(&page), [1, 2]);
    assert_eq!((&page["next"], &page["end"]), (&json!(3), &json!(3)));
    let latest = call(at, &format!("GET {path}?from=latest"), "").await;
    assert_eq!((values(&latest).len(), &latest["next"]), (0, &json!(3)));
    let all = call(at, &format!("GET {path}?from=2020-01-01T00:00:00Z"), "").await;
    assert_eq!(values(&all), [0, 1, 2]);
    let none = call(at, &format!("GET {path}?from=2120-01-01T00:00:00Z"), "").await;
    assert_eq!((values(&none).len(), &none["next"]), (0, &json!(3)));
    assert_eq!(status(at, &format!("GET {path}?from=4"), "").await, 400);

    let described = call(at, "GET /api/hubs/h", "").await;
    assert_eq!(described["places"][0]["end"], 0);
    assert_eq!(described["places"][1]["end"], 3);
    check_stream(at, path).await;

    let trimmed = call(at, "POST /api/hubs/h/partitions/1/trim", r#"{"before":2}"#).await;
    assert_eq!(trimmed["start"], 2);
    let earliest = call(at, &format!("GET {path}?from=earliest"), "").await;
    assert_eq!(values(&earliest), [2, 3]);
    let grown = call(
        at,
        "PATCH /api/hubs/h",
        r#"{"partitions":3,"retention":"1h"}"#,
    )
    .await;
    assert_eq!(
        (&grown["partitions"], &grown["retention_seconds"]),
        (&json!(3), &json!(3600))
    );
    assert_eq!(
        status(at, "PATCH /api/hubs/h", r#"{"partitions":2}"#).await,
        400
    );
    call(at, "POST /hubs/h/messages?key=k", "7").await;
    // Created by the first event.
    call(at, "POST /hubs/made/messages", "1").await;
    let hubs = call(at, "GET /api/hubs", "").await;
    let names: Vec<&Value> = hubs["hubs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hub| &hub["name"])
        .collect();
    assert_eq!(names, ["h", "made"]);
    call(at, "DELETE /api/hubs/h", "").await;
    assert_eq!(status(at, "GET /api/hubs/h", "").await, 404);
    assert_eq!(status(at, "POST /hubs/__audit/messages", "1").await, 403);
}

async fn check_stream(at: SocketAddr, path: &str) {
    let mut live = Wire::connect(at).await;
    let line = format!("GET {path}?from=2");
    live.send(&request(&line, &["accept: text/event-stream"], b""))
        .await;
    assert!(live.head().await.unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(live.block().await.as_deref(), Some(": highwater"));
    assert!(live.block().await.unwrap().contains("\"value\":2"));
    call(at, &format!("POST {path}"), "3").await;
    assert!(live.block().await.unwrap().contains("\"value\":3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hubs_are_the_same_in_a_folder_and_on_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let own = whole_node::start(folder.path(), "", Arc::new(RealClock::new())).await;
    check_hubs(own.http_address().unwrap()).await;
    own.stop().await;
    let cluster = Cluster::start().await;
    check_node(&cluster).await;
    let topic = call(cluster.broker_address(), "GET /api/hubs/plant.made", "").await;
    assert_eq!(topic["places"][0]["start"], 0);
}

async fn check_node(cluster: &Cluster) {
    let node = cluster.node("", "").await;
    let at = node.http_address().unwrap();
    check_hubs(at).await;
    assert!(node.kafka_addresses().is_empty() && node.amqp_addresses().is_empty());
    let punctuate = "POST /api/hubs/made/partitions/0/punctuate";
    assert_eq!(status(at, punctuate, "").await, 400);
    let metrics = http::node::call(at, "GET /metrics", &[], "").await;
    let ends = "highwater_hub_end_offsets{hub=\"made\"} 1";
    assert!(metrics.body.contains(ends), "{}", metrics.body);
    node.stop().await;
}

/// `tests/clients/kafka start` starts one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker"]
async fn a_node_works_over_a_cluster_elsewhere() {
    check_node(&Cluster::elsewhere()).await;
    check_services(&Cluster::elsewhere()).await;
    check_sharing(&Cluster::elsewhere()).await;
}

/// A topic with the times of its producers is not read by arrival time, unless the settings say that they count.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_with_create_time_is_not_read_by_time() {
    let cluster = Cluster::start().await;
    cluster.create_with_producers_times("old").await;
    let by_time = "GET /hubs/old/partitions/0/messages?from=2020-01-01T00:00:00Z";
    for (settings, expected) in [("", 400), ("arrival = \"create-time\"", 200)] {
        let node = cluster.node(settings, "").await;
        let at = node.http_address().unwrap();
        assert_eq!(status(at, by_time, "").await, expected);
        assert_eq!(
            status(at, "GET /hubs/old/partitions/0/messages", "").await,
            200
        );
        node.stop().await;
    }
}

pub(crate) fn workflow(receiver: &Receiver) -> String {
    format!(
        "name = \"order\"\n[services.shop]\nurl = \"http://{}\"\n[[steps]]\nname = \"pay\"\n\
         service = \"shop\"\ncall = \"PUT /pay/{{{{id}}}}\"\n",
        receiver.address
    )
}

/// Processor, queue and workflow journal to topics, and resume at their positions after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn processors_queues_and_workflows_go_on_after_a_restart() {
    check_services(&Cluster::start().await).await;
}

async fn check_services(cluster: &Cluster) {
    let receiver = Receiver::start(|_| OK).await;
    whole_node::write(
        &cluster.folder.path().join("order.toml"),
        &workflow(&receiver),
    );
    let settings = format!(
        "[hubs.orders]\npartitions = 1\n[processors.billing]\nhub = \"orders\"\nhandler = {{ url = \"{}\" }}\n\
         checkpoint = {{ events = 1 }}\n[queues.jobs]\n[workflows.order]\nfile = \"order.toml\"\n",
        receiver.url()
    );
    let node = cluster.node("", &settings).await;
    let at = node.http_address().unwrap();
    let path = "POST /hubs/orders/partitions/0/messages";
    call(at, path, "1").await;
    receiver
        .until(|seen| seen.iter().any(|request| request.line.contains("/hook")))
        .await;
    for n in 1..=3 {
        call(at, "POST /queues/jobs/messages", &n.to_string()).await;
    }
    let taken = call(at, "POST /queues/jobs/receive?max=1", "").await;
    let token = &taken["messages"][0]["token"];
    call(
        at,
        "POST /queues/jobs/complete",
        &json!({"tokens": [token]}).to_string(),
    )
    .await;
    call(at, "PUT /workflows/order/a", "{}").await;
    receiver
        .until(|seen| seen.iter().any(|request| request.line.contains("/pay/a")))
        .await;
    node.stop().await;

    let node = cluster.node("", &settings).await;
    let at = node.http_address().unwrap();
    let left = call(at, "POST /queues/jobs/receive?max=9", "").await;
    let bodies: Vec<&Value> = left["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["body"])
        .collect();
    assert_eq!(bodies, [2, 3]);
    // Its outcome may have been on its way at the stop.
    while call(at, "GET /workflows/order/a", "").await["state"] != "completed" {
        tokio::task::yield_now().await;
    }
    call(at, path, "2").await;
    let seen = receiver
        .until(|seen| {
            seen.iter()
                .filter(|request| request.line.contains("/hook"))
                .count()
                >= 2
        })
        .await;
    let events: Vec<&str> = seen
        .iter()
        .filter(|request| request.line.contains("/hook"))
        .map(|request| request.body.as_str())
        .collect();
    assert_eq!(events, ["1", "2"], "none twice, none lost");
    let group = call(at, "GET /api/groups/billing", "").await;
    assert_eq!(group["positions"][0]["hub"], "orders", "{group}");
    node.stop().await;
}

/// Two nodes share the queues of the prefix: each of them answers a request for any queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_shares_the_queues() {
    check_sharing(&Cluster::start().await).await;
}

async fn check_sharing(cluster: &Cluster) {
    let (send, receive) = (
        "POST /queues/jobs/messages",
        "POST /queues/jobs/receive?max=9",
    );
    let first = cluster.node("", "[queues.jobs]\n").await;
    let one = first.http_address().unwrap();
    call(one, send, "1").await;
    let folder = tempfile::tempdir().unwrap();
    let second = cluster.node_in(folder.path(), "", "[queues.jobs]\n").await;
    let two = second.http_address().unwrap();
    owners::until_settled(&[one, two], 1).await;
    for (at, body) in [(two, "2"), (one, "3")] {
        call(at, send, body).await;
    }
    let received = call(two, receive, "").await;
    let bodies: Vec<&Value> = received["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["body"])
        .collect();
    assert_eq!(bodies, [1, 2, 3], "{received}");
    // A stop hands over the node's resources, and its locks stay.
    first.stop().await;
    owners::until_settled(&[two], 1).await;
    let none = call(two, receive, "").await;
    assert_eq!(none["messages"], json!([]));
    let tokens: Vec<&Value> = received["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["token"])
        .collect();
    let settled = call(
        two,
        "POST /queues/jobs/complete",
        &json!({"tokens": tokens}).to_string(),
    )
    .await;
    assert_eq!(settled["settled"], 3, "{settled}");
    second.stop().await;
}
