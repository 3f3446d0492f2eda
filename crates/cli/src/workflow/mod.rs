//! `highwater workflow`: the workflows of a running server, over HTTP.

mod supervise;

use std::io::{Read, Write, stdin, stdout};

use anyhow::Context;
use highwater_env::disk;
use highwater_time::Instant;
use highwater_workflow::machine::View;
use highwater_workflow::{Definition, Summary};
use hyper::Method;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::block_on::block_on;
use crate::client::{Client, escape};
use crate::exit::{BadRequest, Ending};

/// What a drawing may be wide where nobody says how wide the terminal is.
const WIDTH: usize = 100;

#[derive(clap::Args)]
pub struct Workflow {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Start an instance, unless there is or was one with this id
    Start(Start),
    /// List the workflows, or the instances of one
    List(List),
    /// Draw an instance: its steps, attempts and compensations
    Show(Named),
    /// Do not go on with an instance, and undo what was done
    Cancel(Decide),
    /// Try again to undo what could not be undone
    Retry(Decide),
    /// Leave a step that cannot be undone as it is, and go on undoing the others
    Skip(Skip),
    /// Say that a person has taken care of what was left to undo
    Resolve(Decide),
    /// Undo what fails, as a process of its own, until it is told to stop
    Supervise(supervise::Supervise),
    /// Check a definition and show what is wrong with it
    Check(Check),
}

#[derive(clap::Args)]
struct Start {
    workflow: String,
    /// Your name for the transaction; the same id twice runs once
    id: String,
    /// The input as JSON; `-` reads it from standard input
    #[arg(default_value = "{}")]
    input: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct List {
    workflow: Option<String>,
    /// Only those in one of these states, such as parked,running
    #[arg(long, requires = "workflow")]
    state: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Named {
    workflow: String,
    id: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Decide {
    #[command(flatten)]
    named: Named,
    /// Why, for whoever looks at it later
    #[arg(long, default_value = "")]
    note: String,
}

#[derive(clap::Args)]
struct Skip {
    #[command(flatten)]
    decide: Decide,
    /// The step that is not to be undone
    #[arg(long)]
    step: String,
}

#[derive(clap::Args)]
struct Check {
    /// A definition in TOML
    file: std::path::PathBuf,
    #[arg(long)]
    json: bool,
}

impl Workflow {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(async {
            match self.what {
                What::Start(start) => start.run().await,
                What::List(list) => list.run().await,
                What::Show(named) => named.show().await,
                What::Cancel(decide) => decide.run("cancel").await,
                What::Retry(decide) => decide.run("retry").await,
                What::Skip(skip) => skip.run().await,
                What::Resolve(decide) => decide.run("resolve").await,
                What::Supervise(supervise) => supervise.run().await,
                What::Check(check) => check.run(),
            }
        })
    }
}

impl Start {
    async fn run(self) -> anyhow::Result<Ending> {
        let text = match self.input.as_str() {
            "-" => {
                let mut text = String::new();
                stdin().read_to_string(&mut text)?;
                text
            }
            text => text.to_owned(),
        };
        let input: Value = serde_json::from_str(&text)
            .map_err(|error| BadRequest(format!("the input is not JSON: {error}")))?;
        let path = format!("/workflows/{}/{}", escape(&self.workflow), escape(&self.id));
        let mut client = Client::new(&self.ask.server)?;
        let answer = client.send_json(Method::PUT, &path, &input).await?;
        let (status, facts) = (answer.status, answer.success()?.json()?);
        let known = if status == 201 {
            "accepted"
        } else {
            "known already"
        };
        match self.ask.json {
            true => writeln!(stdout(), "{facts}")?,
            false => writeln!(
                stdout(),
                "{} {}: {known}, {}",
                self.workflow,
                self.id,
                facts["state"].as_str().unwrap_or_default()
            )?,
        }
        Ok(Ending::Well)
    }
}

impl List {
    async fn run(self) -> anyhow::Result<Ending> {
        let mut client = Client::new(&self.ask.server)?;
        let Some(workflow) = &self.workflow else {
            let facts = client.get("/api/workflows").await?.success()?.json()?;
            return self.workflows(&facts["workflows"]);
        };
        let state = self
            .state
            .as_deref()
            .map_or(String::new(), |state| format!("&state={}", escape(state)));
        let path = format!(
            "/api/workflows/{}?limit={}{state}",
            escape(workflow),
            self.limit
        );
        let mut facts = client.get(&path).await?.success()?.json()?;
        let instances = facts["instances"].take();
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{instances}")?;
            return Ok(Ending::Well);
        }
        let instances: Vec<Summary> = serde_json::from_value(instances)?;
        for it in &instances {
            let started = Instant::from_unix_millis(it.started_ms);
            let step = it.step.as_deref().unwrap_or_default();
            let reason = it.reason.as_deref().unwrap_or_default();
            let line = format!("{:36} {:10} {started} {step:16} {reason}", it.id, it.state);
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(Ending::Well)
    }

    fn workflows(&self, workflows: &Value) -> anyhow::Result<Ending> {
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{workflows}")?;
            return Ok(Ending::Well);
        }
        for workflow in workflows.as_array().into_iter().flatten() {
            let text = |name: &str| workflow[name].as_str().unwrap_or_default().to_owned();
            writeln!(
                out,
                "{:24} version {} {:>9} running {:>12} ended",
                text("name"),
                text("version"),
                workflow["running"],
                workflow["ended"]
            )?;
        }
        Ok(Ending::Well)
    }
}

impl Named {
    fn path(&self) -> String {
        format!(
            "/api/workflows/{}/{}",
            escape(&self.workflow),
            escape(&self.id)
        )
    }

    async fn show(self) -> anyhow::Result<Ending> {
        let answer = Client::new(&self.ask.server)?.get(&self.path()).await?;
        self.print(answer.success()?.json()?)
    }

    fn print(&self, facts: Value) -> anyhow::Result<Ending> {
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{facts}")?;
            return Ok(Ending::Well);
        }
        let view: View = serde_json::from_value(facts).context("the server's answer is strange")?;
        let width = console::Term::stdout().size_checked();
        let width = width.map_or(WIDTH, |(_, columns)| usize::from(columns));
        write!(out, "{}", view.draw(width))?;
        Ok(Ending::Well)
    }
}

impl Decide {
    async fn run(self, verb: &str) -> anyhow::Result<Ending> {
        let body = json!({"note": self.note});
        self.send(verb, &body).await
    }

    async fn send(self, verb: &str, body: &Value) -> anyhow::Result<Ending> {
        let path = format!("{}/{verb}", self.named.path());
        let mut client = Client::new(&self.named.ask.server)?;
        let answer = client.send_json(Method::POST, &path, body).await?;
        self.named.print(answer.success()?.json()?)
    }
}

impl Skip {
    async fn run(self) -> anyhow::Result<Ending> {
        let body = json!({"note": self.decide.note, "step": self.step});
        self.decide.send("skip", &body).await
    }
}

impl Check {
    fn run(self) -> anyhow::Result<Ending> {
        let file = self.file.display().to_string();
        let text =
            disk::read_to_string(&self.file).with_context(|| format!("cannot read {file}"))?;
        let definition = Definition::from_toml(&file, &text);
        let definition = definition.map_err(|error| BadRequest(error.to_string()))?;
        let version = definition.version().to_string();
        let steps = definition.steps.len();
        match self.json {
            true => writeln!(
                stdout(),
                "{}",
                json!({"name": definition.name, "version": version, "steps": steps})
            )?,
            false => writeln!(
                stdout(),
                "{}: {steps} steps, version {version}",
                definition.name
            )?,
        }
        Ok(Ending::Well)
    }
}
