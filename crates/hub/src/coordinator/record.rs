//! Fields that the records of both coordinators share. `docs/formats/offsets.md` and `docs/formats/transactions.md`
//! have the layouts.

use std::time::Duration;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::{HubName, TopicPartition};

/// A reader after the version, the first byte of every value.
pub(crate) fn read_versioned(bytes: &[u8], version: u8) -> Result<Reader<'_>, DecodeError> {
    let mut from = Reader::new(bytes);
    from.version(version)?;
    Ok(from)
}

pub(crate) fn write_topic_partition(out: &mut Vec<u8>, topic_partition: &TopicPartition) {
    out.text_be(topic_partition.hub.as_str());
    out.u32_be(topic_partition.partition);
}

pub(crate) fn read_topic_partition(from: &mut Reader<'_>) -> Result<TopicPartition, DecodeError> {
    let hub = HubName::new(from.text_be()?);
    let hub = hub.map_err(|_| DecodeError::Invalid("a hub name is invalid"))?;
    let partition = from.u32_be()?;
    Ok(TopicPartition { hub, partition })
}

pub(crate) fn write_duration(out: &mut Vec<u8>, duration: Duration) {
    out.i64_be(duration.as_millis() as i64);
}

pub(crate) fn read_duration(from: &mut Reader<'_>) -> Result<Duration, DecodeError> {
    let millis = u64::try_from(from.i64_be()?);
    let millis = millis.map_err(|_| DecodeError::Invalid("a duration is negative"))?;
    Ok(Duration::from_millis(millis))
}
