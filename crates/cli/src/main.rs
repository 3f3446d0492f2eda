//! The `highwater` command: arguments in, exit code out.
//!
//! Data goes to standard output, progress and complaints to standard error. The exit code is 0 when all went well, 1 when
//! something failed (a golden case, an input or output), 2 when the request itself was wrong (arguments, job file,
//! query), and 3 when a run came to its end but events were lost to errors on the way.

mod ask;
mod bench;
mod block_on;
mod check;
mod client;
mod config;
mod demo;
mod exit;
mod explain;
mod findings;
mod hub;
mod job;
mod logging;
mod manual;
mod processing;
mod queue;
mod run;
mod settings;
mod signals;
mod summary;
mod test;
mod timeline;
mod traffic;
mod up;
mod why;
mod workflow;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Streaming SQL with exact event time: the right answer, the picture of how time moved, and the reason for every event
/// that was moved or dropped.
#[derive(Parser)]
#[command(name = "highwater", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show it working on generated toll-booth traffic
    Demo(demo::Demo),
    /// Run a node: hubs that Kafka clients and curl can use
    Up(up::Up),
    /// Manage and use the hubs of a running node
    Hub(hub::Hub),
    /// Manage the jobs of a running node
    Job(job::Job),
    /// Manage and use the queues of a running node
    Queue(queue::Queue),
    /// Look at the processors of a running node
    Processor(processing::Processor),
    /// Look at, stop and resume deliveries of a running node
    Circuit(processing::Circuit),
    /// Look at, replay and purge the dead letters of a running node
    Dlq(processing::Dlq),
    /// Start, watch and decide about transactions across services
    Workflow(workflow::Workflow),
    /// Show the settings of a node
    Config(config::Config),
    /// Run one job over its inputs
    Run(run::Run),
    /// Run every golden case below the given folders
    Test(test::Test),
    /// Check a query and show what is wrong with it
    Check(check::Check),
    /// Show the plan of a job and how far back a start reads
    Explain(explain::Explain),
    /// Tell the fate of events: verdict, watermark, timestamp, windows
    Why(why::Why),
    /// Draw event time against arrival time, with the watermark
    Timeline(timeline::Timeline),
    /// Look up functions of the query language
    Manual(manual::Manual),
    /// Measure this machine
    Bench(bench::Bench),
}

/// The job to work on.
#[derive(clap::Args)]
struct JobArgument {
    /// A job.toml, or the folder that holds one
    job: PathBuf,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(command) => command.run(),
        Command::Up(command) => command.run(),
        Command::Hub(command) => command.run(),
        Command::Job(command) => command.run(),
        Command::Queue(command) => command.run(),
        Command::Processor(command) => command.run(),
        Command::Circuit(command) => command.run(),
        Command::Dlq(command) => command.run(),
        Command::Workflow(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Test(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Why(command) => command.run(),
        Command::Timeline(command) => command.run(),
        Command::Manual(command) => command.run(),
        Command::Bench(command) => command.run(),
    };
    exit::code(result)
}
