//! `highwater workflow`: the workflows of a running node, over HTTP.

mod supervise;

use std::io::{Write, stdin, stdout};

use anyhow::Context;
use highwater_env::disk;
use highwater_time::Instant;
use highwater_workflow::View;
use highwater_workflow::{Definition, InstanceSummary};
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::percent_encode;
use crate::exit::{ExitStatus, UsageError};
use crate::node_args::{NodeArgs, items, text};
use crate::runtime::block_on;

/// The width of a drawing without a terminal.
const DEFAULT_WIDTH: usize = 100;

#[derive(clap::Subcommand)]
pub(crate) enum Workflow {
    /// Start an instance, unless its id is known
    Start(Start),
    /// List the workflows, or the instances of one
    List(List),
    /// Draw an instance: its steps, attempts and compensations
    Show(Instance),
    /// Cancel an instance and compensate its completed steps
    Cancel(Decision),
    /// Retry failed compensations
    Retry(Decision),
    /// Skip the compensation of a step and continue with the others
    Skip(Skip),
    /// Mark a parked instance as resolved by hand
    Resolve(Decision),
    /// Run a supervisor, which compensates failed instances, as a process of its own
    Supervise(supervise::Supervise),
    /// Check a workflow definition and print its errors
    Check(Check),
}

#[derive(clap::Args)]
pub(crate) struct Start {
    workflow: String,
    /// The id of the transaction; the same id runs once
    id: String,
    /// The input as JSON; `-` reads standard input
    #[arg(default_value = "{}")]
    input: String,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct List {
    workflow: Option<String>,
    /// Only instances in one of these states, such as parked,running
    #[arg(long, requires = "workflow")]
    state: Option<String>,
    /// List at most this many
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Instance {
    workflow: String,
    id: String,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Decision {
    #[command(flatten)]
    instance: Instance,
    /// The reason, kept in the history of the instance
    #[arg(long, default_value = "")]
    note: String,
}

#[derive(clap::Args)]
pub(crate) struct Skip {
    #[command(flatten)]
    decision: Decision,
    /// The step whose compensation is skipped
    #[arg(long)]
    step: String,
}

#[derive(clap::Args)]
pub(crate) struct Check {
    /// A definition in TOML
    file: std::path::PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Workflow {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Workflow::Start(command) => command.run().await,
                Workflow::List(command) => command.run().await,
                Workflow::Show(instance) => instance.show().await,
                Workflow::Cancel(decision) => decision.run("cancel").await,
                Workflow::Retry(decision) => decision.run("retry").await,
                Workflow::Skip(command) => command.run().await,
                Workflow::Resolve(decision) => decision.run("resolve").await,
                Workflow::Supervise(command) => command.run().await,
                Workflow::Check(command) => command.run(),
            }
        })
    }
}

impl Start {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let input = match self.input.as_str() {
            "-" => std::io::read_to_string(stdin())?,
            input => input.to_owned(),
        };
        let input: Value = serde_json::from_str(&input)
            .map_err(|error| UsageError(format!("the input is not JSON: {error}")))?;
        let path = format!(
            "/workflows/{}/{}",
            percent_encode(&self.workflow),
            percent_encode(&self.id)
        );
        let mut client = self.node.client()?;
        let answer = client.send_json(Method::PUT, &path, &input).await?;
        let result = match answer.status {
            201 => "accepted",
            _ => "known already",
        };
        let instance = answer.success()?.json()?;
        self.node.print(&instance, || {
            let state = text(&instance, "state");
            format!("{} {}: {result}, {state}", self.workflow, self.id)
        })
    }
}

impl List {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let Some(workflow) = &self.workflow else {
            return self.list_workflows().await;
        };
        let state = self.state.as_deref().map_or(String::new(), |state| {
            format!("&state={}", percent_encode(state))
        });
        let path = format!(
            "/api/workflows/{}?limit={}{state}",
            percent_encode(workflow),
            self.limit
        );
        let instances = self.node.get(&path).await?["instances"].take();
        self.node.print_with(&instances, |out| {
            let instances: Vec<InstanceSummary> = serde_json::from_value(instances.clone())?;
            for instance in &instances {
                let started = Instant::from_unix_millis(instance.started_ms);
                let step = instance.step.as_deref().unwrap_or_default();
                let reason = instance.reason.as_deref().unwrap_or_default();
                let (id, state) = (&instance.id, &instance.state);
                let line = format!("{id:36} {state:10} {started} {step:16} {reason}");
                writeln!(out, "{}", line.trim_end())?;
            }
            Ok(())
        })
    }

    async fn list_workflows(&self) -> anyhow::Result<ExitStatus> {
        let workflows = self.node.get("/api/workflows").await?["workflows"].take();
        self.node.print_with(&workflows, |out| {
            for workflow in items(&workflows) {
                writeln!(
                    out,
                    "{:24} version {} {:>9} running {:>12} ended",
                    text(workflow, "name"),
                    text(workflow, "version"),
                    workflow["running"],
                    workflow["ended"]
                )?;
            }
            Ok(())
        })
    }
}

impl Instance {
    fn path(&self) -> String {
        format!(
            "/api/workflows/{}/{}",
            percent_encode(&self.workflow),
            percent_encode(&self.id)
        )
    }

    async fn show(self) -> anyhow::Result<ExitStatus> {
        self.print(&self.node.get(&self.path()).await?)
    }

    fn print(&self, response: &Value) -> anyhow::Result<ExitStatus> {
        self.node.print_with(response, |out| {
            let view = View::deserialize(response).context("unexpected response")?;
            let width = console::Term::stdout().size_checked();
            let width = width.map_or(DEFAULT_WIDTH, |(_, columns)| usize::from(columns));
            Ok(write!(out, "{}", view.draw(width))?)
        })
    }
}

impl Decision {
    async fn run(self, operation: &str) -> anyhow::Result<ExitStatus> {
        let body = json!({"note": self.note});
        self.send(operation, &body).await
    }

    async fn send(self, operation: &str, body: &Value) -> anyhow::Result<ExitStatus> {
        let path = format!("{}/{operation}", self.instance.path());
        let response = self.instance.node.post(&path, body).await?;
        self.instance.print(&response)
    }
}

impl Skip {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let body = json!({"note": self.decision.note, "step": self.step});
        self.decision.send("skip", &body).await
    }
}

impl Check {
    fn run(self) -> anyhow::Result<ExitStatus> {
        let file = self.file.display().to_string();
        let text =
            disk::read_to_string(&self.file).with_context(|| format!("cannot read {file}"))?;
        let definition = Definition::from_toml(&file, &text);
        let definition = definition.map_err(|error| UsageError(error.to_string()))?;
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
        Ok(ExitStatus::Success)
    }
}
