//! `highwater processor`: which there are, how far they have come, and what is wrong with one.

use std::io::{Write, stdout};

use super::{items, text};
use crate::ask::Ask;
use crate::block_on::block_on;
use crate::client::escape;
use crate::exit::Ending;

#[derive(clap::Args)]
pub struct Processor {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the processors
    List(List),
    /// Show one with its partitions
    Status(Status),
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Status {
    name: String,
    #[command(flatten)]
    ask: Ask,
}

impl Processor {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(async {
            match self.what {
                What::List(command) => command.run().await,
                What::Status(command) => command.run().await,
            }
        })
    }
}

impl List {
    async fn run(self) -> anyhow::Result<Ending> {
        let processors = self.ask.get("/api/processors").await?["processors"].take();
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{processors}")?;
            return Ok(Ending::Well);
        }
        writeln!(
            out,
            "{:20} {:20} {:9} {:>10} {:>10} {:>10} {:>6}",
            "processor", "hub", "circuit", "handled", "failures", "behind", "dead"
        )?;
        for processor in items(&processors) {
            let number = |name: &str| processor[name].to_string();
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
        Ok(Ending::Well)
    }
}

impl Status {
    async fn run(self) -> anyhow::Result<Ending> {
        let path = format!("/api/processors/{}", escape(&self.name));
        let processor = self.ask.get(&path).await?;
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{processor}")?;
            return Ok(Ending::Well);
        }
        let said = |name: &str| text(&processor, name);
        let number = |name: &str| processor[name].to_string();
        writeln!(
            out,
            "processor {} of hub {}, group {}",
            said("name"),
            said("hub"),
            said("group")
        )?;
        writeln!(
            out,
            "{} {}, circuit {}",
            said("handler"),
            said("target"),
            said("circuit")
        )?;
        writeln!(
            out,
            "{} handled in {} deliveries, {} of which failed; {} dead letters; {} behind",
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
        for place in items(&processor["partitions"]) {
            let number = |name: &str| place[name].to_string();
            let here = match place["here"].as_bool() {
                Some(true) => "",
                _ => "  elsewhere",
            };
            writeln!(
                out,
                "{:>9} {:>14} {:>14} {:>14}{here}",
                number("partition"),
                number("offset"),
                number("end"),
                number("behind")
            )?;
            if let Some(trouble) = place["trouble"].as_str() {
                writeln!(out, "{:>9} {trouble}", "")?;
            }
        }
        Ok(Ending::Well)
    }
}
