//! Reads and writes the subscriptions and assignments of the classic protocol.
//!
//! The metadata of members is opaque to a group, with two exceptions, as in Kafka: offsets of a subscribed hub cannot
//! be deleted, and a group that changes its protocol assigns partitions to classic members itself.

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};

/// The protocol type of groups of consumers.
pub(super) const CONSUMER: &str = "consumer";

/// The last version of both formats.
const VERSION_MAX: i16 = 3;

/// Partitions by the name of their hub.
pub(super) type NamedPartitions = Vec<(String, Vec<u32>)>;

/// The metadata of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) version: i16,
    pub(super) names: Vec<String>,
    /// The partitions that it has not revoked.
    pub(super) owned: NamedPartitions,
    pub(super) rack: Option<String>,
}

impl Subscription {
    pub(super) fn read(metadata: &[u8]) -> Result<Subscription, DecodeError> {
        let mut from = Reader::new(metadata);
        let version = from.i16_be()?;
        if version < 0 {
            return Err(DecodeError::Invalid("a negative version"));
        }
        let names = from.list_be(read_text)?;
        skip_user_data(&mut from)?;
        let owned = match version >= 1 {
            true => read_partitions(&mut from)?,
            false => Vec::new(),
        };
        if version >= 2 {
            let _generation = from.i32_be()?;
        }
        let rack = match version >= 3 {
            true => read_optional_text(&mut from)?,
            false => None,
        };
        Ok(Subscription {
            version,
            names,
            owned,
            rack,
        })
    }
}

/// The partitions that the leader of a classic group assigned to a consumer.
pub(super) fn read_assignment(bytes: &[u8]) -> Result<NamedPartitions, DecodeError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut from = Reader::new(bytes);
    from.i16_be()?;
    read_partitions(&mut from)
}

/// An assignment for a consumer whose subscription has this version.
pub(super) fn put_assignment(version: i16, partitions: &NamedPartitions) -> Bytes {
    let mut out = Vec::new();
    out.i16_be(version.min(VERSION_MAX));
    out.count_be(partitions.len());
    for (name, partitions) in partitions {
        // Names of hubs are short.
        out.i16_be(name.len() as i16);
        out.raw(name.as_bytes());
        out.count_be(partitions.len());
        partitions.iter().for_each(|number| out.u32_be(*number));
    }
    // No user data.
    out.i32_be(-1);
    out.into()
}

/// False only if the metadata is that of a consumer and does not list the hub.
pub(super) fn may_include(metadata: &[u8], hub: &str) -> bool {
    let mut from = Reader::new(metadata);
    let names = from.i16_be().and_then(|_| from.list_be(read_text));
    names.map_or(true, |names| names.iter().any(|name| name == hub))
}

fn read_text(from: &mut Reader<'_>) -> Result<String, DecodeError> {
    let length = from.u16_be()?;
    let text = std::str::from_utf8(from.raw(length.into())?);
    text.map(str::to_owned)
        .map_err(|_| DecodeError::Invalid("a name is not UTF-8"))
}

fn read_optional_text(from: &mut Reader<'_>) -> Result<Option<String>, DecodeError> {
    match from.i16_be()? {
        length @ 0.. => {
            let text = std::str::from_utf8(from.raw(length as usize)?);
            let text = text.map_err(|_| DecodeError::Invalid("a rack is not UTF-8"))?;
            Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
        }
        _ => Ok(None),
    }
}

fn skip_user_data(from: &mut Reader<'_>) -> Result<(), DecodeError> {
    let length = usize::try_from(from.i32_be()?).unwrap_or(0);
    from.raw(length).map(|_| ())
}

fn read_partitions(from: &mut Reader<'_>) -> Result<NamedPartitions, DecodeError> {
    from.list_be(|from| {
        let name = read_text(from)?;
        Ok((name, from.list_be(|from| from.u32_be())?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_names_its_hubs() {
        let metadata = b"\0\x01\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff";
        assert!(may_include(metadata, "a") && may_include(metadata, "bc"));
        assert!(!may_include(metadata, "b"));
    }

    #[test]
    fn unreadable_metadata_may_include_any_hub() {
        for metadata in [&b""[..], b"\0\x01\0\0", b"\0\x01\xff\xff\xff\xff\0\x01a"] {
            assert!(may_include(metadata, "a"), "{metadata:?}");
        }
    }

    // proves K1
    #[test]
    fn subscriptions_of_all_versions_are_read() {
        let first = b"\0\0\0\0\0\x01\0\x01a\0\0\0\x02xy";
        let read = Subscription::read(first).unwrap();
        assert_eq!((read.version, read.names), (0, vec!["a".to_owned()]));
        let last = b"\0\x03\0\0\0\x01\0\x01a\xff\xff\xff\xff\0\0\0\x01\0\x01a\0\0\0\x02\0\0\0\0\0\0\0\x05\0\0\0\x09\0\x01r";
        let read = Subscription::read(last).unwrap();
        assert_eq!(read.owned, [("a".to_owned(), vec![0, 5])]);
        assert_eq!(read.rack.as_deref(), Some("r"));
        for length in 0..last.len() {
            assert!(Subscription::read(&last[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn an_assignment_is_read_as_it_was_written() {
        let partitions = vec![("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![])];
        let bytes = put_assignment(9, &partitions);
        assert_eq!(bytes[..2], [0, 3], "a version that clients know");
        assert_eq!(read_assignment(&bytes), Ok(partitions));
        assert_eq!(read_assignment(b""), Ok(vec![]));
    }
}
