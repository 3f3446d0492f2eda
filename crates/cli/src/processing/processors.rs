//! `highwater processor`: the processors, their progress and their errors.

use std::io::Write;

use crate::client::percent_encode;
use crate::exit::ExitStatus;
use crate::node_args::{Columns, NamedArgs, NodeArgs, items, text};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Processor {
    /// List the processors
    List(NodeArgs),
    /// Show a processor and its partitions
    Status(NamedArgs),
}

impl Processor {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Processor::List(node) => list(&node).await,
                Processor::Status(processor) => status(&processor).await,
            }
        })
    }
}

async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let processors = node.get("/api/processors").await?["processors"].take();
    node.print_with(&processors, |out| {
        let columns = Columns([20, 20, 9, -10, -10, -10, -6]);
        let mut names = [
            "processor",
            "hub",
            "circuit",
            "handled",
            "failures",
            "behind",
            "dead",
        ];
        writeln!(out, "{}", columns.line(names))?;
        (names[0], names[6]) = ("name", "dead_letters");
        for processor in items(&processors) {
            writeln!(out, "{}", columns.fields(processor, names))?;
        }
        Ok(())
    })
}

async fn status(processor: &NamedArgs) -> anyhow::Result<ExitStatus> {
    let NamedArgs { name, node } = processor;
    let path = format!("/api/processors/{}", percent_encode(name));
    let processor = node.get(&path).await?;
    node.print_with(&processor, |out| {
        let word = |field: &str| text(&processor, field);
        let number = |field: &str| processor[field].to_string();
        writeln!(
            out,
            "processor {} of hub {}, group {}",
            word("name"),
            word("hub"),
            word("group")
        )?;
        writeln!(
            out,
            "{} {}, circuit {}",
            word("handler"),
            word("target"),
            word("circuit")
        )?;
        writeln!(
            out,
            "{} handled in {} deliveries, {} of them failed; {} dead letters; {} behind",
            number("handled"),
            number("deliveries"),
            number("failures"),
            number("dead_letters"),
            number("behind")
        )?;
        let columns = Columns([-9, -14, -14, -14]);
        let names = ["partition", "offset", "end", "behind"];
        writeln!(out, "{}", columns.line(names))?;
        for partition in items(&processor["partitions"]) {
            let elsewhere = match partition["here"].as_bool() {
                Some(true) => "",
                _ => "  elsewhere",
            };
            writeln!(out, "{}{elsewhere}", columns.fields(partition, names))?;
            if let Some(trouble) = partition["trouble"].as_str() {
                writeln!(out, "{:>9} {trouble}", "")?;
            }
        }
        Ok(())
    })
}
