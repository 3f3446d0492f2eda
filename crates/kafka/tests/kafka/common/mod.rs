//! A server over a log in memory, a client made of the codec, and fake groups and transactions.

mod fakes;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use highwater_env::SimClock;
use highwater_kafka::{
    AllowAll, Authorizer, Handle, Listener, MetricsSnapshot, Options, Server, Services,
};
use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord};

use highwater_log::{BoxFuture, HubInfo, HubName, HubSettings, HubSpec, Log, MemoryLog};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ProduceRequest, RequestHeader, ResponseHeader, TopicName, TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use fakes::{FakeGroups, FakeTransactions, MemorySettings};

/// A server that runs until it is dropped or stopped.
pub(crate) struct TestServer {
    pub log: Arc<dyn Log>,
    pub handle: Handle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

pub(crate) fn loopback() -> Listener {
    Listener::plaintext(SocketAddr::from(([127, 0, 0, 1], 0)))
}

pub(crate) fn services(log: Arc<dyn Log>) -> Services {
    Services {
        log,
        groups: Arc::new(FakeGroups),
        transactions: Arc::new(FakeTransactions),
        authorizer: Arc::new(AllowAll),
        settings: Arc::new(MemorySettings::default()),
        clock: Arc::new(SimClock::at_unix_nanos(0)),
    }
}

pub(crate) async fn start() -> TestServer {
    start_with(|_, _| {}).await
}

pub(crate) async fn start_with(change: impl FnOnce(&mut Options, &mut Services)) -> TestServer {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new(|| 1_000));
    let mut services = services(Arc::clone(&log));
    let mut options = Options {
        listeners: vec![loopback()],
        ..Options::default()
    };
    change(&mut options, &mut services);
    let server = Server::bind(options, services).await.unwrap();
    let handle = server.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    TestServer {
        log,
        handle,
        stop,
        task,
    }
}

impl TestServer {
    pub(crate) async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.handle.addresses()[0])
            .await
            .unwrap();
        Client { stream, sent: 0 }
    }

    pub(crate) async fn make(&self, name: &str, partitions: u32) -> Arc<HubInfo> {
        make(&*self.log, name, partitions).await
    }

    pub(crate) fn metrics(&self) -> MetricsSnapshot {
        self.handle.metrics()
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

pub(crate) async fn make(log: &dyn Log, name: &str, partitions: u32) -> Arc<HubInfo> {
    let spec = HubSpec {
        name: HubName::new(name).unwrap(),
        partitions,
        settings: HubSettings::default(),
    };
    log.create(spec).await.unwrap()
}

/// A connection that uses the codec's client side.
pub(crate) struct Client {
    pub stream: TcpStream,
    sent: i32,
}

impl Client {
    /// Sends without waiting. Returns the correlation id.
    pub(crate) async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        self.sent += 1;
        let frame = frame(self.sent, version, request);
        self.stream.write_all(&frame).await.unwrap();
        self.sent
    }

    /// The next response, without trailing bytes.
    pub(crate) async fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let frame = self.receive_frame().await.expect("a response");
        decode::<R>(frame, version)
    }

    pub(crate) async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let sent = self.send(version, request).await;
        let (answered, response) = self.receive::<R>(version).await;
        assert_eq!(answered, sent);
        response
    }

    /// `None` when the server has closed the connection.
    pub(crate) async fn receive_frame(&mut self) -> Option<Bytes> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

pub(crate) fn decode<R: Request>(mut frame: Bytes, version: i16) -> (i32, R::Response) {
    let header_version = R::Response::header_version(version);
    let header = ResponseHeader::decode(&mut frame, header_version).unwrap();
    let response = R::Response::decode(&mut frame, version).unwrap();
    assert!(frame.is_empty(), "{} trailing bytes", frame.len());
    (header.correlation_id, response)
}

pub(crate) fn frame<R: Request>(correlation: i32, version: i16, request: &R) -> Bytes {
    let mut frame = BytesMut::from(&[0; 4][..]);
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_static_str("test")))
        .encode(&mut frame, R::header_version(version))
        .unwrap();
    request.encode(&mut frame, version).unwrap();
    let length = frame.len() as i32 - 4;
    (&mut frame[..4]).put_i32(length);
    frame.freeze()
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.into())
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A batch of these values.
pub(crate) fn batch(values: &[&str]) -> Bytes {
    batch_with(values, &BatchOptions::default())
}

pub(crate) fn batch_with(values: &[&str], seal: &BatchOptions) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(&NewRecord {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        });
    }
    builder.build(seal).unwrap().to_bytes()
}

pub(crate) fn produce(
    hub: &HubInfo,
    version: i16,
    acks: i16,
    partitions: &[(i32, Bytes)],
) -> ProduceRequest {
    let data = partitions.iter().map(|(index, records)| {
        PartitionProduceData::default()
            .with_index(*index)
            .with_records(Some(records.clone()))
    });
    let of_topic = TopicProduceData::default().with_partition_data(data.collect());
    let of_topic = match version >= 13 {
        true => of_topic.with_topic_id(uuid::Uuid::from_bytes(hub.id.0)),
        false => of_topic.with_name(topic(hub.name.as_str())),
    };
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(1000)
        .with_topic_data(vec![of_topic])
}

pub(crate) fn transactional(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

/// The name of a user is its right.
pub(crate) struct RightsByName;

impl Authorizer for RightsByName {
    fn login(&self, user: &str, password: &str) -> BoxFuture<Option<highwater_kafka::Identity>> {
        let good = highwater_kafka::same_secret(password, "secret");
        let identity = good.then(|| highwater_kafka::Identity::new(user));
        Box::pin(std::future::ready(identity))
    }

    fn may(
        &self,
        who: &highwater_kafka::Identity,
        right: highwater_access::Right,
        _on: highwater_access::Resource<'_>,
    ) -> bool {
        let needed = format!("{right:?}").to_lowercase();
        who.name() == "all" || who.name() == needed
    }
}
