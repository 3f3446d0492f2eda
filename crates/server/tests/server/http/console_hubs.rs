//! The console's pages of hubs and queues: their data, what a key may see of it, and names and events that try to be
//! HTML.

use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_access::{Key, KeyScope, Right, Rights};
use highwater_env::SimClock;
use highwater_env::random::Random;
use highwater_log::{HubName, HubSettings, HubSpec};
use highwater_queue::Queues;
use highwater_server::http::Backend;
use serde_json::{Value, json};

use crate::http::node::{Answer, NOW_SECONDS, Node, memory, node, options, start_on};

const HTML: &str = "accept: text/html";
const HOSTILE: &str = "<script>alert(1)</script>\"'<img src=x onerror=alert(2)>";

async fn page(node: &Node, path: &str) -> Answer {
    let page = node.call(&format!("GET {path}"), &[HTML], "").await;
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    assert!(!page.body.contains("<script>alert"), "{path}");
    assert!(!page.body.contains("<img"), "{path}");
    page
}

/// The texts are in the page in this order.
fn has(page: &Answer, texts: &[&str]) {
    let mut rest = &*page.body;
    for text in texts {
        let Some((_, after)) = rest.split_once(text) else {
            panic!("no `{text}` in {rest}");
        };
        rest = after;
    }
}

async fn send(node: &Node, partition: u32, event: &str) {
    let path = format!("/hubs/h/partitions/{partition}/messages");
    let sent = node.post(&path, "application/json", event).await;
    assert_eq!(sent.status, 201, "{}", sent.body);
}

// proves U2
#[tokio::test]
async fn hubs_are_listed_with_their_partitions_and_retention() {
    let node = node().await;
    send(&node, 1, "{\"n\":1}").await;
    let list = page(&node, "/console/hubs").await;
    has(&list, &["1 hub", "/console/hubs/h", ">4<", "7 d", "fine"]);
    let hub = page(&node, "/console/hubs/h").await;
    has(
        &hub,
        &[
            "4 partitions",
            "events kept",
            ">1<",
            "Events",
            "first offset",
        ],
    );
    has(&hub, &["No consumer group", "kafka-console-consumer"]);
    node.call("GET /console/hubs/none", &[], "")
        .await
        .is(404, "not_found");
}

// proves U2
#[tokio::test]
async fn events_are_found_by_offset_time_key_and_condition() {
    let node = node().await;
    for number in 0..60 {
        send(&node, 2, &format!("{{\"n\":{number},\"kind\":\"a+b\"}}")).await;
    }
    let latest = page(&node, "/console/hubs/h").await;
    has(
        &latest,
        &["partition 2, newest first", ">59<", ">58<", ">35<"],
    );
    assert!(!latest.body.contains("<span class=\"mono\">34</span>"));
    has(
        &latest,
        &[
            "Looked at 25 events, offsets 35 to 59.",
            "partition=2&amp;before=35",
        ],
    );
    let middle = page(&node, "/console/hubs/h?partition=2&from=10").await;
    has(&middle, &[">10<", ">11<", ">34<", "before=10", "from=35"]);
    let before = page(&node, "/console/hubs/h?partition=2&before=10").await;
    has(&before, &[">9<", ">0<", "from=10"]);
    let time = page(
        &node,
        "/console/hubs/h?partition=2&from=2025-01-01T00%3A00%3A00Z",
    )
    .await;
    has(&time, &[">0<", ">1<"]);
    // A form writes a space as a plus, and a plus as %2B.
    let condition = "n+%3E+55+AND+kind+%3D+%27a%2Bb%27";
    let some = page(
        &node,
        &format!("/console/hubs/h?partition=2&where={condition}"),
    )
    .await;
    has(
        &some,
        &[
            "n &gt; 55 AND kind = 'a+b'",
            ">59<",
            ">56<",
            "Looked at 60 events",
        ],
    );
    assert!(!some.body.contains("<span class=\"mono\">55</span>"));
    let none = page(&node, "/console/hubs/h?partition=2&where=n+%3E+99").await;
    has(
        &none,
        &[
            "No event that was looked at matches.",
            "Looked at 60 events",
        ],
    );

    let keyed = node.post(
        "/hubs/h/messages?key=car%207",
        "application/json",
        "{\"k\":1}",
    );
    let partition = keyed.await.json()["partition"].as_u64().unwrap();
    let found = page(&node, "/console/hubs/h?key=car+7").await;
    has(
        &found,
        &[&format!("partition {partition}, newest first"), "car 7"],
    );
}

// proves U2
#[tokio::test]
async fn a_search_looks_at_ten_thousand_offsets_and_says_how_far() {
    let node = node().await;
    for block in 0..6 {
        let numbers = block * 2000..(block + 1) * 2000;
        let lines: String = numbers.map(|n| format!("{{\"n\":{n}}}\n")).collect();
        let path = "/hubs/h/partitions/0/messages";
        let sent = node.post(path, "application/x-ndjson", &lines).await;
        assert_eq!(sent.status, 201, "{}", sent.body);
    }
    let find = async |query: &str| {
        let path = format!("/console/hubs/h?partition=0&{query}");
        page(&node, &path).await
    };
    let newest = find("where=n+%3E%3D+0").await;
    has(
        &newest,
        &[">11999<", ">11975<", "Looked at 64 events", "before=11975"],
    );
    let some = find("where=n+%3D+7").await;
    has(&some, &["No event that was looked at matches."]);
    has(
        &some,
        &[
            "Looked at 10,000 events, offsets 2,000 to 11,999.",
            "before=2000",
        ],
    );
    let earlier = find("before=2000&where=n+%3D+7").await;
    has(
        &earlier,
        &[">7<", "Looked at 2,000 events, offsets 0 to 1,999."],
    );
    let onwards = find("from=0&where=n+%3E%3D+100").await;
    has(
        &onwards,
        &[
            ">100<",
            ">124<",
            "Looked at 125 events, offsets 0 to 124.",
            "from=125",
        ],
    );
    let far = find("from=earliest&where=n+%3D+11999").await;
    has(
        &far,
        &["Looked at 10,000 events, offsets 0 to 9,999.", "from=10000"],
    );
}

#[tokio::test]
async fn a_wrong_field_has_its_error_beside_it_and_the_page_stays() {
    let node = node().await;
    for (query, text) in [
        ("where=n+%3E", "HW1002"),
        (
            "where=LAG(n)+OVER+(LIMIT+DURATION(second,+1))+%3D+1",
            "not a condition",
        ),
        (
            "from=yesterday",
            "`yesterday` is no position in a partition (bad_request)",
        ),
        ("partition=9", "(not_found)"),
        ("partition=x", "partitions are numbered from 0"),
    ] {
        let shown = page(&node, &format!("/console/hubs/h?{query}")).await;
        has(&shown, &["field-error mono", text, "Partitions"]);
    }
    let long = format!("/console/hubs/h?where={}", "a".repeat(5000));
    has(&page(&node, &long).await, &["at most 4096 bytes"]);
}

// proves U3
#[tokio::test]
async fn names_keys_headers_and_values_are_escaped() {
    let node = node().await;
    let key = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let body = json!({ "a": HOSTILE, HOSTILE: 1 }).to_string();
    let path = format!("POST /hubs/h/partitions/0/messages?key={key}");
    let hostile = "content-type: text/<script>alert(1)</script>";
    node.call(&path, &[hostile], &body).await;
    node.call(
        &path,
        &["content-type: text/csv"],
        format!("{HOSTILE}\n{HOSTILE}\n"),
    )
    .await;
    node.call(&path, &[hostile], HOSTILE).await;
    let shown = page(&node, "/console/hubs/h?partition=0").await;
    has(&shown, &["&lt;script&gt;", "alert(1)"]);
    let query = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for field in ["partition", "from", "key", "where", "before", "partitions"] {
        page(&node, &format!("/console/hubs/h?{field}={query}")).await;
    }
    for field in ["from", "dead", "session", "page"] {
        let path = format!("GET /console/queues?{field}={query}");
        assert_eq!(node.call(&path, &[HTML], "").await.status, 200);
    }
    let missing = node.call("GET /console/hubs/%3Cscript%3Ealert(1)", &[HTML], "");
    assert!(!missing.await.body.contains("<script>alert"));
}

async fn queues_node(keys: Vec<Key>) -> Node {
    let log = Arc::new(memory());
    let nanos = i128::from(NOW_SECONDS) * 1_000_000_000;
    let clock = Arc::new(SimClock::at_unix_nanos(nanos));
    let limits = highwater_queue::Options::default();
    let (queues, _) = Queues::open(log.clone(), clock.clone(), Random::seeded(1), limits).await;
    let backend = Backend {
        queues: Some(queues),
        ..Backend::new(log)
    };
    start_on(options(), keys, backend).await
}

async fn post(node: &Node, path: &str, body: Value) -> Answer {
    let answer = node.post(path, "application/json", &body.to_string()).await;
    assert!(answer.status < 300, "{path}: {}", answer.body);
    answer
}

/// Sends a message and makes it a dead letter.
async fn set_aside(node: &Node, queue: &str, reason: &str) {
    post(
        node,
        &format!("/queues/{queue}/messages"),
        json!({"reason": reason}),
    )
    .await;
    let got = post(node, &format!("/queues/{queue}/receive"), json!({}))
        .await
        .json();
    let token = &got["messages"][0]["token"];
    let body = json!({"tokens": [token], "reason": reason, "description": HOSTILE});
    post(node, &format!("/queues/{queue}/dead-letter"), body).await;
}

// proves U2
#[tokio::test]
async fn a_queue_shows_its_messages_dead_letters_and_scheduled_ones() {
    let node = queues_node(Vec::new()).await;
    let empty = page(&node, "/console/queues").await;
    has(
        &empty,
        &["No queue exists yet", "highwater queue create orders"],
    );
    post(&node, "/api/queues", json!({"name": "orders"})).await;
    for reason in ["refused", "refused", HOSTILE] {
        set_aside(&node, "orders", reason).await;
    }
    post(&node, "/queues/orders/messages", json!({"order": 7})).await;
    let later = json!([{"body": {"due": "later"}, "schedule_at": "2027-01-01T00:00:00Z"}]);
    post(&node, "/queues/orders/batch", later).await;
    node.clock.advance(Duration::from_secs(90));

    let list = page(&node, "/console/queues").await;
    has(
        &list,
        &[
            "/console/queues/orders",
            ">1<",
            ">0<",
            ">1<",
            ">0<",
            ">3<",
            "1 min 30 s",
        ],
    );
    let shown = page(&node, "/console/queues/orders").await;
    has(
        &shown,
        &[
            "3 dead letters",
            "Messages",
            "{&quot;order&quot;:7}",
            "Settings",
            "Dead letters",
        ],
    );
    has(
        &shown,
        &[
            "2 × refused",
            "Return 3 dead letters to orders?",
            "All back to the queue",
        ],
    );
    has(
        &shown,
        &["Scheduled", "due first", "&quot;later&quot;", "Cancel it"],
    );
    has(
        &page(&node, "/console/queues/orders?from=x").await,
        &["is no count"],
    );

    let dry = json!({"all": true, "dry_run": true});
    let counted = post(&node, "/queues/orders/$deadletter/resubmit", dry)
        .await
        .json();
    assert_eq!(
        (&counted["messages"], &counted["reasons"]["refused"]),
        (&json!(3), &json!(2))
    );
    let back = post(
        &node,
        "/queues/orders/$deadletter/resubmit",
        json!({"all": true}),
    )
    .await;
    assert_eq!(back.json()["settled"], 3);
    let after = node.get("/api/queues/orders").await.json();
    assert_eq!(
        (&after["dead_letters"], &after["active"]),
        (&json!(0), &json!(4))
    );
    assert_eq!(after["oldest_active"], "2026-01-01T00:00:00.000Z");
    let again = post(
        &node,
        "/queues/orders/$deadletter/resubmit",
        json!({"all": true}),
    )
    .await;
    assert_eq!(again.json()["settled"], 0);
}

// proves U2
#[tokio::test]
async fn sessions_are_listed_a_page_at_a_time() {
    let node = queues_node(Vec::new()).await;
    post(
        &node,
        "/api/queues",
        json!({"name": "orders", "sessions": true}),
    )
    .await;
    let message = |n: u32| json!({"body": n, "session": format!("customer {n:03}")});
    let batch: Vec<Value> = (0..120).map(message).collect();
    post(&node, "/queues/orders/batch", json!(batch)).await;
    post(
        &node,
        "/queues/orders/sessions/accept?session=customer%20001",
        json!({}),
    )
    .await;
    let first = page(&node, "/console/queues/orders").await;
    has(
        &first,
        &[
            "Sessions",
            "customer 000",
            "customer 001",
            "until ",
            "customer 049",
        ],
    );
    assert!(!first.body.contains("customer 050"));
    let next = "?session=customer%20049";
    has(&first, &[next]);
    let second = page(&node, &format!("/console/queues/orders{next}")).await;
    has(&second, &["customer 050", "customer 099"]);
    has(&first, &["from=26"]);
}

// proves U3
#[tokio::test]
async fn a_key_sees_and_changes_only_what_it_has_the_right_for() {
    let guest = Key::new(
        "guest",
        "guest-secret",
        [Right::Listen].into_iter().collect(),
        KeyScope::of_hubs("guest", ["h", "mine"]),
    );
    let root = Key::new("root", "root-secret", Rights::ALL, KeyScope::UNLIMITED);
    let node = queues_node(vec![root, guest]).await;
    let as_root = "authorization: Bearer root:root-secret";
    for (path, name) in [("hubs", "secret"), ("queues", "mine"), ("queues", "theirs")] {
        let line = format!("POST /api/{path}");
        let made = node
            .call(&line, &[as_root], json!({ "name": name }).to_string())
            .await;
        assert_eq!(made.status, 201, "{}", made.body);
    }
    let guest = "authorization: Bearer guest:guest-secret";
    let get = async |path: &str| {
        let line = format!("GET {path}");
        node.call(&line, &[guest, HTML], "").await
    };
    let hubs = get("/console/hubs").await;
    has(&hubs, &["1 hub", "/console/hubs/h"]);
    assert!(!hubs.body.contains("secret") && !hubs.body.contains("New hub"));
    let queues = get("/console/queues").await;
    has(&queues, &["1 queue", "/console/queues/mine"]);
    assert!(!queues.body.contains("theirs") && !queues.body.contains("New queue"));
    for path in ["/console/hubs/secret", "/console/queues/theirs"] {
        assert_eq!(get(path).await.status, 403, "{path}");
        let line = format!("GET /console/live?page={path}");
        node.call(&line, &[guest], "").await.is(403, "forbidden");
    }
    let hub = get("/console/hubs/h").await;
    assert!(!hub.body.contains("Send an event"));
    let queue = get("/console/queues/mine").await;
    assert_eq!(queue.status, 200);
    assert!(!queue.body.contains("Send a message") && !queue.body.contains("Purge"));
}

// proves U2
#[tokio::test]
async fn a_hub_of_a_thousand_partitions_is_shown_a_page_at_a_time() {
    let node = node().await;
    let spec = HubSpec {
        name: HubName::new("wide").unwrap(),
        partitions: 1000,
        settings: HubSettings::default(),
    };
    node.log.create(spec).await.unwrap();
    let started = Instant::now();
    let first = page(&node, "/console/hubs/wide").await;
    // Generous: the program under test is not optimised.
    assert!(started.elapsed() < Duration::from_secs(2));
    has(&first, &["1 to 50 of 1,000 partitions", "?partitions=2"]);
    assert!(first.body.len() < 100_000, "{} bytes", first.body.len());
    let last = page(&node, "/console/hubs/wide?partitions=20").await;
    has(
        &last,
        &["951 to 1,000 of 1,000 partitions", "?partitions=19"],
    );
}
