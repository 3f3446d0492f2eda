//! Several nodes over one cluster, which a third node plays: the owners of resources, forwarded requests, owners that
//! die.
// proves X1

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use highwater_env::RealClock;
use highwater_server::node::Node;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Duration, Instant};

use crate::cluster::{Cluster, call, workflow};
use crate::http::node::Answer;
use crate::processing::receiver::{OK, Receiver};
use crate::{http, whole_node};

pub(crate) const SESSION: Duration = Duration::from_secs(6);
/// The shortest session that the group allows.
const SHORT: &str = "session = \"6s\"";

/// A node on threads of its own, which can be killed: its tasks end wherever they are, and nothing is closed.
pub(crate) struct MortalNode {
    runtime: Option<Runtime>,
    pub address: SocketAddr,
    _folder: TempDir,
}

impl MortalNode {
    pub(crate) async fn start(cluster: &Cluster, settings: &str) -> MortalNode {
        let folder = tempfile::tempdir().unwrap();
        let settings = cluster.settings(SHORT, settings);
        let path = folder.path().to_owned();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let started = runtime.spawn(async move {
            let node = whole_node::start(&path, &settings, Arc::new(RealClock::new())).await;
            let address = node.http_address().unwrap();
            // The node lives as long as the runtime.
            tokio::spawn(hold(node));
            address
        });
        MortalNode {
            address: started.await.unwrap(),
            runtime: Some(runtime),
            _folder: folder,
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for MortalNode {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn hold(node: Node) {
    std::future::pending::<()>().await;
    node.stop().await;
}

/// The owner of each row of a kind, by name; `None` unless it runs.
fn owners_of(view: &Value, kind: &str) -> BTreeMap<String, Option<String>> {
    let rows = view["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["kind"] == kind)
        .map(|row| {
            let is_running = row["state"] == "running";
            let node = row["node"].as_str().filter(|_| is_running);
            (
                row["name"].as_str().unwrap().to_owned(),
                node.map(str::to_owned),
            )
        })
        .collect()
}

/// Waits until all nodes agree on the owners of queues, each of which runs. Returns the owner of each queue.
pub(crate) async fn until_settled(nodes: &[SocketAddr], queues: usize) -> BTreeMap<String, String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut views = Vec::new();
        for node in nodes {
            let view = http::node::call(*node, "GET /api/cluster", &[], "")
                .await
                .json();
            views.push((
                view["nodes"].as_array().unwrap().len(),
                owners_of(&view, "queue"),
            ));
        }
        let (count, owners) = &views[0];
        let settled = *count == nodes.len()
            && owners.len() == queues
            && owners.values().all(Option::is_some)
            && views.iter().all(|view| *view == views[0]);
        if settled {
            let owners = owners.iter();
            return owners
                .map(|(name, node)| (name.clone(), node.clone().unwrap()))
                .collect();
        }
        assert!(Instant::now() < deadline, "not settled: {views:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn declared(queues: usize) -> String {
    (0..queues).map(|n| format!("[queues.q{n}]\n")).collect()
}

async fn raw(at: SocketAddr, line: &str, headers: &[&str], body: &str) -> Answer {
    http::node::call(at, line, headers, body).await
}

fn bodies(received: &Value) -> Vec<i64> {
    let messages = received["messages"].as_array().unwrap().iter();
    messages
        .map(|message| message["body"].as_i64().unwrap())
        .collect()
}

// proves X1
#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_queues_and_answer_for_each_other() {
    let cluster = Cluster::start().await;
    let settings = declared(8);
    let a = MortalNode::start(&cluster, &settings).await;
    let b = MortalNode::start(&cluster, &settings).await;
    let both = [a.address, b.address];
    let owners = until_settled(&both, 8).await;
    let nodes: BTreeSet<&String> = owners.values().collect();
    assert_eq!(nodes.len(), 2, "both have some: {owners:?}");
    for (n, name) in owners.keys().enumerate() {
        for (at, body) in [(a.address, 2 * n), (b.address, 2 * n + 1)] {
            let line = format!("POST /queues/{name}/messages");
            let sent = raw(at, &line, &[], &body.to_string()).await;
            assert_eq!(sent.status, 201, "{}", sent.body);
        }
    }
    for (n, name) in owners.keys().enumerate() {
        let line = format!("POST /queues/{name}/receive?max=9&mode=delete");
        let received = call(both[n % 2], &line, "").await;
        assert_eq!(bodies(&received), [2 * n as i64, 2 * n as i64 + 1]);
    }
    check_lists_and_names(both, &owners).await;
}

/// Lists have the queues of both nodes; queues are created and deleted through either; a hop is the last one.
async fn check_lists_and_names(both: [SocketAddr; 2], owners: &BTreeMap<String, String>) {
    for at in both {
        let list = call(at, "GET /api/queues", "").await;
        assert_eq!(list["queues"].as_array().unwrap().len(), 8, "{list}");
        assert_eq!(list["unreachable"], Value::Null);
    }
    for n in 0..6 {
        let created = call(
            both[0],
            "POST /api/queues",
            &format!("{{\"name\":\"new-{n}\"}}"),
        )
        .await;
        assert_eq!(created["name"], format!("new-{n}"));
        let again = raw(
            both[1],
            "POST /api/queues",
            &[],
            &format!("{{\"name\":\"new-{n}\"}}"),
        )
        .await;
        assert_eq!(again.status, 409, "{}", again.body);
        call(both[1], &format!("DELETE /api/queues/new-{n}"), "").await;
        let gone = raw(both[0], &format!("GET /api/queues/new-{n}"), &[], "").await;
        assert_eq!(gone.status, 404, "{}", gone.body);
    }
    let of_other = |at: SocketAddr| {
        let own = at.to_string();
        owners
            .iter()
            .find(|(_, node)| **node != own)
            .map(|(name, _)| name.clone())
            .unwrap()
    };
    for at in both {
        let line = format!("GET /api/queues/{}", of_other(at));
        let refused = raw(at, &line, &["x-highwater-forwarded: x"], "").await;
        assert_eq!(refused.status, 503, "one hop only: {}", refused.body);
        assert!(
            refused.body.contains("has moved to node"),
            "{}",
            refused.body
        );
    }
    let metrics =
        http::node::call(both[0], "GET /console/cluster", &["accept: text/html"], "").await;
    assert!(
        metrics.body.contains(&both[1].to_string()),
        "the console names both nodes"
    );
}

/// The owner of a queue and of a workflow is killed: the other node has them within the session and five seconds, with
/// every acknowledged message and instance.
// proves X1
#[tokio::test(flavor = "multi_thread")]
async fn when_an_owner_dies_another_node_takes_over_in_time() {
    let cluster = Cluster::start().await;
    let receiver = Receiver::start(|_| OK).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("order.toml");
    whole_node::write(&file, &workflow(&receiver));
    let settings = format!(
        "{}[workflows.order]\nfile = \"{}\"\n",
        declared(4),
        file.display()
    );
    let a = MortalNode::start(&cluster, &settings).await;
    let b = MortalNode::start(&cluster, &settings).await;
    let owners = until_settled(&[a.address, b.address], 4).await;
    for name in owners.keys() {
        for n in 0..5 {
            call(
                a.address,
                &format!("POST /queues/{name}/messages"),
                &n.to_string(),
            )
            .await;
        }
        call(b.address, &format!("PUT /workflows/order/{name}"), "{}").await;
    }
    let view = call(a.address, "GET /api/cluster", "").await;
    let owner = owners_of(&view, "workflow")["order"].clone().unwrap();
    let (mut dies, lives) = match owner == a.address.to_string() {
        true => (a, b),
        false => (b, a),
    };
    let received = call(lives.address, "POST /queues/q0/receive?max=2", "").await;
    assert_eq!(bodies(&received), [0, 1]);
    dies.kill();
    let died = Instant::now();
    until_settled(&[lives.address], 4).await;
    let survivor = Some(lives.address.to_string());
    let has_workflow = |view: &Value| owners_of(view, "workflow")["order"] == survivor;
    until(lives.address, "GET /api/cluster", has_workflow).await;
    let took = died.elapsed();
    assert!(took < SESSION + Duration::from_secs(5), "it took {took:?}");
    let rest = call(
        lives.address,
        "POST /queues/q0/receive?max=9&mode=delete",
        "",
    )
    .await;
    assert_eq!(bodies(&rest), [2, 3, 4], "locked messages stay locked");
    for name in ["q1", "q2", "q3"] {
        let line = format!("POST /queues/{name}/receive?max=9&mode=delete");
        assert_eq!(
            bodies(&call(lives.address, &line, "").await),
            [0, 1, 2, 3, 4]
        );
    }
    for name in owners.keys() {
        while call(lives.address, &format!("GET /workflows/order/{name}"), "").await["state"]
            != "completed"
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The owner checks the caller's key itself, and a request that cannot be forwarded is refused with the remedy.
// proves X1, G2
#[tokio::test(flavor = "multi_thread")]
async fn the_callers_rights_are_checked_where_the_queue_is() {
    let cluster = Cluster::start().await;
    let keys = "[[keys]]\nname = \"all\"\nsecret = \"all-secret\"\nrights = [\"send\", \"listen\", \"manage\"]\n\
                [[keys]]\nname = \"reader\"\nsecret = \"reader-secret\"\nrights = [\"listen\"]\n";
    let settings = format!("{keys}{}", declared(8));
    let a = MortalNode::start(&cluster, &settings).await;
    let b = MortalNode::start(&cluster, &settings).await;
    let (all, reader) = (
        "authorization: Bearer all:all-secret",
        "authorization: Bearer reader:reader-secret",
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    let queue = loop {
        let view = raw(a.address, "GET /api/cluster", &[all], "").await.json();
        let own = a.address.to_string();
        let queues = owners_of(&view, "queue");
        let elsewhere = queues
            .iter()
            .find(|(_, node)| node.as_ref().is_some_and(|node| *node != own));
        if let (Some((name, _)), 8) = (elsewhere, queues.len()) {
            break name.clone();
        }
        assert!(Instant::now() < deadline, "{view}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let send = format!("POST /queues/{queue}/messages");
    assert_eq!(raw(a.address, &send, &[all], "1").await.status, 201);
    assert_eq!(raw(a.address, &send, &[reader], "2").await.status, 403);
    assert_eq!(
        raw(a.address, &send, &["authorization: Bearer all:wrong"], "3")
            .await
            .status,
        401
    );
    let peek = format!("GET /queues/{queue}/messages");
    let seen = raw(a.address, &peek, &[reader], "").await;
    assert_eq!(
        seen.json()["messages"].as_array().unwrap().len(),
        1,
        "{}",
        seen.body
    );
    // A key that only the first node has: the owner does not know it.
    let added = json!({"name": "here", "rights": ["send"]}).to_string();
    let added = raw(a.address, "POST /api/keys", &[all], &added)
        .await
        .json();
    let here = format!(
        "authorization: Bearer here:{}",
        added["secret"].as_str().unwrap()
    );
    let refused = raw(a.address, &send, &[&here], "4").await;
    assert_eq!(refused.status, 401, "{}", refused.body);
    // The session of a browser is of one node.
    let login = "name=all&secret=all-secret";
    let kind = "content-type: application/x-www-form-urlencoded";
    let session = raw(a.address, "POST /console/login", &[kind], login).await;
    let cookie = session.head.lines().find_map(|header| {
        let (name, value) = header.split_once(": ")?;
        let is_cookie = name.eq_ignore_ascii_case("set-cookie");
        is_cookie.then(|| value.split(';').next().unwrap().to_owned())
    });
    let cookie = format!("cookie: {}", cookie.unwrap());
    let refused = raw(a.address, &peek, &[&cookie], "").await;
    assert_eq!(refused.status, 421, "{}", refused.body);
    assert!(
        refused.body.contains(&b.address.to_string()),
        "it names the owner: {}",
        refused.body
    );
}

/// Two nodes share the partitions of a processor, and a circuit that one opens is open for the other.
// proves X1
#[tokio::test(flavor = "multi_thread")]
async fn processors_share_partitions_and_circuits() {
    let cluster = Cluster::start().await;
    let receiver = Receiver::start(|_| OK).await;
    let settings = format!(
        "[hubs.orders]\npartitions = 4\n[processors.billing]\nhub = \"orders\"\nhandler = {{ url = \"{}\" }}\n",
        receiver.url()
    );
    let mut a = MortalNode::start(&cluster, &settings).await;
    let b = MortalNode::start(&cluster, &settings).await;
    let partitions = |view: &Value| -> Vec<u64> {
        let rows = view["rows"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["kind"] == "processor");
        rows.map(|row| row["partitions"].as_u64().unwrap())
            .collect()
    };
    until(b.address, "GET /api/cluster", |view| {
        partitions(view) == [2, 2]
    })
    .await;
    for n in 0..20 {
        let line = format!("POST /hubs/orders/partitions/{}/messages", n % 4);
        call(b.address, &line, &n.to_string()).await;
    }
    let handled = |seen: &[crate::processing::receiver::Request]| -> BTreeSet<i64> {
        seen.iter()
            .filter_map(|request| request.body.parse().ok())
            .collect()
    };
    receiver.until(|seen| handled(seen).len() == 20).await;
    call(
        a.address,
        "POST /api/circuits/billing/open",
        "{\"why\":\"maintenance\"}",
    )
    .await;
    let is_open = |view: &Value| view["state"] == "open";
    until(b.address, "GET /api/circuits/billing", is_open).await;
    call(b.address, "POST /hubs/orders/partitions/0/messages", "20").await;
    a.kill();
    until(b.address, "GET /api/cluster", |view| {
        partitions(view) == [4]
    })
    .await;
    let view = call(b.address, "GET /api/circuits/billing", "").await;
    assert!(
        is_open(&view),
        "the circuit outlives the node that opened it: {view}"
    );
    call(b.address, "POST /api/circuits/billing/close", "").await;
    receiver.until(|seen| handled(seen).len() == 21).await;
}

pub(crate) async fn until(at: SocketAddr, line: &str, holds: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = call(at, line, "").await;
        if holds(&answer) {
            return;
        }
        assert!(Instant::now() < deadline, "{line}: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
