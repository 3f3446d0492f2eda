//! `highwater circuit`: whether deliveries go on, and stopping or resuming them.

use std::io::{Write, stdout};

use serde_json::{Value, json};

use super::{items, text};
use crate::ask::Ask;
use crate::block_on::block_on;
use crate::client::escape;
use crate::exit::Ending;

#[derive(clap::Args)]
pub struct Circuit {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the circuits: closed while deliveries go on, open while they are stopped
    List(List),
    /// Stop deliveries to a processor's handler until somebody closes the circuit
    Open(Open),
    /// Resume deliveries
    Close(Close),
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Open {
    name: String,
    /// The reason, for those who find it open
    #[arg(long, default_value = "opened by hand")]
    why: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Close {
    name: String,
    #[command(flatten)]
    ask: Ask,
}

impl Circuit {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(async {
            match self.what {
                What::List(command) => command.run().await,
                What::Open(command) => {
                    let why = json!({"why": command.why});
                    change(&command.ask, &command.name, "open", &why).await
                }
                What::Close(command) => {
                    change(&command.ask, &command.name, "close", &json!({})).await
                }
            }
        })
    }
}

impl List {
    async fn run(self) -> anyhow::Result<Ending> {
        let circuits = self.ask.get("/api/circuits").await?["circuits"].take();
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{circuits}")?;
            return Ok(Ending::Well);
        }
        for circuit in items(&circuits) {
            writeln!(out, "{}", line(circuit))?;
        }
        Ok(Ending::Well)
    }
}

async fn change(ask: &Ask, name: &str, action: &str, body: &Value) -> anyhow::Result<Ending> {
    let path = format!("/api/circuits/{}/{action}", escape(name));
    let circuit = ask.post(&path, body).await?;
    match ask.json {
        true => writeln!(stdout(), "{circuit}")?,
        false => writeln!(stdout(), "{}", line(&circuit))?,
    }
    Ok(Ending::Well)
}

fn line(circuit: &Value) -> String {
    let head = format!("{:20} {:9}", text(circuit, "name"), text(circuit, "state"));
    match (circuit["since"].as_str(), circuit["why"].as_str()) {
        (Some(since), Some(why)) => format!("{head} since {since}: {why}"),
        _ => head.trim_end().to_owned(),
    }
}
