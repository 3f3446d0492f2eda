//! Checkpoints: index and producer states up to some position of a segment, so that a restart need not scan the segment
//! from its start. They only save time: without a valid checkpoint a restart scans from an earlier one.

use std::io;
use std::path::Path;

use highwater_codec::Reader;
use highwater_env::Disk;
use highwater_log::Offset;
use highwater_log::producer_states::ProducerStates;

use super::checked_file::{self, CheckedFile};
use super::index::{Index, IndexVersion};
use super::names;

const KIND: &[u8; 8] = b"hwcheck2";
const KIND_1: &[u8; 8] = b"hwcheck1";

#[derive(Debug)]
pub(super) struct Checkpoint {
    pub index: Index,
    pub producers: ProducerStates,
}

/// The body of a checkpoint file.
pub(super) fn encode(index: &Index, producers: &ProducerStates) -> Vec<u8> {
    let mut body = index.encode();
    body.extend(producers.snapshot());
    body
}

pub(super) fn write(disk: &dyn Disk, folder: &Path, base: Offset, body: &[u8]) -> io::Result<()> {
    let path = folder.join(names::checkpoint(base));
    checked_file::replace(disk, &path, KIND, body, false)
}

pub(super) fn read(disk: &dyn Disk, folder: &Path, base: Offset) -> io::Result<Option<Checkpoint>> {
    let path = folder.join(names::checkpoint(base));
    for (kind, version) in [(KIND, IndexVersion::Two), (KIND_1, IndexVersion::One)] {
        if let CheckedFile::Body(body) = checked_file::read(disk, &path, kind)? {
            return Ok(decode(&body, version));
        }
    }
    Ok(None)
}

fn decode(body: &[u8], version: IndexVersion) -> Option<Checkpoint> {
    let mut from = Reader::new(body);
    let index = Index::decode(&mut from, version).ok()?;
    let producers = ProducerStates::restore(from.rest()).ok()?;
    (producers.end() == index.next).then_some(Checkpoint { index, producers })
}
