//! Subscription and assignment messages of Kafka's consumer protocol, so that any Kafka client can share a group with
//! us. Both use version 0, which every client reads.

use std::collections::BTreeMap;

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::{HubName, JoinResponseMember, TopicPartition};

/// The subscription of a member.
pub(super) fn subscription<'a>(hubs: impl IntoIterator<Item = &'a HubName>) -> Bytes {
    let hubs: Vec<_> = hubs.into_iter().collect();
    let mut out = Vec::new();
    out.i16_be(0);
    out.count_be(hubs.len());
    hubs.iter().for_each(|hub| out.short_text_be(hub.as_str()));
    out.i32_be(-1);
    out.into()
}

fn read_subscription(bytes: &[u8]) -> Result<Vec<&str>, DecodeError> {
    let mut from = Reader::new(bytes);
    from.i16_be()?;
    from.list_be(Reader::short_text_be)
}

fn assignment(assigned: &[TopicPartition]) -> Bytes {
    let mut hubs: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for partition in assigned {
        hubs.entry(partition.hub.as_str())
            .or_default()
            .push(partition.partition);
    }
    let mut out = Vec::new();
    out.i16_be(0);
    out.count_be(hubs.len());
    for (hub, partitions) in hubs {
        out.short_text_be(hub);
        out.count_be(partitions.len());
        partitions
            .iter()
            .for_each(|partition| out.u32_be(*partition));
    }
    out.i32_be(-1);
    out.into()
}

/// The partitions of an assignment. Malformed bytes assign none.
pub(super) fn read_assignment(bytes: &[u8]) -> Vec<TopicPartition> {
    decode_assignment(bytes).unwrap_or_default()
}

fn decode_assignment(bytes: &[u8]) -> Result<Vec<TopicPartition>, DecodeError> {
    let mut from = Reader::new(bytes);
    from.i16_be()?;
    let mut assigned = Vec::new();
    for _ in 0..from.count_be()? {
        let hub = HubName::new(from.short_text_be()?);
        let hub = hub.map_err(|_| DecodeError::Invalid("a hub has an impossible name"))?;
        let partitions = from.list_be(Reader::u32_be)?;
        assigned.extend(partitions.into_iter().map(|partition| TopicPartition {
            hub: hub.clone(),
            partition,
        }));
    }
    Ok(assigned)
}

/// Kafka's range assignor: for every hub, each subscribed member gets consecutive partitions, the first members one
/// more if the number is not divisible.
pub(super) fn assign(
    members: &[JoinResponseMember],
    partitions: impl Fn(&str) -> u32,
) -> Vec<(String, Bytes)> {
    let mut subscribers: BTreeMap<&str, Vec<(&Option<String>, &str)>> = BTreeMap::new();
    for member in members {
        for hub in read_subscription(&member.metadata).unwrap_or_default() {
            let who = (&member.instance, member.member.as_str());
            subscribers.entry(hub).or_default().push(who);
        }
    }
    let mut assignments: BTreeMap<&str, Vec<TopicPartition>> = BTreeMap::new();
    for (hub, mut members) in subscribers {
        let Ok(hub) = HubName::new(hub) else {
            continue;
        };
        members.sort();
        members.dedup();
        let (all, count) = (partitions(hub.as_str()), members.len() as u32);
        let mut first = 0;
        for (n, (_, member)) in (0..count).zip(members) {
            let share = all / count + u32::from(n < all % count);
            let assigned = (first..first + share).map(|partition| TopicPartition {
                hub: hub.clone(),
                partition,
            });
            assignments.entry(member).or_default().extend(assigned);
            first += share;
        }
    }
    let of = |member: &JoinResponseMember| {
        let assigned = assignments
            .remove(member.member.as_str())
            .unwrap_or_default();
        (member.member.clone(), assignment(&assigned))
    };
    members.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn member(name: &str, hubs: &[&str]) -> JoinResponseMember {
        let hubs: Vec<_> = hubs.iter().map(|hub| HubName::new(hub).unwrap()).collect();
        JoinResponseMember {
            member: name.into(),
            instance: None,
            metadata: subscription(&hubs),
        }
    }

    fn shown(assigned: &[(String, Bytes)]) -> Vec<String> {
        let show = |(member, bytes): &(String, Bytes)| {
            let assigned = read_assignment(bytes);
            let assigned: Vec<_> = assigned.iter().map(TopicPartition::to_string).collect();
            format!("{member}: {}", assigned.join(" "))
        };
        assigned.iter().map(show).collect()
    }

    // proves C1
    #[test]
    fn members_get_neighbouring_partitions_of_what_they_want() {
        let members = [
            member("b", &["t"]),
            member("a", &["t", "u"]),
            member("c", &["u", "no"]),
        ];
        let count = |hub: &str| match hub {
            "t" => 5,
            "u" => 1,
            _ => 0,
        };
        let assigned = assign(&members, count);
        assert_eq!(
            shown(&assigned),
            ["b: t/3 t/4", "a: t/0 t/1 t/2 u/0", "c: "]
        );
    }

    #[test]
    fn a_subscription_is_that_of_a_kafka_consumer() {
        let hubs = ["a", "bc"].map(|hub| HubName::new(hub).unwrap());
        assert_eq!(
            &subscription(&hubs)[..],
            b"\0\0\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff"
        );
    }

    proptest! {
        #[test]
        fn every_partition_has_one_owner_however_many_members_there_are(
            members in 1..9usize, partitions in 0..40u32,
        ) {
            let members: Vec<_> = (0..members).map(|n| member(&format!("m{n}"), &["t"])).collect();
            let assigned = assign(&members, |_| partitions);
            let mut owned: Vec<_> = assigned.iter().flat_map(|(_, bytes)| read_assignment(bytes)).collect();
            let counts: Vec<_> = assigned.iter().map(|(_, bytes)| read_assignment(bytes).len()).collect();
            owned.sort();
            let all: Vec<_> = (0..partitions).collect();
            prop_assert_eq!(owned.iter().map(|partition| partition.partition).collect::<Vec<_>>(), all);
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        }

        #[test]
        fn whatever_comes_is_read_without_a_panic(bytes: Vec<u8>) {
            read_assignment(&bytes);
            let _ = read_subscription(&bytes);
        }
    }
}
