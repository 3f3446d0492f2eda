//! The records of groups and committed offsets; `docs/formats/offsets.md` has the layouts.

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::{HubId, Offset, OffsetAndMetadata, TopicPartition};

use super::machine::{MemberRecord, Snapshot};
use super::offsets::StoredOffset;
use crate::coordinator::record::{
    read_duration, read_topic_partition, read_versioned, write_duration, write_topic_partition,
};

/// Version of every value.
const VERSION: u8 = 1;

const GROUP: u8 = 1;
const OFFSET: u8 = 2;
const PENDING: u8 = 3;
const CONSUMER_GROUP: u8 = 4;
const CONSUMER_MEMBER: u8 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Group(String),
    Offset(String, TopicPartition),
    /// An offset that takes effect when the producer's transaction commits.
    Pending(String, i64, TopicPartition),
    /// A group of the consumer protocol, without its members.
    ConsumerGroup(String),
    /// A member of a group of the consumer protocol: group and member id.
    ConsumerMember(String, String),
}

pub(super) fn group_key(out: &mut Vec<u8>, group: &str) {
    out.u8(GROUP);
    out.text_be(group);
}

pub(super) fn consumer_group_key(out: &mut Vec<u8>, group: &str) {
    out.u8(CONSUMER_GROUP);
    out.text_be(group);
}

pub(super) fn consumer_member_key(out: &mut Vec<u8>, group: &str, member: &str) {
    out.u8(CONSUMER_MEMBER);
    out.text_be(group);
    out.text_be(member);
}

pub(super) fn offset_key(out: &mut Vec<u8>, group: &str, topic_partition: &TopicPartition) {
    out.u8(OFFSET);
    out.text_be(group);
    write_topic_partition(out, topic_partition);
}

pub(super) fn pending_key(
    out: &mut Vec<u8>,
    group: &str,
    producer: i64,
    topic_partition: &TopicPartition,
) {
    out.u8(PENDING);
    out.text_be(group);
    out.i64_be(producer);
    write_topic_partition(out, topic_partition);
}

pub(super) fn read_key(bytes: &[u8]) -> Result<Key, DecodeError> {
    let mut reader = Reader::new(bytes);
    let kind = reader.u8()?;
    let group = reader.text_be()?.to_owned();
    let key = match kind {
        GROUP => Key::Group(group),
        OFFSET => Key::Offset(group, read_topic_partition(&mut reader)?),
        PENDING => Key::Pending(group, reader.i64_be()?, read_topic_partition(&mut reader)?),
        CONSUMER_GROUP => Key::ConsumerGroup(group),
        CONSUMER_MEMBER => Key::ConsumerMember(group, reader.text_be()?.to_owned()),
        other => return Err(DecodeError::unknown("kind", other)),
    };
    reader.end()?;
    Ok(key)
}

pub(super) fn put_offset(out: &mut Vec<u8>, offset: &StoredOffset) {
    out.u8(VERSION);
    out.i64_be(offset.committed.offset.0);
    out.i32_be(offset.committed.leader_epoch);
    out.raw(&offset.hub.0);
    out.i64_be(offset.time_ms);
    out.text_be(&offset.committed.metadata);
}

pub(super) fn read_offset(bytes: &[u8]) -> Result<StoredOffset, DecodeError> {
    let mut reader = read_versioned(bytes, VERSION)?;
    let offset = Offset(reader.i64_be()?);
    let leader_epoch = reader.i32_be()?;
    let hub = HubId(reader.array()?);
    let time_ms = reader.i64_be()?;
    let metadata = reader.text_be()?.to_owned();
    reader.end()?;
    Ok(StoredOffset {
        committed: OffsetAndMetadata {
            offset,
            leader_epoch,
            metadata,
        },
        hub,
        time_ms,
    })
}

/// `since_ms` is the time of the last change of the group.
pub(super) fn put_group(out: &mut Vec<u8>, snapshot: &Snapshot, since_ms: i64) {
    out.u8(VERSION);
    out.i64_be(since_ms);
    out.i32_be(snapshot.generation);
    out.text_be(&snapshot.protocol_type);
    out.text_be(&snapshot.protocol);
    out.text_be(&snapshot.leader);
    out.count_be(snapshot.members.len());
    snapshot
        .members
        .iter()
        .for_each(|member| put_member(out, member));
}

fn put_member(out: &mut Vec<u8>, member: &MemberRecord) {
    out.text_be(&member.id);
    out.u8(member.instance.is_some().into());
    out.text_be(member.instance.as_deref().unwrap_or_default());
    out.text_be(&member.client_id);
    out.text_be(&member.client_host);
    write_duration(out, member.session_timeout);
    write_duration(out, member.rebalance_timeout);
    out.count_be(member.protocols.len());
    for (name, metadata) in &member.protocols {
        out.text_be(name);
        out.blob_be(metadata);
    }
    out.blob_be(&member.assignment);
}

pub(super) fn read_group(bytes: &[u8]) -> Result<(Snapshot, i64), DecodeError> {
    let mut reader = read_versioned(bytes, VERSION)?;
    let since_ms = reader.i64_be()?;
    let snapshot = Snapshot {
        generation: reader.i32_be()?,
        protocol_type: reader.text_be()?.to_owned(),
        protocol: reader.text_be()?.to_owned(),
        leader: reader.text_be()?.to_owned(),
        members: reader.list_be(read_member)?,
    };
    reader.end()?;
    Ok((snapshot, since_ms))
}

fn read_member(reader: &mut Reader<'_>) -> Result<MemberRecord, DecodeError> {
    let id = reader.text_be()?.to_owned();
    let is_static = reader.u8()? == 1;
    let instance = reader.text_be()?.to_owned();
    Ok(MemberRecord {
        id,
        instance: is_static.then_some(instance),
        client_id: reader.text_be()?.to_owned(),
        client_host: reader.text_be()?.to_owned(),
        session_timeout: read_duration(reader)?,
        rebalance_timeout: read_duration(reader)?,
        protocols: reader
            .list_be(|reader| Ok((reader.text_be()?.to_owned(), read_bytes(reader)?)))?,
        assignment: read_bytes(reader)?,
    })
}

fn read_bytes(from: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
    from.blob_be().map(Bytes::copy_from_slice)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use highwater_log::HubName;
    use proptest::prelude::*;

    use super::*;

    fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    fn topic_partition() -> TopicPartition {
        let hub = HubName::new("toll").unwrap();
        TopicPartition { hub, partition: 3 }
    }

    #[test]
    fn an_offset_is_written_as_the_format_says() {
        let key = encoded(|out| offset_key(out, "g", &topic_partition()));
        assert_eq!(key, b"\x02\0\0\0\x01g\0\0\0\x04toll\0\0\0\x03");
        let value = encoded(|out| {
            let committed = OffsetAndMetadata {
                offset: Offset(5),
                leader_epoch: -1,
                metadata: "m".into(),
            };
            let (hub, time_ms) = (HubId([7; 16]), 9);
            put_offset(
                out,
                &StoredOffset {
                    committed,
                    hub,
                    time_ms,
                },
            );
        });
        let mut expected = b"\x01\0\0\0\0\0\0\0\x05\xff\xff\xff\xff".to_vec();
        expected.extend([7; 16]);
        expected.extend(b"\0\0\0\0\0\0\0\x09\0\0\0\x01m");
        assert_eq!(value, expected);
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let pending = encoded(|out| pending_key(out, "g", 42, &topic_partition()));
        assert_eq!(
            read_key(&pending),
            Ok(Key::Pending("g".into(), 42, topic_partition()))
        );
        let offset = encoded(|out| offset_key(out, "g", &topic_partition()));
        assert_eq!(
            read_key(&offset),
            Ok(Key::Offset("g".into(), topic_partition()))
        );
        let group = encoded(|out| group_key(out, "g"));
        assert_eq!(read_key(&group), Ok(Key::Group("g".into())));
        let group = encoded(|out| consumer_group_key(out, "g"));
        assert_eq!(group, b"\x04\0\0\0\x01g");
        assert_eq!(read_key(&group), Ok(Key::ConsumerGroup("g".into())));
        let member = encoded(|out| consumer_member_key(out, "g", "m"));
        assert_eq!(member, b"\x05\0\0\0\x01g\0\0\0\x01m");
        let key = Key::ConsumerMember("g".into(), "m".into());
        assert_eq!(read_key(&member), Ok(key));
    }

    #[test]
    fn a_value_of_a_later_version_is_refused() {
        assert_eq!(
            read_offset(&[2, 0]),
            Err(DecodeError::unknown("version", 2u8))
        );
        assert_eq!(
            read_key(b"\x09\0\0\0\0"),
            Err(DecodeError::unknown("kind", 9u8))
        );
    }

    fn any_member() -> impl Strategy<Value = MemberRecord> {
        let protocols = proptest::collection::vec(
            (".{0,4}", proptest::collection::vec(any::<u8>(), 0..9)),
            0..3,
        );
        let named = (".{0,4}", proptest::option::of(".{0,4}"), ".{0,4}", ".{0,4}");
        (named, 0..100_000u64, 0..100_000u64, protocols).prop_map(
            |((id, instance, client_id, client_host), session, rebalance, protocols)| {
                let own = |(name, metadata): (String, Vec<u8>)| (name, Bytes::from(metadata));
                MemberRecord {
                    assignment: Bytes::from(id.clone()),
                    id,
                    instance,
                    client_id,
                    client_host,
                    session_timeout: Duration::from_millis(session),
                    rebalance_timeout: Duration::from_millis(rebalance),
                    protocols: protocols.into_iter().map(own).collect(),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_group_is_read_as_it_was_written(
            generation in any::<i32>(),
            since in any::<i64>(),
            members in proptest::collection::vec(any_member(), 0..4),
        ) {
            let snapshot = Snapshot {
                generation,
                protocol_type: "consumer".into(),
                protocol: "range".into(),
                leader: "l".into(),
                members,
            };
            let bytes = encoded(|out| put_group(out, &snapshot, since));
            prop_assert_eq!(read_group(&bytes), Ok((snapshot, since)));
            prop_assert!(read_group(&bytes[..bytes.len() - 1]).is_err());
        }

        #[test]
        fn invalid_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = read_key(&bytes);
            let _ = read_group(&bytes);
            let _ = read_offset(&bytes);
        }
    }
}
