//! The `drone-delivery` command: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use drone_delivery::check::Check;
use drone_delivery::demo::Demo;
use drone_delivery::load::Load;
use drone_delivery::serve::{Kind, Serve};
use drone_delivery::spike::Spike;
use drone_delivery::trial::Trial;

/// Drone Delivery on Highwater: services, load, chaos and the checker.
#[derive(Parser)]
#[command(name = "drone-delivery", version)]
enum Command {
    Run(Demo),
    Chaos(Trial),
    Spike(Spike),
    Serve(Serve),
    Load(Load),
    Check(Check),
}

fn main() -> anyhow::Result<ExitCode> {
    let command = Command::parse();
    // Ingestion and the load do little per request, and less if it never changes threads.
    let mut runtime = match &command {
        Command::Load(_) => tokio::runtime::Builder::new_current_thread(),
        Command::Serve(serve) if serve.service == Kind::Ingestion => {
            tokio::runtime::Builder::new_current_thread()
        }
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let well = runtime.enable_all().build()?.block_on(run(command))?;
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns whether the command succeeded.
async fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Run(demo) => demo.run().await.map(|()| true),
        Command::Chaos(trial) => tokio::select! {
            ended = trial.run() => ended,
            // Dropping the stack kills its processes.
            _ = tokio::signal::ctrl_c() => Ok(false),
        },
        Command::Spike(spike) => tokio::select! {
            ended = spike.run() => ended,
            _ = tokio::signal::ctrl_c() => Ok(false),
        },
        Command::Serve(serve) => serve.run().await.map(|()| true),
        Command::Load(load) => Ok(load.run().await?.lost == 0),
        Command::Check(check) => check.run().await,
    }
}
