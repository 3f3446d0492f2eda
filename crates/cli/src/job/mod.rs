//! `highwater job`: jobs of a running server, over HTTP.

mod bundle;
mod show;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::block_on::block_on;
use crate::client::Client;
use crate::exit::Ending;

#[derive(clap::Args)]
pub struct Job {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the jobs
    List(List),
    /// Hand over a job and start it, or start one that is stopped
    Start(Start),
    /// Stop a job, which saves its state
    Stop(Named),
    /// Show what a job reads, writes and is waiting for
    Status(Named),
    /// Print what a job had to say
    Logs(Logs),
    /// Stop a job and forget it and its state
    Delete(Named),
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Named {
    name: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Start {
    /// A job file or the folder that holds one; or the name of a job that the server has
    job: String,
    /// The name that it goes by there; that of the job file, if not given
    #[arg(long)]
    name: Option<String>,
    /// The time of its first row: resume, now, beginning, or a time such as 2026-01-31T10:00:00Z
    #[arg(long, value_name = "WHEN")]
    start: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Logs {
    name: String,
    /// Go on with what comes
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Job {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(async {
            match self.what {
                What::List(command) => command.run().await,
                What::Start(command) => command.run().await,
                What::Stop(named) => {
                    let path = format!("{}/stop", path(&named.name));
                    named.show(Method::POST, &path).await
                }
                What::Status(named) => {
                    let path = path(&named.name);
                    named.show(Method::GET, &path).await
                }
                What::Logs(command) => command.run().await,
                What::Delete(named) => named.delete().await,
            }
        })
    }
}

fn path(name: &str) -> String {
    format!("/api/jobs/{name}")
}

fn print(job: &Value, as_json: bool) -> anyhow::Result<Ending> {
    let mut out = stdout().lock();
    match as_json {
        true => writeln!(out, "{job}")?,
        false => show::status(job, &mut out)?,
    }
    Ok(match job["state"] == "failed" {
        true => Ending::Failed,
        false => Ending::Well,
    })
}

impl List {
    async fn run(self) -> anyhow::Result<Ending> {
        let jobs = self.ask.get("/api/jobs").await?["jobs"].take();
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{jobs}")?;
            return Ok(Ending::Well);
        }
        match jobs.as_array().map(Vec::as_slice) {
            None | Some([]) => {
                eprintln!("there are no jobs; start one with: highwater job start FOLDER")
            }
            Some(jobs) => show::list(jobs, &mut out)?,
        }
        Ok(Ending::Well)
    }
}

impl Named {
    async fn show(self, method: Method, path: &str) -> anyhow::Result<Ending> {
        let mut client = Client::new(&self.ask.server)?;
        let answer = client.request(method, path, &[], Bytes::new()).await?;
        print(&answer.success()?.json()?, self.ask.json)
    }

    async fn delete(self) -> anyhow::Result<Ending> {
        let mut client = Client::new(&self.ask.server)?;
        let path = path(&self.name);
        let answer = client
            .request(Method::DELETE, &path, &[], Bytes::new())
            .await?;
        answer.success()?;
        match self.ask.json {
            true => writeln!(stdout(), "{}", json!({"deleted": self.name}))?,
            false => writeln!(stdout(), "deleted job {}", self.name)?,
        }
        Ok(Ending::Well)
    }
}

impl Start {
    async fn run(self) -> anyhow::Result<Ending> {
        let mut client = Client::new(&self.ask.server)?;
        let given = PathBuf::from(&self.job);
        let answer = match given.exists() {
            true => self.hand_over(&given, &mut client).await?,
            false => {
                let path = format!("{}/start", path(&self.job));
                let body = json!({"start": self.start});
                client.send_json(Method::POST, &path, &body).await?
            }
        };
        print(&answer.success()?.json()?, self.ask.json)
    }

    async fn hand_over(
        &self,
        folder: &Path,
        client: &mut Client,
    ) -> anyhow::Result<crate::client::Answer> {
        let (name, files) = bundle::gather(folder)?;
        let name = self.name.as_deref().unwrap_or(&name);
        let body = json!({"files": files, "start": self.start});
        client.send_json(Method::PUT, &path(name), &body).await
    }
}

/// How often a job is asked for more.
const POLL: Duration = Duration::from_millis(500);

impl Logs {
    async fn run(self) -> anyhow::Result<Ending> {
        let mut client = Client::new(&self.ask.server)?;
        let path = format!("{}/logs", path(&self.name));
        let mut last: Option<Value> = None;
        loop {
            let answer = client.get(&path).await?;
            let lines = answer.success()?.json()?["lines"].take();
            let lines = lines.as_array().cloned().unwrap_or_default();
            let known = last
                .as_ref()
                .and_then(|last| lines.iter().rposition(|line| line == last));
            self.print(&lines[known.map_or(0, |known| known + 1)..])?;
            last = lines.last().cloned().or(last);
            if !self.follow {
                return Ok(Ending::Well);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn print(&self, lines: &[Value]) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        for line in lines {
            match self.ask.json {
                true => writeln!(out, "{line}")?,
                false => writeln!(
                    out,
                    "{}  {}",
                    line["time"].as_str().unwrap_or_default(),
                    line["text"].as_str().unwrap_or_default()
                )?,
            }
        }
        Ok(out.flush()?)
    }
}
