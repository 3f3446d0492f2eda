//! The whole application as local processes: node, supervisor and services, started, killed and restarted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use highwater_env::{disk, process_cpu};
use hyper::Method;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::chaos::Faults;
use crate::client::{CallError, Client, Reply};
use crate::load::Customers;
use crate::serve::Kind;

/// Options of the processes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Data folder
    #[arg(long, default_value = "target/drone-delivery")]
    pub data: PathBuf,
    /// The `highwater` binary; by default the one beside this one, or the one on the path
    #[arg(long)]
    pub highwater: Option<PathBuf>,
    /// The first of eight ports: the node, then the services
    #[arg(long, default_value_t = PORTS)]
    pub ports: u16,
}

/// The ports in the files of this folder.
const PORTS: u16 = 7400;

/// One of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Node,
    /// Undoes failed instances; the node schedules.
    Supervisor,
    Service(usize),
}

impl Process {
    pub fn of(kind: Kind) -> Process {
        let place = Kind::ALL.iter().position(|one| *one == kind);
        Process::Service(place.expect("ALL has all of them"))
    }

    pub fn all() -> impl Iterator<Item = Process> {
        let services = (0..Kind::ALL.len()).map(Process::Service);
        [Process::Node, Process::Supervisor]
            .into_iter()
            .chain(services)
    }

    pub fn name(self) -> &'static str {
        match self {
            Process::Node => "node",
            Process::Supervisor => "supervisor",
            Process::Service(number) => Kind::ALL[number].name(),
        }
    }

    /// The port of its health check. The supervisor has none; the node answers for it.
    fn port(self, first: u16) -> u16 {
        match self {
            Process::Node | Process::Supervisor => first,
            Process::Service(number) => first + 1 + number as u16,
        }
    }
}

pub struct Stack {
    options: Options,
    highwater: PathBuf,
    own: PathBuf,
    /// Initial faults of every service.
    faults: Faults,
    /// The node's settings file.
    settings: &'static str,
    running: BTreeMap<Process, Child>,
}

/// The node's files in this folder.
const FILES: [(&str, &str); 7] = [
    ("highwater.toml", include_str!("../highwater.toml")),
    ("spike.toml", include_str!("../spike.toml")),
    (
        "workflows/delivery.toml",
        include_str!("../workflows/delivery.toml"),
    ),
    (
        "workflows/cancel.toml",
        include_str!("../workflows/cancel.toml"),
    ),
    (
        "workflows/reschedule.toml",
        include_str!("../workflows/reschedule.toml"),
    ),
    ("live/job.toml", include_str!("../live/job.toml")),
    (
        "queries/deliveries/query.saql",
        include_str!("../queries/deliveries/query.saql"),
    ),
];

impl Stack {
    /// Starts all processes. Completes when all respond.
    pub async fn start(options: Options, faults: Faults) -> anyhow::Result<Stack> {
        let parts: Vec<Process> = Process::all().collect();
        Stack::start_some(options, faults, "highwater.toml", &parts).await
    }

    /// Starts only the node and the public API.
    pub async fn start_public_api(options: Options) -> anyhow::Result<Stack> {
        let parts = [Process::Node, Process::of(Kind::Ingestion)];
        Stack::start_some(options, Faults::default(), "spike.toml", &parts).await
    }

    async fn start_some(
        options: Options,
        faults: Faults,
        settings: &'static str,
        parts: &[Process],
    ) -> anyhow::Result<Stack> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let beside = own.with_file_name("highwater");
        let highwater = match &options.highwater {
            Some(path) => path.clone(),
            None if beside.exists() => beside,
            None => PathBuf::from("highwater"),
        };
        for folder in ["logs", "workflows", "live", "queries/deliveries"] {
            disk::create_folder(options.data.join(folder))?;
        }
        for (name, text) in FILES {
            write(&options.data.join(name), &on_ports(text, options.ports))?;
        }
        let mut stack = Stack {
            options,
            highwater,
            own,
            faults,
            settings,
            running: BTreeMap::new(),
        };
        for process in parts {
            stack.launch(*process)?;
        }
        for process in parts {
            stack.ready(*process).await?;
        }
        Ok(stack)
    }

    pub fn address(&self, process: Process) -> String {
        format!("127.0.0.1:{}", process.port(self.options.ports))
    }

    pub fn data(&self) -> &Path {
        &self.options.data
    }

    /// The command line.
    fn command(&self, process: Process) -> Command {
        let data = self.options.data.join(process.name());
        let mut command;
        match process {
            Process::Node => {
                command = Command::new(&self.highwater);
                command
                    .args(["up", "-c"])
                    .arg(self.options.data.join(self.settings));
                command.arg("--data").arg(data);
            }
            Process::Supervisor => {
                command = Command::new(&self.highwater);
                let node = format!("http://{}", self.address(Process::Node));
                command.args(["workflow", "supervise", "--server", &node, "--lock", "5"]);
            }
            Process::Service(number) => {
                command = Command::new(&self.own);
                command.args(["serve", process.name(), "--listen", &self.address(process)]);
                command
                    .args(["--node", &self.address(Process::Node)])
                    .arg("--data")
                    .arg(data);
                let delivery = format!("http://{}", self.address(Process::of(Kind::Delivery)));
                command.args(["--delivery-url", &delivery]);
                command.args(["--seed", &(number + 1).to_string()]);
                if has_faults(Kind::ALL[number]) {
                    command.args(flags(&self.faults));
                }
            }
        }
        command
    }

    pub fn launch(&mut self, process: Process) -> anyhow::Result<()> {
        let log = log_file(&self.options.data.join("logs").join(process.name()))?;
        let child = self
            .command(process)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", process.name()))?;
        self.running.insert(process, child);
        Ok(())
    }

    /// Waits until it responds. Fails if the process has ended or takes too long.
    pub async fn ready(&mut self, process: Process) -> anyhow::Result<()> {
        const TRIES: u32 = 1200;
        let path = match process {
            Process::Node | Process::Supervisor => "/readyz",
            Process::Service(_) => "/healthz",
        };
        let mut client = Client::new(self.address(process), Duration::from_secs(2));
        for _ in 0..TRIES {
            if client.get(path).await.is_ok_and(|reply| reply.is_success()) {
                return Ok(());
            }
            let ended = self.running.get_mut(&process).map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                let log = self.options.data.join("logs").join(process.name());
                anyhow::bail!(
                    "{} ended with {status}: see {}.log",
                    process.name(),
                    log.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!(
            "{} does not answer on {}",
            process.name(),
            self.address(process)
        )
    }

    /// CPU time of a process so far.
    pub fn cpu(&self, process: Process) -> Duration {
        let number = self.running.get(&process).and_then(Child::id);
        number.and_then(process_cpu).unwrap_or_default()
    }

    /// `kill -9`.
    pub async fn kill(&mut self, process: Process) -> anyhow::Result<()> {
        if let Some(mut child) = self.running.remove(&process) {
            child.kill().await?;
        }
        Ok(())
    }

    pub async fn stop(&mut self) -> anyhow::Result<()> {
        for process in Process::all() {
            self.kill(process).await?;
        }
        Ok(())
    }

    /// Sends a request, retrying injected failures.
    pub async fn ask(
        &self,
        process: Process,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Reply, CallError> {
        ask(&self.address(process), method, path, body).await
    }

    /// Registers the customers of a load, and `me`.
    pub async fn register(&self, name: &str) -> anyhow::Result<()> {
        let address = self.address(Process::of(Kind::Account));
        let accounts = Customers::accounts(name).chain([("me".to_owned(), true)]);
        let mut registering = JoinSet::new();
        for (owner, active) in accounts {
            let address = address.clone();
            registering.spawn(async move {
                let path = format!("/api/accounts/{owner}");
                let body = json!({"active": active});
                let reply = ask(&address, Method::PUT, &path, &body).await?;
                anyhow::ensure!(
                    reply.is_success(),
                    "no account for {owner}: {}",
                    reply.text()
                );
                Ok(())
            });
        }
        let done: Vec<anyhow::Result<()>> = registering.join_all().await;
        done.into_iter().collect()
    }
}

async fn ask(address: &str, method: Method, path: &str, body: &Value) -> Result<Reply, CallError> {
    const TRIES: u32 = 100;
    let mut client = Client::new(address, Duration::from_secs(60));
    let mut tries = 1;
    loop {
        let answered = client.json(method.clone(), path, body).await;
        match answered {
            Ok(reply) if reply.status < 500 => return Ok(reply),
            answered if tries == TRIES => return answered,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        tries += 1;
    }
}

/// Faults are injected into the back ends only; the public API and the history already suffer from a dying node.
fn has_faults(kind: Kind) -> bool {
    !matches!(kind, Kind::Ingestion | Kind::History)
}

fn flags(faults: &Faults) -> Vec<String> {
    let Faults {
        latency_ms,
        jitter_ms,
        errors,
        late,
        late_ms,
        lost,
    } = faults;
    let flag = |name: &str, value: String| [format!("--{name}"), value];
    [
        flag("latency-ms", latency_ms.to_string()),
        flag("jitter-ms", jitter_ms.to_string()),
        flag("errors", errors.to_string()),
        flag("late", late.to_string()),
        flag("late-ms", late_ms.to_string()),
        flag("lost", lost.to_string()),
    ]
    .concat()
}

/// Replaces the default ports of the files.
fn on_ports(text: &str, first: u16) -> String {
    Process::all().fold(text.to_owned(), |text, process| {
        let port = |first| format!("127.0.0.1:{}", process.port(first));
        text.replace(&port(PORTS), &port(first))
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut file = disk::create_atomic(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file.commit()?)
}

#[allow(
    clippy::disallowed_methods,
    reason = "what a child process prints goes to a file of the system, and is no data of ours"
)]
fn log_file(path: &Path) -> anyhow::Result<std::fs::File> {
    let path = path.with_extension("log");
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_in_the_files_moves_with_the_ports() {
        for (name, text) in FILES {
            let moved = on_ports(text, 9100);
            assert!(!moved.contains("127.0.0.1:74"), "{name}");
            assert_eq!(moved.len(), text.len(), "{name}");
        }
        assert_eq!(on_ports("127.0.0.1:7405", 9100), "127.0.0.1:9105");
    }
}
