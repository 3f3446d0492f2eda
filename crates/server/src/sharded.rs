//! Names that lead to several hubs, so that more can be taken in than one hub is good for.
//!
//! What is sent to such a name is spread over the hubs by key; read by that name, they are one
//! stream. The hubs are ordinary ones, and can be used by their own names too.

use std::sync::Arc;

use highwater_log::{AdminError, BoxFuture, HubInfo, HubName, HubSpec, Log, LogLayer};
use serde_json::{Value, json};

use crate::http::{Code, Error};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharded {
    pub name: HubName,
    /// At least one. Their order decides where a key goes.
    pub hubs: Vec<HubName>,
}

impl Sharded {
    fn members(&self) -> Vec<&str> {
        self.hubs.iter().map(HubName::as_str).collect()
    }

    pub(crate) fn facts(&self) -> Value {
        json!({"name": self.name.as_str(), "hubs": self.members()})
    }

    /// For those who want one hub.
    pub(crate) fn is_several(&self) -> Error {
        let members = self.members().join(", ");
        let message = format!("`{}` is no hub: it leads to {members}", self.name);
        Error::new(Code::NotFound, message, "ask for one of them by its name")
    }
}

/// A log in which these names are taken, so that no client makes a hub that nobody could reach.
pub struct Reserved {
    pub log: Arc<dyn Log>,
    pub names: Vec<HubName>,
}

impl LogLayer for Reserved {
    fn inner(&self) -> &dyn Log {
        &*self.log
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        match self.names.contains(&spec.name) {
            true => Box::pin(std::future::ready(Err(AdminError::Exists(spec.name)))),
            false => self.log.create(spec),
        }
    }
}
