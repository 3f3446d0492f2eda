//! The log of long-running commands, on standard error.

use tracing_subscriber::EnvFilter;

use crate::exit::UsageError;

#[derive(clap::Args)]
pub(crate) struct Logging {
    /// Log level: error, warn, info, debug or trace, or a filter such as `highwater_hub=debug,info`
    #[arg(
        long = "log",
        value_name = "LEVEL",
        default_value = "info",
        env = "HIGHWATER_LOG"
    )]
    level: String,
    /// Log JSON, one object a line
    #[arg(long = "log-json")]
    json: bool,
}

impl Logging {
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.level)
            .map_err(|error| UsageError(format!("--log {}: {error}", self.level)))?;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let started = match self.json {
            true => lines.json().try_init(),
            false => lines.with_target(false).try_init(),
        };
        started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))
    }
}
