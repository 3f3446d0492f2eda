//! Lists and describes topics; their settings.

use std::io::Write;

use serde_json::Value;

use crate::exit::ExitStatus;
use crate::node_args::{Columns, NamedArgs, NodeArgs, items, text};

#[derive(clap::Args, serde::Serialize)]
pub(crate) struct Settings {
    /// Time to live of a message, such as 7d, or `forever`
    #[arg(long)]
    time_to_live: Option<String>,
    /// Duplicate detection window: drop a message whose id was seen within this time, such as 10m, or `off`
    #[arg(long)]
    duplicates_within: Option<String>,
    /// The largest total size of messages that subscriptions do not have yet, in bytes
    #[arg(long)]
    bytes_max: Option<u64>,
    /// The largest message, in bytes; 1 MiB at most
    #[arg(long)]
    message_bytes_max: Option<u32>,
    /// Delete the topic when it has not been used for this time, such as 1h, or `never`
    #[arg(long, value_name = "TIME")]
    auto_delete_on_idle: Option<String>,
}

pub(crate) async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let topics = node.get("/api/topics").await?["topics"].take();
    node.print_with(&topics, |out| {
        if items(&topics).next().is_none() {
            eprintln!("there are no topics; create one with: highwater topic create NAME");
            return Ok(());
        }
        let columns = Columns([24, 20, -12, -12, -12, -12]);
        let names = [
            "topic",
            "subscription",
            "active",
            "locked",
            "scheduled",
            "dead_letters",
        ];
        writeln!(out, "{}", columns.line(names))?;
        for topic in items(&topics) {
            let name = text(topic, "name");
            if items(&topic["subscriptions"]).next().is_none() {
                writeln!(out, "{}", columns.line([name, "", "", "", "", ""]))?;
            }
            for subscription in items(&topic["subscriptions"]) {
                let counts = ["active", "locked", "scheduled", "dead_letters"]
                    .map(|count| subscription[count].to_string());
                let [active, locked, scheduled, dead] = counts.each_ref().map(String::as_str);
                let row = [
                    name,
                    text(subscription, "name"),
                    active,
                    locked,
                    scheduled,
                    dead,
                ];
                writeln!(out, "{}", columns.line(row))?;
            }
        }
        Ok(())
    })
}

pub(crate) async fn describe(topic: &NamedArgs) -> anyhow::Result<ExitStatus> {
    let NamedArgs { name, node } = topic;
    let topic = node.get(&format!("/api/topics/{name}")).await?;
    node.print_with(&topic, |out| {
        for (name, value) in topic.as_object().into_iter().flatten() {
            if !value.is_array() {
                writeln!(out, "{name:28} {value}")?;
            }
        }
        for subscription in items(&topic["subscriptions"]) {
            writeln!(out, "\nsubscription {}", text(subscription, "name"))?;
            for (name, value) in subscription.as_object().into_iter().flatten() {
                if !value.is_array() && name != "name" {
                    writeln!(out, "  {name:26} {value}")?;
                }
            }
            for rule in items(&subscription["rules"]) {
                writeln!(out, "  rule {:21} {}", text(rule, "name"), rule_line(rule))?;
            }
        }
        Ok(())
    })
}

fn rule_line(rule: &Value) -> String {
    let filter = match text(rule, "filter") {
        "sql" => text(rule, "sql").to_owned(),
        "correlation" => rule["correlation"].to_string(),
        constant => constant.to_owned(),
    };
    match rule["action"].as_str() {
        Some(action) => format!("{filter} -> {action}"),
        None => filter,
    }
}
