//! Service Bus over AMQP against a whole node, with a client of a few lines. `tests/azure` does the same with
//! Microsoft's SDKs.

use std::path::Path;

use bytes::BytesMut;
use highwater_access::sas;
use highwater_amqp::{Encoder, MessageReader, Section, Value};
use highwater_server::node::Node;
use serde_json::Value as Json;

use crate::amqp::{
    Answer, AttachMore, Client, DETACH, DISPOSITION, FLOW, TRANSFER, body_of, condition,
    descriptor, event, node,
};
use crate::http;

const QUEUES: &str = "[queues.Orders]\ndeliveries_max = 2\n[queues.by-session]\nsessions = true\n";

pub(crate) const ACCEPTED: u64 = 0x24;
pub(crate) const REJECTED: u64 = 0x25;
const RELEASED: u64 = 0x26;
const MODIFIED: u64 = 0x27;

async fn start(folder: &Path) -> Node {
    node(folder, QUEUES).await
}

async fn counts(node: &Node, queue: &str) -> Json {
    let path = format!("GET /api/queues/{queue}");
    let address = node.http_address().unwrap();
    http::node::call(address, &path, &[], "").await.json()
}

/// A client that has attached a sender as handle 0.
pub(crate) async fn sender(node: &Node, queue: &str) -> Client {
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let refused = client.attach(0, false, queue, AttachMore::default()).await;
    assert_eq!(refused, None);
    client
}

pub(crate) async fn send(client: &mut Client, texts: &[&str]) {
    for (id, text) in texts.iter().enumerate() {
        let outcome = client.send(0, id as u32, &event(text)).await;
        assert_eq!(descriptor(&outcome), Value::U64(ACCEPTED), "{outcome:?}");
    }
}

/// The next message: its delivery id, its tag and its bytes.
pub(crate) async fn receive(client: &mut Client) -> (u32, Vec<u8>, Vec<u8>) {
    let (_, transfer, message) = client.until(TRANSFER).await;
    let (Value::U32(id), Value::Binary(tag)) = (&transfer[1], &transfer[2]) else {
        panic!("{transfer:?}");
    };
    (*id, tag.to_vec(), message)
}

/// Settles a message, and returns the outcome that the node confirms.
pub(crate) async fn settle(
    client: &mut Client,
    id: u32,
    code: u64,
    fields: Vec<Value<'static>>,
) -> Value<'static> {
    let state = Value::Described(Box::new((Value::U64(code), Value::List(fields))));
    let fields = vec![
        Value::Bool(true),
        Value::U32(id),
        Value::Null,
        Value::Bool(false),
        state,
    ];
    client.write(DISPOSITION, fields, &[]).await;
    let (_, told, _) = client.until(DISPOSITION).await;
    assert_eq!(
        told[0],
        Value::Bool(false),
        "the node is the sender: {told:?}"
    );
    assert_eq!((&told[1], &told[3]), (&Value::U32(id), &Value::Bool(true)));
    told[4].clone()
}

pub(crate) fn annotation(message: &[u8], name: &str) -> Option<Value<'static>> {
    MessageReader::new(message).find_map(|section| match section.unwrap() {
        Section::MessageAnnotations(entries) | Section::ApplicationProperties(entries) => {
            let mut entries = entries.into_iter();
            let entry = entries.find(|(key, _)| key.as_text() == Some(name))?;
            Some(entry.1.into_owned())
        }
        _ => None,
    })
}

// proves A2
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_settled_in_every_way() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = sender(&node, "orders").await;
    send(
        &mut client,
        &["complete", "abandon", "defer", "kill", "release"],
    )
    .await;
    assert_eq!(
        client
            .attach(1, true, "Orders", AttachMore::default())
            .await,
        None
    );
    client.give_credit(1, 5).await;
    let mut ids = Vec::new();
    for expected in ["complete", "abandon", "defer", "kill", "release"] {
        let (id, tag, message) = receive(&mut client).await;
        assert_eq!(
            (tag.len(), body_of(&message)),
            (16, expected.as_bytes().to_vec())
        );
        assert!(matches!(
            annotation(&message, "x-opt-locked-until"),
            Some(Value::Timestamp(_))
        ));
        ids.push(id);
    }
    let change = Value::Map(vec![(Value::symbol("tries"), Value::I32(1))]);
    let error = Value::List(vec![
        Value::symbol("com.microsoft:dead-letter"),
        Value::Null,
        Value::Map(vec![(
            Value::symbol("DeadLetterReason"),
            Value::string("bad"),
        )]),
    ]);
    let error = Value::Described(Box::new((Value::U64(0x1d), error)));
    for (at, code, fields) in [
        (0, ACCEPTED, vec![]),
        (2, MODIFIED, vec![Value::Null, Value::Bool(true)]),
        (3, REJECTED, vec![error]),
        (4, RELEASED, vec![]),
        (1, MODIFIED, vec![Value::Null, Value::Bool(false), change]),
    ] {
        let told = settle(&mut client, ids[at], code, fields).await;
        assert_eq!(
            descriptor(&told),
            Value::U64(code),
            "the same outcome: {told:?}"
        );
        if code == REJECTED {
            assert_eq!(
                told.undescribed().as_list(),
                Some(&[][..]),
                "without an error"
            );
        }
    }
    // A message that was settled cannot be settled again.
    let told = settle(&mut client, ids[0], ACCEPTED, vec![]).await;
    let refused = &told.undescribed().as_list().unwrap()[0];
    assert_eq!(condition(refused), "com.microsoft:message-lock-lost");
    let facts = counts(&node, "Orders").await;
    let numbers = ["active", "deferred", "dead_letters", "locked"].map(|name| facts[name].as_u64());
    assert_eq!(numbers, [Some(2), Some(1), Some(1), Some(0)]);
    node.stop().await;
}

// proves A2
#[tokio::test(flavor = "multi_thread")]
async fn credit_is_drained_and_what_is_not_sent_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = sender(&node, "orders").await;
    assert_eq!(
        client
            .attach(1, true, "orders", AttachMore::default())
            .await,
        None
    );
    // In this order: while it waits for the outcome of a send, the client skips messages.
    send(&mut client, &["only"]).await;
    client.give_credit(1, 10).await;
    receive(&mut client).await;
    // The client has nine credits, and wants them back.
    let zero = Value::U32(0);
    let window = Value::U32(1000);
    let mut fields = vec![zero.clone(), window.clone(), zero, window];
    fields.extend([
        Value::U32(1),
        Value::U32(1),
        Value::U32(9),
        Value::Null,
        Value::Bool(true),
    ]);
    client.write(FLOW, fields, &[]).await;
    let (_, flow, _) = client.until(FLOW).await;
    assert_eq!(flow[5..7], [Value::U32(10), Value::U32(0)], "{flow:?}");
    assert_eq!(flow[8], Value::Bool(true));
    send(&mut client, &["later"]).await;
    let facts = counts(&node, "Orders").await;
    assert_eq!(
        (facts["active"].as_u64(), facts["locked"].as_u64()),
        (Some(1), Some(1))
    );
    node.stop().await;
}

/// The filter of a receiver of a session.
fn session_filter(session: Value<'static>) -> AttachMore {
    AttachMore {
        filter: Value::Map(vec![(
            Value::symbol("com.microsoft:session-filter"),
            session,
        )]),
        properties: vec![(Value::symbol("com.microsoft:timeout"), Value::U32(10))],
        ..AttachMore::default()
    }
}

// proves A2
#[tokio::test(flavor = "multi_thread")]
async fn a_session_belongs_to_one_link_and_goes_back_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = sender(&node, "by-session").await;
    let outcome = client.send(0, 0, &event("no session")).await;
    let error = &outcome.undescribed().as_list().unwrap()[0];
    assert_eq!(condition(error), "amqp:not-allowed");
    let mut message = BytesMut::new();
    let mut encoder = Encoder::new(&mut message);
    encoder.descriptor(Section::PROPERTIES);
    let mut fields = vec![Value::Null; 10];
    fields.push(Value::string("s1"));
    encoder.value(&Value::List(fields));
    encoder.data_section(b"first");
    let outcome = client.send(0, 1, &message).await;
    assert_eq!(descriptor(&outcome), Value::U64(ACCEPTED), "{outcome:?}");

    let plain = client
        .attach(1, true, "by-session", AttachMore::default())
        .await;
    assert_eq!(plain.as_deref(), Some("amqp:not-allowed"));
    // Any session, written as Go writes it.
    let any = Value::Described(Box::new((Value::U64(0x0013_7000_000c), Value::Null)));
    assert_eq!(
        client
            .attach(2, true, "by-session", session_filter(any))
            .await,
        None
    );
    let mut other = Client::connect(node.amqp_addresses()[0]).await;
    let named = || session_filter(Value::string("s1"));
    let taken = other.attach(0, true, "by-session", named()).await;
    assert_eq!(
        taken.as_deref(),
        Some("com.microsoft:session-cannot-be-locked")
    );
    let none = other
        .attach(1, true, "by-session", session_filter(Value::Null))
        .await;
    assert_eq!(none.as_deref(), Some("com.microsoft:timeout"));
    client.give_credit(2, 1).await;
    let (_, _, first) = receive(&mut client).await;
    assert_eq!(body_of(&first), b"first");
    client
        .write(DETACH, vec![Value::U32(2), Value::Bool(true)], &[])
        .await;
    client.until(DETACH).await;
    assert_eq!(other.attach(2, true, "by-session", named()).await, None);
    other.give_credit(2, 1).await;
    let (_, _, again) = receive(&mut other).await;
    assert_eq!(body_of(&again), b"first");
    node.stop().await;
}

/// A request to `$management` of a queue, over handles 10 and 11, and the reply.
pub(crate) async fn request(
    client: &mut Client,
    operation: &str,
    body: Value<'static>,
) -> (i64, Value<'static>) {
    let mut message = BytesMut::new();
    let mut encoder = Encoder::new(&mut message);
    encoder.descriptor(Section::PROPERTIES);
    encoder.value(&Value::List(vec![Value::U64(9)]));
    encoder.descriptor(Section::APPLICATION_PROPERTIES);
    let operation = format!("com.microsoft:{operation}");
    encoder.value(&Value::Map(vec![(
        Value::string("operation"),
        Value::string(operation),
    )]));
    encoder.descriptor(Section::VALUE);
    encoder.value(&body);
    let tag = Value::Binary(vec![1].into());
    let fields = vec![
        Value::U32(11),
        Value::U32(900),
        tag,
        Value::U32(0),
        Value::Bool(true),
    ];
    client.write(TRANSFER, fields, &message).await;
    let (_, _, reply): Answer = client.until(TRANSFER).await;
    let (mut status, mut body) = (0, Value::Null);
    for section in MessageReader::new(&reply) {
        match section.unwrap() {
            Section::ApplicationProperties(entries) => status = entries[0].1.as_i64().unwrap(),
            Section::Value(value) => body = value.into_owned(),
            _ => {}
        }
    }
    (status, body)
}

pub(crate) fn map(entries: Vec<(&'static str, Value<'static>)>) -> Value<'static> {
    let entry = |(name, value)| (Value::string(name), value);
    Value::Map(entries.into_iter().map(entry).collect())
}

// proves A2
#[tokio::test(flavor = "multi_thread")]
async fn requests_peek_schedule_renew_and_settle() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = sender(&node, "orders").await;
    for (handle, receives) in [(10, true), (11, false)] {
        let refused = client.attach(
            handle,
            receives,
            "orders/$management",
            AttachMore::default(),
        );
        assert_eq!(refused.await, None);
    }
    client.give_credit(10, 20).await;
    let peek = || {
        map(vec![
            ("from-sequence-number", Value::I64(1)),
            ("message-count", Value::I32(9)),
        ])
    };
    assert_eq!(
        request(&mut client, "peek-message", peek()).await.0,
        204,
        "it is empty"
    );
    let mut later = BytesMut::new();
    let mut encoder = Encoder::new(&mut later);
    encoder.descriptor(Section::MESSAGE_ANNOTATIONS);
    let at = Value::Timestamp(4_000_000_000_000);
    encoder.value(&Value::Map(vec![(
        Value::symbol("x-opt-scheduled-enqueue-time"),
        at,
    )]));
    encoder.data_section(b"later");
    let item = map(vec![("message", Value::Binary(later.to_vec().into()))]);
    let body = map(vec![("messages", Value::List(vec![item]))]);
    let (status, reply) = request(&mut client, "schedule-message", body).await;
    let numbers = reply.get("sequence-numbers").cloned();
    assert_eq!(
        (status, &numbers),
        (200, &Some(Value::Array(vec![Value::I64(1)])))
    );
    let (status, reply) = request(&mut client, "peek-message", peek()).await;
    let Some(Value::List(messages)) = reply.get("messages") else {
        panic!("{status} {reply:?}");
    };
    assert_eq!(messages.len(), 1);
    let cancel = || map(vec![("sequence-numbers", numbers.clone().unwrap())]);
    assert_eq!(
        request(&mut client, "cancel-scheduled-message", cancel())
            .await
            .0,
        200
    );
    assert_eq!(
        request(&mut client, "cancel-scheduled-message", cancel())
            .await
            .0,
        404
    );

    send(&mut client, &["locked"]).await;
    assert_eq!(
        client
            .attach(1, true, "orders", AttachMore::default())
            .await,
        None
    );
    client.give_credit(1, 1).await;
    let (_, tag, _) = receive(&mut client).await;
    let mut uuid: [u8; 16] = tag.try_into().unwrap();
    // The tag is a GUID as .NET writes it.
    uuid[..4].reverse();
    uuid[4..6].reverse();
    uuid[6..8].reverse();
    let tokens = || ("lock-tokens", Value::Array(vec![Value::Uuid(uuid)]));
    let (status, reply) = request(&mut client, "renew-lock", map(vec![tokens()])).await;
    assert!(
        matches!(reply.get("expirations"), Some(Value::Array(times)) if times.len() == 1),
        "{status}"
    );
    let complete = || {
        map(vec![
            ("disposition-status", Value::string("completed")),
            tokens(),
        ])
    };
    assert_eq!(
        request(&mut client, "update-disposition", complete())
            .await
            .0,
        200
    );
    assert_eq!(
        request(&mut client, "update-disposition", complete())
            .await
            .0,
        410
    );
    assert_eq!(
        request(&mut client, "no-such-operation", Value::Null)
            .await
            .0,
        400
    );
    node.stop().await;
}

// proves A2, G1
#[tokio::test(flavor = "multi_thread")]
async fn rights_are_those_of_the_queue_and_names_are_of_queues_first() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "[queues.Orders]\n[[keys]]\nname = \"reader\"\nsecret = \"s3cret\"\nrights = [\"listen\"]\nhubs = [\"Orders\"]\n";
    let node = node(folder.path(), keys).await;
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let unauthorized = Some("amqp:unauthorized-access".to_owned());
    assert_eq!(
        client
            .attach(0, true, "orders", AttachMore::default())
            .await,
        unauthorized
    );
    let token = sas::sign("reader", b"s3cret", "sb://h/orders", 4_000_000_000);
    assert_eq!(client.put_token(&token, "sb://h/orders").await, 202);
    assert_eq!(
        client
            .attach(1, false, "orders", AttachMore::default())
            .await,
        unauthorized
    );
    assert_eq!(
        client
            .attach(2, true, "orders", AttachMore::default())
            .await,
        None
    );
    let dead = "orders/$DeadLetterQueue";
    assert_eq!(
        client.attach(3, true, dead, AttachMore::default()).await,
        None
    );
    // A token for the requests alone is enough for them.
    let mut manager = Client::connect(node.amqp_addresses()[0]).await;
    let token = sas::sign(
        "reader",
        b"s3cret",
        "sb://h/orders/$management",
        4_000_000_000,
    );
    assert_eq!(
        manager.put_token(&token, "sb://h/orders/$management").await,
        202
    );
    for (handle, receives) in [(10, true), (11, false)] {
        let refused = manager.attach(
            handle,
            receives,
            "orders/$management",
            AttachMore::default(),
        );
        assert_eq!(refused.await, None);
    }
    manager.give_credit(10, 20).await;
    let peek = map(vec![("message-count", Value::I32(9))]);
    assert_eq!(request(&mut manager, "peek-message", peek).await.0, 204);
    let cancel = map(vec![(
        "sequence-numbers",
        Value::Array(vec![Value::I64(1)]),
    )]);
    assert_eq!(
        request(&mut manager, "cancel-scheduled-message", cancel)
            .await
            .0,
        401
    );
    // A hub of this name is not received from like this.
    assert_eq!(
        client.attach(4, true, "t", AttachMore::default()).await,
        unauthorized
    );
    node.stop().await;
}
