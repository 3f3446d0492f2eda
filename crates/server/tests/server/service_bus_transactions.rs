//! Transactions and forwarding over AMQP against a whole node, with a client of a few lines.

use bytes::BytesMut;
use highwater_amqp::Value;

use crate::amqp::{AttachMore, Client, DISPOSITION, TRANSFER, body_of, condition, event, node};
use crate::service_bus::{ACCEPTED, REJECTED, receive, send, settle};

const SETTINGS: &str = "[queues.a]\n[queues.b]\n[queues.errors]\n[queues.in]\nforward_to = \"b\"\n\
    forward_dead_letters_to = \"errors\"\n";

const DECLARE: u64 = 0x31;
const DISCHARGE: u64 = 0x32;
const DECLARED: u64 = 0x33;
const STATE: u64 = 0x34;

/// The handle of the coordinator.
const COORDINATOR: u32 = 9;

fn described(code: u64, fields: Vec<Value<'static>>) -> Value<'static> {
    Value::Described(Box::new((Value::U64(code), Value::List(fields))))
}

fn fields(value: &Value<'static>, code: u64) -> Vec<Value<'static>> {
    let Value::Described(described) = value else {
        panic!("{value:?}");
    };
    assert_eq!(described.0, Value::U64(code), "{value:?}");
    described.1.as_list().unwrap().to_vec()
}

/// A client with senders to `a` and `b`, a receiver of `a` and a coordinator.
async fn client(node: &highwater_server::node::Node) -> Client {
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let none = AttachMore::default;
    assert_eq!(client.attach(0, false, "a", none()).await, None);
    assert_eq!(client.attach(1, false, "b", none()).await, None);
    assert_eq!(client.attach(2, true, "a", none()).await, None);
    let more = AttachMore {
        is_coordinator: true,
        ..AttachMore::default()
    };
    assert_eq!(client.attach(COORDINATOR, false, "", more).await, None);
    client
}

async fn request(client: &mut Client, id: u32, request: Value<'static>) -> Value<'static> {
    let mut message = BytesMut::new();
    let section = (Value::U64(0x77), request);
    Value::Described(Box::new(section)).encode(&mut message);
    client.send(COORDINATOR, id, &message).await
}

async fn declare(client: &mut Client, id: u32) -> Value<'static> {
    let declared = request(client, id, described(DECLARE, Vec::new())).await;
    fields(&declared, DECLARED).remove(0)
}

async fn discharge(
    client: &mut Client,
    id: u32,
    transaction: &Value<'static>,
    fail: bool,
) -> Value<'static> {
    let discharge = described(DISCHARGE, vec![transaction.clone(), Value::Bool(fail)]);
    request(client, id, discharge).await
}

async fn send_in(
    client: &mut Client,
    handle: u32,
    id: u32,
    transaction: &Value<'static>,
    text: &str,
) -> Value<'static> {
    let tag = Value::Binary(id.to_be_bytes().to_vec().into());
    let transfer = vec![
        Value::U32(handle),
        Value::U32(id),
        tag,
        Value::U32(0),
        Value::Bool(false),
        Value::Bool(false),
        Value::Null,
        described(STATE, vec![transaction.clone()]),
    ];
    client.write(TRANSFER, transfer, &event(text)).await;
    client.until(DISPOSITION).await.1[4].clone()
}

/// The bodies in a queue, received and completed.
async fn all(node: &highwater_server::node::Node, queue: &str, count: usize) -> Vec<String> {
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let attached = client.attach(0, true, queue, AttachMore::default()).await;
    assert_eq!(attached, None);
    let mut bodies = Vec::new();
    for credit in 1..=count {
        client.give_credit(0, credit as u32).await;
        let (id, _, message) = receive(&mut client).await;
        bodies.push(String::from_utf8(body_of(&message)).unwrap());
        settle(&mut client, id, ACCEPTED, Vec::new()).await;
    }
    bodies
}

// proves A2
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_sent_and_settled_in_a_transaction_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), SETTINGS).await;
    let mut client = client(&node).await;
    send(&mut client, &["work"]).await;
    client.give_credit(2, 1).await;
    let (work, _, _) = receive(&mut client).await;

    // Rolled back: nothing is sent.
    let transaction = declare(&mut client, 1).await;
    let accepted = send_in(&mut client, 1, 2, &transaction, "no").await;
    let state = fields(&accepted, STATE);
    assert_eq!(state[0], transaction);
    fields(&state[1], ACCEPTED);
    fields(
        &discharge(&mut client, 3, &transaction, true).await,
        ACCEPTED,
    );
    let again = discharge(&mut client, 4, &transaction, false).await;
    let error = fields(&again, REJECTED).remove(0);
    assert_eq!(condition(&error), "amqp:transaction:unknown-id");

    // Committed: the message is completed, and two others are sent, to two queues.
    let transaction = declare(&mut client, 5).await;
    let complete = vec![transaction.clone(), described(ACCEPTED, Vec::new())];
    let confirmed = settle(&mut client, work, STATE, complete).await;
    assert_eq!(fields(&confirmed, STATE)[0], transaction);
    send_in(&mut client, 1, 6, &transaction, "to b").await;
    send_in(&mut client, 0, 7, &transaction, "to a").await;
    fields(
        &discharge(&mut client, 8, &transaction, false).await,
        ACCEPTED,
    );
    assert_eq!(all(&node, "a", 1).await, ["to a"]);
    assert_eq!(all(&node, "b", 1).await, ["to b"]);

    // Too many messages: nothing of the transaction is done.
    let transaction = declare(&mut client, 9).await;
    send_in(&mut client, 1, 10, &transaction, "never").await;
    for number in 0..100 {
        send_in(&mut client, 0, 11 + number, &transaction, "x").await;
    }
    let refused = discharge(&mut client, 200, &transaction, false).await;
    let error = fields(&refused, REJECTED).remove(0);
    assert_eq!(
        condition(&error),
        "amqp:transaction:rollback",
        "101 messages"
    );
    let counts = |queue: &'static str| {
        let address = node.http_address().unwrap();
        async move {
            let path = format!("GET /api/queues/{queue}");
            let described = crate::http::node::call(address, &path, &[], "")
                .await
                .json();
            described["active"].as_u64().unwrap() + described["locked"].as_u64().unwrap()
        }
    };
    assert_eq!((counts("a").await, counts("b").await), (0, 0));
    node.stop().await;
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn messages_and_dead_letters_are_forwarded() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), SETTINGS).await;
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let none = AttachMore::default;
    assert_eq!(client.attach(0, false, "in", none()).await, None);
    let refused = client.attach(1, true, "in", none()).await;
    assert_eq!(refused.as_deref(), Some("amqp:not-allowed"));
    send(&mut client, &["one", "two"]).await;
    assert_eq!(all(&node, "b", 2).await, ["one", "two"]);
    let address = node.http_address().unwrap();
    let forward = |body: &'static str| async move {
        let path = "PATCH /api/queues/a";
        crate::http::node::call(address, path, &[], body)
            .await
            .status
    };
    assert_eq!(forward("{\"forward_to\":\"nothing\"}").await, 400);
    assert_eq!(forward("{\"forward_to\":\"a\"}").await, 400);
    node.stop().await;
}
