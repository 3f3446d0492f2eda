//! The `drone-delivery` command: arguments in, exit code out.

use clap::Parser;
use drone_delivery::serve::Serve;

/// Drone Delivery on Highwater: services, load, chaos and the checker.
#[derive(Parser)]
#[command(name = "drone-delivery", version)]
enum Command {
    Serve(Serve),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Serve(serve) => serve.run().await,
    }
}
