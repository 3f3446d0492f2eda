//! A Kafka broker in memory: the protocol, groups and transactions over a log in memory. It shows the parts that a node
//! combines, and other clients are tested against it.
//!
//! ```text
//! cargo run --release -p highwater-kafka --example serve -- 127.0.0.1:9092
//! kcat -b 127.0.0.1:9092 -L
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use highwater_env::random::Random;
use highwater_env::{Clock, RealClock};
use highwater_hub::{groups, transactions};
use highwater_kafka::{AllowAll, FixedSettings, Listener, Options, Server, Services};
use highwater_log::{Log, MemoryLog};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address: SocketAddr = address.as_deref().unwrap_or("127.0.0.1:9092").parse()?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let time = Arc::clone(&clock);
    let now_ms = move || time.unix_millis();
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new(now_ms));

    let groups = groups::Service::new(
        Arc::clone(&log),
        Arc::clone(&clock),
        Random::from_os(),
        groups::Options::default(),
    );
    let transactions = transactions::Service::new(
        Arc::clone(&log),
        Arc::clone(&clock),
        groups.handle(),
        transactions::Options::default(),
    );
    let services = Services {
        log,
        groups: Arc::new(groups.handle()),
        transactions: Arc::new(transactions.handle()),
        authorizer: Arc::new(AllowAll),
        settings: Arc::new(FixedSettings::default()),
        clock,
    };
    let options = Options {
        listeners: vec![Listener::plaintext(address)],
        ..Options::default()
    };
    let server = Server::bind(options, services).await?;
    let handle = server.handle();
    println!("listening on {}", handle.addresses()[0]);

    let forever = std::future::pending;
    let interrupted = async {
        // Without signals, stop now.
        let _ = tokio::signal::ctrl_c().await;
    };
    tokio::select! {
        stopped = groups.run(forever()) => stopped?,
        stopped = transactions.run(forever()) => stopped?,
        () = server.run(interrupted) => {}
    }
    println!("{:#?}", handle.metrics());
    Ok(())
}
