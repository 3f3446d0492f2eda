//! Sharded hubs: names for several member hubs, for more throughput than one hub has.
//!
//! Events sent to such a name are distributed over the members by key; reading by that name merges the members into one
//! stream. The members are ordinary hubs and can be used by their own names too.

use std::sync::Arc;

use highwater_log::{AdminError, BoxFuture, HubInfo, HubName, HubSpec, Log, LogLayer};
use serde_json::{Value, json};

use crate::http::{self, Error};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardedHub {
    pub name: HubName,
    /// The members: at least one. Their order decides the hub of a key.
    pub hubs: Vec<HubName>,
}

impl ShardedHub {
    fn members(&self) -> Vec<&str> {
        self.hubs.iter().map(HubName::as_str).collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"name": self.name.as_str(), "hubs": self.members()})
    }

    /// The error of an operation that needs a single hub.
    pub(crate) fn not_a_hub(&self) -> Error {
        let members = self.members().join(", ");
        let message = format!("`{}` is a sharded hub of {members}", self.name);
        Error::not_found(message, "use one of its members")
    }
}

/// The message for a name that [`http::begins_paths`].
pub(crate) fn reserved_name(name: &str) -> String {
    format!("`{name}` begins paths of the HTTP API, and cannot name a hub or queue")
}

/// A log that refuses to create hubs with the names of sharded ones, because nothing could reach them, and with names
/// that begin the paths of the HTTP API.
pub struct ReservedNames {
    pub log: Arc<dyn Log>,
    pub names: Vec<HubName>,
}

impl LogLayer for ReservedNames {
    fn inner(&self) -> &dyn Log {
        &*self.log
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        match self.check(&spec.name) {
            Ok(()) => self.log.create(spec),
            Err(refused) => Box::pin(std::future::ready(Err(refused))),
        }
    }

    fn create_automatically(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        match self.check(&spec.name) {
            Ok(()) => self.log.create_automatically(spec),
            Err(refused) => Box::pin(std::future::ready(Err(refused))),
        }
    }
}

impl ReservedNames {
    fn check(&self, name: &HubName) -> Result<(), AdminError> {
        if self.names.contains(name) {
            return Err(AdminError::Exists(name.clone()));
        }
        match http::begins_paths(name.as_str()) {
            true => Err(AdminError::Settings(reserved_name(name.as_str()))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_log::{HubSettings, MemoryLog};

    // proves U3
    #[tokio::test]
    async fn no_hub_gets_a_reserved_name() {
        let log = ReservedNames {
            log: Arc::new(MemoryLog::new(|| 0)),
            names: vec![HubName::new("sharded").unwrap()],
        };
        let spec = |name: &str| HubSpec {
            name: HubName::new(name).unwrap(),
            partitions: 1,
            settings: HubSettings::default(),
        };
        let log: &dyn Log = &log;
        for name in ["api", "hubs", "queues", "metrics"] {
            let refused = log.create(spec(name)).await;
            assert!(matches!(refused, Err(AdminError::Settings(_))), "{name}");
            let refused = log.create_automatically(spec(name)).await;
            assert!(matches!(refused, Err(AdminError::Settings(_))), "{name}");
        }
        let taken = log.create_automatically(spec("sharded")).await;
        assert!(matches!(taken, Err(AdminError::Exists(_))));
        assert!(log.create_automatically(spec("telemetry")).await.is_ok());
    }
}
