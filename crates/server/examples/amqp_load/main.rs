//! Load over AMQP on a running node of this machine: peek-lock cycles, events in batches, or idle receivers.
//!
//! ```sh
//! cargo run --release -p highwater-server --example amqp_load -- 127.0.0.1:5672 PID cycles QUEUE [SECONDS] [CONNECTIONS] [UNDER_WAY]
//! cargo run --release -p highwater-server --example amqp_load -- 127.0.0.1:5672 PID events HUB [SECONDS] [CONNECTIONS] [UNDER_WAY]
//! cargo run --release -p highwater-server --example amqp_load -- 127.0.0.1:5672 PID idle QUEUE 0 [CONNECTIONS]
//! ```
//!
//! The load shares the machine with the node, so beside the rate it prints what a cycle costs the node in CPU. A cycle
//! is a message that was accepted, received under a lock, completed, and whose completion was confirmed: both on the
//! disk.

mod client;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use client::{Client, ClientFrame};
use highwater_amqp::Encoder;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const BODY: [u8; 100] = [b'x'; 100];
/// Messages in flight to a receiver.
const CREDIT: u32 = 100;
/// Events of a batch, and the format of a message that is one.
const BATCH_EVENTS: u64 = 100;
const BATCH_FORMAT: u32 = 0x8001_3700;

struct Load {
    address: SocketAddr,
    pid: u32,
    entity: String,
    seconds: u64,
    connections: usize,
    /// Messages of a sender that are not accepted yet.
    under_way: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, pid, mode, entity, more @ ..] = &args[..] else {
        return Err("usage: amqp_load ADDRESS PID cycles|events|idle NAME [SECONDS] [CONNECTIONS] [UNDER_WAY]".into());
    };
    let number = |at: usize, otherwise: u64| match more.get(at) {
        Some(text) => text.parse(),
        None => Ok(otherwise),
    };
    let load = Load {
        address: address.parse()?,
        pid: pid.parse()?,
        entity: entity.clone(),
        seconds: number(0, 5)?,
        connections: number(1, 32)? as usize,
        under_way: number(2, 1)? as u32,
    };
    match mode.as_str() {
        "cycles" => load.cycles().await,
        "events" => load.events().await,
        "idle" => load.idle().await,
        other => Err(format!("`{other}` is no mode").into()),
    }
}

impl Load {
    /// Senders and receivers of a queue, as many of each.
    async fn cycles(&self) -> Result<(), Failure> {
        let completed = Arc::<AtomicU64>::default();
        let (mut tasks, sent) = (Vec::new(), Arc::<AtomicU64>::default());
        for _ in 0..self.connections {
            let mut receiver = Client::connect(self.address).await?;
            receiver.attach_receiver(&self.entity, CREDIT).await?;
            tasks.push(tokio::spawn(receive(receiver, completed.clone())));
            let mut sender = Client::connect(self.address).await?;
            sender.attach_sender(&self.entity).await?;
            let message = message();
            tasks.push(tokio::spawn(send(
                sender,
                message,
                0,
                self.under_way,
                sent.clone(),
            )));
        }
        self.measure("cycles", 1, &completed).await?;
        tasks.iter().for_each(|task| task.abort());
        Ok(())
    }

    /// Senders of batches to a hub.
    async fn events(&self) -> Result<(), Failure> {
        let mut batch = BytesMut::new();
        for _ in 0..BATCH_EVENTS {
            Encoder::new(&mut batch).data_section(&message());
        }
        let (mut tasks, sent) = (Vec::new(), Arc::<AtomicU64>::default());
        for _ in 0..self.connections {
            let mut sender = Client::connect(self.address).await?;
            sender.attach_sender(&self.entity).await?;
            let sending = send(
                sender,
                batch.clone(),
                BATCH_FORMAT,
                self.under_way,
                sent.clone(),
            );
            tasks.push(tokio::spawn(sending));
        }
        self.measure("events", BATCH_EVENTS, &sent).await?;
        tasks.iter().for_each(|task| task.abort());
        Ok(())
    }

    /// Connections with an idle receiver.
    async fn idle(&self) -> Result<(), Failure> {
        let before = resident_kib(self.pid)?;
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            let mut receiver = Client::connect(self.address).await?;
            receiver.attach_receiver(&self.entity, CREDIT).await?;
            clients.push(receiver);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (after, count) = (resident_kib(self.pid)?, self.connections as u64);
        let each = after.saturating_sub(before) as f64 / count as f64;
        println!("{count} connections: {before} KiB before, {after} after, {each:.1} each");
        Ok(())
    }

    /// Counts for a while, after a second to begin.
    async fn measure(&self, what: &str, each: u64, counter: &AtomicU64) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let read = || -> Result<(u64, Duration), Failure> {
            let cpu = highwater_env::process_cpu(self.pid).ok_or("the node is gone")?;
            Ok((counter.load(Ordering::Relaxed) * each, cpu))
        };
        let clock = highwater_env::RealClock::new();
        let begin = highwater_env::Clock::elapsed(&clock);
        let (count, cpu) = read()?;
        tokio::time::sleep(Duration::from_secs(self.seconds)).await;
        let (count_after, cpu_after) = read()?;
        let seconds = (highwater_env::Clock::elapsed(&clock) - begin).as_secs_f64();
        let (done, cpu) = (count_after - count, cpu_after - cpu);
        let rate = done as f64 / seconds;
        let cost = cpu.as_secs_f64() * 1e6 / done.max(1) as f64;
        let cores = cpu.as_secs_f64() / seconds;
        println!(
            "{rate:.0} {what}/s, {cost:.2} us of CPU each in the node, which used {cores:.2} cores"
        );
        Ok(())
    }
}

fn message() -> BytesMut {
    let mut bytes = BytesMut::new();
    Encoder::new(&mut bytes).data_section(&BODY);
    bytes
}

/// Sends messages, so many at a time, until it is aborted.
async fn send(
    mut client: Client,
    message: BytesMut,
    format: u32,
    under_way: u32,
    accepted: Arc<AtomicU64>,
) -> Result<(), Failure> {
    let (mut next, mut open) = (0_u32, 0);
    loop {
        while open < under_way && client.credit > 0 {
            client.put_transfer(next, format, &message);
            (next, open) = (next.wrapping_add(1), open + 1);
        }
        client.flush().await?;
        match client.read().await? {
            ClientFrame::Disposition { first, last } => {
                let count = last.wrapping_sub(first) + 1;
                open -= count;
                accepted.fetch_add(u64::from(count), Ordering::Relaxed);
            }
            ClientFrame::Transfer { .. } | ClientFrame::Other => {}
        }
    }
}

/// Receives and completes messages until it is aborted.
async fn receive(mut client: Client, completed: Arc<AtomicU64>) -> Result<(), Failure> {
    let mut received = 0;
    loop {
        match client.read().await? {
            ClientFrame::Transfer { id } => {
                received += 1;
                client.put_completion(id);
                if received % (CREDIT / 2) == 0 {
                    client.put_credit(received, CREDIT);
                }
            }
            ClientFrame::Disposition { first, last } => {
                let count = last.wrapping_sub(first) + 1;
                completed.fetch_add(u64::from(count), Ordering::Relaxed);
            }
            ClientFrame::Other => {}
        }
        // All received frames are answered in one write.
        if !client.has_frame() {
            client.flush().await?;
        }
    }
}

fn resident_kib(pid: u32) -> Result<u64, Failure> {
    let output = Command::new("ps")
        .args(["-o", "rss=", "-p", &pid.to_string()])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
