//! Topics, subscriptions and rules over AMQP against a whole node. `tests/azure` does the same with Microsoft's SDKs.

use std::path::Path;

use bytes::BytesMut;
use highwater_amqp::{Encoder, Section, Value};
use highwater_server::node::Node;

use crate::amqp::{AttachMore, Client, body_of, descriptor, event, node};
use crate::service_bus::{
    ACCEPTED, REJECTED, annotation, map, receive, request, send, sender, settle,
};

const TOPICS: &str = r#"
[topics.Prices]
message_bytes_max = "16KiB"
[topics.Prices.subscriptions.all]
[topics.Prices.subscriptions.red.rules.red]
sql = "colour = 'red' AND grams > 100"
action = "SET grams = grams + 1; SET sys.Label = 'sold'"
[topics.Prices.subscriptions.labelled.rules.fruit]
label = "fruit"
properties = { colour = "red" }
"#;

async fn start(folder: &Path) -> Node {
    node(folder, TOPICS).await
}

fn apple(body: &str, colour: &'static str, grams: i32) -> BytesMut {
    let mut message = BytesMut::new();
    let mut encoder = Encoder::new(&mut message);
    encoder.descriptor(Section::PROPERTIES);
    let mut fields = vec![Value::Null; 3];
    fields.push(Value::string("fruit"));
    encoder.value(&Value::List(fields));
    encoder.descriptor(Section::APPLICATION_PROPERTIES);
    encoder.value(&Value::Map(vec![
        (Value::string("colour"), Value::string(colour)),
        (Value::string("grams"), Value::I32(grams)),
    ]));
    encoder.data_section(body.as_bytes());
    message
}

pub(crate) async fn receiver(node: &Node, address: &str) -> Client {
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let refused = client.attach(1, true, address, AttachMore::default()).await;
    assert_eq!(refused, None, "{address}");
    client.give_credit(1, 10).await;
    client
}

/// A client with links for requests to the subscription.
async fn manager(node: &Node, subscription: &str) -> Client {
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    for (handle, receives) in [(10, true), (11, false)] {
        let address = format!("prices/subscriptions/{subscription}/$management");
        let refused = client.attach(handle, receives, &address, AttachMore::default());
        assert_eq!(refused.await, None);
    }
    client.give_credit(10, 20).await;
    client
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_copied_to_the_subscriptions_whose_rules_select_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = sender(&node, "prices").await;
    for (id, message) in [
        apple("heavy", "red", 150),
        apple("light", "red", 50),
        apple("green", "green", 150),
    ]
    .iter()
    .enumerate()
    {
        let outcome = client.send(0, id as u32, message).await;
        assert_eq!(descriptor(&outcome), Value::U64(ACCEPTED), "{outcome:?}");
    }
    let large = event(&"x".repeat(20 << 10));
    let outcome = client.send(0, 3, &large).await;
    assert_eq!(descriptor(&outcome), Value::U64(REJECTED), "{outcome:?}");

    let mut all = receiver(&node, "Prices/Subscriptions/all").await;
    for body in ["heavy", "light", "green"] {
        let (_, _, message) = receive(&mut all).await;
        assert_eq!(body_of(&message), body.as_bytes());
        assert!(annotation(&message, "grams").is_some());
        assert_eq!(annotation(&message, "RuleName"), None);
    }
    let mut red = receiver(&node, "PRICES/subscriptions/RED").await;
    let (_, _, message) = receive(&mut red).await;
    assert_eq!(body_of(&message), b"heavy");
    assert_eq!(annotation(&message, "grams"), Some(Value::I64(151)));
    assert_eq!(annotation(&message, "RuleName"), Some(Value::string("red")));
    let mut labelled = receiver(&node, "prices/Subscriptions/labelled").await;
    for body in ["heavy", "light"] {
        assert_eq!(body_of(&receive(&mut labelled).await.2), body.as_bytes());
    }
    node.stop().await;
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_has_its_own_dead_letters_and_a_topic_none() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = sender(&node, "Prices").await;
    send(&mut client, &["bad"]).await;
    let mut all = receiver(&node, "prices/Subscriptions/all").await;
    let (id, _, _) = receive(&mut all).await;
    let error = Value::List(vec![Value::symbol("com.microsoft:dead-letter")]);
    let error = Value::Described(Box::new((Value::U64(0x1d), error)));
    settle(&mut all, id, REJECTED, vec![error]).await;
    let mut dead = receiver(&node, "prices/subscriptions/all/$deadletterqueue").await;
    let (_, _, message) = receive(&mut dead).await;
    assert_eq!(body_of(&message), b"bad");
    let source = annotation(&message, "x-opt-deadletter-source");
    assert_eq!(source, Some(Value::string("Prices/Subscriptions/all")));

    let mut wrong = Client::connect(node.amqp_addresses()[0]).await;
    for (handle, receives, address, expected) in [
        (0, true, "prices", "amqp:not-allowed"),
        (1, true, "prices/$DeadLetterQueue", "amqp:not-allowed"),
        (2, false, "prices/Subscriptions/all", "amqp:not-allowed"),
        (3, true, "prices/Subscriptions/none", "amqp:not-found"),
        (4, true, "none/Subscriptions/all", "amqp:not-found"),
    ] {
        let refused = wrong.attach(handle, receives, address, AttachMore::default());
        assert_eq!(refused.await.as_deref(), Some(expected), "{address}");
    }
    node.stop().await;
}

fn sql_rule(name: &'static str, expression: &'static str) -> Value<'static> {
    let filter = map(vec![("expression", Value::string(expression))]);
    map(vec![
        ("rule-name", Value::string(name)),
        ("rule-description", map(vec![("sql-filter", filter)])),
    ])
}

fn named(name: &'static str) -> Value<'static> {
    map(vec![("rule-name", Value::string(name))])
}

/// The names of the rules, and the descriptors of their filters and actions.
async fn rules(client: &mut Client) -> Vec<(String, [u64; 2])> {
    let page = map(vec![("top", Value::I32(100)), ("skip", Value::I32(0))]);
    let (status, reply) = request(client, "enumerate-rules", page).await;
    let Some(Value::List(rules)) = reply.get("rules") else {
        assert_eq!(status, 204);
        return Vec::new();
    };
    let code = |value: &Value<'_>| match descriptor(value) {
        Value::U64(code) => code,
        other => panic!("{other:?}"),
    };
    let rule = |rule: &Value<'static>| {
        let rule = rule.get("rule-description").unwrap();
        assert_eq!(code(rule), 0x0137_0000_0004);
        let fields = rule.undescribed().as_list().unwrap();
        assert!(matches!(fields[3], Value::Timestamp(1..)));
        let name = fields[2].as_text().unwrap().to_owned();
        (name, [code(&fields[0]), code(&fields[1])])
    };
    rules.iter().map(rule).collect()
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn rules_are_added_listed_and_removed_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = manager(&node, "all").await;
    let none = 0x0137_0000_0005;
    assert_eq!(
        rules(&mut client).await,
        [("$Default".to_owned(), [0x0013_7000_0007, none])]
    );
    let added = request(&mut client, "add-rule", sql_rule("blue", "colour = 'blue'")).await;
    assert_eq!(added.0, 200);
    let twice = request(&mut client, "add-rule", sql_rule("blue", "TRUE")).await;
    assert_eq!(twice.0, 409);
    let wrong = request(&mut client, "add-rule", sql_rule("wrong", "colour = ")).await;
    assert_eq!(wrong.0, 400);
    let conditions = map(vec![("label", Value::string("x"))]);
    let correlation = map(vec![
        ("rule-name", Value::string("label")),
        (
            "rule-description",
            map(vec![
                ("correlation-filter", conditions),
                (
                    "sql-rule-action",
                    map(vec![("expression", Value::string("SET a = 1"))]),
                ),
            ]),
        ),
    ]);
    assert_eq!(request(&mut client, "add-rule", correlation).await.0, 200);
    let removed = request(&mut client, "remove-rule", named("$Default")).await;
    assert_eq!(removed.0, 200);
    let again = request(&mut client, "remove-rule", named("$Default")).await;
    assert_eq!(again.0, 404);
    let schedule = request(&mut client, "schedule-message", map(Vec::new())).await;
    assert_eq!(schedule.0, 400, "a subscription takes no messages");
    let expected = [
        ("blue".to_owned(), [0x0013_7000_0006, none]),
        ("label".to_owned(), [0x0013_7000_0009, 0x0137_0000_0006]),
    ];
    assert_eq!(rules(&mut client).await, expected);
    node.stop().await;

    let node = start(folder.path()).await;
    let mut client = manager(&node, "all").await;
    assert_eq!(rules(&mut client).await, expected);
    let mut sending = sender(&node, "prices").await;
    for (id, colour) in ["red", "blue"].into_iter().enumerate() {
        let message = apple(colour, colour, 1);
        sending.send(0, id as u32, &message).await;
    }
    let mut all = receiver(&node, "prices/Subscriptions/all").await;
    assert_eq!(body_of(&receive(&mut all).await.2), b"blue");
    node.stop().await;
}

// proves A3
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_scheduled_on_a_topic() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path()).await;
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    for (handle, receives) in [(10, true), (11, false)] {
        let address = "prices/$management";
        let refused = client.attach(handle, receives, address, AttachMore::default());
        assert_eq!(refused.await, None);
    }
    client.give_credit(10, 20).await;
    let mut later = BytesMut::new();
    let mut encoder = Encoder::new(&mut later);
    encoder.descriptor(Section::MESSAGE_ANNOTATIONS);
    encoder.value(&Value::Map(vec![(
        Value::symbol("x-opt-scheduled-enqueue-time"),
        Value::Timestamp(4_000_000_000_000),
    )]));
    encoder.data_section(b"later");
    let item = map(vec![("message", Value::Binary(later.to_vec().into()))]);
    let body = map(vec![("messages", Value::List(vec![item]))]);
    let (status, reply) = request(&mut client, "schedule-message", body).await;
    let numbers = reply.get("sequence-numbers").cloned().unwrap();
    assert_eq!(
        (status, &numbers),
        (200, &Value::Array(vec![Value::I64(1)]))
    );
    let cancel = || map(vec![("sequence-numbers", numbers.clone())]);
    for expected in [200, 404] {
        let cancelled = request(&mut client, "cancel-scheduled-message", cancel()).await;
        assert_eq!(cancelled.0, expected);
    }
    let peeked = request(&mut client, "peek-message", map(Vec::new())).await;
    assert_eq!(peeked.0, 400, "nobody receives from a topic");
    let outcome = client
        .attach(1, true, "prices", AttachMore::default())
        .await;
    assert_eq!(outcome.as_deref(), Some("amqp:not-allowed"));
    node.stop().await;
}
