//! `highwater processor`: the processors, their progress and their errors.

use std::io::Write;

use crate::client::percent_encode;
use crate::exit::ExitStatus;
use crate::node_args::{NodeArgs, items, text};
use crate::runtime::block_on;

#[derive(clap::Args)]
pub(crate) struct Processor {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the processors
    List(NodeArgs),
    /// Show a processor and its partitions
    Status(Status),
}

#[derive(clap::Args)]
struct Status {
    name: String,
    #[command(flatten)]
    node: NodeArgs,
}

impl Processor {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self.command {
                Command::List(node) => list(&node).await,
                Command::Status(command) => command.run().await,
            }
        })
    }
}

async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let processors = node.get("/api/processors").await?["processors"].take();
    node.print_with(&processors, |out| {
        writeln!(
            out,
            "{:20} {:20} {:9} {:>10} {:>10} {:>10} {:>6}",
            "processor", "hub", "circuit", "handled", "failures", "behind", "dead"
        )?;
        for processor in items(&processors) {
            let number = |field: &str| processor[field].to_string();
            writeln!(
                out,
                "{:20} {:20} {:9} {:>10} {:>10} {:>10} {:>6}",
                text(processor, "name"),
                text(processor, "hub"),
                text(processor, "circuit"),
                number("handled"),
                number("failures"),
                number("behind"),
                number("dead_letters"),
            )?;
        }
        Ok(())
    })
}

impl Status {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let path = format!("/api/processors/{}", percent_encode(&self.name));
        let processor = self.node.get(&path).await?;
        self.node.print_with(&processor, |out| {
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
            writeln!(
                out,
                "{:>9} {:>14} {:>14} {:>14}",
                "partition", "offset", "end", "behind"
            )?;
            for partition in items(&processor["partitions"]) {
                let number = |field: &str| partition[field].to_string();
                let elsewhere = match partition["here"].as_bool() {
                    Some(true) => "",
                    _ => "  elsewhere",
                };
                writeln!(
                    out,
                    "{:>9} {:>14} {:>14} {:>14}{elsewhere}",
                    number("partition"),
                    number("offset"),
                    number("end"),
                    number("behind")
                )?;
                if let Some(trouble) = partition["trouble"].as_str() {
                    writeln!(out, "{:>9} {trouble}", "")?;
                }
            }
            Ok(())
        })
    }
}
