//! A node refuses requests that are too large, too many or too slow, so that it stays up.

use std::sync::Arc;
use std::time::Duration;

use highwater_access::{Key, KeyScope, Rights};
use highwater_log::batch::{BatchBuilder, BatchOptions, Codec, NewRecord};
use highwater_log::{HubName, HubSettings, HubSpec};
use highwater_server::http::Options;

use crate::http::faulty::faulty;
use crate::http::node::{Node, memory, node, node_with, options, request, start};

#[tokio::test]
async fn a_body_or_event_that_is_too_large_is_refused() {
    let small = Options {
        body_bytes_max: 100,
        event_bytes_max: 10,
        ..options()
    };
    let node = node_with(small).await;
    node.post("/hubs/h/messages", "text/plain", &"x".repeat(101))
        .await
        .is(413, "too_large");
    node.post("/hubs/h/messages", "text/plain", &"x".repeat(11))
        .await
        .is(413, "too_large");
    let chunk = format!("60\r\n{}\r\n", "x".repeat(0x60));
    let chunked = node
        .call(
            "POST /hubs/h/messages",
            &["transfer-encoding: chunked"],
            chunk.repeat(2),
        )
        .await;
    chunked.is(413, "too_large");
    let lines = format!("1\n\"{}\"\n", "x".repeat(10));
    node.post("/hubs/h/messages", "application/x-ndjson", &lines)
        .await
        .is(413, "too_large");
    assert!(node.all().await.is_empty());
}

#[tokio::test]
async fn more_than_a_hub_takes_in_a_batch_is_refused() {
    let node = node_with(Options {
        body_bytes_max: 4 << 20,
        event_bytes_max: 4 << 20,
        ..options()
    })
    .await;
    let answer = node
        .post("/hubs/h/messages", "text/plain", &"x".repeat(2 << 20))
        .await;
    answer.is(413, "too_large");
}

#[tokio::test]
async fn too_many_headers_are_refused() {
    let node = node_with(Options {
        headers_max: 8,
        ..options()
    })
    .await;
    let mut wire = node.connect().await;
    let headers: Vec<String> = (0..20).map(|n| format!("x-{n}: 1")).collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    wire.send(&request("GET /healthz", &headers, b"")).await;
    assert!(wire.head().await.unwrap().starts_with("HTTP/1.1 431"));
}

// proves L4
#[tokio::test]
async fn a_full_node_says_so_instead_of_dropping() {
    let node = node_with(Options {
        in_flight_bytes_max: 100,
        ..options()
    })
    .await;
    let mut slow = node.connect().await;
    let whole = request("POST /hubs/h/messages", &[], &[b'x'; 80]);
    let (first, rest) = whole.split_at(whole.len() - 1);
    slow.send(first).await;
    // The slow one holds 80 of 100 bytes once its head has been read.
    let refused = loop {
        let answer = node
            .post("/hubs/h/messages", "text/plain", &"x".repeat(30))
            .await;
        if answer.status != 201 {
            break answer;
        }
    };
    refused.is(429, "full");
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    slow.send(rest).await;
    assert_eq!(slow.answer().await.status, 201);
    assert_eq!(
        node.post("/hubs/h/messages", "text/plain", "x")
            .await
            .status,
        201
    );
}

/// A request whose body is not complete, and which holds its length of the budget.
async fn slow_request(node: &Node, body_bytes: usize) -> crate::http::node::Wire {
    let mut slow = node.connect().await;
    let whole = request("POST /hubs/h/messages", &[], &vec![b'x'; body_bytes]);
    slow.send(&whole[..whole.len() - 1]).await;
    slow
}

// proves G2
#[tokio::test]
async fn descriptions_and_pages_are_charged_before_they_are_built() {
    let node = node_with(Options {
        in_flight_bytes_max: 600 << 10,
        body_bytes_max: 600 << 10,
        event_bytes_max: 600 << 10,
        ..options()
    })
    .await;
    for path in ["/api/hubs/h", "/console/hubs/h"] {
        assert_eq!(node.get(path).await.status, 200, "{path}");
    }
    // The answers are small, but their size is unknown before they are built.
    let mut half = slow_request(&node, 300 << 10).await;
    while node.get("/console/hubs/h").await.status == 200 {}
    node.get("/console/hubs/h").await.is(429, "full");
    assert_eq!(node.get("/api/hubs/h").await.status, 200);
    let mut rest = slow_request(&node, 250 << 10).await;
    while node.get("/api/hubs/h").await.status == 200 {}
    node.get("/api/hubs/h").await.is(429, "full");
    assert_eq!(node.get("/healthz").await.status, 200);
    for slow in [&mut half, &mut rest] {
        slow.send(b"x").await;
        assert_eq!(slow.answer().await.status, 201);
    }
    for path in ["/api/hubs/h", "/console/hubs/h"] {
        assert_eq!(node.get(path).await.status, 200, "{path}");
    }
}

// proves G2
#[tokio::test]
async fn a_list_is_charged_row_by_row() {
    let node = node_with(Options {
        in_flight_bytes_max: 200 << 10,
        ..options()
    })
    .await;
    let create = |from: usize, to: usize| {
        let log = node.log.clone();
        async move {
            for number in from..to {
                let spec = HubSpec {
                    name: HubName::new(&format!("{}{number}", "n".repeat(100))).unwrap(),
                    partitions: 1,
                    settings: HubSettings::default(),
                };
                log.create(spec).await.unwrap();
            }
        }
    };
    create(0, 100).await;
    let listed = node.get("/api/hubs").await;
    assert_eq!(listed.json()["hubs"].as_array().unwrap().len(), 101);
    create(100, 1000).await;
    node.get("/api/hubs").await.is(429, "full");
    assert_eq!(node.get("/api/hubs/h").await.status, 200, "nothing is kept");
}

/// Ten megabytes in a partition: more than the buffers of a socket take.
async fn node_with_big_events(options: Options) -> Node {
    let node = node_with(options).await;
    let event = format!("\"{}\"", "x".repeat(900 << 10));
    for _ in 0..12 {
        let path = "/hubs/h/partitions/0/messages";
        let stored = node.post(path, "application/json", &event).await;
        assert_eq!(stored.status, 201, "{}", stored.body);
    }
    node
}

const BIG_READ: &str = "GET /hubs/h/partitions/0/messages";

// proves G2
#[tokio::test]
async fn an_answer_counts_until_it_is_read_and_a_client_that_never_reads_is_cut_off() {
    let node = node_with_big_events(Options {
        read_bytes_max: 12 << 20,
        in_flight_bytes_max: 24 << 20,
        write_timeout: Duration::from_millis(500),
        ..options()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut wire = node.connect().await;
        wire.send(&request(BIG_READ, &[], b"")).await;
        assert!(wire.head().await.unwrap().starts_with("HTTP/1.1 200"));
        idle.push(wire);
    }
    node.get("/hubs/h/partitions/0/messages")
        .await
        .is(429, "full");
    // The time-out gives their parts back.
    loop {
        let answer = node.get("/hubs/h/partitions/0/messages").await;
        if answer.status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// proves G2
#[tokio::test]
async fn unread_answers_of_pipelined_requests_are_bounded() {
    let node = node_with_big_events(Options {
        read_bytes_max: 12 << 20,
        in_flight_bytes_max: 30 << 20,
        ..options()
    })
    .await;
    let mut wire = node.connect().await;
    for _ in 0..20 {
        wire.send(&request(BIG_READ, &[], b"")).await;
    }
    assert!(wire.head().await.unwrap().starts_with("HTTP/1.1 200"));
    // The other nineteen hold nothing, so that there is room for one answer more.
    for _ in 0..3 {
        let answer = node.get("/hubs/h/partitions/0/messages").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// A batch of one event in a partition of hub `h`.
async fn append_compressed(node: &Node, partition: u32, value: &str) {
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
    });
    let options = BatchOptions {
        codec: Codec::Gzip,
        ..BatchOptions::default()
    };
    let batch = builder.build(&options).unwrap();
    let partition = node.log.partition("h", partition).unwrap();
    partition.append(batch).await.unwrap();
}

// proves G2
#[tokio::test]
async fn a_batch_is_charged_before_it_is_unpacked_for_a_reader() {
    let node = node_with(Options {
        unpack_bytes_max: 1 << 20,
        ..options()
    })
    .await;
    append_compressed(&node, 0, "small").await;
    append_compressed(&node, 0, &"x".repeat(4 << 20)).await;
    let first = node.get("/hubs/h/partitions/0/messages").await;
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(first.json()["next"], 1);
    let refused = node.get("/hubs/h/partitions/0/messages?from=1").await;
    refused.is(429, "full");
    assert!(refused.head.contains("retry-after"), "{}", refused.head);
    append_compressed(&node, 1, "small").await;
    let other = node.get("/hubs/h/partitions/1/messages").await;
    assert_eq!(other.status, 200, "{}", other.body);
}

// proves G2
#[tokio::test]
async fn some_connections_are_kept_for_clients_with_a_key() {
    let keys = vec![Key::new("app", "s3cret", Rights::ALL, KeyScope::UNLIMITED)];
    let limited = Options {
        connections_max: 4,
        connections_reserved: 2,
        ..options()
    };
    let node = start(limited, keys, Arc::new(memory())).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut wire = node.connect().await;
        wire.send(&request("GET /healthz", &[], b"")).await;
        assert_eq!(wire.answer().await.status, 200);
        idle.push(wire);
    }
    for _ in 0..3 {
        let stranger = node.get("/healthz").await;
        stranger.is(503, "full");
        assert!(stranger.head.contains("connection: close"));
    }
    let wrong = ["authorization: Bearer app:wrong"];
    let wrong = node.call("GET /healthz", &wrong, "").await;
    wrong.is(401, "unauthorized");
    assert!(wrong.head.contains("connection: close"));
    let key = ["authorization: Bearer app:s3cret"];
    let known = node.call("GET /api/hubs", &key, "").await;
    assert_eq!(known.status, 200, "{}", known.body);
}

#[tokio::test]
async fn too_many_connections_are_told_to_come_later() {
    let node = node_with(Options {
        connections_max: 1,
        ..options()
    })
    .await;
    let mut first = node.connect().await;
    first.send(&request("GET /healthz", &[], b"")).await;
    assert_eq!(first.answer().await.status, 200);
    let mut second = node.connect().await;
    second.answer().await.is(503, "full");
    first.send(&request("GET /healthz", &[], b"")).await;
    assert_eq!(first.answer().await.status, 200);
}

// proves U3
#[tokio::test(start_paused = true)]
async fn a_head_that_dawdles_is_cut_off() {
    let node = node().await;
    let mut wire = node.connect().await;
    wire.send(b"POST /hubs/h/messages HTTP/1.1\r\nhost: localhost\r\nx-a: ")
        .await;
    assert!(wire.is_closed().await);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_dawdles_is_cut_off() {
    let node = node().await;
    let mut wire = node.connect().await;
    let whole = request("POST /hubs/h/messages", &[], b"abc");
    wire.send(&whole[..whole.len() - 1]).await;
    wire.answer().await.is(408, "timeout");
    assert!(node.all().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let node = node().await;
    let mut wire = node.connect().await;
    wire.send(&request("GET /healthz", &[], b"")).await;
    assert_eq!(wire.answer().await.status, 200);
    assert!(wire.is_closed().await);
}

// proves L4
#[tokio::test]
async fn a_partition_that_is_full_has_stopped_or_has_no_disk_left_is_told_apart() {
    let node = start(options(), Vec::new(), Arc::new(faulty(memory()))).await;
    let full = node
        .post("/hubs/h/partitions/0/messages", "text/plain", "x")
        .await;
    full.is(429, "full");
    assert!(full.head.contains("retry-after: 1"), "{}", full.head);
    let stopped = node
        .post("/hubs/h/partitions/1/messages", "text/plain", "x")
        .await;
    stopped.is(503, "stopped");
    assert!(!stopped.head.contains("retry-after"), "{}", stopped.head);
    let no_room = node
        .post("/hubs/h/partitions/2/messages", "text/plain", "x")
        .await;
    no_room.is(507, "no_room");
    let facts = no_room.json();
    assert_eq!(
        facts["message"],
        "the disk has no space for `h/2`: quota exceeded"
    );
    assert_eq!(
        node.post("/hubs/h/partitions/3/messages", "text/plain", "x")
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn a_request_that_half_failed_says_which_half() {
    let node = start(options(), Vec::new(), Arc::new(faulty(memory()))).await;
    let keys: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let events: Vec<serde_json::Value> = keys
        .iter()
        .map(|key| serde_json::json!({"specversion": "1.0", "id": "1", "source": "s", "type": "t", "partitionkey": key}))
        .collect();
    let body = serde_json::Value::from(events).to_string();
    let answer = node
        .post(
            "/hubs/h/messages",
            "application/cloudevents-batch+json",
            &body,
        )
        .await;
    answer.is(503, "stopped");
    let facts = answer.json();
    let of = |list: &str| {
        let mut parts: Vec<u64> = facts[list]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["partition"].as_u64().unwrap())
            .collect();
        parts.sort_unstable();
        parts
    };
    assert_eq!((of("placed"), of("failed")), (vec![3], vec![0, 1, 2]));
}
