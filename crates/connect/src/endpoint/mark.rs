//! What every mark begins with: whose it is, and of which version. A job may have been given another output under an
//! old name, and a mark of another kind must not be taken for one's own.

use highwater_codec::{DecodeError, Reader, Writer};

use super::EndpointError;

const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Memory = 1,
    Stdout = 2,
    Hub = 3,
    Files = 4,
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Postgres = 5,
    Webhook = 6,
    Queue = 7,
}

/// A mark with nothing in it yet.
pub(super) fn begin(kind: Kind) -> Vec<u8> {
    let mut writer = Vec::new();
    writer.u8(kind as u8);
    writer.u8(VERSION);
    writer
}

/// What stands in a mark.
pub(super) fn open(kind: Kind, mark: &[u8]) -> Result<Reader<'_>, EndpointError> {
    let mut reader = Reader::new(mark);
    let found = (reader.u8(), reader.u8());
    match found {
        (Ok(found), Ok(VERSION)) if found == kind as u8 => Ok(reader),
        (Ok(found), Ok(version)) if found == kind as u8 => Err(EndpointError::unfit(format!(
            "the checkpoint of this output is of version {version}, and this build reads version {VERSION}"
        ))),
        _ => Err(EndpointError::unfit(
            "the checkpoint is of an output of another kind: start the job from the beginning, or under another name",
        )),
    }
}

/// For a mark that is a number and nothing else.
pub(super) fn of_number(kind: Kind, number: u64) -> Vec<u8> {
    let mut writer = begin(kind);
    writer.u64(number);
    writer
}

pub(super) fn to_number(kind: Kind, mark: Option<&[u8]>) -> Result<u64, EndpointError> {
    match mark {
        Some(mark) => open(kind, mark)?.u64().map_err(damaged),
        None => Ok(0),
    }
}

pub(super) fn damaged(error: DecodeError) -> EndpointError {
    EndpointError::unfit(format!("the checkpoint of this output: {error}"))
}
