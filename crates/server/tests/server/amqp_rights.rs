//! The table of AMQP operations against a whole node: every row is enforced for keys of every combination of rights,
//! for keys that are limited to names, and for clients without a valid token.
// proves U3, G1

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use highwater_access::{Key, KeyScope, NameLists, Resource, Right, Rights, sas};
use highwater_amqp::{Encoder, MessageReader, Section, Value};
use highwater_server::amqp::{
    AmqpOperation as Op, AmqpResource, AmqpRight, QueueOperation, operation_rights,
};

use crate::amqp::{
    AttachMore, Client, DETACH, DISPOSITION, FLOW, TRANSFER, descriptor, event, node,
};
use crate::http::node::call;

const HUB: &str = "t";
const QUEUE: &str = "q";
const QUEUES: &str = "[queues.q]\n[topics.p.subscriptions.s]\n";
/// A topic, whose subscription has rules.
const TOPIC: &str = "p";
const GROUP: &str = "g";
const DEFAULT_GROUP: &str = "$Default";
/// A hub of the node itself.
const INTERNAL: &str = "__groups";
const SECRET: &str = "s3cret";
const ACCEPTED: Value<'static> = Value::U64(0x24);

/// The links for requests to `$management`, and to those of the queue and of the subscription.
const REPLIES: u32 = 200;
const REQUESTS: u32 = 201;
const QUEUE_REPLIES: u32 = 202;
const QUEUE_REQUESTS: u32 = 203;
const RULE_REPLIES: u32 = 204;
const RULE_REQUESTS: u32 = 205;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Unauthorized,
    NotFound,
    NotAllowed,
}

/// An attempt of a client.
#[derive(Clone, Debug)]
struct Attempt {
    operation: Op,
    hub: String,
    group: &'static str,
}

/// Every combination of rights; and each right alone, and all of them, limited to names.
fn keys() -> Vec<Key> {
    let subset = |bits: usize| {
        let rights = Right::ALL.into_iter().enumerate();
        let chosen = rights.filter(|(at, _)| bits & (1 << at) != 0);
        chosen.map(|(_, right)| right).collect::<Rights>()
    };
    let own = [HUB, QUEUE, TOPIC, "new-*", GROUP, INTERNAL].map(String::from);
    let (other, everything) = (["other".to_owned()], ["*".to_owned()]);
    let limited_to = |hubs, groups| {
        let lists = NameLists {
            hubs: Some(hubs),
            groups: Some(groups),
            transactional_ids: Some(&everything),
            deployments: Some(&everything),
        };
        KeyScope::listed("key", &lists)
    };
    let mut keys: Vec<(Rights, KeyScope)> = (1..16)
        .map(|bits| (subset(bits), KeyScope::UNLIMITED))
        .collect();
    for scope in [
        limited_to(&own, &own),
        limited_to(&other, &everything),
        limited_to(&everything, &other),
    ] {
        keys.extend([1, 2, 4, 8, 15].map(|bits| (subset(bits), scope.clone())));
    }
    let named = keys.into_iter().enumerate();
    named
        .map(|(at, (rights, scope))| Key::new(&format!("key{at}"), SECRET, rights, scope))
        .collect()
}

/// A key as the settings have it.
fn settings(key: &Key) -> String {
    let rights: Vec<String> = Right::ALL
        .into_iter()
        .filter(|right| key.rights.has(*right))
        .map(|right| format!("{:?}", right.name()))
        .collect();
    let mut text = format!(
        "[[keys]]\nname = {:?}\nsecret = {SECRET:?}\nrights = [{}]\n",
        key.name,
        rights.join(", ")
    );
    if key.scope != KeyScope::UNLIMITED {
        let covered = |covers: &dyn Fn(&str) -> bool| {
            let names = [HUB, QUEUE, TOPIC, "new-*", GROUP, INTERNAL, "other"];
            let names = names.iter().filter(|name| covers(name));
            let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
            names.join(", ")
        };
        let hubs = covered(&|name| key.scope.hubs.cover(name));
        let groups = covered(&|name| key.scope.groups.cover(name));
        text += &format!("hubs = [{hubs}]\ngroups = [{groups}]\n");
    }
    text
}

fn is_about_rules(operation: Op) -> bool {
    let Op::OfQueue(operation) = operation else {
        return false;
    };
    matches!(
        operation,
        QueueOperation::AddRule | QueueOperation::RemoveRule | QueueOperation::ListRules
    )
}

fn has_right(key: &Key, needed: &AmqpRight, attempt: &Attempt) -> bool {
    let on = match needed.resource {
        AmqpResource::Hub | AmqpResource::NewHub => Resource::Hub(&attempt.hub),
        AmqpResource::Group => Resource::Group(attempt.group),
        AmqpResource::Queue if is_about_rules(attempt.operation) => Resource::Queue(TOPIC),
        AmqpResource::Queue => Resource::Queue(QUEUE),
    };
    needed.any_of.iter().any(|right| key.may(*right, on))
}

/// The outcome by the table.
fn expected(key: &Key, attempt: &Attempt) -> Outcome {
    let rows = operation_rights().iter();
    let mut rows = rows.filter(|row| row.operation == attempt.operation);
    let row = rows.next().expect("the operation has a row");
    let right =
        |resource: AmqpResource| row.needed.iter().find(|needed| needed.resource == resource);
    let lacks = |resource: AmqpResource| {
        right(resource).is_some_and(|needed| !has_right(key, needed, attempt))
    };
    let is_send = right(AmqpResource::NewHub).is_some();
    let is_missing = attempt.hub.starts_with("new-");
    let names_group = attempt.group != DEFAULT_GROUP;
    if lacks(AmqpResource::Hub)
        || lacks(AmqpResource::Queue)
        || names_group && lacks(AmqpResource::Group)
    {
        Outcome::Unauthorized
    } else if is_send && attempt.hub == INTERNAL {
        Outcome::NotAllowed
    } else if is_missing && lacks(AmqpResource::NewHub) {
        Outcome::NotFound
    } else {
        Outcome::Allowed
    }
}

/// A connection that counts its links.
struct Walker {
    client: Client,
    links: u32,
    /// Higher than that of any reader before.
    owner_level: i64,
}

impl Walker {
    async fn attach(&mut self, receives: bool, address: &str, more: AttachMore) -> Outcome {
        self.links += 1;
        let refused = self
            .client
            .attach(self.links, receives, address, more)
            .await;
        outcome(refused.as_deref())
    }

    /// Attaches a sender and sends an event.
    async fn send(&mut self, address: &str) -> Outcome {
        let attached = self.attach(false, address, AttachMore::default()).await;
        if attached == Outcome::Allowed {
            self.client.until(FLOW).await;
            let settled = self.client.send(self.links, self.links, &event("x")).await;
            assert_eq!(descriptor(&settled), ACCEPTED, "{settled:?}");
        }
        attached
    }

    /// Asks for the properties of a hub or a partition.
    async fn read_properties(&mut self, kind: &'static str, hub: &str) -> Outcome {
        let properties = [
            ("operation", "READ"),
            ("type", kind),
            ("name", hub),
            ("partition", "0"),
        ];
        match self.request(REQUESTS, &properties).await {
            200 => Outcome::Allowed,
            401 => Outcome::Unauthorized,
            404 => Outcome::NotFound,
            other => panic!("status {other}"),
        }
    }

    /// Attaches what requests need: three pairs of links.
    async fn attach_management(&mut self) {
        self.links = RULE_REQUESTS;
        let of_queue = format!("{QUEUE}/$management");
        let of_subscription = format!("{TOPIC}/Subscriptions/s/$management");
        for (requests, replies, address) in [
            (REQUESTS, REPLIES, "$management"),
            (QUEUE_REQUESTS, QUEUE_REPLIES, &of_queue),
            (RULE_REQUESTS, RULE_REPLIES, &of_subscription),
        ] {
            for (handle, receives) in [(replies, true), (requests, false)] {
                let more = AttachMore::default();
                let refused = self.client.attach(handle, receives, address, more);
                assert_eq!(refused.await, None);
            }
            self.client.give_credit(replies, 1000).await;
        }
    }

    /// The status of the reply to a request.
    async fn request(&mut self, link: u32, properties: &[(&'static str, &str)]) -> i64 {
        if self.links < REPLIES {
            self.attach_management().await;
        }
        let pair = |(name, value): &(&'static str, &str)| {
            (Value::string(*name), Value::string((*value).to_owned()))
        };
        let mut request = BytesMut::new();
        let mut encoder = Encoder::new(&mut request);
        encoder.descriptor(Section::APPLICATION_PROPERTIES);
        encoder.value(&Value::Map(properties.iter().map(pair).collect()));
        encoder.descriptor(Section::VALUE);
        encoder.value(&Value::Map(Vec::new()));
        let tag = Value::Binary(vec![1].into());
        let fields = vec![
            Value::U32(link),
            Value::U32(0),
            tag,
            Value::U32(0),
            Value::Bool(true),
        ];
        self.client.write(TRANSFER, fields, &request).await;
        let (_, _, reply) = self.client.until(TRANSFER).await;
        let status = MessageReader::new(&reply).find_map(|section| match section.unwrap() {
            Section::ApplicationProperties(entries) => entries[0].1.as_i64(),
            _ => None,
        });
        status.expect("a reply has a status")
    }

    async fn attempt_of_queue(&mut self, operation: QueueOperation) -> Outcome {
        let request = match operation {
            QueueOperation::Send => return self.send(QUEUE).await,
            QueueOperation::Receive => {
                return self.attach(true, QUEUE, AttachMore::default()).await;
            }
            QueueOperation::Settle => return self.settle().await,
            QueueOperation::ScheduleMessages => "schedule-message",
            QueueOperation::CancelScheduled => "cancel-scheduled-message",
            QueueOperation::RenewLocks => "renew-lock",
            QueueOperation::Peek => "peek-message",
            QueueOperation::ReceiveDeferred => "receive-by-sequence-number",
            QueueOperation::UpdateDisposition => "update-disposition",
            QueueOperation::RenewSession => "renew-session-lock",
            QueueOperation::GetSessionState => "get-session-state",
            QueueOperation::SetSessionState => "set-session-state",
            QueueOperation::ListSessions => "get-message-sessions",
            QueueOperation::AddRule => "add-rule",
            QueueOperation::RemoveRule => "remove-rule",
            QueueOperation::ListRules => "enumerate-rules",
        };
        let link = match is_about_rules(Op::OfQueue(operation)) {
            true => RULE_REQUESTS,
            false => QUEUE_REQUESTS,
        };
        let name = format!("com.microsoft:{request}");
        // A permitted request without its arguments is refused for that.
        match self.request(link, &[("operation", &name)]).await {
            401 => Outcome::Unauthorized,
            404 => Outcome::NotFound,
            _ => Outcome::Allowed,
        }
    }

    /// Receives a message and completes it.
    async fn settle(&mut self) -> Outcome {
        let attached = self.attach(true, QUEUE, AttachMore::default()).await;
        if attached == Outcome::Allowed {
            self.client.give_credit(self.links, 1).await;
            let (_, transfer, _) = self.client.until(TRANSFER).await;
            let fields = vec![
                Value::Bool(true),
                transfer[1].clone(),
                Value::Null,
                Value::Bool(false),
                Value::Described(Box::new((ACCEPTED, Value::List(Vec::new())))),
            ];
            self.client.write(DISPOSITION, fields, &[]).await;
            let (_, told, _) = self.client.until(DISPOSITION).await;
            assert_eq!(descriptor(&told[4]), ACCEPTED, "{told:?}");
        }
        attached
    }

    async fn attempt(&mut self, attempt: &Attempt) -> Outcome {
        let Attempt {
            operation,
            hub,
            group,
        } = attempt;
        // Readers with a level have a partition of their own, so that they take it from no other reader here.
        let reader = |partition| format!("{hub}/ConsumerGroups/{group}/Partitions/{partition}");
        match operation {
            Op::PutToken => self.attach(true, "$cbs", AttachMore::default()).await,
            Op::Transact => {
                let more = AttachMore {
                    is_coordinator: true,
                    ..AttachMore::default()
                };
                self.attach(false, "", more).await
            }
            Op::Send => self.send(hub).await,
            Op::SendToPartition => self.send(&format!("{hub}/Partitions/0")).await,
            Op::SendAsPublisher => self.send(&format!("{hub}/Publishers/p")).await,
            Op::Receive => self.attach(true, &reader(0), AttachMore::default()).await,
            Op::ReceiveAlone => {
                self.owner_level += 1;
                let level = Value::I64(self.owner_level);
                let more = AttachMore {
                    properties: vec![(Value::symbol("com.microsoft:epoch"), level)],
                    ..AttachMore::default()
                };
                self.attach(true, &reader(1), more).await
            }
            Op::ReadHubProperties => self.read_properties("com.microsoft:eventhub", hub).await,
            Op::ReadPartitionProperties => {
                self.read_properties("com.microsoft:partition", hub).await
            }
            Op::OfQueue(operation) => self.attempt_of_queue(*operation).await,
        }
    }
}

fn outcome(refused: Option<&str>) -> Outcome {
    match refused {
        None => Outcome::Allowed,
        Some("amqp:unauthorized-access") => Outcome::Unauthorized,
        Some("amqp:not-found") => Outcome::NotFound,
        Some("amqp:not-allowed") => Outcome::NotAllowed,
        Some(other) => panic!("{other}"),
    }
}

/// Every operation on every kind of hub and group. Each sender comes to a hub that does not exist, too.
fn attempts(client: usize) -> Vec<Attempt> {
    let mut all = Vec::new();
    for row in operation_rights() {
        let names =
            |resource: AmqpResource| row.needed.iter().any(|needed| needed.resource == resource);
        let operation = row.operation;
        let mut hubs = match names(AmqpResource::Queue) {
            true => vec![HUB.to_owned()],
            false => vec![HUB.to_owned(), INTERNAL.to_owned()],
        };
        if names(AmqpResource::NewHub) {
            hubs.push(format!("new-{client}-{operation:?}"));
        }
        let groups = match names(AmqpResource::Group) {
            true => vec![DEFAULT_GROUP, GROUP],
            false => vec![DEFAULT_GROUP],
        };
        for hub in hubs {
            let attempt = |group: &&'static str| Attempt {
                operation,
                hub: hub.clone(),
                group,
            };
            all.extend(groups.iter().map(attempt));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_enforced_for_keys_of_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let keys = keys();
    let settings: String = keys.iter().map(settings).collect();
    let node = node(folder.path(), &format!("{QUEUES}{settings}")).await;
    let address = node.amqp_addresses()[0];
    let mut outcomes = HashSet::new();
    for (at, key) in keys.iter().enumerate() {
        let mut client = Client::connect(address).await;
        let token = sas::sign(&key.name, SECRET.as_bytes(), "sb://h/", i64::MAX / 2000);
        assert_eq!(client.put_token(&token, "sb://h/").await, 202);
        let (links, owner_level) = (0, at as i64 * 100);
        let mut walker = Walker {
            client,
            links,
            owner_level,
        };
        for attempt in attempts(at) {
            let (outcome, expected) = (walker.attempt(&attempt).await, expected(key, &attempt));
            assert_eq!(outcome, expected, "{attempt:?} with {key:?}");
            outcomes.insert(format!("{outcome:?}"));
        }
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_token_every_row_is_refused() {
    const NOT_EXPIRED: i64 = i64::MAX / 2000;
    let folder = tempfile::tempdir().unwrap();
    let all = "rights = [\"send\", \"listen\", \"manage\", \"deploy\"]";
    let settings = format!(
        "[[keys]]\nname = \"root\"\nsecret = {SECRET:?}\n{all}\n\
         [[keys]]\nname = \"gone\"\nsecret = {SECRET:?}\n{all}\nexpires = \"2020-01-01T00:00:00Z\"\n"
    );
    let node = node(folder.path(), &format!("{QUEUES}{settings}")).await;
    let secret = SECRET.as_bytes();
    // A token, and the status of putting it.
    let tokens = [
        None,
        Some((sas::sign("root", b"guess", "sb://h/", NOT_EXPIRED), 401)),
        Some((sas::sign("nobody", secret, "sb://h/", NOT_EXPIRED), 401)),
        Some((sas::sign("root", secret, "sb://h/", 1), 401)),
        Some((sas::sign("gone", secret, "sb://h/", NOT_EXPIRED), 401)),
        Some((
            sas::sign("root", secret, "sb://h/another", NOT_EXPIRED),
            202,
        )),
        // The name of a hub is no prefix of a name.
        Some((
            sas::sign("root", secret, "sb://h/__group", NOT_EXPIRED),
            202,
        )),
    ];
    for token in tokens {
        let mut client = Client::connect(node.amqp_addresses()[0]).await;
        if let Some((token, status)) = &token {
            assert_eq!(client.put_token(token, "sb://h/").await, *status, "{token}");
        }
        let (links, owner_level) = (0, 0);
        let mut walker = Walker {
            client,
            links,
            owner_level,
        };
        for attempt in attempts(0) {
            let expected = match attempt.operation {
                // Every client may begin a transaction, in which only operations that are allowed outside of it are
                // allowed.
                Op::PutToken | Op::Transact => Outcome::Allowed,
                _ => Outcome::Unauthorized,
            };
            let outcome = walker.attempt(&attempt).await;
            assert_eq!(outcome, expected, "{attempt:?} with {token:?}");
        }
    }
    node.stop().await;
}

/// The audit log as `who operation resource`, when it has at least this many events.
async fn audited(address: SocketAddr, count: usize) -> Vec<String> {
    let line = "GET /hubs/__audit/partitions/0/messages";
    let mut events = Vec::new();
    for _ in 0..500 {
        let page = call(address, line, &[ROOT], "").await;
        if page.status == 200 {
            events = page.json()["messages"].as_array().cloned().unwrap();
        }
        if events.len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let fields = ["who", "operation", "resource"];
    let text = |event: &serde_json::Value| {
        fields.map(|name| event["value"][name].as_str().unwrap().to_owned())
    };
    events.iter().map(|event| text(event).join(" ")).collect()
}

const ROOT: &str = "authorization: Bearer root:s3cret";

// proves G6
#[tokio::test(flavor = "multi_thread")]
async fn refused_links_requests_and_settlements_are_in_the_audit_log_once_for_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "[[keys]]\nname = \"root\"\nsecret = \"s3cret\"\nrights = [\"send\", \"listen\", \"manage\"]\n";
    let node = node(folder.path(), &format!("{QUEUES}{keys}")).await;
    let http = node.http_address().unwrap();
    let mut secrets = Vec::new();
    for (name, right) in [("writer", "send"), ("reader", "listen")] {
        let body = format!(r#"{{"name":"{name}","rights":["{right}"],"sas":true}}"#);
        let added = call(http, "POST /api/keys", &[ROOT], &body).await;
        secrets.push(added.json()["secret"].as_str().unwrap().to_owned());
    }
    let mut walkers = Vec::new();
    for (name, secret) in ["writer", "reader"].into_iter().zip(&secrets) {
        let mut client = Client::connect(node.amqp_addresses()[0]).await;
        let token = sas::sign(name, secret.as_bytes(), "sb://h/", i64::MAX / 2000);
        assert_eq!(client.put_token(&token, "sb://h/").await, 202);
        walkers.push(Walker {
            client,
            links: 0,
            owner_level: 0,
        });
    }
    let [writer, reader] = &mut walkers[..] else {
        unreachable!("two keys");
    };
    assert_eq!(writer.send(QUEUE).await, Outcome::Allowed);
    for _ in 0..3 {
        let refused = writer.attempt_of_queue(QueueOperation::Receive).await;
        assert_eq!(refused, Outcome::Unauthorized);
        let refused = writer.attempt_of_queue(QueueOperation::Peek).await;
        assert_eq!(refused, Outcome::Unauthorized);
        assert_eq!(reader.send(HUB).await, Outcome::Unauthorized);
    }
    // The key is revoked while its client has a message.
    let attached = reader.attach(true, QUEUE, AttachMore::default()).await;
    assert_eq!(attached, Outcome::Allowed);
    reader.client.give_credit(reader.links, 1).await;
    let (_, transfer, _) = reader.client.until(TRANSFER).await;
    let revoked = call(http, "DELETE /api/keys/reader", &[ROOT], "").await;
    assert_eq!(revoked.status, 204);
    let accepted = Value::Described(Box::new((ACCEPTED, Value::List(Vec::new()))));
    let (first, none) = (transfer[1].clone(), Value::Null);
    let fields = vec![Value::Bool(true), first, none, Value::Bool(false), accepted];
    reader.client.write(DISPOSITION, fields, &[]).await;
    reader.client.until(DETACH).await;
    assert_eq!(
        audited(http, 7).await,
        [
            "root POST /api/keys writer",
            "root POST /api/keys reader",
            "writer receive from a queue or its dead letters q",
            "writer peek q",
            "reader send to a hub t",
            "root DELETE /api/keys/{key} reader",
            "reader settle a message q",
        ]
    );
    node.stop().await;
}
