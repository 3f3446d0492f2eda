//! The bounds of many partitions at once.

use std::collections::BTreeMap;

use highwater_log::{Bounds, Isolation, Offset};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest, TopicName};

use super::cluster::{Destination, Route};
use super::dial::Address;
use super::errors::Failure;
use super::partition::{END, RemotePartition, START};
use super::{Remote, fetch, lock};
use crate::codes::OK;

/// The offset of each partition of a response.
type PartitionOffsets = BTreeMap<(TopicName, i32), Offset>;

impl Remote {
    /// Reads the bounds of all partitions in use, with three requests to each broker, so that
    /// [`bounds`](highwater_log::Partition::bounds) returns them. Partitions that cannot be read keep the last known
    /// ones.
    pub async fn refresh_bounds(&self) {
        for (address, partitions) in self.partitions_by_leader() {
            if let Err(failure) = self.refresh_bounds_of(&address, &partitions).await {
                tracing::debug!(%address, %failure, "cannot read the bounds of partitions");
            }
        }
    }

    /// The partitions in use by the address of their leader. Forgets those of deleted hubs.
    fn partitions_by_leader(&self) -> BTreeMap<Address, Vec<RemotePartition>> {
        let view = self.cluster().view();
        let mut partitions = lock(&self.0.partitions);
        partitions.retain(|_, partition| view.leader(&partition.target).is_some());
        let mut by_leader: BTreeMap<Address, Vec<RemotePartition>> = BTreeMap::new();
        for partition in partitions.values() {
            if let Some(Some(leader)) = view.leader(&partition.target) {
                let of_leader = by_leader.entry(leader.clone()).or_default();
                of_leader.push(partition.clone());
            }
        }
        by_leader
    }

    async fn refresh_bounds_of(
        &self,
        address: &Address,
        partitions: &[RemotePartition],
    ) -> Result<(), Failure> {
        // The end comes last, so that it is not below the others.
        let starts = self.list(address, partitions, START, Isolation::Uncommitted);
        let starts = starts.await?;
        let stable = self.list(address, partitions, END, Isolation::Committed);
        let stable = stable.await?;
        let ends = self.list(address, partitions, END, Isolation::Uncommitted);
        let ends = ends.await?;
        for partition in partitions {
            let topic = partition.target.topic.clone();
            let key = (topic, partition.target.topic_partition.partition as i32);
            if let (Some(start), Some(stable), Some(end)) =
                (starts.get(&key), stable.get(&key), ends.get(&key))
            {
                partition.cache.observe(Bounds {
                    start: *start,
                    stable: *stable,
                    end: *end,
                    last_time: None,
                    bytes: 0,
                });
            }
        }
        Ok(())
    }

    async fn list(
        &self,
        address: &Address,
        partitions: &[RemotePartition],
        time: i64,
        isolation: Isolation,
    ) -> Result<PartitionOffsets, Failure> {
        let mut topics: BTreeMap<&TopicName, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for partition in partitions {
            let target = &partition.target;
            let of_topic = topics.entry(&target.topic).or_default();
            of_topic.push(
                ListOffsetsPartition::default()
                    .with_partition_index(target.topic_partition.partition as i32)
                    .with_timestamp(time),
            );
        }
        let request = |_| {
            let topics = topics.iter().map(|(topic, partitions)| {
                ListOffsetsTopic::default()
                    .with_name((*topic).clone())
                    .with_partitions(partitions.clone())
            });
            ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(fetch::level(isolation))
                .with_topics(topics.collect())
        };
        let route = Route::new(Destination::Broker(address.clone()));
        let cluster = self.cluster();
        let listed = cluster.call(route, request, |response| {
            let mut listed = PartitionOffsets::new();
            for topic in response.topics {
                let readable = topic.partitions.iter().filter(|one| one.error_code == OK);
                for one in readable {
                    let key = (topic.name.clone(), one.partition_index);
                    listed.insert(key, Offset(one.offset));
                }
            }
            Ok(listed)
        });
        listed.await
    }
}
