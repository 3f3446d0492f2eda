//! What every command takes that talks to a node: its address, and whether to answer in JSON.

use std::io::{Write, stdout};

use hyper::Method;
use serde_json::Value;

use crate::client::{Client, Server};
use crate::exit::Ending;

/// Where to talk to, and how to answer.
#[derive(clap::Args)]
pub struct Ask {
    #[command(flatten)]
    pub server: Server,
    #[arg(long)]
    pub json: bool,
}

impl Ask {
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let mut client = Client::new(&self.server)?;
        let answer = client.send_json(Method::POST, path, body).await?;
        answer.success()?.json()
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = Client::new(&self.server)?.get(path).await?;
        answer.success()?.json()
    }

    /// The whole answer with `--json`, otherwise a line for people.
    pub fn tell(&self, answer: &Value, line: impl FnOnce() -> String) -> anyhow::Result<Ending> {
        match self.json {
            true => writeln!(stdout(), "{answer}")?,
            false => writeln!(stdout(), "{}", line())?,
        }
        Ok(Ending::Well)
    }
}
