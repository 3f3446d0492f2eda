//! `highwater processor`, `circuit` and `dlq`: what a running server does with events, over HTTP.

mod circuits;
mod letters;
mod processors;

use serde_json::Value;

pub use circuits::Circuit;
pub use letters::Dlq;
pub use processors::Processor;

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}
