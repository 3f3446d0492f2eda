//! A broker with groups and transactions over a log in memory, a proxy in front of it, and clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use highwater_env::RealClock;
use highwater_env::random::Random;
use highwater_hub::{groups, transactions};
use highwater_kafka::client::{self, Remote};
use highwater_kafka::{AllowAll, FixedSettings, Listener, Options, Server, Services};
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};
use highwater_log::{
    FetchData, HubName, HubSettings, HubSpec, Log, MemoryLog, Partition, Producer, TopicPartition,
};
use tokio::task::JoinSet;

use crate::proxy::Proxy;

/// Dropping it ends all tasks.
pub(crate) struct TestCluster {
    /// The log of the broker.
    pub log: Arc<dyn Log>,
    /// The log's clock, in Unix milliseconds.
    pub now: Arc<AtomicI64>,
    pub proxy: Proxy,
    /// The address of the broker.
    pub upstream: SocketAddr,
    _tasks: JoinSet<()>,
}

pub(crate) async fn cluster() -> TestCluster {
    let now = Arc::new(AtomicI64::new(1_000));
    let clock = Arc::clone(&now);
    let log = MemoryLog::new(move || clock.load(Ordering::Relaxed));
    cluster_over(Arc::new(log), now, |_, _| {}).await
}

pub(crate) async fn cluster_over(
    log: Arc<dyn Log>,
    now: Arc<AtomicI64>,
    change: impl FnOnce(&mut Options, &mut Services),
) -> TestCluster {
    let clock = Arc::new(RealClock::new());
    let groups = groups::Service::new(
        Arc::clone(&log),
        clock.clone(),
        Random::seeded(7),
        groups::Options {
            session_min: Duration::from_millis(100),
            initial_delay: Duration::ZERO,
            ..groups::Options::default()
        },
    );
    let transactions = transactions::Service::new(
        Arc::clone(&log),
        clock.clone(),
        groups.handle(),
        transactions::Options::default(),
    );
    let proxy = Proxy::bind().await;
    let mut services = Services {
        log: Arc::clone(&log),
        groups: Arc::new(groups.handle()),
        transactions: Arc::new(transactions.handle()),
        authorizer: Arc::new(AllowAll),
        settings: Arc::new(FixedSettings::default()),
        clock,
    };
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut options = Options {
        listeners: vec![Listener {
            // Clients connect to the advertised address, which is the proxy.
            advertised: Some(("localhost".into(), proxy.address.port())),
            ..Listener::plaintext(loopback)
        }],
        auto_create: false,
        ..Options::default()
    };
    change(&mut options, &mut services);
    let encrypted = options.listeners[0].tls.is_some();
    let server = Server::bind(options, services).await.unwrap();
    let upstream = server.handle().addresses()[0];
    match encrypted {
        true => proxy.serve_bytes(upstream),
        false => proxy.serve(upstream),
    }
    let mut tasks = JoinSet::new();
    tasks.spawn(async { groups.run(std::future::pending()).await.unwrap() });
    tasks.spawn(async { transactions.run(std::future::pending()).await.unwrap() });
    tasks.spawn(server.run(std::future::pending()));
    TestCluster {
        log,
        now,
        proxy,
        upstream,
        _tasks: tasks,
    }
}

impl TestCluster {
    /// Tests wait for results, so patience is long; tests of failures shorten it.
    pub(crate) fn options(&self) -> client::Options {
        client::Options {
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(100),
            refresh: Duration::from_millis(200),
            ..client::Options::new([self.proxy.address.to_string()])
        }
    }

    pub(crate) async fn remote(&self) -> Remote {
        connect(self.options()).await.unwrap()
    }

    /// Creates a hub, then a client.
    pub(crate) async fn with_hub(&self, hub: &str, partitions: u32) -> Remote {
        self.log.create(spec(hub, partitions)).await.unwrap();
        self.remote().await
    }
}

pub(crate) async fn connect(options: client::Options) -> Result<Remote, client::ConnectError> {
    Remote::connect(options, Arc::new(RealClock::new())).await
}

pub(crate) fn name(name: &str) -> HubName {
    HubName::new(name).unwrap()
}

pub(crate) fn topic_partition(hub: &str, partition: u32) -> TopicPartition {
    let hub = name(hub);
    TopicPartition { hub, partition }
}

pub(crate) fn spec(hub: &str, partitions: u32) -> HubSpec {
    HubSpec {
        name: name(hub),
        partitions,
        settings: HubSettings::default(),
    }
}

pub(crate) fn value(text: &str) -> NewRecord<'_> {
    NewRecord {
        key: None,
        value: Some(text.as_bytes()),
        headers: &[],
    }
}

pub(crate) fn batch(
    values: &[&str],
    producer: Option<(Producer, i32)>,
    transactional: bool,
) -> Batch {
    let mut builder = BatchBuilder::new();
    for text in values {
        builder.push(&value(text));
    }
    let seal = BatchOptions {
        producer,
        transactional,
        ..BatchOptions::default()
    };
    builder.build(&seal).unwrap()
}

pub(crate) async fn append(partition: &Arc<dyn Partition>, values: &[&str]) -> i64 {
    let records: Vec<_> = values.iter().map(|text| value(text)).collect();
    partition.append_records(&records).await.unwrap().offset.0
}

/// Offset, time and value of every record.
pub(crate) fn contents(fetched: &FetchData) -> Vec<(i64, i64, String)> {
    let mut decompressor = Decompressor::new(1 << 20);
    let mut found = Vec::new();
    for piece in &fetched.pieces {
        for stored in Batches::new(piece) {
            let stored = stored.unwrap();
            stored.check().unwrap();
            if stored.header.is_control() {
                continue;
            }
            for record in stored.records(&mut decompressor).unwrap() {
                let record = record.unwrap();
                let text = String::from_utf8_lossy(record.value.unwrap()).into_owned();
                found.push((record.offset.0, record.timestamp, text));
            }
        }
    }
    found
}

/// The values of a whole partition in the broker's log.
pub(crate) async fn stored(cluster: &TestCluster, hub: &str, partition: u32) -> Vec<String> {
    let partition = cluster.log.partition(hub, partition).unwrap();
    let read = partition.read(
        highwater_log::Offset(0),
        usize::MAX,
        highwater_log::Isolation::Uncommitted,
    );
    let found = contents(&read.await.unwrap());
    found.into_iter().map(|(_, _, value)| value).collect()
}
