//! The assignment of a job's shards: the streams, and the combiner.
//!
//! An assignment decides who works, not who may write: a claim fences the earlier owner. So members keep working while
//! the group is rebalanced, and a member that does not know yet that a shard is another's does no harm.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::{mpsc, oneshot, watch};

/// A stream by its number, or, after all streams, the combiner.
pub type ShardNumber = usize;

/// The shards of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardAssignment {
    /// It has not joined yet, or others have its shards: it stops at once.
    None,
    /// It cannot take part, for this reason, and stops at once.
    Refused(String),
    Shards(BTreeSet<ShardNumber>),
}

impl ShardAssignment {
    pub(super) fn has(&self, shard: ShardNumber) -> bool {
        match self {
            ShardAssignment::None | ShardAssignment::Refused(_) => false,
            ShardAssignment::Shards(shards) => shards.contains(&shard),
        }
    }
}

/// The part of an instance in its group. Dropping it ends the membership like a crash.
pub struct ShardMembership {
    pub assignment: watch::Receiver<ShardAssignment>,
    /// A rebalance begins: shards are checkpointed and the sender is answered, so that others need not replay much.
    pub rebalances: mpsc::Receiver<oneshot::Sender<()>>,
    /// Leaves the group; ready when it is done.
    pub leave: Option<oneshot::Sender<oneshot::Sender<()>>>,
}

/// Assigns the shards of a job to its instances.
pub trait ShardAssignor: Send + Sync {
    /// Joins the others that run `shards` shards.
    fn join(&self, shards: usize) -> ShardMembership;
}

/// A member and the shards that it has.
#[derive(Clone, Debug)]
pub(super) struct ShardOwner {
    pub member: String,
    pub owned: BTreeSet<ShardNumber>,
}

/// Spreads shards evenly and leaves them where they are as far as possible.
pub(super) fn assign(
    owners: &[ShardOwner],
    shards: usize,
) -> BTreeMap<String, BTreeSet<ShardNumber>> {
    let mut free: BTreeSet<ShardNumber> = (0..shards).collect();
    // Those that have most may keep one more.
    let mut order: Vec<&ShardOwner> = owners.iter().collect();
    order.sort_by_key(|owner| (usize::MAX - owner.owned.len(), &owner.member));
    let (share, more) = match owners.len() {
        0 => return BTreeMap::new(),
        members => (shards / members, shards % members),
    };
    let mut assigned = BTreeMap::new();
    let mut rooms = Vec::new();
    for (place, owner) in order.iter().enumerate() {
        let room = share + usize::from(place < more);
        // The combiner is the most expensive to move.
        let kept = owner.owned.iter().rev().copied();
        let kept: BTreeSet<ShardNumber> =
            kept.filter(|shard| free.remove(shard)).take(room).collect();
        rooms.push((owner.member.clone(), room));
        assigned.insert(owner.member.clone(), kept);
    }
    let mut free = free.into_iter().rev();
    for (member, room) in rooms {
        let own = assigned.entry(member).or_default();
        let missing = room.saturating_sub(own.len());
        own.extend(free.by_ref().take(missing));
    }
    assigned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(member: usize, owned: impl IntoIterator<Item = ShardNumber>) -> ShardOwner {
        ShardOwner {
            member: format!("m{member}"),
            owned: owned.into_iter().collect(),
        }
    }

    // proves X1
    #[test]
    fn a_member_that_joins_or_leaves_moves_no_more_than_needed() {
        let first = assign(&[owner(0, [])], 5);
        assert_eq!(first["m0"], (0..5).collect());
        let second = assign(&[owner(0, 0..5), owner(1, [])], 5);
        assert_eq!((second["m0"].len(), second["m1"].len()), (3, 2));
        assert!(second["m0"].contains(&4), "the combiner stays");
        let again = assign(
            &[
                owner(0, second["m0"].clone()),
                owner(1, second["m1"].clone()),
            ],
            5,
        );
        assert_eq!(again, second);
        let left = assign(&[owner(1, second["m1"].clone())], 5);
        assert_eq!(left["m1"], (0..5).collect());
    }

    proptest! {
        #[test]
        fn every_shard_has_one_owner_and_members_have_equally_many(
            members in 1..7usize,
            shards in 0..30usize,
            owned in prop::collection::vec(0..9usize, 30),
        ) {
            // Also if two claim the same.
            let owners: Vec<ShardOwner> = (0..members)
                .map(|member| owner(member, (0..shards).filter(|shard| {
                    owned[*shard] == member || owned[*shard] == 8
                })))
                .collect();
            let assigned = assign(&owners, shards);
            let mut all: Vec<ShardNumber> = assigned.values().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..shards).collect::<Vec<_>>());
            let counts: Vec<usize> = assigned.values().map(BTreeSet::len).collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{counts:?}");
        }
    }
}
