//! How far every file has been taken: the sum of the marks on the hub.
//!
//! So that a start need not read all of them, what they add up to is kept on a compacted hub now and then, file by file,
//! with the offset up to which marks have been counted.

use std::collections::{BTreeMap, BTreeSet};

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::batch::{
    BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord, StoredBatch,
};
use highwater_log::{AppendError, Isolation, Offset, Partition, replay};

use super::BATCH_BYTES_MAX;
use super::mark::{Mark, Taken};

#[derive(Default)]
pub(super) struct Ledger {
    files: BTreeMap<String, Taken>,
    /// Those of which the kept positions know something else.
    changed: BTreeSet<String>,
    /// Marks before this have been counted.
    end: Offset,
    /// Marks before this are in the kept positions.
    kept: Offset,
}

const READ_BYTES: usize = 1 << 20;

impl Ledger {
    /// Reads back what there is.
    ///
    /// Begins with a word of its own on the hub: what an earlier follower had on its way when it was ended stands before
    /// that, and is counted.
    pub async fn open(events: &dyn Partition, positions: &dyn Partition) -> Result<Ledger, String> {
        let begun = append(events, &[empty()]).await;
        let end = begun.map_err(|error| error.to_string())?;
        let mut ledger = Ledger::default();
        let kept = replay(positions, BATCH_BYTES_MAX as usize, |record| {
            let name = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
            let Some(value) = record.value else {
                ledger.files.remove(&name);
                return Ok(());
            };
            let mut from = Reader::new(value);
            ledger.end = ledger.end.max(Offset(from.i64()?));
            ledger.files.insert(name, Taken::read(&mut from)?);
            Ok::<_, DecodeError>(())
        });
        kept.await.map_err(|error| error.to_string())?;
        ledger.kept = ledger.end;
        ledger.count_marks(events, end).await?;
        Ok(ledger)
    }

    async fn count_marks(&mut self, events: &dyn Partition, end: Offset) -> Result<(), String> {
        let mut unpacker = Decompressor::new(BATCH_BYTES_MAX as usize);
        let mut next = self.end.max(events.bounds().start);
        while next < end {
            let read = events.read(next, READ_BYTES, Isolation::Uncommitted).await;
            let fetched = read.map_err(|error| error.to_string())?;
            let before = next;
            for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
                let batch = batch.map_err(|error| error.to_string())?;
                next = batch.header.next_offset();
                if let Some(mark) = mark_of(&batch, &mut unpacker)? {
                    self.note(&mark.file, mark.taken, next);
                }
            }
            if next == before {
                break;
            }
        }
        self.end = end;
        Ok(())
    }

    pub fn get(&self, file: &str) -> Option<Taken> {
        self.files.get(file).copied()
    }

    pub fn files(&self) -> impl Iterator<Item = (&String, &Taken)> {
        self.files.iter()
    }

    /// A mark that ends at `end` says this.
    pub fn note(&mut self, file: &str, taken: Taken, end: Offset) {
        self.files.insert(file.to_owned(), taken);
        self.changed.insert(file.to_owned());
        self.end = end;
    }

    /// Something is known of a file that is in no mark, and that need not survive a crash.
    pub fn correct(&mut self, file: &str, taken: Taken) {
        self.note(file, taken, self.end);
    }

    pub fn forget(&mut self, file: &str) {
        if self.files.remove(file).is_some() {
            self.changed.insert(file.to_owned());
        }
    }

    /// Keeps what has changed since the last time.
    pub async fn keep(&mut self, positions: &dyn Partition) -> Result<(), AppendError> {
        // A few hundred names make a batch, whatever their lengths.
        const AT_ONCE: usize = 256;
        while !self.changed.is_empty() {
            let names: Vec<String> = self.changed.iter().take(AT_ONCE).cloned().collect();
            // Only the last of several batches may say that all marks are in the positions.
            let end = match names.len() == self.changed.len() {
                true => self.end,
                false => self.kept,
            };
            let value = |name: &String| {
                let taken = self.files.get(name)?;
                let mut out = Vec::new();
                out.i64(end.0);
                taken.write(&mut out);
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
        self.kept = self.end;
        Ok(())
    }
}

/// A record that says nothing.
fn empty() -> NewRecord<'static> {
    NewRecord {
        key: None,
        value: None,
        headers: &[],
    }
}

/// One batch; says where it ends.
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

/// Only the first record of a batch is a mark.
fn mark_of(batch: &StoredBatch<'_>, unpacker: &mut Decompressor) -> Result<Option<Mark>, String> {
    if batch.header.is_control() {
        return Ok(None);
    }
    let mut records = batch.records(unpacker).map_err(|error| error.to_string())?;
    let first = records.next().transpose();
    let first = first.map_err(|error| error.to_string())?;
    let mark = first.and_then(|first| Mark::of(first.headers)).transpose();
    mark.map_err(|error| error.to_string())
}
