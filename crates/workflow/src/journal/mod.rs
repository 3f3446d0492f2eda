//! The records on the log. `docs/formats/workflow.md` specifies them.
//!
//! The key of a record is the id of its instance; its value begins with its kind.

mod event;
mod hubs;
mod instance;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use self::hubs::JournalHubs;
pub use self::read::JournalError;
pub(crate) use self::read::{read_all, read_from, read_range};
pub(crate) use self::write::{append, record};

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::{Offset, Partition, batch};

use crate::definition::Version;
use crate::machine::{Event, Instance, Millis};
use crate::versions::Versions;

/// The value of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record {
    Started {
        version: Version,
        at_ms: Millis,
        input: Bytes,
    },
    Event(Event),
    /// The whole state, so that earlier records can be trimmed.
    Snapshot(Box<Instance>),
    /// It failed; its further records are on the hub of failed instances.
    HandedOver,
    /// The whole state when it was handed over, on the hub of failed instances.
    Failed(Box<Instance>),
    /// It has ended and is in the history.
    Closed,
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("record kind {0} is unknown")]
    Kind(u8),
    #[error("the definition {0} is not on the log")]
    Version(Version),
    #[error("it does not fit its definition")]
    Mismatch,
}

const STARTED: u8 = 1;
const EVENT: u8 = 2;
const SNAPSHOT: u8 = 3;
const HANDED_OVER: u8 = 4;
const CLOSED: u8 = 5;
const FAILED: u8 = 6;

/// Appends the value of a record to `out`.
pub(crate) fn write_started(out: &mut Vec<u8>, version: Version, at_ms: Millis, input: &[u8]) {
    out.u8(STARTED);
    out.u64_be(version.0);
    out.zigzag(at_ms);
    out.blob_var(input);
}

pub(crate) fn write_event(out: &mut Vec<u8>, event: &Event) {
    out.u8(EVENT);
    event::write(out, event);
}

pub(crate) fn write_snapshot(out: &mut Vec<u8>, instance: &Instance) {
    out.u8(SNAPSHOT);
    instance::write(out, instance);
}

pub(crate) fn write_failed(out: &mut Vec<u8>, instance: &Instance) {
    out.u8(FAILED);
    instance::write(out, instance);
}

pub(crate) fn write_handed_over(out: &mut Vec<u8>) {
    out.u8(HANDED_OVER);
}

pub(crate) fn write_closed(out: &mut Vec<u8>) {
    out.u8(CLOSED);
}

/// Whether a value is that of [`Record::Failed`].
pub(crate) fn is_failed(value: &[u8]) -> bool {
    value.first() == Some(&FAILED)
}

/// Reads a record of a partition, with the id of its instance. `None` for a record without key or value.
pub(crate) fn read_record(
    partition: &dyn Partition,
    record: &batch::Record<'_>,
    versions: &Versions,
) -> Result<Option<(String, Record)>, JournalError> {
    let (Some(key), Some(value)) = (record.key, record.value) else {
        return Ok(None);
    };
    let id = String::from_utf8_lossy(key).into_owned();
    match read(&id, value, versions) {
        Ok(read) => Ok(Some((id, read))),
        Err(error) => Err(unreadable(partition, record.offset, error)),
    }
}

/// The error for a record that cannot be read or applied.
pub(crate) fn unreadable(
    partition: &dyn Partition,
    offset: Offset,
    error: RecordError,
) -> JournalError {
    JournalError::Record {
        partition: partition.topic_partition().clone(),
        offset,
        error,
    }
}

/// Reads the value of the record of instance `id`.
pub(crate) fn read(id: &str, value: &[u8], versions: &Versions) -> Result<Record, RecordError> {
    let mut reader = Reader::new(value);
    let record = match reader.u8()? {
        STARTED => Record::Started {
            version: Version(reader.u64_be()?),
            at_ms: reader.zigzag()?,
            input: Bytes::copy_from_slice(reader.blob_var()?),
        },
        EVENT => Record::Event(event::read(&mut reader)?),
        SNAPSHOT => Record::Snapshot(Box::new(instance::read(&mut reader, id, versions)?)),
        FAILED => Record::Failed(Box::new(instance::read(&mut reader, id, versions)?)),
        HANDED_OVER => Record::HandedOver,
        CLOSED => Record::Closed,
        kind => return Err(RecordError::Kind(kind)),
    };
    match reader.is_done() {
        true => Ok(record),
        false => Err(RecordError::Mismatch),
    }
}
