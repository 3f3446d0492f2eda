//! Event Hubs over AMQP against a whole node, with a client of a few lines. `tests/azure` does the same with
//! Microsoft's SDKs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use highwater_access::sas;
use highwater_amqp::{Encoder, MessageReader, Section, Value};
use highwater_env::RealClock;
use highwater_server::config::Sources;
use highwater_server::node::{Node, NodeError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::http;

pub(crate) const ATTACH: u64 = 0x12;
pub(crate) const FLOW: u64 = 0x13;
pub(crate) const TRANSFER: u64 = 0x14;
pub(crate) const DISPOSITION: u64 = 0x15;
pub(crate) const DETACH: u64 = 0x16;
const CLOSE: u64 = 0x18;

pub(crate) const KEYS: &str = "[[keys]]\nname = \"root\"\nsecret = \"s3cret\"\nrights = [\"send\", \"listen\", \"manage\"]\n\
                    [[keys]]\nname = \"reader\"\nsecret = \"s3cret\"\nrights = [\"listen\"]\nhubs = [\"t\"]\n";

async fn start(folder: &Path, amqp: &str, more: &str) -> Result<Node, NodeError> {
    let file = folder.join("highwater.toml");
    let text = format!(
        "data = \"data\"\nhttp = {{ listen = \"127.0.0.1:0\" }}\nkafka = {{ listen = \"off\" }}\n{amqp}\n\
         [hubs.t]\npartitions = 2\n{more}"
    );
    highwater_env::disk::write_private(&file, text.as_bytes()).unwrap();
    let file = Some(file);
    let config = Sources {
        file,
        ..Sources::default()
    }
    .load()
    .unwrap()
    .config;
    Node::start(config, Arc::new(RealClock::new())).await
}

const FREE_PORT: &str = "amqp = { listen = \"127.0.0.1:0\" }";

pub(crate) async fn node(folder: &Path, more: &str) -> Node {
    start(folder, FREE_PORT, more).await.unwrap()
}

/// A performative of the node: its code, its fields, and the bytes after it.
pub(crate) type Answer = (u64, Vec<Value<'static>>, Vec<u8>);

pub(crate) struct Client {
    stream: TcpStream,
    input: BytesMut,
}

impl Client {
    /// A connection with a session, without SASL.
    pub(crate) async fn connect(address: SocketAddr) -> Client {
        let mut client = Client {
            stream: TcpStream::connect(address).await.unwrap(),
            input: BytesMut::new(),
        };
        client
            .stream
            .write_all(b"AMQP\x00\x01\x00\x00")
            .await
            .unwrap();
        let mut header = [0; 8];
        client.stream.read_exact(&mut header).await.unwrap();
        assert_eq!(&header, b"AMQP\x00\x01\x00\x00");
        client.open().await;
        client
    }

    async fn open(&mut self) {
        self.write(0x10, vec![Value::string("client")], &[]).await;
        let window = Value::U32(1000);
        let begin = vec![Value::Null, Value::U32(0), window.clone(), window];
        self.write(0x11, begin, &[]).await;
        assert_eq!(self.next().await.0, 0x10);
        assert_eq!(self.next().await.0, 0x11);
    }

    pub(crate) async fn write(&mut self, code: u64, fields: Vec<Value<'static>>, payload: &[u8]) {
        let mut out = BytesMut::from(&[0, 0, 0, 0, 2, 0, 0, 0][..]);
        Value::Described(Box::new((Value::U64(code), Value::List(fields)))).encode(&mut out);
        out.extend_from_slice(payload);
        let length = u32::try_from(out.len()).unwrap();
        out[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&out).await.unwrap();
    }

    /// The next frame that is not a heartbeat; `None` when the node has closed.
    async fn try_next(&mut self) -> Option<Answer> {
        loop {
            let length = self
                .input
                .first_chunk::<4>()
                .map(|length| u32::from_be_bytes(*length) as usize);
            if let Some(length) = length.filter(|length| self.input.len() >= *length) {
                let frame = self.input.split_to(length);
                if frame.len() > 8 {
                    return Some(parse(&frame[8..]));
                }
                continue;
            }
            let read = self.stream.read_buf(&mut self.input);
            let read = tokio::time::timeout(Duration::from_secs(30), read).await;
            if read.expect("the node answers").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Answer {
        self.try_next().await.expect("the connection is open")
    }

    /// The next frame of this kind; others are skipped.
    pub(crate) async fn until(&mut self, code: u64) -> Answer {
        loop {
            let answer = self.next().await;
            if answer.0 == code {
                return answer;
            }
        }
    }

    /// Asks for a link; `receives` is the client's role. Returns the condition of a refusal.
    pub(crate) async fn attach(
        &mut self,
        handle: u32,
        receives: bool,
        address: &str,
        more: AttachMore,
    ) -> Option<String> {
        let terminus = |code, text: &str, filter: Value<'static>| {
            let mut fields = vec![Value::string(text.to_owned())];
            if filter != Value::Null {
                fields.resize(7, Value::Null);
                fields.push(filter);
            }
            Value::Described(Box::new((Value::U64(code), Value::List(fields))))
        };
        let name = more.name.unwrap_or_else(|| format!("link-{handle}"));
        let mut fields = vec![
            Value::string(name),
            Value::U32(handle),
            Value::Bool(receives),
            Value::Null,
            Value::Null,
            terminus(0x28, address, more.filter),
            match more.is_coordinator {
                false => terminus(0x29, address, Value::Null),
                true => Value::Described(Box::new((Value::U64(0x30), Value::List(Vec::new())))),
            },
        ];
        fields.resize(13, Value::Null);
        fields.push(Value::Map(more.properties));
        self.write(ATTACH, fields, &[]).await;
        let (_, attach, _) = self.until(ATTACH).await;
        let terminus = if receives { &attach[5] } else { &attach[6] };
        if *terminus != Value::Null {
            assert!(
                matches!(attach[10], Value::U64(1..)),
                "the message size is told: {attach:?}"
            );
            return None;
        }
        Some(condition(&self.until(DETACH).await.1[2]))
    }

    pub(crate) async fn send(&mut self, handle: u32, id: u32, message: &[u8]) -> Value<'static> {
        let tag = Value::Binary(id.to_be_bytes().to_vec().into());
        let fields = vec![
            Value::U32(handle),
            Value::U32(id),
            tag,
            Value::U32(0),
            Value::Bool(false),
        ];
        self.write(TRANSFER, fields, message).await;
        let (_, settled, _) = self.until(DISPOSITION).await;
        assert_eq!(
            settled[..4],
            [
                Value::Bool(true),
                Value::U32(id),
                Value::U32(id),
                Value::Bool(true)
            ]
        );
        settled[4].clone()
    }

    pub(crate) async fn give_credit(&mut self, handle: u32, credit: u32) {
        let zero = Value::U32(0);
        let window = Value::U32(1000);
        let mut fields = vec![zero.clone(), window.clone(), zero.clone(), window];
        fields.extend([Value::U32(handle), zero, Value::U32(credit)]);
        self.write(FLOW, fields, &[]).await;
    }

    /// Puts a token for an address, and returns the status.
    pub(crate) async fn put_token(&mut self, token: &str, audience: &str) -> i32 {
        assert_eq!(
            self.attach(100, true, "$cbs", AttachMore::default()).await,
            None
        );
        assert_eq!(
            self.attach(101, false, "$cbs", AttachMore::default()).await,
            None
        );
        self.give_credit(100, 10).await;
        let mut request = BytesMut::new();
        let mut encoder = Encoder::new(&mut request);
        encoder.descriptor(Section::PROPERTIES);
        encoder.value(&Value::List(vec![Value::U64(9)]));
        encoder.descriptor(Section::APPLICATION_PROPERTIES);
        let pair = |name: &'static str, value: &str| {
            (Value::string(name), Value::string(value.to_owned()))
        };
        encoder.value(&Value::Map(vec![
            pair("operation", "put-token"),
            pair("type", "servicebus.windows.net:sastoken"),
            pair("name", audience),
        ]));
        encoder.descriptor(Section::VALUE);
        encoder.string(token);
        let tag = Value::Binary(vec![1].into());
        let fields = vec![
            Value::U32(101),
            Value::U32(0),
            tag,
            Value::U32(0),
            Value::Bool(true),
        ];
        self.write(TRANSFER, fields, &request).await;
        let (_, _, reply) = self.until(TRANSFER).await;
        let status = MessageReader::new(&reply).find_map(|section| match section.unwrap() {
            Section::ApplicationProperties(entries) => Some(entries[0].1.as_i64().unwrap()),
            _ => None,
        });
        i32::try_from(status.unwrap()).unwrap()
    }
}

#[derive(Default)]
pub(crate) struct AttachMore {
    /// `None`: one that follows from the handle.
    pub(crate) name: Option<String>,
    pub(crate) filter: Value<'static>,
    pub(crate) properties: Vec<(Value<'static>, Value<'static>)>,
    /// The target is the coordinator of transactions.
    pub(crate) is_coordinator: bool,
}

fn parse(body: &[u8]) -> Answer {
    // The node writes wide lists: 0x00, a small descriptor, 0xd0 and the size.
    let size = u32::from_be_bytes(body[4..8].try_into().unwrap()) as usize;
    let (performative, payload) = body.split_at(8 + size);
    let Value::Described(described) = Value::decode(performative).unwrap().into_owned() else {
        panic!("{performative:02x?}")
    };
    let (Value::U64(code), Value::List(fields)) = *described else {
        panic!("{performative:02x?}")
    };
    (code, fields, payload.to_vec())
}

pub(crate) fn condition(error: &Value<'_>) -> String {
    let fields = error.undescribed().as_list().expect("there is an error");
    fields[0].as_text().unwrap().to_owned()
}

pub(crate) fn event(text: &str) -> BytesMut {
    let mut message = BytesMut::new();
    Encoder::new(&mut message).data_section(text.as_bytes());
    message
}

pub(crate) fn body_of(message: &[u8]) -> Vec<u8> {
    let body = MessageReader::new(message).find_map(|section| match section.unwrap() {
        Section::Data(data) => Some(data.to_vec()),
        _ => None,
    });
    body.unwrap()
}

pub(crate) fn descriptor(state: &Value<'_>) -> Value<'static> {
    match state {
        Value::Described(state) => state.0.clone().into_owned(),
        other => panic!("{other:?}"),
    }
}

// proves A1
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_accepted_and_read_from_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), "").await;
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    assert_eq!(
        client
            .attach(0, false, "T/Partitions/1", AttachMore::default())
            .await,
        None
    );
    assert_eq!(
        client.until(FLOW).await.1[6],
        Value::U32(500),
        "the sender has credit"
    );
    for (id, text) in ["first", "second"].into_iter().enumerate() {
        let outcome = client.send(0, id as u32, &event(text)).await;
        assert_eq!(
            descriptor(&outcome),
            Value::U64(0x24),
            "accepted: {outcome:?}"
        );
    }
    let malformed = client.send(0, 2, b"no message").await;
    assert_eq!(
        descriptor(&malformed),
        Value::U64(0x25),
        "rejected: {malformed:?}"
    );
    let http = node.http_address().unwrap();
    let stored = http::node::call(http, "GET /hubs/t/partitions/1/messages", &[], "")
        .await
        .json();
    assert_eq!(stored["end"], 2);

    let selector = Value::string("amqp.annotation.x-opt-offset > '0'");
    let name = "apache.org:selector-filter:string";
    let selector = Value::Described(Box::new((Value::symbol(name), selector)));
    let more = AttachMore {
        filter: Value::Map(vec![(Value::symbol(name), selector)]),
        ..AttachMore::default()
    };
    let address = "t/ConsumerGroups/$Default/Partitions/1";
    assert_eq!(client.attach(1, true, address, more).await, None);
    client.give_credit(1, 10).await;
    let (_, _, message) = client.until(TRANSFER).await;
    assert_eq!(body_of(&message), b"second");
    node.stop().await;
    let (_, close, _) = client.until(CLOSE).await;
    assert_eq!(condition(&close[0]), "amqp:connection:forced");
}

// proves G1, A1
#[tokio::test(flavor = "multi_thread")]
async fn with_keys_a_link_needs_a_token_of_a_key_with_the_right() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), KEYS).await;
    let address = node.amqp_addresses()[0];
    let unauthorized = Some("amqp:unauthorized-access".to_owned());
    let reader = "t/ConsumerGroups/$Default/Partitions/0";
    let none = AttachMore::default;

    let mut client = Client::connect(address).await;
    assert_eq!(client.attach(0, false, "t", none()).await, unauthorized);
    assert_eq!(client.attach(1, true, reader, none()).await, unauthorized);
    let forged = sas::sign("root", b"guess", "sb://h/t", i64::MAX / 2000);
    assert_eq!(client.put_token(&forged, "sb://h/t").await, 401);
    assert_eq!(client.attach(2, false, "t", none()).await, unauthorized);

    let mut client = Client::connect(address).await;
    let token = sas::sign("reader", b"s3cret", "sb://h/t", i64::MAX / 2000);
    assert_eq!(client.put_token(&token, "sb://h/t").await, 202);
    assert_eq!(client.attach(0, false, "t", none()).await, unauthorized);
    assert_eq!(client.attach(1, true, reader, none()).await, None);
    // Groups of other names belong to other keys.
    let other = "t/ConsumerGroups/other/Partitions/0";
    assert_eq!(client.attach(2, true, other, none()).await, unauthorized);
    let own = "t/ConsumerGroups/reader-1/Partitions/0";
    assert_eq!(client.attach(3, true, own, none()).await, None);

    let mut client = Client::connect(address).await;
    let token = sas::sign("root", b"s3cret", "sb://h/t", i64::MAX / 2000);
    assert_eq!(client.put_token(&token, "sb://h/t").await, 202);
    assert_eq!(client.attach(0, false, "t", none()).await, None);
    assert_eq!(
        client.attach(1, false, "another", none()).await,
        unauthorized
    );
    assert_eq!(
        client.attach(2, false, "__audit", none()).await,
        unauthorized
    );
    node.stop().await;
}

// proves A1
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_hub_is_made_by_a_sender_and_not_by_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), "").await;
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let none = AttachMore::default;
    let not_found = Some("amqp:not-found".to_owned());
    let reader = "new/ConsumerGroups/$Default/Partitions/0";
    assert_eq!(client.attach(0, true, reader, none()).await, not_found);
    assert_eq!(client.attach(1, false, "new", none()).await, None);
    assert_eq!(client.attach(2, true, reader, none()).await, None);
    let out_of_range = Some("com.microsoft:argument-out-of-range".to_owned());
    assert_eq!(
        client.attach(3, false, "new/Partitions/99", none()).await,
        out_of_range
    );
    let not_allowed = Some("amqp:not-allowed".to_owned());
    assert_eq!(
        client.attach(4, false, "__offsets", none()).await,
        not_allowed
    );
    // That would be a queue.
    assert_eq!(client.attach(5, true, "new", none()).await, not_found);
    node.stop().await;
}

// proves A1
#[tokio::test(flavor = "multi_thread")]
async fn a_higher_owner_level_takes_the_partition() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), "").await;
    let address = "t/ConsumerGroups/$Default/Partitions/0";
    let level = |level| AttachMore {
        properties: vec![(Value::symbol("com.microsoft:epoch"), Value::I64(level))],
        ..AttachMore::default()
    };
    let mut low = Client::connect(node.amqp_addresses()[0]).await;
    assert_eq!(low.attach(0, true, address, level(1)).await, None);
    let mut high = Client::connect(node.amqp_addresses()[0]).await;
    assert_eq!(high.attach(0, true, address, level(2)).await, None);
    let (_, detach, _) = low.until(DETACH).await;
    assert_eq!(condition(&detach[2]), "amqp:link:stolen");
    let stolen = Some("amqp:link:stolen".to_owned());
    assert_eq!(low.attach(1, true, address, level(1)).await, stolen);
    assert_eq!(
        low.attach(2, true, address, AttachMore::default()).await,
        stolen
    );
    node.stop().await;
}

// proves G2
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_client_loses_its_connection_and_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), "").await;
    let address = node.amqp_addresses()[0];
    let mut other = Client::connect(address).await;

    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"AMQP\x03\x01\x00\x00");

    let hostile: [(&[u8], &str); 3] = [
        (
            &[0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0],
            "amqp:connection:framing-error",
        ),
        (&[0, 0, 0, 9, 2, 0, 0, 0, 0x40], "amqp:decode-error"),
        (&[0, 0, 0, 8, 0, 0, 0, 0], "amqp:connection:framing-error"),
    ];
    for (bytes, told) in hostile {
        let mut client = Client::connect(address).await;
        client.stream.write_all(bytes).await.unwrap();
        let (_, close, _) = client.until(CLOSE).await;
        assert_eq!(condition(&close[0]), told);
        assert!(
            client.try_next().await.is_none(),
            "the connection is closed"
        );
    }
    // A sender beyond its credit.
    let mut client = Client::connect(address).await;
    assert_eq!(
        client
            .attach(0, false, "$management", AttachMore::default())
            .await,
        None
    );
    let big = vec![0; 40_000];
    for more in [true, true, false] {
        let tag = Value::Binary(vec![1].into());
        let mut fields = vec![
            Value::U32(0),
            Value::U32(0),
            tag,
            Value::U32(0),
            Value::Bool(false),
        ];
        fields.push(Value::Bool(more));
        client.write(TRANSFER, fields, &big).await;
    }
    let (_, told, _) = client.until(DISPOSITION).await;
    let error = &told[4].undescribed().as_list().unwrap()[0];
    assert_eq!(condition(error), "amqp:link:message-size-exceeded");

    assert_eq!(
        other.attach(0, false, "t", AttachMore::default()).await,
        None
    );
    let outcome = other.send(0, 0, &event("still served")).await;
    assert_eq!(descriptor(&outcome), Value::U64(0x24));
    node.stop().await;
}

// proves G2
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_token_makes_the_node_keep_little() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), KEYS).await;
    let mut client = Client::connect(node.amqp_addresses()[0]).await;
    let invalid = Some("amqp:invalid-field".to_owned());
    let long = "n".repeat(3000);
    let more = AttachMore {
        name: Some(long.clone()),
        ..AttachMore::default()
    };
    assert_eq!(client.attach(0, true, "$management", more).await, invalid);
    let address = format!("t/Publishers/{long}");
    let refused = client.attach(1, false, &address, AttachMore::default());
    assert_eq!(refused.await, invalid);
    for handle in 2..18 {
        let more = AttachMore::default();
        assert_eq!(client.attach(handle, true, "$management", more).await, None);
    }
    let name = Value::string("one too many");
    let fields = vec![name, Value::U32(18), Value::Bool(true)];
    client.write(ATTACH, fields, &[]).await;
    let (_, close, _) = client.until(CLOSE).await;
    assert_eq!(condition(&close[0]), "amqp:unauthorized-access");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_an_error_only_if_the_settings_name_it() {
    let folder = tempfile::tempdir().unwrap();
    // Taken by this test or by another process.
    let _taken = TcpListener::bind("127.0.0.1:5672").await;
    let node = start(folder.path(), "", "").await.unwrap();
    assert_eq!(node.amqp_addresses(), []);
    node.stop().await;
    let named = "amqp = { listen = \"127.0.0.1:5672\" }";
    let error = start(folder.path(), named, "")
        .await
        .err()
        .expect("the address is taken");
    assert!(
        error.to_string().contains("something else listens there"),
        "{error}"
    );
}

// proves G1
#[test]
fn an_address_beyond_this_machine_needs_keys_and_tls() {
    let load = |settings: &[(&str, &str)]| {
        let flags = settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let flags = flags.collect();
        let sources = Sources {
            flags,
            ..Sources::default()
        };
        sources.load().map(drop).map_err(|error| error.to_string())
    };
    let open = load(&[("amqp.listen", "0.0.0.0:5672")]).unwrap_err();
    assert!(open.contains("without a key"), "{open}");
    assert_eq!(load(&[("amqp.listen", "127.0.0.1:5673")]), Ok(()));
    assert_eq!(load(&[("amqp.listen", "off")]), Ok(()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("highwater.toml");
    let with_keys = |listener: &str| {
        let text = format!("{KEYS}[[amqp.listeners]]\nlisten = \"0.0.0.0:5671\"\n{listener}\n");
        highwater_env::disk::write_private(&file, text.as_bytes()).unwrap();
        let sources = Sources {
            file: Some(file.clone()),
            ..Sources::default()
        };
        sources.load().map(drop).map_err(|error| error.to_string())
    };
    let plain = with_keys("").unwrap_err();
    assert!(plain.contains("unencrypted"), "{plain}");
    let anonymous = with_keys("anonymous = true").unwrap_err();
    assert!(anonymous.contains("without a key"), "{anonymous}");
    assert_eq!(
        with_keys("tls = { cert = \"c.pem\", key = \"k.pem\" }"),
        Ok(())
    );
}
