//! Arguments and output that all commands over a node's HTTP API share.

use std::io::{StdoutLock, Write, stdout};

use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::client::{Client, Server};
use crate::exit::{ExitStatus, UsageError};

/// The node to talk to, and the output format.
#[derive(clap::Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl NodeArgs {
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.server)
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.client()?.get(path).await?.success()?.json()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::PATCH, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::PUT, path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self.client()?.send_json(method, path, body).await?;
        response.success()?.json()
    }

    /// Deletes the resource at `path` and prints its kind and name.
    pub(crate) async fn delete(
        &self,
        path: &str,
        kind: &str,
        name: &str,
    ) -> anyhow::Result<ExitStatus> {
        let mut client = self.client()?;
        let response = client.request(Method::DELETE, path, &[], Bytes::new());
        response.await?.success()?;
        self.print(&json!({"deleted": name}), || {
            format!("deleted {kind} {name}")
        })
    }

    /// Prints the response with `--json`, otherwise one line of text.
    pub(crate) fn print(
        &self,
        response: &Value,
        line: impl FnOnce() -> String,
    ) -> anyhow::Result<ExitStatus> {
        self.print_with(response, |out| Ok(writeln!(out, "{}", line())?))
    }

    /// Prints the response with `--json`, otherwise the text that `write_text` writes.
    pub(crate) fn print_with(
        &self,
        response: &Value,
        write_text: impl FnOnce(&mut StdoutLock<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitStatus> {
        let mut out = stdout().lock();
        match self.json {
            true => writeln!(out, "{response}")?,
            false => write_text(&mut out)?,
        }
        Ok(ExitStatus::Success)
    }
}

/// A resource of the node, by its name.
#[derive(clap::Args)]
pub(crate) struct NamedArgs {
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// A resource to create, with its settings.
#[derive(clap::Args)]
pub(crate) struct CreateArgs<S: clap::Args> {
    name: String,
    #[command(flatten)]
    settings: S,
    #[command(flatten)]
    node: NodeArgs,
}

impl<S: clap::Args + Serialize> CreateArgs<S> {
    /// Creates a resource of this `kind`, such as a queue.
    pub(crate) async fn run(self, kind: &str) -> anyhow::Result<ExitStatus> {
        let mut body = given(&self.settings);
        body.insert("name".into(), self.name.clone().into());
        let path = format!("/api/{kind}s");
        let created = self.node.post(&path, &body.into()).await?;
        self.node
            .print(&created, || format!("{kind} {}", self.name))
    }
}

/// A resource whose settings change.
#[derive(clap::Args)]
pub(crate) struct SetArgs<S: clap::Args> {
    name: String,
    #[command(flatten)]
    settings: S,
    #[command(flatten)]
    node: NodeArgs,
}

impl<S: clap::Args + Serialize> SetArgs<S> {
    /// Changes the resource of this `kind`, such as a queue.
    pub(crate) async fn run(self, kind: &str) -> anyhow::Result<ExitStatus> {
        let path = format!("/api/{kind}s/{}", self.name);
        let changed = self.node.patch(&path, &change(&self.settings)?).await?;
        self.node
            .print(&changed, || format!("changed {kind} {}", self.name))
    }
}

/// The body of a change, which has a setting at least.
pub(crate) fn change(settings: &impl Serialize) -> Result<Value, UsageError> {
    let body = given(settings);
    match body.is_empty() {
        true => {
            let message =
                "nothing to set: give a setting such as --time-to-live 7d; --help lists them";
            Err(UsageError(message.into()))
        }
        false => Ok(body.into()),
    }
}

/// A resource to delete, confirmed by typing its name.
#[derive(clap::Args)]
pub(crate) struct DeleteArgs {
    name: String,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    node: NodeArgs,
}

impl DeleteArgs {
    /// Deletes the `kind` of this name, such as a hub, with its `contents`.
    pub(crate) async fn run(self, kind: &str, contents: &str) -> anyhow::Result<ExitStatus> {
        let name = &self.name;
        let subject = format!("{kind} {name} and {contents}");
        if !self.confirmation.confirm(&subject, name)? {
            return Ok(ExitStatus::Failure);
        }
        let path = format!("/api/{kind}s/{name}");
        self.node.delete(&path, kind, name).await
    }
}

/// Asks before something is deleted for good.
#[derive(clap::Args)]
pub(crate) struct Confirmation {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Confirmation {
    /// True if the user typed `name`, or gave `--yes`.
    pub(crate) fn confirm(&self, subject: &str, name: &str) -> anyhow::Result<bool> {
        if self.yes {
            return Ok(true);
        }
        eprint!("This deletes {subject}. Type {name} to confirm: ");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        let confirmed = line.trim() == name;
        if !confirmed {
            eprintln!("nothing was deleted");
        }
        Ok(confirmed)
    }
}

/// The settings that were given, as the body of a request. An absent one has its default at creation, and is unchanged
/// by a change.
pub(crate) fn given(settings: &impl Serialize) -> Map<String, Value> {
    let fields = serde_json::to_value(settings).expect("arguments are plain values");
    let fields = fields.as_object().cloned().unwrap_or_default();
    let given = fields.into_iter().filter(|(_, value)| !value.is_null());
    given.collect()
}

/// The items of a JSON array; none if `list` is no array.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The text in a field of a JSON object; empty if it has none.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// The widths of a table's columns; a negative width aligns to the right.
pub(crate) struct Columns<const N: usize>(pub(crate) [i8; N]);

impl<const N: usize> Columns<N> {
    pub(crate) fn line(&self, cells: [&str; N]) -> String {
        let cell = |(width, cell): (&i8, &str)| {
            let columns = usize::from(width.unsigned_abs());
            match *width < 0 {
                true => format!("{cell:>columns$}"),
                false => format!("{cell:columns$}"),
            }
        };
        let cells: Vec<String> = self.0.iter().zip(cells).map(cell).collect();
        cells.join(" ")
    }

    /// The line of an object's fields.
    pub(crate) fn fields(&self, object: &Value, names: [&str; N]) -> String {
        let fields = names.map(|name| match &object[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        });
        self.line(fields.each_ref().map(String::as_str))
    }
}
