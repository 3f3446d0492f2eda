//! The settings of a node, for `up` and `config show`: file, variables and flags.

use std::path::{Path, PathBuf};

use highwater_server::config::{LoadedConfig, Sources};

use crate::emulator_config::EmulatorConfig;
use crate::exit::UsageError;

/// The default settings file, if it exists.
const DEFAULT_FILE: &str = "highwater.toml";

#[derive(clap::Args)]
pub(crate) struct SettingsArgs {
    /// The settings file [default: ./highwater.toml if it exists]
    #[arg(short, long, value_name = "FILE", env = "HIGHWATER_CONFIG")]
    config: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "FOLDER")]
    data: Option<String>,
    /// The HTTP listen address, or `off`
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// The Kafka listen address, or `off`
    #[arg(long, value_name = "ADDRESS")]
    kafka: Option<String>,
    /// The AMQP listen address (Event Hubs and Service Bus SDKs), or `off`
    #[arg(long, value_name = "ADDRESS")]
    amqp: Option<String>,
    /// A `Config.json` of Microsoft's Event Hubs or Service Bus emulator, whose hubs and queues are created
    #[arg(long, value_name = "FILE")]
    emulator_config: Option<PathBuf>,
    /// Override any setting, such as `hubs.alerts.partitions=2`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingsArgs {
    pub(crate) fn load(&self) -> anyhow::Result<LoadedConfig> {
        let file = self.config.clone();
        let file = file.or_else(|| {
            Path::new(DEFAULT_FILE)
                .is_file()
                .then(|| DEFAULT_FILE.into())
        });
        let sources = Sources {
            file,
            variables: std::env::vars()
                .filter(|(name, _)| name.starts_with("HIGHWATER_"))
                .collect(),
            flags: self.flags()?,
        };
        Ok(sources
            .load()
            .map_err(|error| UsageError(error.to_string()))?)
    }

    /// The settings of the emulator's file.
    fn emulator_flags(&self) -> Result<Vec<(String, String)>, UsageError> {
        let Some(file) = &self.emulator_config else {
            return Ok(Vec::new());
        };
        Ok(EmulatorConfig::read(file)?.flags)
    }

    fn flags(&self) -> Result<Vec<(String, String)>, UsageError> {
        let named = [
            ("data", &self.data),
            ("http.listen", &self.http),
            ("kafka.listen", &self.kafka),
            ("amqp.listen", &self.amqp),
        ];
        let named = named
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        let pair = |text: &String| match text.split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
            None => Err(UsageError(format!("--set {text}: write KEY=VALUE"))),
        };
        let set = self.set.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        Ok(self
            .emulator_flags()?
            .into_iter()
            .chain(named)
            .chain(set)
            .collect())
    }
}
