//! How many workflows a second: five steps each, against services that take 5 ms to answer, with every
//! outcome synced to a disk.
//!
//! ```sh
//! cargo run --release -p highwater-workflow --example workflow_speed -- [WORKFLOWS] [FOLDER]
//! ```
//!
//! The services run in a process of their own (the same program, called with `services`), so that their
//! share of the CPU can be told apart. First all instances are started as fast as they are accepted,
//! then it is waited until the last has ended.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, RealClock, RealDisk, Usage, usage};
use highwater_hub::Hub;
use highwater_log::Log;
use highwater_workflow::call::Functions;
use highwater_workflow::definition::{Builder, Definition, StepBuilder};
use highwater_workflow::{Handle, Options, Parts, Service};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const STEPS: [&str; 5] = ["account", "package", "third-party", "drone", "delivery"];
const LATENCY: Duration = Duration::from_millis(5);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("services") {
        return services().await;
    }
    let count: usize = first.map_or(Ok(20_000), |count| count.parse())?;
    let folder = arguments
        .next()
        .unwrap_or_else(|| "workflow-speed-data".into());

    let mut child = Command::new(std::env::current_exe()?)
        .arg("services")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let ports: Vec<u16> = serde_json::from_str(&line)?;
    let result = measure(count, &folder, &ports, child.id()).await;
    child.kill()?;
    child.wait()?;
    result
}

async fn measure(count: usize, folder: &str, ports: &[u16], child: u32) -> Result<(), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let hub = Hub::open(
        Arc::new(RealDisk),
        folder.as_ref(),
        highwater_hub::Options::default(),
        clock.clone(),
        &|_| {},
    )?;
    let log: Arc<dyn Log> = Arc::new(hub.clone());
    let options = Options {
        running_max: usize::MAX,
        ..Options::default()
    };
    let opened = clock.elapsed();
    let service = Service::open(
        &log,
        clock.clone(),
        definition(ports)?,
        Functions::new(),
        options,
        Parts::Both,
    )
    .await?;
    let opened = clock.elapsed() - opened;
    let handle = service.handle();
    let (known, name) = (handle.ended(), std::process::id());
    println!("opened in {opened:?} with {known} ended instances");
    let stop = Arc::new(tokio::sync::Notify::new());
    let stopped = stop.clone();
    let running = tokio::spawn(service.run(async move { stopped.notified().await }));

    let (begun, before, before_services) = (clock.elapsed(), usage(), cpu_of(child));
    let accepted = start_all(&handle, count, name, &clock).await? - begun;
    let (peak, per_instance) = (handle.running(), memory_now());
    while handle.ended() < known + count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = clock.elapsed() - begun;
    let cpu = cpu(usage()) - cpu(before);
    let services = cpu_of(child) - before_services;
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / count as f64;
    println!(
        "accepted  {:>8.0} a second, {peak} then under way",
        rate(accepted)
    );
    println!("completed {:>8.0} a second", rate(took));
    println!(
        "cpu       {:>8.1} us a workflow, and {:.1} us in the services",
        micros(cpu),
        micros(services)
    );
    println!(
        "memory    {:>8} KiB when all had been accepted",
        per_instance / 1024
    );
    stop.notify_one();
    running.await??;
    hub.stop();
    Ok(())
}

/// Starts from 512 callers at once; answers when the last was accepted.
async fn start_all(
    handle: &Handle,
    count: usize,
    name: u32,
    clock: &Arc<dyn Clock>,
) -> Result<Duration, Failure> {
    const CALLERS: usize = 512;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let handle = handle.clone();
        callers.spawn(async move {
            for number in (caller..count).step_by(CALLERS) {
                let id = format!("{name}-{number}");
                let input = format!(r#"{{"deliveryId":"{id}","size":"Small","weight":4.5}}"#);
                handle.start(&id, input.as_bytes()).await?;
            }
            Ok::<_, highwater_workflow::StartError>(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    Ok(clock.elapsed())
}

fn definition(ports: &[u16]) -> Result<Definition, Failure> {
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

/// Listens on a port for each step until standard input ends.
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

fn cpu(usage: Usage) -> Duration {
    usage.cpu.unwrap_or_default()
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
