//! Jobs over hubs, unchanged on nodes whose log is a cluster: the rows of a node with a log of its own, over restarts
//! and when another node takes over. Another node is the cluster.
// proves X1, X3, X5

use std::sync::Arc;

use highwater_env::RealClock;
use highwater_server::node::Node;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Duration, Instant};

use crate::cluster::{Cluster, call};
use crate::http;
use crate::jobs::Client;
use crate::owners::{MortalNode, SESSION, until};
use crate::whole_node::{self, write};

const HUBS: &str = "[hubs.in]\npartitions = 2\n[hubs.out]\npartitions = 2\n[hubs.late]\npartitions = 1\n\
                    [hubs.bad]\npartitions = 1\n";

/// Rows depend on event times alone, so that two logs, which append at different times, give the same.
const JOB: &str = r#"
start = "beginning"
sql = """
SELECT Device, System.Timestamp() AS WindowEnd, COUNT(*) AS Events, SUM(Value) AS Total
INTO out FROM e TIMESTAMP BY At GROUP BY Device, TumblingWindow(second, 5)
"""
[time]
late_arrival = "1h"
out_of_order = "2s"
early_arrival = "1h"
[errors]
on_error = "dead_letter"
dead_letter = "bad"
[late]
output = "late"
[checkpoint]
every = "100ms"
[inputs.e]
hub = "in"
[outputs.out]
type = "hub"
hub = "out"
key = "Device"
[outputs.late]
type = "hub"
hub = "late"
[outputs.bad]
type = "hub"
hub = "bad"
"#;

fn deployed(job: &str) -> String {
    json!({"files": {"job.toml": job}}).to_string()
}

/// Events by partition. In every round one is out of order, and one is no JSON. The last round ends every window, and
/// is after the arrival of all events, the time of dead letters.
fn events(rounds: usize, base_ms: i64) -> Vec<Vec<(u32, String)>> {
    let round = |round: usize| {
        (0..20).map(move |n| {
            let number = round * 20 + n;
            let mut at_ms = base_ms + number as i64 * 400;
            if n == 13 {
                at_ms -= 4_000;
            }
            let device = number * 7 % 5;
            let event = match n {
                17 => "{".to_owned(),
                _ => json!({"Device": device, "Value": number, "At": iso(at_ms)}).to_string(),
            };
            (device as u32 % 2, event)
        })
    };
    let last = json!({"Device": "end", "Value": 1, "At": iso(base_ms + 30 * 60_000)}).to_string();
    let mut rounds: Vec<Vec<_>> = (0..rounds).map(|n| round(n).collect()).collect();
    rounds.push((0..2).map(|partition| (partition, last.clone())).collect());
    rounds
}

fn iso(ms: i64) -> String {
    let instant = highwater_time::Instant::from_unix_millis(ms);
    instant.to_string()
}

/// Of five minutes ago.
fn base_ms() -> i64 {
    use highwater_env::Clock;
    RealClock::new().unix_millis() - 300_000
}

async fn send(to: &Client, events: &[(u32, String)]) {
    for (partition, event) in events {
        let line = format!("POST /hubs/in/partitions/{partition}/messages");
        call(to.0, &line, event).await;
    }
}

/// Keys and values by partition, once there are so many; later there may be more.
async fn rows(of: &Client, hub: &str, partitions: u32, count: usize) -> Vec<Vec<(Value, Value)>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut found = Vec::new();
        for partition in 0..partitions {
            let line = format!("GET /hubs/{hub}/partitions/{partition}/messages?from=0&max=1000");
            let mut page = call(of.0, &line, "").await;
            let messages = page["messages"].as_array_mut().unwrap().iter_mut();
            let pairs = messages.map(|one| (one["key"].take(), one["value"].take()));
            found.push(pairs.collect::<Vec<_>>());
        }
        if found.iter().map(Vec::len).sum::<usize>() >= count {
            return found;
        }
        let (_, jobs) = of.call("GET /api/jobs", "").await;
        assert!(Instant::now() < deadline, "{hub}: {found:?} {jobs}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many rows the hubs of a job have.
#[derive(Clone, Copy)]
struct Counts {
    out: usize,
    late: usize,
    bad: usize,
}

/// The rows of a node with a log of its own that nothing disturbs, from this many on.
struct Undisturbed {
    out: Vec<Vec<(Value, Value)>>,
    counts: Counts,
}

impl Undisturbed {
    async fn of(rounds: &[Vec<(u32, String)>]) -> Undisturbed {
        let folder = tempfile::tempdir().unwrap();
        let node = whole_node::start(folder.path(), HUBS, Arc::new(RealClock::new())).await;
        let client = Client::of(&node);
        call(client.0, "PUT /api/jobs/counts", &deployed(JOB)).await;
        for round in rounds {
            send(&client, round).await;
        }
        let counts = Counts {
            out: 1,
            late: rounds.len() - 1,
            bad: rounds.len() - 1,
        };
        rows(&client, "late", 1, counts.late).await;
        rows(&client, "bad", 1, counts.bad).await;
        stop(&client).await;
        let out = rows(&client, "out", 2, 1).await;
        node.stop().await;
        Undisturbed {
            counts: Counts {
                out: out.iter().map(Vec::len).sum(),
                ..counts
            },
            out,
        }
    }

    async fn check(&self, client: &Client) {
        let Counts { out, late, bad } = self.counts;
        assert_eq!(rows(client, "out", 2, out).await, self.out);
        for (hub, count) in [("late", late), ("bad", bad)] {
            let found = rows(client, hub, 1, count).await;
            assert_eq!(found[0].len(), count, "{hub}: {found:?}");
        }
    }
}

/// Stops the job when it has read everything, so that all of its rows are written.
async fn stop(client: &Client) {
    let is_read = |job: &Value| {
        let partitions = job["inputs"][0]["partitions"].as_array();
        partitions.is_some_and(|partitions| {
            partitions.iter().all(|of| of["backlog"] == 0) && !partitions.is_empty()
        })
    };
    client.until("GET /api/jobs/counts", is_read).await;
    call(client.0, "POST /api/jobs/counts/stop", "").await;
}

// proves X1, X3
#[tokio::test(flavor = "multi_thread")]
async fn a_job_over_hubs_runs_unchanged_over_a_cluster() {
    let sent = events(4, base_ms());
    let undisturbed = Undisturbed::of(&sent).await;
    assert!(undisturbed.counts.out > 20, "{}", undisturbed.counts.out);
    let cluster = Cluster::start().await;
    for (n, round) in sent.iter().enumerate() {
        // Each time the node starts again, and goes on from its checkpoint.
        let node = cluster.node("", HUBS).await;
        let client = Client::of(&node);
        if n == 0 {
            let made = call(client.0, "PUT /api/jobs/counts", &deployed(JOB)).await;
            assert_eq!(made["name"], "counts");
        }
        send(&client, round).await;
        node.stop().await;
    }
    let node = cluster.node("", HUBS).await;
    let client = Client::of(&node);
    undisturbed.check(&client).await;
    check_views(&cluster, &client).await;
    node.stop().await;
}

async fn check_views(cluster: &Cluster, client: &Client) {
    let job = call(client.0, "GET /api/jobs/counts", "").await;
    assert_eq!(job["inputs"][0]["partitions"][0]["hub"], "in", "{job}");
    // The time journal is a topic of the prefix, and as an internal hub of the node it is written by its job alone.
    let topic = "GET /api/hubs/plant._highwater.time.counts.e.in";
    let topic = call(cluster.broker_address(), topic, "").await;
    assert_eq!(topic["partitions"], 2);
    let hubs = call(client.0, "GET /api/hubs", "").await;
    assert_eq!(hubs["hubs"].as_array().unwrap().len(), 4, "{hubs}");
    let view = call(client.0, "GET /api/cluster", "").await;
    let row = view["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["kind"] == "job");
    let row = row.unwrap();
    assert_eq!(
        (&row["state"], &row["partitions"]),
        (&json!("running"), &json!(2)),
        "{view}"
    );
    let journal = "POST /hubs/__time.counts.e.in/messages";
    let forged = http::node::call(client.0, journal, &[], "{}").await;
    assert!(forged.status >= 400, "{}", forged.body);
}

/// Silence is told over a cluster: the window of a lone event ends without another one, once.
// proves X5
#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_a_window_of_a_hub_over_a_cluster() {
    let job = r#"
sql = "SELECT COUNT(*) AS n INTO out FROM e GROUP BY TumblingWindow(second, 1)"
[time]
late_arrival = "0s"
[inputs.e]
hub = "in"
[outputs.out]
type = "hub"
hub = "out"
"#;
    let cluster = Cluster::start().await;
    let hubs = "[hubs.in]\npartitions = 1\n[hubs.out]\npartitions = 1\n";
    for round in 1..3 {
        let node = cluster.node("", hubs).await;
        let client = Client::of(&node);
        if round == 1 {
            call(client.0, "PUT /api/jobs/counts", &deployed(job)).await;
            let runs = |job: &Value| job["state"] == "running";
            client.until("GET /api/jobs/counts", runs).await;
        }
        send(&client, &[(0, "{}".into())]).await;
        let found = rows(&client, "out", 1, round).await;
        let expected: Vec<Value> = (0..round).map(|_| json!({"n": 1})).collect();
        let values: Vec<&Value> = found[0].iter().map(|(_, value)| value).collect();
        assert_eq!(values, expected.iter().collect::<Vec<_>>());
        node.stop().await;
    }
}

/// Settings of nodes that share jobs, with their state in this folder.
fn shared(state: &TempDir) -> String {
    let path = state.path().display();
    format!(
        "{HUBS}[jobs]\nfolders = [\"{path}\"]\n[state]\npath = \"{path}/shared\"\nshared = true\n\
         session_timeout = \"6s\"\n"
    )
}

/// The nodes that run a share of the job, by the rows of the cluster's view.
fn sharers(view: &Value) -> usize {
    let rows = view["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["kind"] == "job" && row["partitions"].as_u64() > Some(0))
        .count()
}

/// Nodes with the same log and state share the job. One that is killed leaves its share to the other.
// proves X1, X3
#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_a_job_over_hubs_and_one_takes_over_when_another_dies() {
    let sent = events(4, base_ms());
    let undisturbed = Undisturbed::of(&sent).await;
    let cluster = Cluster::start().await;
    let state = tempfile::tempdir().unwrap();
    let mut first = MortalNode::start(&cluster, &shared(&state)).await;
    call(first.address, "PUT /api/jobs/counts", &deployed(JOB)).await;
    let runs = |view: &Value| sharers(view) == 1;
    until(first.address, "GET /api/cluster", runs).await;
    send(&Client(first.address), &sent[0]).await;
    let second = MortalNode::start(&cluster, &shared(&state)).await;
    until(second.address, "GET /api/cluster", |view| {
        sharers(view) == 2
    })
    .await;
    send(&Client(first.address), &sent[1]).await;
    first.kill();
    let died = Instant::now();
    let survivor = Client(second.address);
    for round in &sent[2..] {
        send(&survivor, round).await;
    }
    undisturbed.check(&survivor).await;
    let took = died.elapsed();
    assert!(
        took < 2 * SESSION + Duration::from_secs(10),
        "it took {took:?}"
    );
}

/// A job is deployed, stopped, started and deleted through any node, and all of them follow; nodes that join later,
/// too.
// proves X1
#[tokio::test(flavor = "multi_thread")]
async fn a_shared_job_is_known_to_all_nodes() {
    let cluster = Cluster::start().await;
    let state = tempfile::tempdir().unwrap();
    let a = MortalNode::start(&cluster, &shared(&state)).await;
    let b = MortalNode::start(&cluster, &shared(&state)).await;
    // What no node could have written is skipped.
    let hostile = json!({"files": {"../../evil": "x"}, "running": true}).to_string();
    for (key, value) in [
        ("..%2Fevil", deployed(JOB)),
        ("evil", hostile),
        ("evil", "{".into()),
    ] {
        let line = format!("POST /hubs/plant._highwater.jobs/messages?key={key}");
        call(cluster.broker_address(), &line, &value).await;
    }
    let made = call(a.address, "PUT /api/jobs/counts", &deployed(JOB)).await;
    assert_eq!(made["name"], "counts");
    let jobs = call(a.address, "GET /api/jobs", "").await;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1, "{jobs}");
    until(b.address, "GET /api/cluster", |view| sharers(view) == 2).await;
    let job = call(b.address, "GET /api/jobs/counts", "").await;
    assert_eq!(job["share"]["partitions"], 1, "each node has one: {job}");
    let files = call(b.address, "GET /api/jobs/counts/files", "").await;
    assert_eq!(files["files"]["job.toml"], JOB);
    let c = MortalNode::start(&cluster, &shared(&state)).await;
    let nodes = [a.address, b.address, c.address].map(Client);
    let [_, b, c] = &nodes;
    // A wrong version changes nothing anywhere, and neither does one that would run on one node.
    let wrong = deployed(&JOB.replace("COUNT(*)", "COUNTS(*)"));
    let (status, _) = c.call("PUT /api/jobs/counts", &wrong).await;
    assert_eq!(status, 400);
    let own_state = format!("{JOB}[state]\npath = \"{}/own\"\n", state.path().display());
    let (status, refused) = c.call("PUT /api/jobs/counts", &deployed(&own_state)).await;
    assert_eq!(status, 409, "{refused}");
    let nowhere = json!({"files": {"job.toml": JOB}, "start": "somewhere"}).to_string();
    assert_eq!(c.call("PUT /api/jobs/counts", &nowhere).await.0, 400);
    let of = |wanted: &'static str| move |job: &Value| job["state"] == wanted;
    let get = "GET /api/jobs/counts";
    for (by, change, state) in [
        (b, "POST /api/jobs/counts/stop", "stopped"),
        (c, "POST /api/jobs/counts/start", "running"),
    ] {
        let changed = call(by.0, change, "").await;
        assert!(
            [state, "starting"]
                .map(Value::from)
                .contains(&changed["state"]),
            "{changed}"
        );
        for node in &nodes {
            node.until(get, of(state)).await;
        }
    }
    // A job with a state of its own stays where it was deployed.
    call(b.0, "PUT /api/jobs/alone", &deployed(&own_state)).await;
    call(c.0, "DELETE /api/jobs/counts", "").await;
    for (node, alone) in nodes.iter().zip([404, 200, 404]) {
        node.until(get, |job| job["code"] == "not_found").await;
        assert_eq!(node.call("GET /api/jobs/alone", "").await.0, alone);
    }
    let late = MortalNode::start(&cluster, &shared(&state)).await;
    let jobs = call(late.address, "GET /api/jobs", "").await;
    assert_eq!(jobs["jobs"], json!([]), "the job is deleted");
}

/// The copy of a shared definition is the job's own when the settings stop sharing, and gives way to a job of the
/// settings.
#[tokio::test(flavor = "multi_thread")]
async fn a_shared_job_obeys_settings_that_change() {
    let cluster = Cluster::start().await;
    let state = tempfile::tempdir().unwrap();
    let get = "GET /api/jobs/counts";
    let node = cluster.node("", &shared(&state)).await;
    let client = Client::of(&node);
    call(client.0, "PUT /api/jobs/counts", &deployed(JOB)).await;
    node.stop().await;
    let node = cluster.node("", HUBS).await;
    let client = Client::of(&node);
    let job = client.until(get, |job| job["state"] == "running").await;
    assert_eq!(
        job["share"],
        Value::Null,
        "it runs on this node alone: {job}"
    );
    call(client.0, "PUT /api/jobs/counts", &deployed(JOB)).await;
    node.stop().await;
    let file = state.path().join("job.toml");
    write(&file, JOB);
    let declared = format!(
        "{}[jobs.counts]\npath = \"{}\"\n",
        shared(&state),
        file.display()
    );
    for _ in 0..2 {
        let node = cluster.node("", &declared).await;
        let client = Client::of(&node);
        let takes_part = |job: &Value| job["share"]["combiners"] == 1;
        let job = client.until(get, takes_part).await;
        assert_eq!(job["in_settings"], true);
        assert_eq!(client.call("DELETE /api/jobs/counts", "").await.0, 409);
        node.stop().await;
    }
}

/// The author of a job needs the rights to its hubs, as on a node with a log of its own.
// proves G1, G3
#[tokio::test(flavor = "multi_thread")]
async fn the_author_of_a_job_needs_the_rights_to_its_hubs_over_a_cluster() {
    let cluster = Cluster::start().await;
    let key = |name: &str, rights: &str, hubs: &str| {
        format!(
            "[[keys]]\nname = \"{name}\"\nsecret = \"{name}-secret\"\nrights = [{rights}]\nhubs = [{hubs}]\n\
             deployments = [\"*\"]\n"
        )
    };
    let keys = [
        key(
            "all",
            "\"deploy\", \"listen\", \"send\"",
            "\"in\", \"out\", \"late\", \"bad\"",
        ),
        key(
            "reader",
            "\"deploy\", \"listen\"",
            "\"in\", \"out\", \"late\", \"bad\"",
        ),
        key(
            "writer",
            "\"deploy\", \"listen\", \"send\"",
            "\"out\", \"late\", \"bad\"",
        ),
    ];
    let node = cluster.node("", &format!("{}{HUBS}", keys.concat())).await;
    let at = node.http_address().unwrap();
    for (key, expected) in [
        ("reader", Some("has no right to send on hub `out`")),
        ("writer", Some("has no right to listen on hub `in`")),
        ("all", None),
    ] {
        let login = format!("authorization: Bearer {key}:{key}-secret");
        let made = http::node::call(at, "PUT /api/jobs/counts", &[&login], &deployed(JOB)).await;
        match expected {
            None => assert_eq!(made.status, 200, "{}", made.body),
            Some(reason) => {
                assert_eq!(made.status, 403, "{}", made.body);
                assert!(made.body.contains(reason), "{}", made.body);
            }
        }
    }
    node.stop().await;
}

/// In a hub with the times of producers silence cannot be told, so the settings must say that these times count.
// proves X1
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_with_producers_times_is_read_if_the_settings_say_so() {
    let cluster = Cluster::start().await;
    cluster.create_with_producers_times("old").await;
    let job = "start = \"beginning\"\nsql = \"SELECT n INTO out FROM e\"\n[inputs.e]\nhub = \"old\"\n\
               [outputs.out]\ntype = \"hub\"\nhub = \"made\"\n";
    let node = cluster.node("", "[hubs.made]\npartitions = 1\n").await;
    let client = Client::of(&node);
    call(client.0, "PUT /api/jobs/counts", &deployed(job)).await;
    let failed = |job: &Value| job["state"] == "failed";
    let job = client
        .until("GET /api/jobs/counts", failed)
        .await
        .to_string();
    assert!(job.contains("cluster.arrival"), "{job}");
    node.stop().await;
    let node = cluster.node("arrival = \"create-time\"", "").await;
    let client = Client::of(&node);
    call(client.0, "POST /hubs/old/messages", "{\"n\": 7}").await;
    let found = rows(&client, "made", 1, 1).await;
    assert_eq!(found[0][0].1, json!({"n": 7}));
    node.stop().await;
}

/// What a node over a cluster does not do for jobs is refused with the way out.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_follows_files_is_refused_over_a_cluster() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.toml");
    write(
        &file,
        "sql = \"SELECT * INTO out FROM e\"\n[inputs.e]\npath = \"in\"\n",
    );
    let settings = format!("[jobs.files]\npath = \"{}\"\n", file.display());
    let node: Node = cluster.node("", &settings).await;
    let job = call(node.http_address().unwrap(), "GET /api/jobs/files", "").await;
    assert!(
        job.to_string().contains("send their events to a hub"),
        "{job}"
    );
    node.stop().await;
}
