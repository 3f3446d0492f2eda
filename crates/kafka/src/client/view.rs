//! What is known of a cluster: its brokers, its hubs, and who leads which partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_log::{HubId, HubInfo, HubName, HubSettings, TopicPartition};
use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;

use super::dial::Address;
use crate::codes::OK;
use crate::handlers::hub_id;

/// One answer of the catalogue. Never changed, only replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Counts the answers.
    pub number: u64,
    pub brokers: BTreeMap<i32, Address>,
    pub controller: Option<i32>,
    pub hubs: BTreeMap<HubName, Topic>,
}

#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub info: Arc<HubInfo>,
    /// Whether the cluster gave the hub its id, so that it can be asked for by it.
    pub by_id: bool,
    /// Of each partition, the broker that leads it; -1 while nobody does.
    leaders: Vec<i32>,
}

/// A partition of one certain hub, which is not that of another under the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub topic_partition: TopicPartition,
    pub id: HubId,
    pub by_id: bool,
}

impl View {
    pub fn read(
        answer: MetadataResponse,
        settings: &BTreeMap<HubName, HubSettings>,
        number: u64,
    ) -> View {
        let broker =
            |broker: &kafka_protocol::messages::metadata_response::MetadataResponseBroker| {
                let address = Address::of(&broker.host, broker.port)?;
                Some((broker.node_id.0, address))
            };
        let topics = answer.topics.into_iter();
        View {
            number,
            brokers: answer.brokers.iter().filter_map(broker).collect(),
            controller: Some(answer.controller_id.0).filter(|id| *id >= 0),
            hubs: topics.filter_map(|topic| hub(topic, settings)).collect(),
        }
    }

    /// `None` where the hub is not there or is another one; the inner one while nobody leads.
    pub fn leader(&self, what: &Target) -> Option<Option<&Address>> {
        let topic = self.hubs.get(&what.topic_partition.hub)?;
        if topic.info.id != what.id {
            return None;
        }
        let leader = topic.leaders.get(what.topic_partition.partition as usize)?;
        Some(self.brokers.get(leader))
    }

    /// Where to ask what anybody knows.
    pub fn anybody(&self) -> impl Iterator<Item = &Address> {
        self.brokers.values()
    }

    pub fn controller(&self) -> Option<&Address> {
        self.brokers.get(&self.controller?)
    }
}

/// `None` for what is no hub that can be used: one being deleted, or with partitions that nobody has heard
/// of yet.
fn hub(
    topic: MetadataResponseTopic,
    settings: &BTreeMap<HubName, HubSettings>,
) -> Option<(HubName, Topic)> {
    let name = HubName::new(topic.name.as_deref()?).ok()?;
    if topic.error_code != OK || topic.partitions.is_empty() {
        return None;
    }
    let mut leaders = vec![-1; topic.partitions.len()];
    for partition in &topic.partitions {
        *leaders.get_mut(usize::try_from(partition.partition_index).ok()?)? = partition.leader_id.0;
    }
    let by_id = !topic.topic_id.is_nil();
    let id = match by_id {
        true => hub_id(topic.topic_id),
        false => named(&name),
    };
    let info = HubInfo {
        id,
        partitions: u32::try_from(leaders.len()).ok()?,
        settings: settings.get(&name).cloned().unwrap_or_default(),
        created_ms: 0,
        name: name.clone(),
    };
    let topic = Topic {
        info: Arc::new(info),
        by_id,
        leaders,
    };
    Some((name, topic))
}

/// What stands for the id of a hub on a cluster that gives none: the same for the same name.
fn named(name: &HubName) -> HubId {
    let mut id = [0; 16];
    for (at, byte) in name.as_str().bytes().enumerate() {
        let slot: &mut u8 = &mut id[1 + at % 15];
        *slot = slot.wrapping_mul(31).wrapping_add(byte);
    }
    HubId(id)
}
