//! The catalogue of a cluster: its brokers, its hubs, and the leaders of their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_log::{HubId, HubInfo, HubName, HubSettings, TopicPartition};
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{MetadataResponse, TopicName};

use super::dial::Address;
use super::names::ClusterNames;
use crate::codes::OK;
use crate::handlers::hub_id;

/// One reading of the catalogue. It is replaced, never changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Counts the readings.
    pub number: u64,
    pub brokers: BTreeMap<i32, Address>,
    pub controller: Option<i32>,
    pub hubs: BTreeMap<HubName, Topic>,
}

#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub info: Arc<HubInfo>,
    /// Whether the cluster assigned the id, so that requests can use it.
    pub by_id: bool,
    /// The leader of each partition; -1 if there is none.
    leaders: Vec<i32>,
}

/// A partition of a hub by id: a hub created again under the same name is another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub topic_partition: TopicPartition,
    /// Its name on the cluster.
    pub topic: TopicName,
    pub id: HubId,
    pub by_id: bool,
}

impl View {
    pub(super) fn read(
        response: MetadataResponse,
        settings: &BTreeMap<HubName, HubSettings>,
        names: &ClusterNames,
        number: u64,
    ) -> View {
        let broker =
            |broker: &kafka_protocol::messages::metadata_response::MetadataResponseBroker| {
                let address = Address::of(&broker.host, broker.port)?;
                Some((broker.node_id.0, address))
            };
        let topics = response.topics.into_iter();
        View {
            number,
            brokers: response.brokers.iter().filter_map(broker).collect(),
            controller: Some(response.controller_id.0).filter(|id| *id >= 0),
            hubs: topics
                .filter_map(|topic| hub(topic, settings, names))
                .collect(),
        }
    }

    /// `None` if the hub is unknown or has another id; the inner `None` if the partition has no leader.
    pub(super) fn leader(&self, target: &Target) -> Option<Option<&Address>> {
        let topic = self.hubs.get(&target.topic_partition.hub)?;
        if topic.info.id != target.id {
            return None;
        }
        let leader = topic
            .leaders
            .get(target.topic_partition.partition as usize)?;
        Some(self.brokers.get(leader))
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.brokers.values()
    }

    pub(super) fn controller(&self) -> Option<&Address> {
        self.brokers.get(&self.controller?)
    }
}

/// `None` if the topic is no hub, or cannot be used: it is being deleted, or its partitions are not known yet.
fn hub(
    topic: MetadataResponseTopic,
    settings: &BTreeMap<HubName, HubSettings>,
    names: &ClusterNames,
) -> Option<(HubName, Topic)> {
    let name = names.hub(topic.name.as_deref()?)?;
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
        false => id_from_name(&name),
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

/// The id of a hub on a cluster without ids: a function of the name.
fn id_from_name(name: &HubName) -> HubId {
    let mut id = [0; 16];
    for (at, byte) in name.as_str().bytes().enumerate() {
        let slot: &mut u8 = &mut id[1 + at % 15];
        *slot = slot.wrapping_mul(31).wrapping_add(byte);
    }
    HubId(id)
}
