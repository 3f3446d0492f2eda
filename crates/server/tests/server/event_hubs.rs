//! A node over what Azure Event Hubs below Premium offers: the versions of its emulator, no numbers of producers, no
//! transactions, no settings of topics. A proxy in front of another node offers exactly that, and hangs up on anything
//! else.
// proves X1

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use highwater_env::RealClock;
use highwater_server::config::Sources;
use highwater_server::node::Node;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::call;
use crate::jobs::Client;
use crate::processing::receiver::{OK, Receiver, Request};
use crate::{http, whole_node};

/// Api key, lowest and highest version, as the emulator lists them.
const OFFERED: [(i16, i16, i16); 15] = [
    (0, 3, 7),  // Produce
    (1, 4, 6),  // Fetch
    (2, 1, 2),  // ListOffsets
    (3, 0, 5),  // Metadata
    (8, 0, 3),  // OffsetCommit
    (9, 0, 3),  // OffsetFetch
    (10, 0, 1), // FindCoordinator
    (11, 0, 2), // JoinGroup
    (12, 0, 1), // Heartbeat
    (13, 0, 1), // LeaveGroup
    (14, 0, 1), // SyncGroup
    (15, 0, 1), // DescribeGroups
    (16, 0, 1), // ListGroups
    (API_VERSIONS, 0, 0),
    (19, 0, 3), // CreateTopics
];
const API_VERSIONS: i16 = 18;
const UNSUPPORTED_VERSION: i16 = 35;

/// Requests that are not offered: api key and version.
type Refused = Arc<Mutex<Vec<(i16, i16)>>>;

struct EventHubs {
    address: SocketAddr,
    refused: Refused,
    _broker: Node,
    folder: TempDir,
}

impl EventHubs {
    async fn start() -> EventHubs {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let broker = start_broker(folder.path(), address).await;
        let refused = Refused::default();
        tokio::spawn(accept(
            listener,
            broker.kafka_addresses()[0],
            refused.clone(),
        ));
        EventHubs {
            address,
            refused,
            _broker: broker,
            folder,
        }
    }

    async fn node(&self, settings: &str) -> Node {
        let settings = format!(
            "log = \"kafka://{}\"\n[cluster]\nprofile = \"event-hubs\"\n{settings}",
            self.address
        );
        whole_node::start(self.folder.path(), &settings, Arc::new(RealClock::new())).await
    }
}

/// A node that tells clients the address of the proxy.
async fn start_broker(folder: &std::path::Path, advertised: SocketAddr) -> Node {
    let file = folder.join("broker.toml");
    let listener =
        format!("[[kafka.listeners]]\nlisten = \"127.0.0.1:0\"\nadvertised = \"{advertised}\"\n");
    whole_node::write(&file, &listener);
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = Sources {
        file: Some(file),
        flags: vec![
            flag("data", &folder.join("broker").display().to_string()),
            flag("http.listen", "127.0.0.1:0"),
            flag("kafka.listen", "off"),
            flag("amqp.listen", "off"),
        ],
        ..Sources::default()
    };
    let config = sources.load().unwrap().config;
    Node::start(config, Arc::new(RealClock::new()))
        .await
        .unwrap()
}

async fn accept(listener: TcpListener, broker: SocketAddr, refused: Refused) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(relay(client, broker, refused.clone()));
    }
}

/// Passes offered requests on, and answers ApiVersions itself. Ends the connection at anything else.
async fn relay(client: TcpStream, broker: SocketAddr, refused: Refused) -> Option<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_broker, mut to_broker) = TcpStream::connect(broker).await.ok()?.into_split();
    loop {
        let request = read_frame(&mut from_client).await?;
        let number = |at: usize| i16::from_be_bytes([request[at], request[at + 1]]);
        let (key, version) = (number(0), number(2));
        let is_offered = OFFERED
            .iter()
            .any(|(of, min, max)| *of == key && (*min..=*max).contains(&version));
        if key == API_VERSIONS {
            write_frame(&mut to_client, &versions(&request[4..8], version)).await?;
            continue;
        }
        if !is_offered {
            refused.lock().unwrap().push((key, version));
            return None;
        }
        write_frame(&mut to_broker, &request).await?;
        let response = read_frame(&mut from_broker).await?;
        write_frame(&mut to_client, &response).await?;
    }
}

fn versions(correlation: &[u8], version: i16) -> Vec<u8> {
    let error = if version == 0 { 0 } else { UNSUPPORTED_VERSION };
    let mut response = correlation.to_vec();
    response.extend(i16::to_be_bytes(error));
    response.extend((OFFERED.len() as i32).to_be_bytes());
    for (key, min, max) in OFFERED {
        for number in [key, min, max] {
            response.extend(number.to_be_bytes());
        }
    }
    response
}

async fn read_frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let length = from.read_u32().await.ok()?;
    let mut frame = vec![0; length as usize];
    from.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn write_frame(to: &mut (impl AsyncWriteExt + Unpin), frame: &[u8]) -> Option<()> {
    to.write_all(&(frame.len() as u32).to_be_bytes())
        .await
        .ok()?;
    to.write_all(frame).await.ok()
}

fn bodies(seen: &[Request]) -> Vec<&str> {
    seen.iter().map(|request| request.body.as_str()).collect()
}

/// Hubs, groups and processors work; circuits and dead letters are on the disk of the node, and outlive a restart.
#[tokio::test(flavor = "multi_thread")]
async fn hubs_and_processors_work_over_event_hubs() {
    let cluster = EventHubs::start().await;
    let receiver = Receiver::start(|request| match request.body.as_str() {
        "13" => Some("400 Bad Request"),
        _ => OK,
    })
    .await;
    let settings = format!(
        "[hubs.orders]\npartitions = 2\n[processors.billing]\nhub = \"orders\"\nhandler = {{ url = \"{}\" }}\n\
         checkpoint = {{ events = 1 }}\n",
        receiver.url()
    );
    let node = cluster.node(&settings).await;
    let at = node.http_address().unwrap();
    for n in [1, 13, 2] {
        call(
            at,
            "POST /hubs/orders/partitions/1/messages",
            &n.to_string(),
        )
        .await;
    }
    receiver.until(|seen| bodies(seen).contains(&"2")).await;
    let read = call(
        at,
        "GET /hubs/orders/partitions/1/messages?from=earliest",
        "",
    )
    .await;
    assert_eq!(read["messages"].as_array().unwrap().len(), 3, "{read}");
    let letters = until_dead(at).await;
    assert_eq!(letters["letters"].as_array().unwrap().len(), 1, "{letters}");
    call(at, "POST /api/circuits/billing/open", "{\"why\":\"x\"}").await;
    check_refusals(at).await;
    node.stop().await;

    let node = cluster.node(&settings).await;
    let at = node.http_address().unwrap();
    let circuit = call(at, "GET /api/circuits/billing", "").await;
    assert_eq!(circuit["state"], "open", "it is on the disk of the node");
    assert_eq!(until_dead(at).await["letters"].as_array().unwrap().len(), 1);
    call(at, "POST /hubs/orders/partitions/0/messages", "3").await;
    call(at, "POST /api/circuits/billing/close", "").await;
    let seen = receiver.until(|seen| bodies(seen).contains(&"3")).await;
    let mut all = bodies(&seen);
    all.sort_unstable();
    assert_eq!(all, ["1", "13", "2", "3"], "none twice, none lost");
    node.stop().await;
    let refused = cluster.refused.lock().unwrap().clone();
    assert_eq!(
        refused,
        [],
        "the node sent requests that Event Hubs does not offer"
    );
}

/// A job over hubs writes every row at least once, with the number of the row. Its checkpoints are in the data folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_over_hubs_works_over_event_hubs() {
    let cluster = EventHubs::start().await;
    // The topics of this broker have the times of producers, so a partition without events would hold back the others.
    let hubs = "arrival = \"create-time\"\n[hubs.in]\npartitions = 1\n[hubs.out]\npartitions = 1\n";
    let job = "start = \"beginning\"\nsql = \"SELECT n * 2 AS n INTO out FROM e\"\n[checkpoint]\nevery = \"100ms\"\n\
               [inputs.e]\nhub = \"in\"\n[outputs.out]\ntype = \"hub\"\nhub = \"out\"\n";
    for round in 0..3_i64 {
        let node = cluster.node(hubs).await;
        let near = Client::of(&node);
        if round == 0 {
            let definition = json!({"files": {"job.toml": job}}).to_string();
            call(near.0, "PUT /api/jobs/double", &definition).await;
        }
        let events: Vec<Value> = (0..5).map(|n| json!({"n": round * 5 + n})).collect();
        near.send("in", &events).await;
        let count = (round as usize + 1) * 5;
        let rows = near.rows("out", count).await;
        let found: BTreeSet<i64> = rows.iter().map(|row| row["n"].as_i64().unwrap()).collect();
        assert_eq!(found, (0..count as i64).map(|n| n * 2).collect());
        node.stop().await;
    }
    let refused = cluster.refused.lock().unwrap().clone();
    assert_eq!(
        refused,
        [],
        "the node sent requests that Event Hubs does not offer"
    );
}

/// What has an owner needs transactions, and is refused with a reason, not tried.
async fn check_refusals(at: SocketAddr) {
    let created = http::node::call(at, "POST /api/queues", &[], "{\"name\":\"jobs\"}").await;
    assert!(created.status >= 400, "{}", created.body);
    assert!(created.body.contains("transactions"), "{}", created.body);
    let changed =
        http::node::call(at, "PATCH /api/hubs/orders", &[], "{\"retention\":\"1h\"}").await;
    assert_eq!(changed.status, 400, "{}", changed.body);
    let view = call(at, "GET /api/cluster", "").await;
    let kinds: Vec<&Value> = view["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["kind"])
        .collect();
    assert_eq!(kinds, [&json!("processor")], "{view}");
}

async fn until_dead(at: SocketAddr) -> Value {
    loop {
        let letters = call(at, "GET /api/dead-letters/billing", "").await;
        if letters["letters"]
            .as_array()
            .is_some_and(|letters| !letters.is_empty())
        {
            return letters;
        }
        tokio::task::yield_now().await;
    }
}
