//! The whole application as processes of this machine: the node, the supervisor and the services, started,
//! killed and started again.

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

/// What is started, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Folder for everything that is kept
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
pub enum Part {
    Node,
    /// Undoes what failed; the node schedules.
    Supervisor,
    Service(usize),
}

impl Part {
    pub fn of(kind: Kind) -> Part {
        let place = Kind::ALL.iter().position(|one| *one == kind);
        Part::Service(place.expect("ALL has all of them"))
    }

    pub fn all() -> impl Iterator<Item = Part> {
        let services = (0..Kind::ALL.len()).map(Part::Service);
        [Part::Node, Part::Supervisor].into_iter().chain(services)
    }

    pub fn name(self) -> &'static str {
        match self {
            Part::Node => "node",
            Part::Supervisor => "supervisor",
            Part::Service(number) => Kind::ALL[number].name(),
        }
    }

    /// Where it is asked how it is doing; a supervisor listens nowhere, and the node knows.
    fn port(self, first: u16) -> u16 {
        match self {
            Part::Node | Part::Supervisor => first,
            Part::Service(number) => first + 1 + number as u16,
        }
    }
}

pub struct Stack {
    options: Options,
    highwater: PathBuf,
    own: PathBuf,
    /// Of every service when it starts.
    faults: Faults,
    /// The settings of the node, one of the files.
    settings: &'static str,
    running: BTreeMap<Part, Child>,
}

/// The files of the node, as they are in this folder.
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
    /// Starts everything; ready when everything answers.
    pub async fn start(options: Options, faults: Faults) -> anyhow::Result<Stack> {
        let parts: Vec<Part> = Part::all().collect();
        Stack::start_some(options, faults, "highwater.toml", &parts).await
    }

    /// Starts the node and the public API, and nobody behind them.
    pub async fn start_door(options: Options) -> anyhow::Result<Stack> {
        let parts = [Part::Node, Part::of(Kind::Ingestion)];
        Stack::start_some(options, Faults::default(), "spike.toml", &parts).await
    }

    async fn start_some(
        options: Options,
        faults: Faults,
        settings: &'static str,
        parts: &[Part],
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
        for part in parts {
            stack.launch(*part)?;
        }
        for part in parts {
            stack.ready(*part).await?;
        }
        Ok(stack)
    }

    pub fn address(&self, part: Part) -> String {
        format!("127.0.0.1:{}", part.port(self.options.ports))
    }

    pub fn data(&self) -> &Path {
        &self.options.data
    }

    /// The program and its arguments.
    fn command(&self, part: Part) -> Command {
        let data = self.options.data.join(part.name());
        let mut command;
        match part {
            Part::Node => {
                command = Command::new(&self.highwater);
                command
                    .args(["up", "-c"])
                    .arg(self.options.data.join(self.settings));
                command.arg("--data").arg(data);
            }
            Part::Supervisor => {
                command = Command::new(&self.highwater);
                let node = format!("http://{}", self.address(Part::Node));
                command.args(["workflow", "supervise", "--server", &node, "--lock", "5"]);
            }
            Part::Service(number) => {
                command = Command::new(&self.own);
                command.args(["serve", part.name(), "--listen", &self.address(part)]);
                command
                    .args(["--node", &self.address(Part::Node)])
                    .arg("--data")
                    .arg(data);
                let delivery = format!("http://{}", self.address(Part::of(Kind::Delivery)));
                command.args(["--delivery-url", &delivery]);
                command.args(["--seed", &(number + 1).to_string()]);
                if has_faults(Kind::ALL[number]) {
                    command.args(flags(&self.faults));
                }
            }
        }
        command
    }

    pub fn launch(&mut self, part: Part) -> anyhow::Result<()> {
        let log = log_file(&self.options.data.join("logs").join(part.name()))?;
        let child = self
            .command(part)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", part.name()))?;
        self.running.insert(part, child);
        Ok(())
    }

    /// Ready when it answers; fails when the process has ended or takes too long.
    pub async fn ready(&mut self, part: Part) -> anyhow::Result<()> {
        const TRIES: u32 = 1200;
        let path = match part {
            Part::Node | Part::Supervisor => "/readyz",
            Part::Service(_) => "/healthz",
        };
        let mut client = Client::new(self.address(part), Duration::from_secs(2));
        for _ in 0..TRIES {
            if client.get(path).await.is_ok_and(|reply| reply.is_success()) {
                return Ok(());
            }
            let ended = self.running.get_mut(&part).map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                let log = self.options.data.join("logs").join(part.name());
                anyhow::bail!(
                    "{} ended with {status}: see {}.log",
                    part.name(),
                    log.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("{} does not answer on {}", part.name(), self.address(part))
    }

    /// What a part has cost so far.
    pub fn cpu(&self, part: Part) -> Duration {
        let number = self.running.get(&part).and_then(Child::id);
        number.and_then(process_cpu).unwrap_or_default()
    }

    /// `kill -9`.
    pub async fn kill(&mut self, part: Part) -> anyhow::Result<()> {
        if let Some(mut child) = self.running.remove(&part) {
            child.kill().await?;
        }
        Ok(())
    }

    pub async fn stop(&mut self) -> anyhow::Result<()> {
        for part in Part::all() {
            self.kill(part).await?;
        }
        Ok(())
    }

    /// Asks a part until it does not fail: services may be set to.
    pub async fn ask(
        &self,
        part: Part,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Reply, CallError> {
        ask(&self.address(part), method, path, body).await
    }

    /// The customers of a load have accounts, and so has `me`.
    pub async fn register(&self, name: &str) -> anyhow::Result<()> {
        let address = self.address(Part::of(Kind::Account));
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

/// The switch is for the back ends; the public door and the history have troubles enough with a dying
/// node.
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

/// The files name the usual ports.
fn on_ports(text: &str, first: u16) -> String {
    Part::all().fold(text.to_owned(), |text, part| {
        let port = |first| format!("127.0.0.1:{}", part.port(first));
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
