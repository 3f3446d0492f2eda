//! What groups and positions look like on their hub; `docs/formats/offsets.md` draws it.

use std::time::Duration;

use highwater_log::{HubId, HubName, Offset, Place, StoredOffset};

use super::machine::{MemberSnapshot, Snapshot};
use super::positions::Position;
use crate::coordinator::codec::{Malformed, Reader, Write};

/// The only version so far of every value.
const VERSION: u8 = 1;

const GROUP: u8 = 1;
const POSITION: u8 = 2;
const PENDING: u8 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Group(String),
    Position(String, Place),
    /// A position that counts when the producer's transaction commits.
    Pending(String, i64, Place),
}

pub(super) fn group_key(out: &mut Vec<u8>, group: &str) {
    out.u8(GROUP);
    out.text(group);
}

pub(super) fn position_key(out: &mut Vec<u8>, group: &str, place: &Place) {
    out.u8(POSITION);
    out.text(group);
    put_place(out, place);
}

pub(super) fn pending_key(out: &mut Vec<u8>, group: &str, producer: i64, place: &Place) {
    out.u8(PENDING);
    out.text(group);
    out.i64(producer);
    put_place(out, place);
}

pub(super) fn read_key(bytes: &[u8]) -> Result<Key, Malformed> {
    let mut reader = Reader::new(bytes);
    let kind = reader.u8()?;
    let group = reader.text()?.to_owned();
    let key = match kind {
        GROUP => Key::Group(group),
        POSITION => Key::Position(group, read_place(&mut reader)?),
        PENDING => Key::Pending(group, reader.i64()?, read_place(&mut reader)?),
        other => return Err(Malformed::Unknown(other)),
    };
    reader.end()?;
    Ok(key)
}

fn put_place(out: &mut Vec<u8>, place: &Place) {
    out.text(place.hub.as_str());
    out.u32(place.partition);
}

fn read_place(reader: &mut Reader<'_>) -> Result<Place, Malformed> {
    let hub = HubName::new(reader.text()?).map_err(|_| Malformed::Value("no name of a hub"))?;
    let partition = reader.u32()?;
    Ok(Place { hub, partition })
}

pub(super) fn put_position(out: &mut Vec<u8>, position: &Position) {
    out.u8(VERSION);
    out.i64(position.stored.offset.0);
    out.i32(position.stored.leader_epoch);
    out.put(&position.hub.0);
    out.i64(position.time_ms);
    out.text(&position.stored.metadata);
}

pub(super) fn read_position(bytes: &[u8]) -> Result<Position, Malformed> {
    let mut reader = versioned(bytes)?;
    let offset = Offset(reader.i64()?);
    let leader_epoch = reader.i32()?;
    let hub = HubId(reader.array()?);
    let time_ms = reader.i64()?;
    let metadata = reader.text()?.to_owned();
    reader.end()?;
    Ok(Position {
        stored: StoredOffset {
            offset,
            leader_epoch,
            metadata,
        },
        hub,
        time_ms,
    })
}

/// `since_ms` is when the group came to be as it is.
pub(super) fn put_group(out: &mut Vec<u8>, snapshot: &Snapshot, since_ms: i64) {
    out.u8(VERSION);
    out.i64(since_ms);
    out.i32(snapshot.generation);
    out.text(&snapshot.protocol_type);
    out.text(&snapshot.protocol);
    out.text(&snapshot.leader);
    out.u32(snapshot.members.len() as u32);
    snapshot
        .members
        .iter()
        .for_each(|member| put_member(out, member));
}

fn put_member(out: &mut Vec<u8>, member: &MemberSnapshot) {
    out.text(&member.id);
    out.u8(member.instance.is_some().into());
    out.text(member.instance.as_deref().unwrap_or_default());
    out.text(&member.client_id);
    out.text(&member.client_host);
    out.i64(member.session_timeout.as_millis() as i64);
    out.i64(member.rebalance_timeout.as_millis() as i64);
    out.u32(member.protocols.len() as u32);
    for (name, metadata) in &member.protocols {
        out.text(name);
        out.bytes(metadata);
    }
    out.bytes(&member.assignment);
}

pub(super) fn read_group(bytes: &[u8]) -> Result<(Snapshot, i64), Malformed> {
    let mut reader = versioned(bytes)?;
    let since_ms = reader.i64()?;
    let snapshot = Snapshot {
        generation: reader.i32()?,
        protocol_type: reader.text()?.to_owned(),
        protocol: reader.text()?.to_owned(),
        leader: reader.text()?.to_owned(),
        members: reader.list(read_member)?,
    };
    reader.end()?;
    Ok((snapshot, since_ms))
}

fn read_member(reader: &mut Reader<'_>) -> Result<MemberSnapshot, Malformed> {
    let id = reader.text()?.to_owned();
    let is_static = reader.u8()? == 1;
    let instance = reader.text()?.to_owned();
    Ok(MemberSnapshot {
        id,
        instance: is_static.then_some(instance),
        client_id: reader.text()?.to_owned(),
        client_host: reader.text()?.to_owned(),
        session_timeout: read_millis(reader)?,
        rebalance_timeout: read_millis(reader)?,
        protocols: reader.list(|reader| Ok((reader.text()?.to_owned(), reader.owned()?)))?,
        assignment: reader.owned()?,
    })
}

fn read_millis(reader: &mut Reader<'_>) -> Result<Duration, Malformed> {
    let millis = u64::try_from(reader.i64()?).map_err(|_| Malformed::Value("a negative time"))?;
    Ok(Duration::from_millis(millis))
}

fn versioned(bytes: &[u8]) -> Result<Reader<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        VERSION => Ok(reader),
        other => Err(Malformed::Unknown(other)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn made(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    fn place() -> Place {
        let hub = HubName::new("toll").unwrap();
        Place { hub, partition: 3 }
    }

    #[test]
    fn a_position_is_written_as_the_format_says() {
        let key = made(|out| position_key(out, "g", &place()));
        assert_eq!(key, b"\x02\0\0\0\x01g\0\0\0\x04toll\0\0\0\x03");
        let value = made(|out| {
            let stored = StoredOffset {
                offset: Offset(5),
                leader_epoch: -1,
                metadata: "m".into(),
            };
            let (hub, time_ms) = (HubId([7; 16]), 9);
            put_position(
                out,
                &Position {
                    stored,
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
        let pending = made(|out| pending_key(out, "g", 42, &place()));
        assert_eq!(
            read_key(&pending),
            Ok(Key::Pending("g".into(), 42, place()))
        );
        let position = made(|out| position_key(out, "g", &place()));
        assert_eq!(read_key(&position), Ok(Key::Position("g".into(), place())));
        let group = made(|out| group_key(out, "g"));
        assert_eq!(read_key(&group), Ok(Key::Group("g".into())));
    }

    #[test]
    fn a_value_of_a_later_version_is_not_taken_for_ours() {
        assert_eq!(read_position(&[2, 0]), Err(Malformed::Unknown(2)));
        assert_eq!(read_key(b"\x09\0\0\0\0"), Err(Malformed::Unknown(9)));
    }

    fn any_member() -> impl Strategy<Value = MemberSnapshot> {
        let protocols = proptest::collection::vec(
            (".{0,4}", proptest::collection::vec(any::<u8>(), 0..9)),
            0..3,
        );
        let named = (".{0,4}", proptest::option::of(".{0,4}"), ".{0,4}", ".{0,4}");
        (named, 0..100_000u64, 0..100_000u64, protocols).prop_map(
            |((id, instance, client_id, client_host), session, rebalance, protocols)| {
                let own = |(name, metadata): (String, Vec<u8>)| (name, Bytes::from(metadata));
                MemberSnapshot {
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
            let bytes = made(|out| put_group(out, &snapshot, since));
            prop_assert_eq!(read_group(&bytes), Ok((snapshot, since)));
            prop_assert!(read_group(&bytes[..bytes.len() - 1]).is_err());
        }

        #[test]
        fn nonsense_is_refused_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = read_key(&bytes);
            let _ = read_group(&bytes);
            let _ = read_position(&bytes);
        }
    }
}
