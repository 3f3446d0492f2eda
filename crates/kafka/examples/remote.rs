//! A processor over a cluster: another node, Apache Kafka, or Azure Event Hubs. Start it several times with
//! the same group; the instances share the partitions, and take over those of an instance that dies.
//!
//! ```text
//! cargo run -p highwater-kafka --example remote -- localhost:9092 send orders 1000
//! cargo run -p highwater-kafka --example remote -- localhost:9092 handle orders billing
//! ```
//!
//! With `KAFKA_CA`, a file with the certificates of authorities, it connects by TLS; with `KAFKA_USER` and
//! `KAFKA_PASSWORD` it logs in.

use std::env::var;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::RealClock;
use highwater_flow::CheckpointInterval;
use highwater_flow::{
    Assignment, DeadLetterPartition, Delivery, Event, Failure, GroupMember, GroupTimeouts, Options,
    Order, Processor, ProcessorStats, StartPosition,
};
use highwater_kafka::client::{self, Login, Remote};
use highwater_log::batch::NewRecord;
use highwater_log::{AdminError, HubName, HubSettings, HubSpec, Log, partition_for_key};
use highwater_net::tls;
use highwater_retry::RetryPolicy;

const USAGE: &str = "remote HOST:PORT send HUB COUNT | remote HOST:PORT handle HUB GROUP";
const PARTITIONS: u32 = 6;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [server, what, hub, which] = arguments[..] else {
        return Err(USAGE.into());
    };
    let clock = Arc::new(RealClock::new());
    let remote = Remote::connect(options(server)?, clock).await?;
    make(&remote, hub, PARTITIONS).await?;
    match what {
        "send" => send(&remote, hub, which.parse()?).await,
        "handle" => handle(remote, hub, which).await,
        _ => Err(USAGE.into()),
    }
}

#[allow(clippy::disallowed_methods, reason = "no simulation runs this")]
fn options(server: &str) -> Result<client::Options, Box<dyn Error>> {
    let mut options = client::Options::new([server]);
    if let Ok(path) = var("KAFKA_CA") {
        options.tls = Some(tls::trust_only(&std::fs::read_to_string(path)?, None)?);
    }
    if let (Ok(user), Ok(password)) = (var("KAFKA_USER"), var("KAFKA_PASSWORD")) {
        options.login = Some(Login { user, password });
    }
    Ok(options)
}

async fn make(log: &dyn Log, name: &str, partitions: u32) -> Result<(), Box<dyn Error>> {
    if log.hub(name).is_some() {
        return Ok(());
    }
    let spec = HubSpec {
        name: HubName::new(name)?,
        partitions,
        settings: HubSettings::default(),
    };
    match log.create(spec).await {
        // Another instance created it.
        Ok(_) | Err(AdminError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Appends numbers without waiting for each append.
async fn send(log: &dyn Log, hub: &str, count: u32) -> Result<(), Box<dyn Error>> {
    let partitions = log.hub(hub).ok_or("it was just made")?.partitions;
    let mut pending = Vec::new();
    for number in 0..count {
        let text = number.to_string();
        let partition = partition_for_key(text.as_bytes(), partitions);
        let partition = log.partition(hub, partition).ok_or("it was just made")?;
        pending.push(partition.append_records(&[NewRecord {
            key: Some(text.as_bytes()),
            value: Some(text.as_bytes()),
            headers: &[],
        }]));
    }
    for appended in pending {
        appended.await?;
    }
    println!("sent {count}");
    Ok(())
}

/// Prints every event of this instance's partitions, until it is interrupted.
async fn handle(remote: Remote, hub: &str, group: &str) -> Result<(), Box<dyn Error>> {
    let dead = format!("{hub}.dead");
    make(&remote, &dead, 1).await?;
    let letters = remote.partition(&dead, 0).ok_or("it was just made")?;
    let processor = Processor {
        member: GroupMember {
            log: Arc::new(remote.clone()),
            groups: Arc::new(remote.clone()),
            hub: HubName::new(hub)?,
            group: group.into(),
            client: "example".into(),
            assignment: Assignment::Shared { instance: None },
            timeouts: GroupTimeouts {
                session: Duration::from_secs(6),
                heartbeat: Duration::from_secs(1),
                ..GroupTimeouts::default()
            },
        },
        start: StartPosition::Earliest,
        share: None,
        check: None,
        batch: None,
        options: Options {
            order: Order::Key,
            ..Options::default()
        },
        checkpoint_interval: CheckpointInterval {
            events: 100,
            period: Duration::from_secs(1),
        },
        dead_letters: Arc::new(DeadLetterPartition(letters)),
        clock: Arc::new(RealClock::new()),
        restart: RetryPolicy {
            tries_max: None,
            ..RetryPolicy::default()
        },
        stats: Arc::new(ProcessorStats::default()),
    };
    let handler = Arc::new(async |deliveries: Vec<Delivery<Event>>| {
        for delivery in deliveries {
            let value = String::from_utf8_lossy(delivery.event.value().unwrap_or_default());
            println!("{} {value}", delivery.event.id());
        }
        Ok::<_, Failure>(())
    });
    let interrupted = async {
        // Without signals, stop now.
        let _ = tokio::signal::ctrl_c().await;
    };
    processor.run(handler, interrupted).await;
    Ok(())
}
