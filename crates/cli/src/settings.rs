//! Where `up` and `config show` take their settings from.

use std::path::{Path, PathBuf};

use highwater_server::config::{Loaded, Sources};

use crate::exit::BadRequest;

/// Taken when it is there and `-c` was not given.
const FILE: &str = "highwater.toml";

#[derive(clap::Args)]
pub struct SettingArguments {
    /// The settings; without it ./highwater.toml if there is one, else defaults
    #[arg(short, long, value_name = "FILE", env = "HIGHWATER_CONFIG")]
    config: Option<PathBuf>,
    /// The folder that holds everything
    #[arg(long, value_name = "FOLDER")]
    data: Option<String>,
    /// Where HTTP listens, or `off`
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Where Kafka clients connect, or `off`
    #[arg(long, value_name = "ADDRESS")]
    kafka: Option<String>,
    /// Any setting, such as `hubs.alerts.partitions=2`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingArguments {
    pub fn load(&self) -> anyhow::Result<Loaded> {
        let file = self.config.clone();
        let file = file.or_else(|| Path::new(FILE).is_file().then(|| FILE.into()));
        let sources = Sources {
            file,
            variables: std::env::vars()
                .filter(|(name, _)| name.starts_with("HIGHWATER_"))
                .collect(),
            flags: self.flags()?,
        };
        Ok(sources
            .load()
            .map_err(|error| BadRequest(error.to_string()))?)
    }

    fn flags(&self) -> Result<Vec<(String, String)>, BadRequest> {
        let short = [
            ("data", &self.data),
            ("http.listen", &self.http),
            ("kafka.listen", &self.kafka),
        ];
        let short = short
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        let pair = |text: &String| match text.split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
            None => Err(BadRequest(format!("--set {text}: write KEY=VALUE"))),
        };
        let long = self.set.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        Ok(short.chain(long).collect())
    }
}
