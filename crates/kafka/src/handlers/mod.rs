//! What each request does, one room per kind.

use highwater_log::{HubId, HubInfo};
use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

pub(crate) mod cluster;
pub(crate) mod configs;
pub(crate) mod fetch;
pub(crate) mod groups;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offsets;
pub(crate) mod partitions;
pub(crate) mod produce;
pub(crate) mod sasl;
pub(crate) mod topics;
pub(crate) mod transactions;
pub(crate) mod versions;

/// There is one leader for ever, so its epoch never changes.
const LEADER_EPOCH: i32 = 0;

pub(crate) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

fn some_text(said: impl ToString) -> Option<StrBytes> {
    Some(text(said.to_string()))
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

pub(crate) fn uuid_of(hub: &HubInfo) -> Uuid {
    Uuid::from_bytes(hub.id.0)
}

pub(crate) fn hub_id(uuid: Uuid) -> HubId {
    HubId(*uuid.as_bytes())
}
