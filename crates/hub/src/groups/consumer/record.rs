//! The values of the records of a group and of its members; `docs/formats/offsets.md` has the layouts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::HubId;

use super::StateRecord;
use super::assignor::{Assignor, HubShape};
use super::classic::ClassicMember;
use super::member::{MemberRecord, Progress};
use super::partitions::PartitionSet;
use crate::coordinator::record::{read_duration, read_versioned, write_duration};

/// Version of every value but that of a classic member.
const VERSION: u8 = 1;

/// Version of a member of the classic protocol: its session timeout and protocols follow.
const CLASSIC_VERSION: u8 = 2;

/// `since_ms` is the time of the last change of the group.
pub(in crate::groups) fn put_group(out: &mut Vec<u8>, state: &StateRecord, since_ms: i64) {
    out.u8(VERSION);
    out.i64_be(since_ms);
    out.i32_be(state.epoch);
    out.i32_be(state.assignment_epoch);
    out.text_be(state.assignor.name());
    out.count_be(state.hubs.len());
    for (name, hub) in &state.hubs {
        out.text_be(name);
        out.raw(&hub.id.0);
        out.u32_be(hub.partitions);
    }
}

pub(in crate::groups) fn read_group(bytes: &[u8]) -> Result<(StateRecord, i64), DecodeError> {
    let mut reader = read_versioned(bytes, VERSION)?;
    let since_ms = reader.i64_be()?;
    let epoch = reader.i32_be()?;
    let assignment_epoch = reader.i32_be()?;
    let assignor = read_assignor(reader.text_be()?)?;
    let hubs = reader.list_be(|reader| {
        let name = reader.text_be()?.to_owned();
        let id = HubId(reader.array()?);
        let partitions = reader.u32_be()?;
        Ok((name, HubShape { id, partitions }))
    })?;
    reader.end()?;
    let state = StateRecord {
        epoch,
        assignment_epoch,
        assignor,
        hubs: hubs.into_iter().collect(),
    };
    Ok((state, since_ms))
}

fn read_assignor(name: &str) -> Result<Assignor, DecodeError> {
    Assignor::by_name(name).ok_or(DecodeError::Invalid("an assignor is unknown"))
}

pub(in crate::groups) fn put_member(out: &mut Vec<u8>, member: &MemberRecord) {
    out.u8(match member.classic {
        None => VERSION,
        Some(_) => CLASSIC_VERSION,
    });
    put_optional(out, member.instance.as_deref());
    put_optional(out, member.rack.as_deref());
    out.text_be(&member.client_id);
    out.text_be(&member.client_host);
    write_duration(out, member.rebalance_timeout);
    put_names(out, &member.names);
    put_optional(out, member.pattern.as_deref());
    put_names(out, &member.matched);
    put_optional(out, member.assignor.map(Assignor::name));
    out.i32_be(member.epoch);
    out.i32_be(member.previous_epoch);
    out.u8(match member.progress {
        Progress::Stable => 0,
        Progress::Unrevoked => 1,
        Progress::Unreleased => 2,
    });
    for set in [&member.assigned, &member.pending, &member.target] {
        put_partitions(out, set);
    }
    if let Some(classic) = &member.classic {
        write_duration(out, classic.session_timeout);
        out.count_be(classic.protocols.len());
        for (name, metadata) in &classic.protocols {
            out.text_be(name);
            out.count_be(metadata.len());
            out.raw(metadata);
        }
    }
}

fn read_classic(reader: &mut Reader<'_>) -> Result<ClassicMember, DecodeError> {
    Ok(ClassicMember {
        session_timeout: read_duration(reader)?,
        protocols: reader.list_be(|reader| {
            let name = reader.text_be()?.to_owned();
            let length = reader.count_be()?;
            let metadata = reader.raw(length)?;
            Ok((name, Bytes::copy_from_slice(metadata)))
        })?,
    })
}

pub(in crate::groups) fn read_member(bytes: &[u8]) -> Result<MemberRecord, DecodeError> {
    let reader = &mut Reader::new(bytes);
    let is_classic = match reader.u8()? {
        VERSION => false,
        CLASSIC_VERSION => true,
        other => return Err(DecodeError::unknown("version", other)),
    };
    let member = MemberRecord {
        instance: read_optional(reader)?,
        rack: read_optional(reader)?,
        client_id: reader.text_be()?.to_owned(),
        client_host: reader.text_be()?.to_owned(),
        rebalance_timeout: read_duration(reader)?,
        names: read_names(reader)?,
        pattern: read_optional(reader)?,
        matched: read_names(reader)?,
        assignor: (read_optional(reader)?.as_deref())
            .map(read_assignor)
            .transpose()?,
        epoch: reader.i32_be()?,
        previous_epoch: reader.i32_be()?,
        progress: match reader.u8()? {
            0 => Progress::Stable,
            1 => Progress::Unrevoked,
            2 => Progress::Unreleased,
            other => return Err(DecodeError::unknown("progress", other)),
        },
        assigned: read_partitions(reader)?,
        pending: read_partitions(reader)?,
        target: read_partitions(reader)?,
        classic: match is_classic {
            true => Some(read_classic(reader)?),
            false => None,
        },
    };
    reader.end()?;
    Ok(member)
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    out.bool(text.is_some());
    out.text_be(text.unwrap_or_default());
}

fn read_optional(reader: &mut Reader<'_>) -> Result<Option<String>, DecodeError> {
    let is_set = reader.bool()?;
    let text = reader.text_be()?.to_owned();
    Ok(is_set.then_some(text))
}

fn put_names(out: &mut Vec<u8>, names: &BTreeSet<String>) {
    out.count_be(names.len());
    names.iter().for_each(|name| out.text_be(name));
}

fn read_names(reader: &mut Reader<'_>) -> Result<BTreeSet<String>, DecodeError> {
    let names = reader.list_be(|reader| reader.text_be().map(str::to_owned))?;
    Ok(names.into_iter().collect())
}

fn put_partitions(out: &mut Vec<u8>, set: &PartitionSet) {
    let list = set.to_list();
    out.count_be(list.len());
    for (hub, partitions) in list {
        out.raw(&hub.0);
        out.count_be(partitions.len());
        partitions
            .iter()
            .for_each(|partition| out.u32_be(*partition));
    }
}

fn read_partitions(reader: &mut Reader<'_>) -> Result<PartitionSet, DecodeError> {
    let list = reader.list_be(|reader| {
        let hub = HubId(reader.array()?);
        Ok((hub, reader.list_be(|reader| reader.u32_be())?))
    })?;
    let hubs: BTreeMap<HubId, Vec<u32>> = list.into_iter().collect();
    Ok(PartitionSet::from_list(hubs.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    fn set(partitions: &[u32]) -> PartitionSet {
        PartitionSet::from_list(vec![(HubId([7; 16]), partitions.to_vec())])
    }

    // proves L6
    #[test]
    fn a_group_is_written_as_the_format_says() {
        let hub = HubShape {
            id: HubId([7; 16]),
            partitions: 3,
        };
        let state = StateRecord {
            epoch: 4,
            assignment_epoch: 3,
            assignor: Assignor::Range,
            hubs: [("toll".to_owned(), hub)].into(),
        };
        let bytes = encoded(|out| put_group(out, &state, 9));
        let mut expected = b"\x01\0\0\0\0\0\0\0\x09\0\0\0\x04\0\0\0\x03\0\0\0\x05range".to_vec();
        expected.extend(b"\0\0\0\x01\0\0\0\x04toll");
        expected.extend([7; 16]);
        expected.extend(b"\0\0\0\x03");
        assert_eq!(bytes, expected);
        assert_eq!(read_group(&bytes), Ok((state, 9)));
    }

    #[test]
    fn a_member_is_written_as_the_format_says() {
        let member = MemberRecord {
            instance: Some("i".into()),
            client_id: "c".into(),
            client_host: "/h".into(),
            rebalance_timeout: Duration::from_millis(5),
            names: ["toll".to_owned()].into(),
            epoch: 4,
            previous_epoch: 3,
            progress: Progress::Unrevoked,
            assigned: set(&[1]),
            ..MemberRecord::default()
        };
        let bytes = encoded(|out| put_member(out, &member));
        let mut expected = b"\x01\x01\0\0\0\x01i\0\0\0\0\0\0\0\0\x01c\0\0\0\x02/h".to_vec();
        expected.extend(b"\0\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0\x04toll");
        expected.extend(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\x03\x01\0\0\0\x01");
        let expected_len = expected.len();
        assert_eq!(bytes[..expected_len], expected);
        assert_eq!(bytes[expected_len..expected_len + 16], [7; 16]);
        assert_eq!(
            bytes[expected_len + 16..],
            *b"\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0"
        );
        assert_eq!(read_member(&bytes), Ok(member));
    }

    proptest! {
        #[test]
        fn a_member_is_read_as_it_was_written(
            texts in (proptest::option::of(".{0,4}"), proptest::option::of(".{1,4}"), ".{0,4}"),
            names in proptest::collection::btree_set("[a-z]{1,4}", 0..4),
            partitions in proptest::collection::vec(any::<u32>(), 0..5),
            epochs in (any::<i32>(), any::<i32>()),
            progress in 0..3,
            classic in proptest::option::of(("[a-z]{1,4}", proptest::collection::vec(any::<u8>(), 0..5))),
        ) {
            let member = MemberRecord {
                instance: texts.0,
                pattern: texts.1,
                client_id: texts.2,
                matched: names.clone(),
                names,
                assignor: Some(Assignor::Uniform),
                epoch: epochs.0,
                previous_epoch: epochs.1,
                progress: match progress {
                    0 => Progress::Stable,
                    1 => Progress::Unrevoked,
                    _ => Progress::Unreleased,
                },
                pending: set(&partitions),
                target: set(&partitions),
                classic: classic.map(|(name, metadata)| ClassicMember {
                    session_timeout: Duration::from_millis(7),
                    protocols: vec![(name, metadata.into())],
                }),
                ..MemberRecord::default()
            };
            let bytes = encoded(|out| put_member(out, &member));
            prop_assert_eq!(read_member(&bytes), Ok(member));
            prop_assert!(read_member(&bytes[..bytes.len() - 1]).is_err());
        }

        #[test]
        fn invalid_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            let _ = read_group(&bytes);
            let _ = read_member(&bytes);
        }
    }
}
