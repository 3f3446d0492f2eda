//! Where a name leads: to a hub, or to several that share its events.
//!
//! Of several hubs an event's key picks one, and within it the partition that it would have if the hub
//! had been asked for by its own name. So a key stays in one partition, whichever way it is sent.

use std::sync::Arc;

use highwater_log::{HubInfo, Partition, member_for_key, partition_for_key};

use super::Target;
use crate::http::app::App;
use crate::http::error::{Code, Error};

pub enum Destination {
    Hub(Arc<HubInfo>),
    /// At least one, in the order of the settings.
    Sharded(Vec<Arc<HubInfo>>),
}

/// A partition of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Which of the hubs.
    pub member: usize,
    pub partition: u32,
}

impl Destination {
    fn hubs(&self) -> &[Arc<HubInfo>] {
        match self {
            Destination::Hub(hub) => std::slice::from_ref(hub),
            Destination::Sharded(hubs) => hubs,
        }
    }

    /// The name of the hub, for those who did not ask for it by name.
    pub fn told(&self, spot: Spot) -> Option<&str> {
        match self {
            Destination::Hub(_) => None,
            Destination::Sharded(hubs) => Some(hubs[spot.member].name.as_str()),
        }
    }

    /// Every partition there is.
    pub fn spots(&self) -> Vec<Spot> {
        let hubs = self.hubs().iter().enumerate();
        let spots = hubs.flat_map(|(member, hub)| {
            (0..hub.partitions).map(move |partition| Spot { member, partition })
        });
        spots.collect()
    }

    pub fn partition(&self, app: &App, spot: Spot) -> Result<Arc<dyn Partition>, Error> {
        let hub = &self.hubs()[spot.member];
        let found = app.log()?.partition(hub.name.as_str(), spot.partition);
        found.ok_or_else(|| Error::no_hub(hub.name.as_str()))
    }

    /// Where an event with this key goes, or one without.
    pub fn spot(&self, app: &App, target: &Target<'_>, key: Option<&[u8]>) -> Result<Spot, Error> {
        match (target, key) {
            (Target::Partition(partition), _) => self.chosen(*partition),
            (_, Some(key)) => Ok(self.spot_for_key(key)),
            (_, None) => {
                let now = app.clock.elapsed().as_millis() as u64;
                let partitions = self.hubs().iter().map(|hub| hub.partitions).sum();
                let first = self.hubs()[0].id;
                Ok(self.counted(app.spread.next(first, partitions, now)))
            }
        }
    }

    fn chosen(&self, partition: u32) -> Result<Spot, Error> {
        match self {
            Destination::Hub(hub) if partition < hub.partitions => Ok(Spot {
                member: 0,
                partition,
            }),
            Destination::Hub(hub) => Err(no_partition(hub, partition)),
            Destination::Sharded(_) => Err(Error::bad(
                "the name leads to several hubs, which have partitions of their own",
                "send without a partition, or to one of the hubs by its name",
            )),
        }
    }

    fn spot_for_key(&self, key: &[u8]) -> Spot {
        let member = match self {
            Destination::Hub(_) => 0,
            Destination::Sharded(hubs) => member_for_key(key, hubs.len() as u32) as usize,
        };
        Spot {
            member,
            partition: partition_for_key(key, self.hubs()[member].partitions),
        }
    }

    /// The partition with this number, counted over all hubs.
    fn counted(&self, mut number: u32) -> Spot {
        let mut member = 0;
        while number >= self.hubs()[member].partitions {
            number -= self.hubs()[member].partitions;
            member += 1;
        }
        Spot {
            member,
            partition: number,
        }
    }
}

pub fn no_partition(hub: &HubInfo, number: u32) -> Error {
    let message = format!("hub `{}` has no partition {number}", hub.name);
    let last = hub.partitions - 1;
    Error::new(
        Code::NotFound,
        message,
        format!("its partitions are 0 to {last}"),
    )
}
