//! What is done with messages that were received.

use serde_json::{Value, json};

use super::path;
use crate::ask::Ask;
use crate::exit::Ending;

#[derive(clap::Args)]
struct Tokens {
    queue: String,
    /// Lock tokens, as `receive` printed them
    #[arg(required = true)]
    tokens: Vec<String>,
    /// They are dead letters
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Tokens {
    async fn settle(self, what: &str, done: &str, more: Value) -> anyhow::Result<Ending> {
        let mut body = json!({"tokens": self.tokens});
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let path = path(&self.queue, self.dead_letters, what);
        let settled = self.ask.post(&path, &body).await?;
        tell(&self.ask, &settled, done)
    }
}

fn tell(ask: &Ask, settled: &Value, done: &str) -> anyhow::Result<Ending> {
    ask.tell(settled, || format!("{done} {}", settled["settled"]))?;
    Ok(complain(settled))
}

/// Says what could not be settled, which makes the command fail.
pub fn complain(answer: &Value) -> Ending {
    let mut ending = Ending::Well;
    for failed in answer["failed"].as_array().into_iter().flatten() {
        let message = failed["message"].as_str().unwrap_or_default();
        eprintln!("{}: {message}", failed["of"]);
        ending = Ending::Failed;
    }
    ending
}

macro_rules! by_token {
    ($($name:ident: $what:literal, $done:literal;)*) => {$(
        #[derive(clap::Args)]
        pub struct $name {
            #[command(flatten)]
            tokens: Tokens,
        }

        impl $name {
            pub async fn run(self) -> anyhow::Result<Ending> {
                self.tokens.settle($what, $done, json!({})).await
            }
        }
    )*};
}

by_token! {
    Complete: "complete", "completed";
    Abandon: "abandon", "gave back";
    Defer: "defer", "set aside";
    Renew: "renew", "renewed";
}

#[derive(clap::Args)]
pub struct DeadLetter {
    #[command(flatten)]
    tokens: Tokens,
    #[arg(long, default_value = "")]
    reason: String,
    #[arg(long, default_value = "")]
    description: String,
}

impl DeadLetter {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let why = json!({"reason": self.reason, "description": self.description});
        self.tokens
            .settle("dead-letter", "dead letters:", why)
            .await
    }
}

#[derive(clap::Args)]
struct Numbers {
    queue: String,
    /// The numbers of the messages
    #[arg(required = true)]
    sequences: Vec<u64>,
    #[command(flatten)]
    ask: Ask,
}

impl Numbers {
    async fn post(self, dead_letters: bool, what: &str, done: &str) -> anyhow::Result<Ending> {
        let body = json!({"sequences": self.sequences});
        let path = path(&self.queue, dead_letters, what);
        let settled = self.ask.post(&path, &body).await?;
        tell(&self.ask, &settled, done)
    }
}

#[derive(clap::Args)]
pub struct Resubmit {
    #[command(flatten)]
    numbers: Numbers,
}

impl Resubmit {
    pub async fn run(self) -> anyhow::Result<Ending> {
        self.numbers.post(true, "resubmit", "sent back").await
    }
}

#[derive(clap::Args)]
pub struct Cancel {
    #[command(flatten)]
    numbers: Numbers,
}

impl Cancel {
    pub async fn run(self) -> anyhow::Result<Ending> {
        self.numbers.post(false, "cancel", "cancelled").await
    }
}
