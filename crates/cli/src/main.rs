//! The `highwater` command: arguments in, exit code out.
//!
//! Data goes to standard output, progress and errors to standard error. Exit codes: 0 success; 1 failure (a golden
//! case, an input or output, a node); 2 usage error (arguments, job file, query); 3 the run finished, but events were
//! lost to errors.

mod bench;
mod check;
mod client;
mod cluster;
mod config;
mod demo;
mod diagnostics;
mod emulator_config;
mod examples;
mod exit;
mod explain;
mod function_watchdog;
mod generate;
mod heap;
mod hub;
mod init;
mod job;
mod key;
mod logging;
mod manual;
mod node_args;
mod processing;
mod queue;
mod run;
mod runtime;
mod settings;
mod signals;
mod summary;
mod test;
mod timeline;
mod topic;
mod up;
mod why;
mod workflow;
mod write_file;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Streaming SQL with exact event time, on an embedded event log with a Kafka API, queues and workflows.
#[derive(Parser)]
#[command(name = "highwater", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a demo: a node, generated toll-booth events, live queries, a handler, a queue and a workflow
    Demo(demo::Demo),
    /// Make a project: settings, a job, a golden case
    Init(init::Init),
    /// Run a node: hubs for Kafka and HTTP clients, jobs, queues, processors and workflows
    Up(up::Up),
    /// Manage and use the hubs of a running node
    #[command(subcommand)]
    Hub(hub::Hub),
    /// Manage the jobs of a running node
    #[command(subcommand)]
    Job(job::Job),
    /// Add, list, rotate and revoke the keys of a running node
    #[command(subcommand)]
    Key(key::Key),
    /// Manage and use the queues of a running node
    #[command(subcommand)]
    Queue(queue::Queue),
    /// Manage the topics of a running node, their subscriptions and rules
    #[command(subcommand)]
    Topic(topic::Topic),
    /// Show the processors of a running node
    #[command(subcommand)]
    Processor(processing::Processor),
    /// Show, open and close the circuit breakers of a running node
    #[command(subcommand)]
    Circuit(processing::Circuit),
    /// Show, replay and purge the dead letters of a running node
    #[command(subcommand)]
    Dlq(processing::Dlq),
    /// Start and manage workflows: transactions across services
    #[command(subcommand)]
    Workflow(workflow::Workflow),
    /// Show the nodes over a cluster: owner, progress and blocking reason of each resource
    Cluster(cluster::Cluster),
    /// Show the settings of a node
    #[command(subcommand)]
    Config(config::Config),
    /// Run a job over files, to the end of its inputs
    Run(run::Run),
    /// Run all golden cases in the given folders
    Test(test::Test),
    /// Compile a query and print its errors and warnings
    Check(check::Check),
    /// Show the plan of a job, its state size and its lookback
    Explain(explain::Explain),
    /// Explain each event: verdict, watermark, timestamp and windows
    Why(why::Why),
    /// Draw event time against arrival time, with the watermark
    Timeline(timeline::Timeline),
    /// Print the reference of the query language's functions
    Manual(manual::Manual),
    /// Print completions for a shell
    Completions(generate::Completions),
    /// Print a man page
    Man(generate::ManPage),
    /// Run benchmarks
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// The job to work on.
#[derive(clap::Args)]
struct JobArgument {
    /// A job.toml or a Stream Analytics project, or the folder that holds one
    job: PathBuf,
    /// Apply the time policy of a Stream Analytics project, whose local files are read in order of event time otherwise
    #[arg(long)]
    policies: bool,
}

fn main() -> ExitCode {
    heap::keep_freed_memory();
    let result = match examples::parse_arguments().command {
        Command::Demo(command) => command.run(),
        Command::Init(command) => command.run(),
        Command::Up(command) => command.run(),
        Command::Hub(command) => command.run(),
        Command::Job(command) => command.run(),
        Command::Key(command) => command.run(),
        Command::Queue(command) => command.run(),
        Command::Topic(command) => command.run(),
        Command::Processor(command) => command.run(),
        Command::Circuit(command) => command.run(),
        Command::Dlq(command) => command.run(),
        Command::Workflow(command) => command.run(),
        Command::Cluster(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Test(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Why(command) => command.run(),
        Command::Timeline(command) => command.run(),
        Command::Manual(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
        Command::Bench(command) => command.run(),
    };
    exit::code(result)
}
