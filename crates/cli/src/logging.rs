//! What long-running commands say of themselves: one line an occurrence, on standard error.

use tracing_subscriber::EnvFilter;

use crate::exit::BadRequest;

#[derive(clap::Args)]
pub struct Logging {
    /// How much to say: error, warn, info, debug or trace, or a filter such as `highwater_hub=debug,info`
    #[arg(
        long = "log",
        value_name = "LEVEL",
        default_value = "info",
        env = "HIGHWATER_LOG"
    )]
    level: String,
    /// Say it as JSON, one object a line
    #[arg(long = "log-json")]
    json: bool,
}

impl Logging {
    pub fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.level)
            .map_err(|error| BadRequest(format!("--log {}: {error}", self.level)))?;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let started = match self.json {
            true => lines.json().try_init(),
            false => lines.with_target(false).try_init(),
        };
        started.map_err(|error| anyhow::anyhow!("cannot log: {error}"))
    }
}
