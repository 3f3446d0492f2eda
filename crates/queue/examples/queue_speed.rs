//! Throughput of a queue: messages sent, received under a lock and completed, each step durable (fsync) before its
//! reply.
//!
//! ```sh
//! cargo run --release -p highwater-queue --example queue_speed -- [SECONDS] [FOLDER]
//! ```
//!
//! One line per shape: workers of each kind, and messages per request. CPU is that of the whole process, workers
//! included.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{Clock, RealClock, RealDisk, usage};
use highwater_hub::{Hub, Options};
use highwater_queue::{Content, NewMessage, Queue, Queues, ReceiveLimit, ReceiveRequest, Settings};

const BODY: usize = 200;

struct Shape {
    workers: usize,
    batch: usize,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse::<u64>())?;
    let scratch = tempfile::tempdir()?;
    let folder = arguments
        .next()
        .map_or(scratch.path().to_owned(), PathBuf::from);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let (disk, options) = (Arc::new(RealDisk), Options::default());
    let hub = Hub::open(disk, &folder, options, clock.clone(), &|_| {})?;
    let log = Arc::new(hub.clone());
    let options = highwater_queue::Options::default();
    let (queues, _) = Queues::open(log, clock.clone(), Random::from_os(), options).await;
    println!("workers  batch   cycles/s   CPU us/cycle");
    for shape in [(1, 1), (16, 1), (256, 1), (16, 10), (16, 100)] {
        let (workers, batch) = shape;
        let name = format!("speed-{workers}-{batch}");
        let queue = queues.create(&name, Settings::default()).await?;
        let shape = Shape { workers, batch };
        let (cycles, cpu) = measure(&queue, &shape, seconds, &*clock).await;
        let rate = cycles as f64 / seconds as f64;
        let cost = cpu.as_micros() as f64 / cycles as f64;
        println!("{workers:7}{batch:7}{rate:11.0}{cost:15.1}");
        queues.delete(&name).await?;
    }
    queues.stop().await;
    hub.stop();
    Ok(())
}

/// Completed cycles, and their CPU time.
async fn measure(queue: &Queue, shape: &Shape, seconds: u64, clock: &dyn Clock) -> (u64, Duration) {
    let (stop, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let tasks: Vec<_> = (0..shape.workers)
        .flat_map(|_| {
            let (queue, stop, batch) = (queue.clone(), stop.clone(), shape.batch);
            let sender = tokio::spawn(send(queue.clone(), batch, stop.clone()));
            let receiver = tokio::spawn(receive(queue, batch, stop, done.clone()));
            [sender, receiver]
        })
        .collect();
    let cpu = |usage: highwater_env::Usage| usage.cpu.unwrap_or_default();
    let (start, before) = (clock.elapsed(), cpu(usage()));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (cycles, spent) = (done.load(Ordering::Relaxed), cpu(usage()) - before);
    let took = clock.elapsed() - start;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        let _ = task.await;
    }
    let scale = seconds as f64 / took.as_secs_f64();
    ((cycles as f64 * scale) as u64, spent.mul_f64(scale))
}

async fn send(queue: Queue, batch: usize, stop: Arc<AtomicBool>) {
    let body = vec![b'x'; BODY];
    while !stop.load(Ordering::Relaxed) {
        let message = || NewMessage {
            content: Content {
                body: body.clone().into(),
                ..Content::default()
            },
            ..NewMessage::default()
        };
        let messages = std::iter::repeat_with(message).take(batch).collect();
        queue.send(messages).await.expect("the queue takes it");
    }
}

async fn receive(queue: Queue, batch: usize, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) {
    while !stop.load(Ordering::Relaxed) {
        let receive = ReceiveRequest {
            limit: ReceiveLimit::from(batch),
            wait: Duration::from_millis(100),
            ..ReceiveRequest::default()
        };
        let got = queue.receive(receive).await.expect("the queue answers");
        let tokens = got.iter().filter_map(|it| Some(it.lock?.0)).collect();
        let settled = queue.complete(tokens).await.expect("the queue answers");
        let completed = settled.iter().filter(|result| result.is_ok()).count();
        done.fetch_add(completed as u64, Ordering::Relaxed);
    }
}
