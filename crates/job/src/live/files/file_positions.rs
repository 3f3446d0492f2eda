//! The position in every file: the fold of the markers on the hub.
//!
//! To keep starts short, positions are stored on a compacted hub at times, file by file, with the offset up to which
//! markers are included.

use std::collections::{BTreeMap, BTreeSet};

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::batch::{
    BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord, StoredBatch,
};
use highwater_log::{AppendError, Isolation, Offset, Partition, replay};

use super::BATCH_BYTES_MAX;
use super::file_marker::{FileMarker, FilePosition};

#[derive(Default)]
pub(super) struct FilePositions {
    files: BTreeMap<String, FilePosition>,
    /// Files whose stored position is out of date.
    changed: BTreeSet<String>,
    /// Markers before this offset are included.
    end: Offset,
    /// Markers before this offset are included in the stored positions.
    stored_end: Offset,
}

const READ_BYTES: usize = 1 << 20;

impl FilePositions {
    /// Restores the positions.
    ///
    /// First appends a record of its own: appends in flight of an earlier follower precede it, and are included.
    pub(crate) async fn open(
        events: &dyn Partition,
        positions: &dyn Partition,
    ) -> Result<FilePositions, String> {
        let appended = append(events, &[empty_record()]).await;
        let end = appended.map_err(|error| error.to_string())?;
        let mut this = FilePositions::default();
        let stored = replay(positions, BATCH_BYTES_MAX as usize, |record| {
            let name = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
            let Some(value) = record.value else {
                this.files.remove(&name);
                return Ok(());
            };
            let mut from = Reader::new(value);
            this.end = this.end.max(Offset(from.i64()?));
            this.files.insert(name, FilePosition::read(&mut from)?);
            Ok::<_, DecodeError>(())
        });
        stored.await.map_err(|error| error.to_string())?;
        this.stored_end = this.end;
        this.replay_markers(events, end).await?;
        Ok(this)
    }

    async fn replay_markers(&mut self, events: &dyn Partition, end: Offset) -> Result<(), String> {
        let mut unpacker = Decompressor::new(BATCH_BYTES_MAX as usize);
        let mut next = self.end.max(events.bounds().start);
        while next < end {
            let read = events.read(next, READ_BYTES, Isolation::Uncommitted).await;
            let fetched = read.map_err(|error| error.to_string())?;
            let before = next;
            for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
                let batch = batch.map_err(|error| error.to_string())?;
                next = batch.header.next_offset();
                if let Some(marker) = read_marker(&batch, &mut unpacker)? {
                    self.set(&marker.file, marker.position, next);
                }
            }
            if next == before {
                break;
            }
        }
        self.end = end;
        Ok(())
    }

    pub(crate) fn get(&self, file: &str) -> Option<FilePosition> {
        self.files.get(file).copied()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&String, &FilePosition)> {
        self.files.iter()
    }

    /// Sets the position of a file by a marker whose batch ends at `end`.
    pub(crate) fn set(&mut self, file: &str, position: FilePosition, end: Offset) {
        self.files.insert(file.to_owned(), position);
        self.changed.insert(file.to_owned());
        self.end = end;
    }

    /// Sets a position that is in no marker and need not survive a crash.
    pub(crate) fn correct(&mut self, file: &str, position: FilePosition) {
        self.set(file, position, self.end);
    }

    pub(crate) fn forget(&mut self, file: &str) {
        if self.files.remove(file).is_some() {
            self.changed.insert(file.to_owned());
        }
    }

    /// Stores the positions that have changed.
    pub(crate) async fn store(&mut self, positions: &dyn Partition) -> Result<(), AppendError> {
        // A few hundred names of any length fit into a batch.
        const BATCH_FILES: usize = 256;
        while !self.changed.is_empty() {
            let names: Vec<String> = self.changed.iter().take(BATCH_FILES).cloned().collect();
            // Only the last of several batches may claim that all markers are included.
            let end = match names.len() == self.changed.len() {
                true => self.end,
                false => self.stored_end,
            };
            let value = |name: &String| {
                let position = self.files.get(name)?;
                let mut out = Vec::new();
                out.i64(end.0);
                position.write(&mut out);
                Some(out)
            };
            let values: Vec<Option<Vec<u8>>> = names.iter().map(value).collect();
            let records = names.iter().zip(&values).map(|(name, value)| NewRecord {
                key: Some(name.as_bytes()),
                value: value.as_deref(),
                headers: &[],
            });
            append(positions, &records.collect::<Vec<_>>()).await?;
            names.iter().for_each(|name| {
                self.changed.remove(name);
            });
        }
        self.stored_end = self.end;
        Ok(())
    }
}

/// A record without key and value.
fn empty_record() -> NewRecord<'static> {
    NewRecord {
        key: None,
        value: None,
        headers: &[],
    }
}

/// Appends one batch and returns its end offset.
pub(super) async fn append(
    partition: &dyn Partition,
    records: &[NewRecord<'_>],
) -> Result<Offset, AppendError> {
    let mut builder = BatchBuilder::new();
    records.iter().for_each(|record| {
        builder.push(record);
    });
    let batch = builder.build(&BatchOptions::default())?;
    let appended = partition.append(batch).await?;
    Ok(Offset(appended.offset.0 + records.len() as i64))
}

/// The marker of a batch, which only its first record can be.
fn read_marker(
    batch: &StoredBatch<'_>,
    unpacker: &mut Decompressor,
) -> Result<Option<FileMarker>, String> {
    if batch.header.is_control() {
        return Ok(None);
    }
    let mut records = batch.records(unpacker).map_err(|error| error.to_string())?;
    let first = records.next().transpose();
    let first = first.map_err(|error| error.to_string())?;
    let marker = first
        .and_then(|first| FileMarker::of(first.headers))
        .transpose();
    marker.map_err(|error| error.to_string())
}
