//! The cost of workflows: rate, memory, and the effect of a long history on a start.
//!
//! ```sh
//! cargo run --release -p highwater-workflow --example workflow_speed -- rate|accept|ended [COUNT] [FOLDER]
//! ```
//!
//! - `rate`: five steps each, against services with a latency of 5 ms, every outcome synced to disk. The services run
//!   in a process of their own (the same program, called with `services`), so that their CPU time is separate.
//! - `accept`: instances that are accepted and then wait: the rate of starts and the memory per instance.
//! - `ended`: instances that end at once; then a restart, and starts with that history.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use highwater_env::{Clock, RealClock, RealDisk, usage};
use highwater_hub::Hub;
use highwater_log::Log;
use highwater_workflow::call::Functions;
use highwater_workflow::definition::{Builder, Definition, StepBuilder};
use highwater_workflow::{Handle, JournalError, Options, Service, StartError, Supervision};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

const STEPS: [&str; 5] = ["account", "package", "third-party", "drone", "delivery"];
const LATENCY: Duration = Duration::from_millis(5);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_else(|| "rate".into());
    let count: usize = arguments.next().map_or(Ok(20_000), |count| count.parse())?;
    let folder = arguments
        .next()
        .unwrap_or_else(|| "workflow-speed-data".into());
    match mode.as_str() {
        "services" => services().await,
        "accept" => accept(count, &folder).await,
        "ended" => ended(count, &folder).await,
        _ => with_services(count, &folder).await,
    }
}

async fn with_services(count: usize, folder: &str) -> Result<(), Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("services")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let ports: Vec<u16> = serde_json::from_str(&line)?;
    let result = rate(count, folder, &ports, child.id()).await;
    child.kill()?;
    child.wait()?;
    result
}

async fn rate(count: usize, folder: &str, ports: &[u16], child: u32) -> Result<(), Failure> {
    let node = Node::open(folder, calls(ports)?).await?;
    let known = node.handle.ended();
    let (before, services) = (Spent::now(&node), cpu_of(child));
    node.start_all(count).await?;
    let accepted = Spent::now(&node).took - before.took;
    node.until_ended(known + count).await;
    let spent = Spent::now(&node) - before;
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    println!("accepted  {:>8.0} a second", rate(accepted));
    println!("completed {:>8.0} a second", rate(spent.took));
    println!("cpu       {:>8.1} us a workflow", micros(spent.cpu, count));
    let services = cpu_of(child) - services;
    println!(
        "          {:>8.1} us in the services",
        micros(services, count)
    );
    node.stop().await
}

async fn accept(count: usize, folder: &str) -> Result<(), Failure> {
    let step = StepBuilder::function("wait", "nothing").after(Duration::from_secs(3600));
    let mut builder = Builder::new("accept").step(step);
    for name in &STEPS[1..] {
        builder = builder.step(StepBuilder::function(name, "nothing").undo_function("nothing"));
    }
    let node = Node::open(folder, builder.build()?).await?;
    // Fills the caches first, so that only the instances are measured.
    node.start_all(WARM_UP).await?;
    let (before, memory) = (Spent::now(&node), memory_now());
    node.start_all(count).await?;
    let spent = Spent::now(&node) - before;
    let each = (memory_now() - memory) / count;
    println!(
        "accepted  {:>8.0} a second",
        count as f64 / spent.took.as_secs_f64()
    );
    println!("cpu       {:>8.1} us a start", micros(spent.cpu, count));
    println!("memory    {each:>8} bytes an instance, its input of about 70 included");
    node.stop().await
}

async fn ended(count: usize, folder: &str) -> Result<(), Failure> {
    let definition = Builder::new("ended").step(StepBuilder::function("nothing", "nothing"));
    let definition = definition.build()?;
    let node = Node::open(folder, definition.clone()).await?;
    let few = node.cost_of_starts().await?;
    let known = node.handle.ended();
    node.start_all(count).await?;
    node.until_ended(known + count).await;
    node.stop().await?;
    let node = Node::open(folder, definition).await?;
    let many = node.cost_of_starts().await?;
    println!("cpu       {few:>8.1} us a workflow of one step when few had ended");
    println!("          {many:>8.1} us when {} had", node.handle.ended());
    println!("memory    {:>8} KiB after the restart", memory_now() / 1024);
    node.stop().await
}

const WARM_UP: usize = 10_000;

/// A workflow on a hub of its own.
struct Node {
    clock: Arc<dyn Clock>,
    hub: Hub,
    handle: Handle,
    stop: Arc<Notify>,
    running: JoinHandle<Result<(), JournalError>>,
    started: AtomicUsize,
}

impl Node {
    async fn open(folder: &str, definition: Definition) -> Result<Node, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let options = highwater_hub::Options {
            tail_bytes: 4 << 20,
            ..highwater_hub::Options::default()
        };
        let path = folder.as_ref();
        let hub = Hub::open(Arc::new(RealDisk), path, options, clock.clone(), &|_| {})?;
        let log: Arc<dyn Log> = Arc::new(hub.clone());
        let options = Options {
            running_max: usize::MAX,
            ..Options::default()
        };
        let functions = Functions::new().with("nothing", async |_| Ok(serde_json::Value::Null));
        let begun = clock.elapsed();
        let clock_of = clock.clone();
        let opening = Service::open(
            &log,
            clock_of,
            definition,
            functions,
            options,
            Supervision::Here,
        );
        let service = opening.await?;
        let handle = service.handle();
        let took = clock.elapsed() - begun;
        println!("opened in {took:?} with {} ended instances", handle.ended());
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        Ok(Node {
            clock,
            hub,
            handle,
            stop,
            running: tokio::spawn(service.run(async move { stopped.notified().await })),
            started: AtomicUsize::new(0),
        })
    }

    /// Starts from 512 concurrent callers. Completes when the last one is accepted.
    async fn start_all(&self, count: usize) -> Result<(), Failure> {
        const CALLERS: usize = 512;
        let first = self.started.fetch_add(count, Ordering::Relaxed);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let handle = self.handle.clone();
            let name = format!("{}-{}", std::process::id(), self.clock.elapsed().as_nanos());
            callers.spawn(async move {
                for number in (first + caller..first + count).step_by(CALLERS) {
                    let id = format!("{name}-{number}");
                    let input = format!(r#"{{"deliveryId":"{id}","size":"Small"}}"#);
                    handle.start(&id, input.as_bytes()).await?;
                }
                Ok::<_, StartError>(())
            });
        }
        while let Some(done) = callers.join_next().await {
            done??;
        }
        Ok(())
    }

    async fn until_ended(&self, count: usize) {
        while self.handle.ended() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// CPU time of a workflow that ends at once, in microseconds.
    async fn cost_of_starts(&self) -> Result<f64, Failure> {
        self.start_all(WARM_UP).await?;
        let known = self.handle.ended() + self.handle.running();
        let before = Spent::now(self);
        self.start_all(WARM_UP).await?;
        self.until_ended(known + WARM_UP).await;
        Ok(micros((Spent::now(self) - before).cpu, WARM_UP))
    }

    async fn stop(self) -> Result<(), Failure> {
        self.stop.notify_one();
        self.running.await??;
        self.hub.stop();
        Ok(())
    }
}

/// Time that passed, and CPU time of this process.
#[derive(Clone, Copy)]
struct Spent {
    took: Duration,
    cpu: Duration,
}

impl Spent {
    fn now(node: &Node) -> Spent {
        Spent {
            took: node.clock.elapsed(),
            cpu: usage().cpu.unwrap_or_default(),
        }
    }
}

impl std::ops::Sub for Spent {
    type Output = Spent;

    fn sub(self, before: Spent) -> Spent {
        Spent {
            took: self.took - before.took,
            cpu: self.cpu - before.cpu,
        }
    }
}

fn micros(cpu: Duration, count: usize) -> f64 {
    cpu.as_secs_f64() * 1e6 / count as f64
}

fn calls(ports: &[u16]) -> Result<Definition, Failure> {
    let mut builder = Builder::new("speed");
    for (step, port) in STEPS.iter().zip(ports) {
        let url = format!("http://127.0.0.1:{port}/api/{step}/{{{{input.deliveryId}}}}");
        let body = serde_json::json!({"id": "{{input.deliveryId}}", "size": "{{input.size}}"});
        builder = builder.step(
            StepBuilder::call(step, "PUT", &url)
                .json(&body)
                .undo("DELETE", &url),
        );
    }
    Ok(builder.build()?)
}

/// Listens on a port for each step, forever.
async fn services() -> Result<(), Failure> {
    let mut ports = Vec::new();
    for _ in STEPS {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        ports.push(listener.local_addr()?.port());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service_fn(answer)),
                );
            }
        });
    }
    println!("{}", serde_json::to_string(&ports)?);
    std::future::pending().await
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    request.into_body().collect().await?;
    tokio::time::sleep(LATENCY).await;
    Ok(Response::new(Full::new(Bytes::from_static(
        br#"{"id":"4711","state":"done"}"#,
    ))))
}

#[allow(clippy::disallowed_methods, reason = "figures of the system, not data")]
fn cpu_of(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok());
    Duration::from_millis(10 * (ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)))
}

#[allow(clippy::disallowed_methods, reason = "figures of the system, not data")]
fn memory_now() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}
