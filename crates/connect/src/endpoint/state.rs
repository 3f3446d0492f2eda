//! The start of every endpoint's state: its kind and version. A job may have another output under an old name, and
//! must not read the state of another kind.

use highwater_codec::{DecodeError, Reader, Writer};

use super::EndpointError;

const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointKind {
    // 1 was an endpoint in memory.
    Stdout = 2,
    Hub = 3,
    Files = 4,
    #[cfg(feature = "postgres")]
    Postgres = 5,
    Webhook = 6,
    Queue = 7,
    Kafka = 8,
}

/// Starts a state.
pub(super) fn begin(kind: EndpointKind) -> Vec<u8> {
    let mut writer = Vec::new();
    writer.u8(kind as u8);
    writer.u8(VERSION);
    writer
}

/// Checks the start of a state and returns a reader for the rest.
pub(super) fn open(kind: EndpointKind, state: &[u8]) -> Result<Reader<'_>, EndpointError> {
    let mut reader = Reader::new(state);
    let found = (reader.u8(), reader.u8());
    match found {
        (Ok(found), Ok(VERSION)) if found == kind as u8 => Ok(reader),
        (Ok(found), Ok(version)) if found == kind as u8 => Err(EndpointError::unfit(format!(
            "the checkpoint of this output has version {version}, and this build reads version {VERSION}"
        ))),
        _ => Err(EndpointError::unfit(
            "the checkpoint belongs to an output of another type: start the job from the beginning, or under another name",
        )),
    }
}

/// A state that is one number.
pub(super) fn of_number(kind: EndpointKind, number: u64) -> Vec<u8> {
    let mut writer = begin(kind);
    writer.u64(number);
    writer
}

pub(super) fn to_number(kind: EndpointKind, state: Option<&[u8]>) -> Result<u64, EndpointError> {
    match state {
        Some(state) => open(kind, state)?.u64().map_err(damaged),
        None => Ok(0),
    }
}

pub(super) fn damaged(error: DecodeError) -> EndpointError {
    EndpointError::unfit(format!("the checkpoint of this output: {error}"))
}
