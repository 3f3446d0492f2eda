//! Settles received messages by lock token, and dead-lettered or scheduled ones by sequence number.

use serde_json::{Value, json};

use super::path;
use crate::exit::ExitStatus;
use crate::node_args::{NodeArgs, items, text};

#[derive(clap::Args)]
pub(crate) struct LockTokens {
    queue: String,
    /// Lock tokens, as `receive` prints them
    #[arg(required = true)]
    tokens: Vec<String>,
    /// The messages are dead letters
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl LockTokens {
    pub(crate) async fn settle(self, operation: &str, done: &str) -> anyhow::Result<ExitStatus> {
        let body = json!({"tokens": self.tokens});
        self.post(operation, done, &body).await
    }

    async fn post(self, operation: &str, done: &str, body: &Value) -> anyhow::Result<ExitStatus> {
        let path = path(&self.queue, self.dead_letters, operation);
        let settled = self.node.post(&path, body).await?;
        print_settled(&self.node, &settled, done)
    }
}

fn print_settled(node: &NodeArgs, settled: &Value, done: &str) -> anyhow::Result<ExitStatus> {
    node.print(settled, || format!("{done} {}", settled["settled"]))?;
    Ok(report_failures(settled))
}

/// Prints the messages that could not be settled; any of them makes the command fail.
pub(crate) fn report_failures(response: &Value) -> ExitStatus {
    let mut status = ExitStatus::Success;
    for failed in items(&response["failed"]) {
        eprintln!("{}: {}", failed["of"], text(failed, "message"));
        status = ExitStatus::Failure;
    }
    status
}

#[derive(clap::Args)]
pub(crate) struct DeadLetter {
    #[command(flatten)]
    tokens: LockTokens,
    #[arg(long, default_value = "")]
    reason: String,
    #[arg(long, default_value = "")]
    description: String,
}

impl DeadLetter {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let body = json!({
            "tokens": self.tokens.tokens, "reason": self.reason, "description": self.description,
        });
        self.tokens
            .post("dead-letter", "dead-lettered", &body)
            .await
    }
}

#[derive(clap::Args)]
pub(crate) struct SequenceNumbers {
    queue: String,
    /// Sequence numbers of the messages
    #[arg(required = true)]
    sequences: Vec<u64>,
    #[command(flatten)]
    node: NodeArgs,
}

impl SequenceNumbers {
    pub(crate) async fn post(
        self,
        dead_letters: bool,
        operation: &str,
        done: &str,
    ) -> anyhow::Result<ExitStatus> {
        let body = json!({"sequences": self.sequences});
        let path = path(&self.queue, dead_letters, operation);
        let settled = self.node.post(&path, &body).await?;
        print_settled(&self.node, &settled, done)
    }
}
