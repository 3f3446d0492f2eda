//! The destination of a name: a hub, or the member hubs of a sharded one.
//!
//! An event's key chooses a member, and in it the partition that the key has when the member is named directly. So a
//! key stays in one partition by either name.

use std::sync::Arc;

use highwater_log::{HubInfo, Partition, partition_for_key, shard_for_key};

use super::Target;
use crate::http::app::App;
use crate::http::error::{Code, Error};

pub(in crate::http) enum Destination {
    Hub(Arc<HubInfo>),
    /// At least one, in the order of the settings.
    Sharded(Vec<Arc<HubInfo>>),
}

/// A partition of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::http) struct MemberPartition {
    /// The index of the member hub.
    pub(in crate::http) member: usize,
    pub(in crate::http) partition: u32,
}

impl Destination {
    fn hubs(&self) -> &[Arc<HubInfo>] {
        match self {
            Destination::Hub(hub) => std::slice::from_ref(hub),
            Destination::Sharded(hubs) => hubs,
        }
    }

    /// The name of the member hub; `None` for a hub that is not sharded.
    pub(in crate::http) fn member_name(&self, partition: MemberPartition) -> Option<&str> {
        match self {
            Destination::Hub(_) => None,
            Destination::Sharded(hubs) => Some(hubs[partition.member].name.as_str()),
        }
    }

    /// All partitions.
    pub(in crate::http) fn partitions(&self) -> Vec<MemberPartition> {
        let hubs = self.hubs().iter().enumerate();
        let partitions = hubs.flat_map(|(member, hub)| {
            (0..hub.partitions).map(move |partition| MemberPartition { member, partition })
        });
        partitions.collect()
    }

    pub(in crate::http) fn handle(
        &self,
        app: &App,
        partition: MemberPartition,
    ) -> Result<Arc<dyn Partition>, Error> {
        let hub = &self.hubs()[partition.member];
        let found = app.log()?.partition(hub.name.as_str(), partition.partition);
        found.ok_or_else(|| Error::no_hub(hub.name.as_str()))
    }

    /// The partition of an event with this key, or of one without, which a compacted hub refuses: compaction keeps the
    /// last event of each key.
    pub(in crate::http) fn partition_for(
        &self,
        app: &App,
        target: &Target<'_>,
        key: Option<&[u8]>,
    ) -> Result<MemberPartition, Error> {
        let partition = match (target, key) {
            (Target::Partition { number, .. }, _) => self.explicit_partition(*number)?,
            (_, Some(key)) => self.keyed(key),
            (_, None) => {
                let now = app.clock.elapsed().as_millis() as u64;
                let partitions = self.hubs().iter().map(|hub| hub.partitions).sum();
                let first = self.hubs()[0].id;
                self.partition_by_index(app.round_robin.next(first, partitions, now))
            }
        };
        let hub = &self.hubs()[partition.member];
        match key.is_none() && hub.settings.cleanup.compacts() {
            true => Err(no_key(hub)),
            false => Ok(partition),
        }
    }

    fn explicit_partition(&self, partition: u32) -> Result<MemberPartition, Error> {
        match self {
            Destination::Hub(hub) if partition < hub.partitions => Ok(MemberPartition {
                member: 0,
                partition,
            }),
            Destination::Hub(hub) => Err(no_partition(hub, partition)),
            Destination::Sharded(_) => Err(Error::bad(
                "a sharded hub has no partitions of its own",
                "send without a partition, or to one of its members",
            )),
        }
    }

    fn keyed(&self, key: &[u8]) -> MemberPartition {
        let member = match self {
            Destination::Hub(_) => 0,
            Destination::Sharded(hubs) => shard_for_key(key, hubs.len() as u32) as usize,
        };
        MemberPartition {
            member,
            partition: partition_for_key(key, self.hubs()[member].partitions),
        }
    }

    /// The partition with this number, partition_by_index over all members.
    fn partition_by_index(&self, mut number: u32) -> MemberPartition {
        let mut member = 0;
        while number >= self.hubs()[member].partitions {
            number -= self.hubs()[member].partitions;
            member += 1;
        }
        MemberPartition {
            member,
            partition: number,
        }
    }
}

fn no_key(hub: &HubInfo) -> Error {
    let message = format!(
        "hub `{}` is compacted and takes no event without a key",
        hub.name
    );
    let hint = "send the key: x-partition-key, ?key= or the key of each event";
    Error::new(Code::BadEvent, message, hint)
}

pub(in crate::http) fn no_partition(hub: &HubInfo, number: u32) -> Error {
    let message = format!("hub `{}` has no partition {number}", hub.name);
    let last = hub.partitions - 1;
    Error::not_found(message, format!("its partitions are 0 to {last}"))
}
