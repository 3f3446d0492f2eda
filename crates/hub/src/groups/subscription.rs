//! Reads the subscribed hubs from the metadata of a consumer.
//!
//! The metadata of members is opaque to a group, with one exception, as in Kafka: offsets of a subscribed hub cannot be
//! deleted.

use highwater_codec::{DecodeError, Reader};

/// False only if the metadata is that of a consumer and does not list the hub.
pub(super) fn may_include(metadata: &[u8], hub: &str) -> bool {
    names(metadata).map_or(true, |names| names.contains(&hub.as_bytes()))
}

/// A version, then a list of names; more may follow.
fn names(metadata: &[u8]) -> Result<Vec<&[u8]>, DecodeError> {
    let mut from = Reader::new(metadata);
    from.i16_be()?;
    from.list_be(|from| {
        let length = from.u16_be()?;
        from.raw(length.into())
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
}
