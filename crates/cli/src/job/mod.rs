//! `highwater job`: the jobs of a running node, over HTTP.

mod bundle;
mod show;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::exit::ExitStatus;
use crate::node_args::{NamedArgs, NodeArgs, text};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Job {
    /// List the jobs
    List(NodeArgs),
    /// Upload a job and start it, or start a stopped one
    Start(Start),
    /// Stop a job after a final checkpoint
    Stop(NamedArgs),
    /// Show the inputs, outputs, watermark, backlog and checkpoint of a job
    Status(NamedArgs),
    /// Print the log of a job
    Logs(Logs),
    /// Stop a job and delete it with its state
    Delete(NamedArgs),
}

#[derive(clap::Args)]
pub(crate) struct Start {
    /// A job.toml, or the folder that holds one; or the name of a job on the node
    job: String,
    /// The name of the job on the node [default: the name in the job file]
    #[arg(long)]
    name: Option<String>,
    /// The time of the first row: resume, now, beginning, or a time such as 2026-01-31T10:00:00Z
    #[arg(long, value_name = "WHEN")]
    start: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Logs {
    name: String,
    /// Print new lines as they are logged
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Job {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Job::List(node) => list(&node).await,
                Job::Start(command) => command.run().await,
                Job::Stop(job) => {
                    let stop = format!("{}/stop", path(&job.name));
                    request_status(&job.node, Method::POST, &stop).await
                }
                Job::Status(job) => request_status(&job.node, Method::GET, &path(&job.name)).await,
                Job::Logs(command) => command.run().await,
                Job::Delete(job) => job.node.delete(&path(&job.name), "job", &job.name).await,
            }
        })
    }
}

fn path(name: &str) -> String {
    format!("/api/jobs/{name}")
}

/// Prints a job; a failed job makes the command fail.
fn print_status(job: &Value, node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    node.print_with(job, |out| Ok(show::status(job, out)?))?;
    Ok(ExitStatus::failure_if(job["state"] == "failed"))
}

async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let jobs = node.get("/api/jobs").await?["jobs"].take();
    node.print_with(&jobs, |out| {
        match jobs.as_array().map(Vec::as_slice) {
            None | Some([]) => {
                eprintln!("there are no jobs; start one with: highwater job start FOLDER");
            }
            Some(jobs) => show::list(jobs, out)?,
        }
        Ok(())
    })
}

async fn request_status(node: &NodeArgs, method: Method, path: &str) -> anyhow::Result<ExitStatus> {
    let mut client = node.client()?;
    let response = client.request(method, path, &[], Bytes::new()).await?;
    print_status(&response.success()?.json()?, node)
}

impl Start {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let folder = PathBuf::from(&self.job);
        let (method, path, body) = match folder.exists() {
            true => {
                let (name, files) = bundle::gather(&folder)?;
                let name = self.name.as_deref().unwrap_or(&name);
                let body = json!({"files": files, "start": self.start});
                (Method::PUT, path(name), body)
            }
            false => {
                let path = format!("{}/start", path(&self.job));
                (Method::POST, path, json!({"start": self.start}))
            }
        };
        let mut client = self.node.client()?;
        let response = client.send_json(method, &path, &body).await?;
        print_status(&response.success()?.json()?, &self.node)
    }
}

/// Pause between two requests for new log lines.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Logs {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let mut client = self.node.client()?;
        let path = format!("{}/logs", path(&self.name));
        let mut last: Option<Value> = None;
        loop {
            let response = client.get(&path).await?;
            let lines = response.success()?.json()?["lines"].take();
            let lines = lines.as_array().cloned().unwrap_or_default();
            let printed = last
                .as_ref()
                .and_then(|last| lines.iter().rposition(|line| line == last));
            self.print(&lines[printed.map_or(0, |index| index + 1)..])?;
            last = lines.last().cloned().or(last);
            if !self.follow {
                return Ok(ExitStatus::Success);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn print(&self, lines: &[Value]) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        for line in lines {
            match self.node.json {
                true => writeln!(out, "{line}")?,
                false => writeln!(out, "{}  {}", text(line, "time"), text(line, "text"))?,
            }
        }
        Ok(out.flush()?)
    }
}
