//! What a restart would otherwise have to read a segment for: its index and the state of the
//! producers up to some byte. Only speed depends on it: the log itself holds the same, so a missing
//! or damaged checkpoint means reading on from an earlier one.

use std::io;
use std::path::Path;

use highwater_env::Disk;
use highwater_log::Offset;
use highwater_log::producers::Producers;

use super::checked::{self, Found};
use super::fields::Fields;
use super::index::Index;
use super::names;

const KIND: &[u8; 8] = b"hwcheck1";

#[derive(Debug)]
pub struct Checkpoint {
    pub index: Index,
    pub producers: Producers,
}

/// Answers how large it was.
pub fn write(
    disk: &dyn Disk,
    folder: &Path,
    base: Offset,
    index: &Index,
    producers: &Producers,
) -> io::Result<usize> {
    let mut body = index.encode();
    body.extend(producers.snapshot());
    checked::replace(
        disk,
        &folder.join(names::checkpoint(base)),
        KIND,
        &body,
        false,
    )?;
    Ok(body.len())
}

pub fn read(disk: &dyn Disk, folder: &Path, base: Offset) -> io::Result<Option<Checkpoint>> {
    let path = folder.join(names::checkpoint(base));
    let Found::Body(body) = checked::read(disk, &path, KIND)? else {
        return Ok(None);
    };
    let mut fields = Fields::new(&body);
    let Some(index) = Index::decode(&mut fields) else {
        return Ok(None);
    };
    let producers = Producers::restore(fields.rest()).ok();
    let producers = producers.filter(|producers| producers.end() == index.next);
    Ok(producers.map(|producers| Checkpoint { index, producers }))
}
