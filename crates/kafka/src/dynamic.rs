//! Settings that clients change while the node runs, Kafka's dynamic configurations: those of the broker and of groups,
//! subscriptions to the metrics of clients, and quotas of clients.
//!
//! The node implements [`DynamicSettingStore`] and stores a change before it takes effect. This crate knows the names
//! and values, and checks them first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_log::{BoxFuture, HubSettings};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::handlers::configs::settings::with_defaults;

/// The names of settings that this node obeys.
pub(crate) mod setting {
    pub(crate) const CLEANER_BACKOFF: &str = "log.cleaner.backoff.ms";
    pub(crate) const CONNECTIONS_MAX: &str = "max.connections";
    pub(crate) const INTERVAL: &str = "interval.ms";
    pub(crate) const MATCH: &str = "match";
    pub(crate) const METRICS: &str = "metrics";
    pub(crate) const PRODUCER_RATE: &str = "producer_byte_rate";
    pub(crate) const CONSUMER_RATE: &str = "consumer_byte_rate";
    pub(crate) const GROUP_SESSION: &str = "consumer.session.timeout.ms";
    pub(crate) const GROUP_HEARTBEAT: &str = "consumer.heartbeat.interval.ms";
}

/// The owner of settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingOwner {
    /// This node. Its values precede those of `EveryBroker`.
    Broker,
    EveryBroker,
    /// A consumer group, which need not exist.
    Group(String),
    /// A subscription to the metrics of clients, by name.
    ClientMetrics(String),
    /// The quota of users and client ids. At least one of them is set.
    ClientQuota {
        user: Option<QuotaName>,
        client_id: Option<QuotaName>,
    },
}

/// Whom a quota is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaName {
    Exact(String),
    /// Each one without a quota of its own.
    Default,
}

/// Values by name.
pub type SettingValues = BTreeMap<String, String>;

/// All settings that clients have changed. No owner is without values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DynamicSettings(BTreeMap<SettingOwner, SettingValues>);

/// What a group of the consumer protocol has of its own. `None`: as all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub group: String,
    pub session: Option<Duration>,
    pub heartbeat: Option<Duration>,
}

/// A change of the settings of one owner.
#[derive(Clone, Debug)]
pub struct SettingUpdate {
    pub owner: SettingOwner,
    /// `None` removes a value.
    pub values: Vec<(String, Option<String>)>,
    /// Whether values that are not named are removed.
    pub replaces: bool,
}

/// Why settings are not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SettingError {
    #[error("the settings of this node cannot be changed by clients")]
    Unsupported,
    #[error("{OWNERS_MAX} groups with settings, subscriptions and quotas are the limit")]
    TooMany,
    #[error("the settings cannot be stored: {0}")]
    Storage(String),
}

/// All of them are in memory, and written with every change.
const OWNERS_MAX: usize = 1_000;

impl DynamicSettings {
    /// Changes of another node. Owners without values are left out.
    pub fn new(settings: impl IntoIterator<Item = (SettingOwner, SettingValues)>) -> Self {
        let settings = settings.into_iter();
        DynamicSettings(settings.filter(|(_, values)| !values.is_empty()).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&SettingOwner, &SettingValues)> {
        self.0.iter()
    }

    pub(crate) fn of(&self, owner: &SettingOwner) -> Option<&SettingValues> {
        self.0.get(owner)
    }

    pub(crate) fn value(&self, owner: &SettingOwner, name: &str) -> Option<&str> {
        self.of(owner)?.get(name).map(String::as_str)
    }

    /// The value that holds for this node.
    pub(crate) fn of_broker(&self, name: &str) -> Option<&str> {
        let own = self.value(&SettingOwner::Broker, name);
        own.or_else(|| self.value(&SettingOwner::EveryBroker, name))
    }

    /// How often retention and compaction look for something to do. `None`: as the node was started.
    pub fn maintenance(&self) -> Option<Duration> {
        let millis = self.of_broker(setting::CLEANER_BACKOFF)?.parse().ok()?;
        Some(Duration::from_millis(millis))
    }

    /// The settings of a hub with the defaults of topics that were set for the node, for those that it does not have of
    /// its own.
    pub fn with_topic_defaults(&self, settings: HubSettings) -> HubSettings {
        with_defaults(settings, self)
    }

    /// The groups that have settings of their own.
    pub fn groups(&self) -> impl Iterator<Item = GroupSettings> {
        let time = |values: &SettingValues, name: &str| {
            let millis = values.get(name)?.parse().ok()?;
            Some(Duration::from_millis(millis))
        };
        self.0
            .iter()
            .filter_map(move |(owner, values)| match owner {
                SettingOwner::Group(group) => Some(GroupSettings {
                    group: group.clone(),
                    session: time(values, setting::GROUP_SESSION),
                    heartbeat: time(values, setting::GROUP_HEARTBEAT),
                }),
                _ => None,
            })
    }

    /// These settings after a change.
    pub fn updated(&self, update: SettingUpdate) -> Result<DynamicSettings, SettingError> {
        let mut settings = self.0.clone();
        let mut values = settings.remove(&update.owner).unwrap_or_default();
        if update.replaces {
            values.clear();
        }
        for (name, value) in update.values {
            match value {
                Some(value) => values.insert(name, value),
                None => values.remove(&name),
            };
        }
        if !values.is_empty() {
            settings.insert(update.owner, values);
        }
        match settings.len() > OWNERS_MAX.max(self.0.len()) {
            true => Err(SettingError::TooMany),
            false => Ok(DynamicSettings(settings)),
        }
    }
}

/// Where the settings are.
pub trait DynamicSettingStore: Send + Sync {
    /// The settings, and a mark when they change.
    fn watch(&self) -> watch::Receiver<Arc<DynamicSettings>>;

    /// Stores a change, all or none of it; it takes effect when the future completes.
    fn update(&self, update: SettingUpdate) -> BoxFuture<Result<(), SettingError>>;
}

/// For a node whose settings are in its settings file only.
#[derive(Debug)]
pub struct FixedSettings(watch::Sender<Arc<DynamicSettings>>);

impl Default for FixedSettings {
    fn default() -> FixedSettings {
        FixedSettings(watch::Sender::new(Arc::default()))
    }
}

impl DynamicSettingStore for FixedSettings {
    fn watch(&self) -> watch::Receiver<Arc<DynamicSettings>> {
        self.0.subscribe()
    }

    fn update(&self, _update: SettingUpdate) -> BoxFuture<Result<(), SettingError>> {
        Box::pin(std::future::ready(Err(SettingError::Unsupported)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(owner: SettingOwner, values: &[(&str, Option<&str>)]) -> SettingUpdate {
        let values = values.iter();
        let values = values.map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
        SettingUpdate {
            owner,
            values: values.collect(),
            replaces: false,
        }
    }

    #[test]
    fn the_value_of_the_node_precedes_that_of_every_broker() {
        let every = update(
            SettingOwner::EveryBroker,
            &[("a", Some("1")), ("b", Some("2"))],
        );
        let settings = DynamicSettings::default().updated(every).unwrap();
        let own = update(SettingOwner::Broker, &[("a", Some("3"))]);
        let settings = settings.updated(own).unwrap();
        assert_eq!(settings.of_broker("a"), Some("3"));
        assert_eq!(settings.of_broker("b"), Some("2"));
        let replaced = SettingUpdate {
            replaces: true,
            ..update(SettingOwner::EveryBroker, &[("c", Some("4"))])
        };
        let settings = settings.updated(replaced).unwrap();
        assert_eq!(settings.of_broker("b"), None);
        let removed = update(SettingOwner::Broker, &[("a", None)]);
        let settings = settings.updated(removed).unwrap();
        assert_eq!(settings.iter().count(), 1, "the node has none left");
    }

    // proves G2
    #[test]
    fn there_are_only_so_many_owners() {
        let add = |settings: &DynamicSettings, name: &str| {
            let owner = SettingOwner::ClientMetrics(name.to_owned());
            settings.updated(update(owner, &[("metrics", Some("*"))]))
        };
        let mut settings = DynamicSettings::default();
        for number in 0..OWNERS_MAX {
            settings = add(&settings, &number.to_string()).unwrap();
        }
        assert!(matches!(add(&settings, "new"), Err(SettingError::TooMany)));
        assert!(add(&settings, "1").is_ok());
    }
}
