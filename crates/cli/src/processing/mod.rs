//! `highwater processor`, `circuit` and `dlq`: what a running server does with events, over HTTP.

mod circuits;
mod letters;
mod processors;

use std::fmt::Write as _;

use serde_json::Value;

use crate::client::{Client, Server};

pub use circuits::Circuit;
pub use letters::Dlq;
pub use processors::Processor;

/// What every one of these commands takes.
#[derive(clap::Args)]
struct Common {
    #[command(flatten)]
    server: Server,
    #[arg(long)]
    json: bool,
}

impl Common {
    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = Client::new(&self.server)?.get(path).await?;
        answer.success()?.json()
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let mut client = Client::new(&self.server)?;
        let answer = client.send_json(hyper::Method::POST, path, body).await?;
        answer.success()?.json()
    }
}

/// A part of a path or of a query, which may hold anything.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => write!(out, "%{byte:02X}").expect("a text takes whatever is written"),
        }
    }
    out
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_id_is_one_part_of_a_path() {
        assert_eq!(super::encoded("orders/0@17"), "orders%2F0%4017");
    }
}
