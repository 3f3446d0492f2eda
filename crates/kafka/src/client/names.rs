//! The names that hubs, groups and transactional ids have on the cluster.
//!
//! A program uses the names of the cluster. A node has a part of the cluster: a prefix precedes all its names, and
//! topics without it are not its hubs. Its internal hubs (`__queue.orders`) are topics of a name that neither Kafka nor
//! another node takes for its own (`_highwater.queue.orders`).

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::HubName;
use kafka_protocol::messages::{GroupId, TopicName, TransactionalId};

use crate::handlers::{text, topic};

/// The start of the topics of internal hubs, after the prefix.
const INTERNAL_TOPIC: &str = "_highwater.";
/// The start of internal hubs.
const INTERNAL_HUB: &str = "__";
/// The protocol type of groups whose members tell their topics.
const CONSUMER: &str = "consumer";

/// How names of the log become names of the cluster. The default leaves them as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNames(Option<Prefix>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Prefix(String);

impl ClusterNames {
    /// The names of a node, which begin with `prefix`. It may be empty.
    pub fn of_node(prefix: &str) -> ClusterNames {
        ClusterNames(Some(Prefix(prefix.into())))
    }

    pub(super) fn topic(&self, hub: &str) -> TopicName {
        match &self.0 {
            None => topic(hub),
            Some(Prefix(prefix)) => match hub.strip_prefix(INTERNAL_HUB) {
                Some(rest) => topic(&format!("{prefix}{INTERNAL_TOPIC}{rest}")),
                None => topic(&format!("{prefix}{hub}")),
            },
        }
    }

    /// `None` if the topic is no hub of the node.
    pub(super) fn hub(&self, topic: &str) -> Option<HubName> {
        let Some(Prefix(prefix)) = &self.0 else {
            return HubName::new(topic).ok();
        };
        let name = topic.strip_prefix(prefix.as_str())?;
        if let Some(rest) = name.strip_prefix(INTERNAL_TOPIC) {
            return HubName::new(&format!("{INTERNAL_HUB}{rest}")).ok();
        }
        // Those of Kafka itself.
        let hub = HubName::new(name).ok();
        hub.filter(|hub| !hub.is_internal())
    }

    /// Whether a hub of this name can be found again.
    pub(super) fn allow(&self, hub: &HubName) -> bool {
        self.hub(&self.topic(hub.as_str()).0).as_ref() == Some(hub)
    }

    fn prefixed(&self, name: &str) -> String {
        let prefix = self.0.as_ref().map_or("", |Prefix(prefix)| prefix);
        format!("{prefix}{name}")
    }

    pub(super) fn group(&self, group: &str) -> GroupId {
        GroupId(text(self.prefixed(group)))
    }

    /// `None` if it is no group of the node.
    pub(super) fn own_group(&self, group: &str) -> Option<String> {
        let prefix = self.0.as_ref().map_or("", |Prefix(prefix)| prefix);
        group.strip_prefix(prefix).map(str::to_owned)
    }

    pub(super) fn transaction(&self, id: &str) -> TransactionalId {
        TransactionalId(text(self.prefixed(id)))
    }

    /// A message of a member with the names of the cluster.
    pub(super) fn outgoing(&self, kind: MemberMessage, group_type: &str, message: &Bytes) -> Bytes {
        match self.translates(group_type) {
            true => kind.renamed(message, |hub| Some(self.topic(hub).to_string())),
            false => message.clone(),
        }
    }

    /// A message of a member with the names of the log.
    pub(super) fn incoming(&self, kind: MemberMessage, group_type: &str, message: Bytes) -> Bytes {
        match self.translates(group_type) {
            true => kind.renamed(&message, |topic| {
                self.hub(topic).map(|hub| hub.as_str().to_owned())
            }),
            false => message,
        }
    }

    fn translates(&self, group_type: &str) -> bool {
        self.0.is_some() && group_type == CONSUMER
    }
}

/// The subscriptions and assignments of a group of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberMessage {
    /// The topics that a member subscribes to.
    Subscription,
    /// The assigned partitions of a member.
    Assignment,
}

impl MemberMessage {
    /// The message with other names. Topics without one are left out; malformed bytes are passed on, and their reader
    /// refuses them.
    fn renamed(self, message: &Bytes, rename: impl Fn(&str) -> Option<String>) -> Bytes {
        match self.rewrite(message, rename) {
            Ok(renamed) => renamed.into(),
            Err(_) => message.clone(),
        }
    }

    /// Writes version 0: the further fields of later ones name partitions that were owned before, which the range
    /// assignor ignores.
    fn rewrite(
        self,
        message: &[u8],
        rename: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<u8>, DecodeError> {
        let mut from = Reader::new(message);
        from.i16_be()?;
        let mut topics = Vec::new();
        for _ in 0..from.count_be()? {
            let topic = from.short_text_be()?;
            let partitions = match self {
                MemberMessage::Assignment => from.list_be(Reader::u32_be)?,
                MemberMessage::Subscription => Vec::new(),
            };
            topics.extend(rename(topic).map(|name| (name, partitions)));
        }
        let user_data = from.i32_be()?;
        let user_data = match usize::try_from(user_data) {
            Ok(length) => Some(from.raw(length)?),
            Err(_) => None,
        };
        let mut out = Vec::with_capacity(message.len() + 16 * topics.len());
        self.write(&topics, user_data, &mut out)?;
        Ok(out)
    }

    fn write(
        self,
        topics: &[(String, Vec<u32>)],
        user_data: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        out.i16_be(0);
        out.count_be(topics.len());
        for (name, partitions) in topics {
            let length = i16::try_from(name.len());
            out.i16_be(length.map_err(|_| DecodeError::Invalid("a topic has a long name"))?);
            out.raw(name.as_bytes());
            if self == MemberMessage::Assignment {
                out.count_be(partitions.len());
                for partition in partitions {
                    out.u32_be(*partition);
                }
            }
        }
        match user_data {
            Some(bytes) => out.blob_be(bytes),
            None => out.i32_be(-1),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub_of(names: &ClusterNames, topic: &str) -> Option<String> {
        names.hub(topic).map(|hub| hub.to_string())
    }

    // proves X1
    #[test]
    fn a_node_sees_its_own_topics_only_and_finds_each_again() {
        for prefix in ["", "plant-7."] {
            let names = ClusterNames::of_node(prefix);
            for hub in ["orders", "__queue.orders", "__audit", "a.b_c"] {
                let topic = names.topic(hub);
                assert!(topic.starts_with(prefix) && !topic.starts_with("__"));
                assert_eq!(hub_of(&names, &topic).as_deref(), Some(hub));
                assert!(names.allow(&HubName::new(hub).unwrap()));
            }
            assert_eq!(hub_of(&names, &format!("{prefix}__consumer_offsets")), None);
            let taken = HubName::new("_highwater.audit").unwrap();
            assert!(
                !names.allow(&taken),
                "it would be taken for an internal hub"
            );
        }
        let names = ClusterNames::of_node("plant-7.");
        assert_eq!(hub_of(&names, "orders"), None);
        assert_eq!(hub_of(&names, "plant-7."), None);
        assert_eq!(
            names.own_group("plant-7.billing").as_deref(),
            Some("billing")
        );
        assert_eq!(names.own_group("billing"), None);
    }

    #[test]
    fn a_program_uses_the_names_of_the_cluster() {
        let names = ClusterNames::default();
        for name in ["orders", "__consumer_offsets", "_highwater.audit"] {
            assert_eq!(&*names.topic(name), name);
            assert_eq!(hub_of(&names, name).as_deref(), Some(name));
        }
        assert_eq!(names.own_group("billing").as_deref(), Some("billing"));
    }

    #[test]
    fn members_tell_each_other_the_names_of_topics() {
        let names = ClusterNames::of_node("p.");
        let topic = |name: &str, partitions: &[u32]| (name.to_owned(), partitions.to_vec());
        let hubs = [topic("a", &[0, 2]), topic("__x", &[1])];
        let own = [topic("p.a", &[0, 2]), topic("p._highwater.x", &[1])];
        let all = [&own[..], &[topic("other", &[9])]].concat();
        for kind in [MemberMessage::Subscription, MemberMessage::Assignment] {
            let message = |topics: &[(String, Vec<u32>)]| {
                let mut out = Vec::new();
                kind.write(topics, Some(b"mine"), &mut out).unwrap();
                Bytes::from(out)
            };
            assert_eq!(
                names.outgoing(kind, CONSUMER, &message(&hubs)),
                message(&own)
            );
            let mut later = message(&all).to_vec();
            later[1] = 3;
            later.extend_from_slice(b"fields of version 3");
            assert_eq!(names.incoming(kind, CONSUMER, later.into()), message(&hubs));
            assert_eq!(
                names.incoming(kind, "connect", message(&all)),
                message(&all)
            );
            let malformed = Bytes::from_static(b"\0\0\0\0\0\x01\0\xff");
            assert_eq!(names.incoming(kind, CONSUMER, malformed.clone()), malformed);
        }
    }
}
