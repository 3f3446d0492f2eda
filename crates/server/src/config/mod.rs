//! The configuration of a node: one TOML file, overridden by `HIGHWATER_…` variables, then by flags.
//!
//! [`Settings`] has the values and their origins; `build/` checks them and makes a [`Config`]. Dangerous settings are
//! refused here, before anything listens: an address beyond this machine needs keys, and keys need TLS (requirement
//! U3).

mod build;
mod effective_settings;
mod error;
mod file;
mod settings;
#[cfg(test)]
mod tests;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use highwater_env::disk;
use highwater_log::HubSpec;
use highwater_log::batch::TimestampType;

use highwater_connect::OutsideAccess;
use highwater_env::EgressPolicy;
use highwater_job::config::JobStateStore;
use highwater_queue::NewTopic;

use crate::cluster::ClusterSettings;
use crate::http;
use crate::jobs::DeclaredJob;
use crate::processors::{ProcessorSpec, notify};
use crate::queues;
use crate::sharded::ShardedHub;
use crate::tokens::TokenSettings;
use crate::workflows::Workflow;
use highwater_access::Key;

use effective_settings::variable_of;
pub use effective_settings::{Origin, Settings};
pub use error::{ConfigError, Problem};
pub use settings::{SETTINGS, Setting};

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub data: PathBuf,
    /// The cluster that is the log; `None`: the log is in the data folder.
    pub cluster: Option<ClusterSettings>,
    pub durability: Durability,
    /// The partitions of a hub that is created by the first write to it; `None`: none is created.
    pub auto_create: Option<u32>,
    /// Hubs and partitions of the node at which no more hubs are created that way.
    pub auto_create_hubs_max: usize,
    pub auto_create_partitions_max: usize,
    /// `None`: off.
    pub http: Option<http::Options>,
    pub kafka: Vec<KafkaListener>,
    /// The timestamps of topics that Kafka clients create.
    pub kafka_timestamps: TimestampType,
    pub kafka_node_id: u32,
    /// The shortest session of a member of a classic group.
    pub session_min: std::time::Duration,
    pub amqp: Vec<AmqpListener>,
    pub keys: Vec<Key>,
    /// `None`: no tokens are accepted.
    pub tokens: Option<TokenSettings>,
    /// Created at the start if missing.
    pub hubs: Vec<HubSpec>,
    pub sharded: Vec<ShardedHub>,
    pub jobs: Vec<DeclaredJob>,
    /// The state of jobs without a `[state]` of their own; `None`: in the data folder.
    pub job_state: Option<JobStateStore>,
    /// The largest state of a job.
    pub job_state_bytes_max: u64,
    /// The egress policy of webhooks, workflows and outputs of the settings.
    pub egress: EgressPolicy,
    /// The egress policy of jobs deployed over HTTP.
    pub deployed_access: OutsideAccess,
    pub workflows: Vec<Workflow>,
    /// Created or changed at the start.
    pub queues: Vec<queues::DeclaredQueue>,
    pub topics: Vec<NewTopic>,
    pub processors: Vec<ProcessorSpec>,
    pub notify: notify::Options,
}

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk: it survives a power cut.
    Fsync,
    /// When the operating system has it: it survives the end of the process.
    Os,
}

/// An address for Kafka clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaListener {
    pub listen: SocketAddr,
    /// Host and port that clients connect to.
    pub advertised: Option<(String, u16)>,
    pub tls: Option<TlsSettings>,
    pub sasl: bool,
    /// Clients need no key although there are keys.
    pub anonymous: bool,
}

/// An address for AMQP clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmqpListener {
    pub listen: SocketAddr,
    /// The settings do not name the address, so the node starts without it if it is taken.
    pub is_default: bool,
    pub tls: Option<TlsSettings>,
    /// Clients need no key although there are keys.
    pub anonymous: bool,
}

/// Files are in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// `None`: clients are not asked for a certificate.
    pub client_auth: Option<ClientAuth>,
}

/// Which client certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The authorities that sign them.
    pub ca: PathBuf,
    /// Clients without a certificate are refused.
    pub required: bool,
}

/// Where settings come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// The environment variables; those without our prefix are ignored.
    pub variables: Vec<(String, String)>,
    /// Full keys and values.
    pub flags: Vec<(String, String)>,
}

/// A configuration and the settings it was built from.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    pub config: Config,
    pub settings: Settings,
    pub file: Option<PathBuf>,
}

impl Sources {
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        let name = self.file.as_ref().map(|path| path.display().to_string());
        let text = match &self.file {
            Some(path) => disk::read_to_string(path).map_err(|error| ConfigError {
                file: None,
                problems: vec![
                    Problem::new(
                        Origin::Default,
                        format!("cannot read {}: {error}", path.display()),
                    )
                    .hint("leave -c out to start with defaults"),
                ],
            })?,
            None => String::new(),
        };
        let folder = self.file.as_deref().and_then(Path::parent);
        let (config, settings) =
            read(&text, self, folder.unwrap_or(Path::new(""))).map_err(|problems| ConfigError {
                file: name,
                problems,
            })?;
        Ok(LoadedConfig {
            config,
            settings,
            file: self.file.clone(),
        })
    }
}

/// Relative paths in the text start at `folder`.
fn read(text: &str, sources: &Sources, folder: &Path) -> Result<(Config, Settings), Vec<Problem>> {
    let (mut settings, mut problems) = file::read(text);
    problems.extend(settings.override_by(&sources.variables, &sources.flags));
    if !problems.is_empty() {
        return Err(problems);
    }
    let config = build::config(&settings, folder)?;
    Ok((config, settings))
}
