//! Every form an event can be sent in.

use highwater_log::partition_for_key;
use serde_json::{Value, json};

use crate::http::node::{node, request};

// proves L6
#[tokio::test]
async fn one_event_is_answered_with_its_place() {
    let node = node().await;
    let answer = node
        .post(
            "/hubs/h/partitions/2/messages",
            "application/json",
            r#"{"a": 1.0}"#,
        )
        .await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        answer.body,
        r#"{"partition":2,"offset":0,"enqueued":"2026-01-01T00:00:00.123Z"}"#
    );
    let page = node.get("/hubs/h/partitions/2/messages").await;
    let expected = concat!(
        r#"{"messages":[{"partition":2,"offset":0,"enqueued":"2026-01-01T00:00:00.123Z","#,
        r#""headers":{"content-type":"application/json"},"value":{"a": 1.0}}],"#,
        r#""next":1,"start":0,"end":1,"last":"2026-01-01T00:00:00.123Z"}"#
    );
    assert_eq!(page.body, expected);
}

// proves K4
#[tokio::test]
async fn a_compacted_hub_takes_no_event_without_a_key() {
    let node = node().await;
    let body = r#"{"name":"latest","partitions":2,"cleanup":"compact"}"#;
    let made = node.post("/api/hubs", "application/json", body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let json = "application/json";
    for path in [
        "/hubs/latest/messages",
        "/hubs/latest/partitions/1/messages",
    ] {
        for body in ["1", "[1,2]"] {
            let refused = node.post(path, json, body).await;
            assert_eq!(refused.status, 400, "{path} {body}");
            assert!(refused.body.contains("bad_event"), "{}", refused.body);
            assert!(refused.body.contains("without a key"), "{}", refused.body);
        }
    }
    let stored = node.post("/hubs/latest/messages?key=k", json, "1").await;
    assert_eq!(stored.status, 201, "{}", stored.body);
}

#[tokio::test]
async fn what_is_not_json_comes_back_as_base64() {
    let node = node().await;
    node.call("POST /hubs/h/partitions/0/messages", &[], b"\xff\x00")
        .await;
    node.post(
        "/hubs/h/partitions/0/messages",
        "application/x-www-form-urlencoded",
        "hi there",
    )
    .await;
    assert_eq!(
        node.messages(0).await,
        [
            json!({"partition": 0, "offset": 0, "enqueued": "2026-01-01T00:00:00.123Z", "value_base64": "/wA="}),
            json!({"partition": 0, "offset": 1, "enqueued": "2026-01-01T00:00:00.123Z", "value_base64": "aGkgdGhlcmU="}),
        ]
    );
}

#[tokio::test]
async fn lines_and_arrays_are_many_events() {
    let node = node().await;
    let path = "/hubs/h/partitions/1/messages";
    let lines = node
        .post(path, "application/x-ndjson", "{\"n\":1}\n\n{\"n\":2}\r\n")
        .await;
    let placed = json!({"partition": 1, "offset": 0, "enqueued": "2026-01-01T00:00:00.123Z"});
    assert_eq!(lines.json(), json!({"count": 2, "placed": [placed]}));
    let array = node
        .post(path, "application/json; charset=utf-8", " [{\"n\":3}, 4]")
        .await;
    assert_eq!(array.json()["placed"][0]["offset"], 2);
    let values: Vec<Value> = node
        .messages(1)
        .await
        .iter()
        .map(|m| m["value"].clone())
        .collect();
    assert_eq!(
        values,
        [json!({"n": 1}), json!({"n": 2}), json!({"n": 3}), json!(4)]
    );

    node.post(path, "application/x-ndjson", "1\n{\n")
        .await
        .is(400, "bad_event");
    node.post(path, "application/json", "[1,")
        .await
        .is(400, "bad_event");
    node.post(path, "application/x-ndjson", "\n\n")
        .await
        .is(400, "bad_event");
    assert_eq!(
        node.messages(1).await.len(),
        4,
        "nothing of a bad body is stored"
    );
}

// proves L1
#[tokio::test]
async fn a_key_goes_where_kafka_clients_send_it() {
    let node = node().await;
    for key in ["a", "b", "c", "d", "e"] {
        let header = format!("x-partition-key: {key}");
        let answer = node
            .call("POST /hubs/h/messages", &[&header], "1")
            .await
            .json();
        let expected = partition_for_key(key.as_bytes(), 4);
        assert_eq!(answer["partition"], expected);
        let query = node
            .post(&format!("/hubs/h/messages?key={key}"), "text/plain", "1")
            .await;
        assert_eq!(query.json()["partition"], expected);
    }
    let keys: Vec<Value> = node.all().await.iter().map(|m| m["key"].clone()).collect();
    assert_eq!(keys.len(), 10);
    assert!(keys.iter().all(Value::is_string));
}

#[tokio::test]
async fn a_chosen_partition_keeps_the_key() {
    let node = node().await;
    let path = "/hubs/h/partitions/3/messages?key=a";
    for (content_type, body) in [("text/plain", "1"), ("application/x-ndjson", "2\n3\n")] {
        let answer = node.post(path, content_type, body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    let messages = node.messages(3).await;
    assert_eq!(messages.len(), 3);
    assert!(messages.iter().all(|message| message["key"] == "a"));
}

// proves L1
#[tokio::test]
async fn events_without_a_key_are_spread() {
    let node = node().await;
    for _ in 0..8 {
        node.clock.advance(std::time::Duration::from_millis(1));
        node.post("/hubs/h/messages", "text/plain", "x").await;
    }
    for partition in 0..4 {
        assert_eq!(node.messages(partition).await.len(), 2);
    }
}

#[tokio::test]
async fn cloud_events_keep_their_attributes() {
    let node = node().await;
    let headers = [
        "ce-specversion: 1.0",
        "ce-id: 7",
        "ce-source: /pumps",
        "ce-type: pressure",
        "ce-subject: pump%201",
        "content-type: application/json",
    ];
    let binary = node
        .call("POST /hubs/h/messages", &headers, "{\"p\":1}")
        .await;
    assert_eq!(binary.status, 201, "{}", binary.body);
    let event = json!({
        "specversion": "1.0", "id": "8", "source": "/pumps", "type": "pressure",
        "subject": "pump 1", "data": {"p": 2},
    });
    node.post(
        "/hubs/h/messages",
        "application/cloudevents+json",
        &event.to_string(),
    )
    .await;
    let batch = node
        .post(
            "/hubs/h/messages",
            "application/cloudevents-batch+json",
            &json!([event, event]).to_string(),
        )
        .await;
    assert_eq!(batch.json()["count"], 2);

    let home = partition_for_key(b"pump 1", 4);
    let messages = node.messages(home).await;
    let values: Vec<&Value> = messages.iter().map(|m| &m["value"]["p"]).collect();
    assert_eq!(values, [1, 2, 2, 2]);
    assert_eq!(messages[0]["key"], "pump 1");
    let attributes = json!({
        "content-type": "application/json", "ce_specversion": "1.0", "ce_id": "7",
        "ce_source": "/pumps", "ce_type": "pressure", "ce_subject": "pump 1",
    });
    assert_eq!(messages[0]["headers"], attributes);
    node.call("POST /hubs/h/messages", &["ce-specversion: 1.0"], "1")
        .await
        .is(400, "bad_event");
}

// proves L6
#[tokio::test]
async fn event_hubs_clients_are_understood() {
    let node = node().await;
    let key = partition_for_key(b"k", 4);
    let headers = [
        "brokerproperties: {\"PartitionKey\":\"k\"}",
        "priority: high",
        "user-agent: x",
    ];
    let answer = node
        .call(
            "POST /h/messages?timeout=60&api-version=2014-01",
            &headers,
            "hello",
        )
        .await;
    assert_eq!((answer.status, answer.body.as_str()), (201, ""));
    let batch = json!([
        {"Body": "a", "UserProperties": {"n": 1}, "BrokerProperties": {"PartitionKey": "k"}},
        {"Body": {"b": 1}, "BrokerProperties": {"PartitionKey": "k"}},
    ]);
    let kind = "application/vnd.microsoft.servicebus.json";
    let answer = node.post("/h/messages", kind, &batch.to_string()).await;
    assert_eq!((answer.status, answer.body.as_str()), (201, ""));
    node.post("/h/publishers/k/messages", "text/plain", "p")
        .await;
    let messages = node.messages(key).await;
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[0]["headers"], json!({"priority": "high"}));
    assert_eq!(messages[1]["headers"], json!({"n": "1"}));
    assert_eq!(messages[2]["value"], json!({"b": 1}));
    assert!(messages.iter().all(|message| message["key"] == "k"));

    assert_eq!(
        node.post("/h/partitions/3/messages", "text/plain", "x")
            .await
            .status,
        201
    );
    node.post("/h/partitions/4/messages", "text/plain", "x")
        .await
        .is(404, "not_found");
    node.post("/h/partitions/x/messages", "text/plain", "x")
        .await
        .is(400, "bad_request");
    node.call("POST /h/messages", &["brokerproperties: {"], "x")
        .await
        .is(400, "bad_request");
}

#[tokio::test]
async fn events_of_several_keys_say_where_each_went() {
    let node = node().await;
    let event = |key: &str| json!({"specversion": "1.0", "id": "1", "source": "s", "type": "t", "partitionkey": key});
    let keys = ["a", "b", "a", "c"];
    let body = Value::from(keys.map(event).to_vec()).to_string();
    let answer = node
        .post(
            "/hubs/h/messages",
            "application/cloudevents-batch+json",
            &body,
        )
        .await
        .json();
    let mut partitions: Vec<(u64, u64)> = Vec::new();
    for part in answer["placed"].as_array().unwrap() {
        let events = part["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|at| at.as_u64().unwrap());
        partitions.extend(events.map(|at| (at, part["partition"].as_u64().unwrap())));
    }
    partitions.sort_unstable();
    let expected: Vec<(u64, u64)> = (0..4)
        .zip(keys.map(|key| partition_for_key(key.as_bytes(), 4).into()))
        .collect();
    assert_eq!(partitions, expected);
}

#[tokio::test]
async fn a_hub_is_made_by_its_first_event_unless_it_is_the_nodes_own() {
    let node = node().await;
    assert_eq!(
        node.post("/hubs/fresh/messages", "text/plain", "x")
            .await
            .status,
        201
    );
    assert_eq!(node.log.hub("fresh").unwrap().partitions, 2);
    node.post("/hubs/__offsets/messages", "text/plain", "x")
        .await
        .is(403, "forbidden");
    node.post("/hubs/a%20b/messages", "text/plain", "x")
        .await
        .is(400, "bad_request");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let node = node().await;
    let mut wire = node.connect().await;
    let one = |n: usize| {
        request(
            "POST /hubs/h/partitions/0/messages",
            &[],
            n.to_string().as_bytes(),
        )
    };
    wire.send(&(0..20).flat_map(one).collect::<Vec<u8>>()).await;
    for n in 0..20 {
        assert_eq!(wire.answer().await.json()["offset"], n);
    }
}

#[tokio::test]
async fn a_chunked_body_is_put_together() {
    let node = node().await;
    let headers = ["transfer-encoding: chunked"];
    let body = "3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
    let answer = node
        .call("POST /hubs/h/partitions/0/messages", &headers, body)
        .await;
    assert_eq!(answer.status, 201);
    assert_eq!(node.messages(0).await[0]["value"], json!({"a": 1}));
}
