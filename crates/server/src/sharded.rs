//! Sharded hubs: names that stand for several member hubs, for more throughput than one hub has.
//!
//! Events sent to such a name are distributed over the members by key; reading by that name merges the members into one
//! stream. The members are ordinary hubs and can be used by their own names too.

use std::sync::Arc;

use highwater_log::{AdminError, BoxFuture, HubInfo, HubName, HubSpec, Log, LogLayer};
use serde_json::{Value, json};

use crate::http::{self, Code, Error};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardedHub {
    pub name: HubName,
    /// The members: at least one. Their order decides where a key goes.
    pub hubs: Vec<HubName>,
}

impl ShardedHub {
    fn members(&self) -> Vec<&str> {
        self.hubs.iter().map(HubName::as_str).collect()
    }

    pub(crate) fn facts(&self) -> Value {
        json!({"name": self.name.as_str(), "hubs": self.members()})
    }

    /// The error of an operation that needs a single hub.
    pub(crate) fn not_a_hub(&self) -> Error {
        let members = self.members().join(", ");
        let message = format!("`{}` is a sharded hub of {members}", self.name);
        Error::new(Code::NotFound, message, "use one of its members")
    }
}

/// The message for a name that [`http::begins_paths`].
pub(crate) fn reserved_name(name: &str) -> String {
    format!("`{name}` begins paths of the HTTP API, and cannot name a hub or queue")
}

/// A log that refuses to create hubs with the names of sharded ones, because nothing could reach them, and with names that
/// begin the paths of the HTTP API.
pub struct ReservedNames {
    pub log: Arc<dyn Log>,
    pub names: Vec<HubName>,
}

impl LogLayer for ReservedNames {
    fn inner(&self) -> &dyn Log {
        &*self.log
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        let refused = if self.names.contains(&spec.name) {
            AdminError::Exists(spec.name)
        } else if http::begins_paths(spec.name.as_str()) {
            AdminError::Settings(reserved_name(spec.name.as_str()))
        } else {
            return self.log.create(spec);
        };
        Box::pin(std::future::ready(Err(refused)))
    }
}
