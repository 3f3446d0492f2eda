//! Kafka's names for the hubs of the coordinators: `__consumer_offsets` and `__transaction_state`.
//!
//! Clients and tools look for these names, to skip or to show such topics. The hubs have formats of our own; tools that
//! decode Kafka's records skip them, because no key begins with one of Kafka's versions.

use std::sync::Arc;

use highwater_log::{
    AdminError, BoxFuture, HubId, HubInfo, HubName, HubSettings, HubSpec, Log, Partition,
};

/// The name here and Kafka's.
const NAMES: [(&str, &str); 2] = [
    ("__groups", "__consumer_offsets"),
    ("__transactions", "__transaction_state"),
];

/// A log whose internal hubs have Kafka's names. Names of the log's own hubs are found, too.
pub(crate) struct KafkaNames(pub(crate) Arc<dyn Log>);

/// The name here of a hub that a client names.
pub(crate) fn inner_name(name: &str) -> &str {
    // Most names are not internal.
    match HubName::is_internal_name(name) {
        true => (NAMES.iter().find(|(_, kafka)| *kafka == name)).map_or(name, |(own, _)| own),
        false => name,
    }
}

/// The name that clients know a hub by.
pub(crate) fn kafka_name(name: &str) -> &str {
    match HubName::is_internal_name(name) {
        true => (NAMES.iter().find(|(own, _)| *own == name)).map_or(name, |(_, kafka)| kafka),
        false => name,
    }
}

fn renamed(hub: Arc<HubInfo>) -> Arc<HubInfo> {
    let known = Some(kafka_name(hub.name.as_str())).filter(|name| *name != hub.name.as_str());
    match known.and_then(|name| HubName::new(name).ok()) {
        Some(name) => Arc::new(HubInfo {
            name,
            ..HubInfo::clone(&hub)
        }),
        None => hub,
    }
}

impl Log for KafkaNames {
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        let mut hubs: Vec<Arc<HubInfo>> = self.0.hubs().into_iter().map(renamed).collect();
        hubs.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
        hubs
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        self.0.hub(inner_name(name)).map(renamed)
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        self.0.hub_by_id(id).map(renamed)
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        self.0.partition(inner_name(hub), partition)
    }

    // Handlers refuse changes of internal hubs, so no name is translated from here on.

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.0.create(spec)
    }

    fn create_automatically(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.0.create_automatically(spec)
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>> {
        self.0.delete(name)
    }

    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.0.grow(name, partitions)
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.0.change(name, settings)
    }
}
