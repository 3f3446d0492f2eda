//! Decodes the batches fetched from a partition into blocks of events, and the punctuations between them.

use std::path::PathBuf;
use std::sync::Arc;

use highwater_connect::{BadEvent, BadKind, Events, SliceKind, SourceOptions, ValueDecoder};
use highwater_log::batch::{Batches, CorruptBatch, Decompressor, ReadCommittedFilter, StoredBatch};
use highwater_log::{FetchData, Offset};
use highwater_time::Instant;

use super::files::FileMarker;
use crate::account::shown_file;

/// The maximum size of a decompressed batch. More than any batch of a hub, so only a decompression bomb exceeds it.
const UNPACKED_BYTES_MAX: usize = 64 << 20;

/// About how much is decoded at once.
const BLOCK_BYTES: usize = 1 << 20;

pub(super) enum DecodedItem {
    /// Events, known by their offsets, and when each arrived.
    Events {
        events: Events,
        arrivals: Vec<Instant>,
        /// When each of the bad ones arrived.
        bad_arrivals: Vec<Instant>,
        /// The file that they were taken from.
        file: Option<Arc<SourceFile>>,
    },
    /// No other event had arrived up to this time.
    Punctuation(Instant),
}

/// A file whose events were brought to a hub.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub name: String,
    /// When it was last written to.
    pub modified: Instant,
}

/// The file that the following records were taken from, and how to decode them.
struct Marked {
    options: SourceOptions,
    /// Files are shown without it.
    folder: PathBuf,
    kind: SliceKind,
    file: Option<Arc<SourceFile>>,
}

/// The offsets from `from` on and before `until`.
pub(super) struct OffsetRange {
    pub from: Offset,
    pub until: Option<Offset>,
}

pub(super) struct BatchDecoder {
    unpacker: Decompressor,
    values: ValueDecoder,
    marked: Option<Marked>,
    bad: Vec<BadEvent>,
    /// Of each batch of the block: its last offset, and when it arrived.
    arrived: Vec<(u64, Instant)>,
}

impl BatchDecoder {
    pub fn new(values: ValueDecoder) -> BatchDecoder {
        BatchDecoder {
            unpacker: Decompressor::new(UNPACKED_BYTES_MAX),
            values,
            marked: None,
            bad: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// For a hub that files are copied to; they are shown without the folder.
    pub fn of_files(options: SourceOptions, folder: PathBuf) -> BatchDecoder {
        let kind = SliceKind::Json;
        let values = ValueDecoder::of_slices(kind, options.clone());
        BatchDecoder {
            marked: Some(Marked {
                options,
                folder,
                kind,
                file: None,
            }),
            ..BatchDecoder::new(values)
        }
    }

    /// Decodes the offsets of `range`, and answers with the offset after the last.
    pub fn decode(
        &mut self,
        fetched: &FetchData,
        range: &OffsetRange,
        emit: &mut dyn FnMut(DecodedItem),
    ) -> Result<Offset, CorruptBatch> {
        let mut skip = ReadCommittedFilter::new(&fetched.aborted);
        let OffsetRange { from, until } = *range;
        let mut next = from;
        for piece in &fetched.pieces {
            for batch in Batches::new(piece) {
                let batch = batch?;
                if until.is_some_and(|until| batch.header.base_offset() >= until) {
                    break;
                }
                next = batch.header.next_offset().max(next);
                if batch.is_punctuation() && batch.header.base_offset() >= from {
                    self.emit_block(emit);
                    emit(DecodedItem::Punctuation(arrival(&batch)));
                } else if !skip.skips(&batch.header) {
                    self.gather(&batch, from, emit);
                }
            }
        }
        self.emit_block(emit);
        Ok(next)
    }

    fn gather(&mut self, batch: &StoredBatch<'_>, from: Offset, emit: &mut dyn FnMut(DecodedItem)) {
        let last = batch.header.last_offset().0 as u64;
        self.arrived.push((last, arrival(batch)));
        // Taken out of `self`, so that a full block can be emitted in between.
        let mut unpacker = std::mem::replace(&mut self.unpacker, Decompressor::new(0));
        let mut at = batch.header.base_offset().max(from);
        let unreadable = match batch.records(&mut unpacker) {
            Err(error) => Some(error),
            Ok(records) => records
                .map(|record| {
                    let record = record?;
                    at = record.offset;
                    if self.marked.is_some()
                        && let Some(Ok(marker)) = FileMarker::of(record.headers)
                    {
                        self.emit_block(emit);
                        self.arrived.push((last, arrival(batch)));
                        self.apply_marker(&marker);
                    } else if let (Some(value), true) = (record.value, record.offset >= from) {
                        self.values.push(value, record.offset.0 as u64);
                        if self.values.bytes() >= BLOCK_BYTES {
                            self.emit_block(emit);
                            self.arrived.push((last, arrival(batch)));
                        }
                    }
                    Ok(())
                })
                .find_map(Result::err),
        };
        self.unpacker = unpacker;
        self.bad.extend(unreadable.map(|error| BadEvent {
            line: at.0 as u64,
            kind: BadKind::InvalidData,
            reason: format!("the records of a batch cannot be read from here on: {error}"),
            text: String::new(),
        }));
    }

    /// The records that follow are of the file that the marker names.
    fn apply_marker(&mut self, marker: &FileMarker) {
        let Some(marked) = &mut self.marked else {
            return;
        };
        if marked.kind != marker.kind {
            marked.kind = marker.kind;
            self.values = ValueDecoder::of_slices(marker.kind, marked.options.clone());
        }
        marked.file = Some(Arc::new(SourceFile {
            name: shown_file(&marker.file, &marked.folder),
            modified: Instant::from_unix_nanos(marker.modified()),
        }));
    }

    fn emit_block(&mut self, emit: &mut dyn FnMut(DecodedItem)) {
        let mut events = self.values.finish();
        events.bad.append(&mut self.bad);
        events.bad.sort_by_key(|bad| bad.line);
        if events.rows + events.bad.len() > 0 {
            let bad = events.bad.iter().map(|bad| bad.line);
            emit(DecodedItem::Events {
                arrivals: self.arrivals(events.lines.iter().copied()),
                bad_arrivals: self.arrivals(bad),
                file: self.marked.as_ref().and_then(|marked| marked.file.clone()),
                events,
            });
        }
        self.arrived.clear();
    }

    /// When each of these offsets, which ascend, arrived.
    fn arrivals(&self, offsets: impl Iterator<Item = u64>) -> Vec<Instant> {
        let mut batch = 0;
        offsets
            .map(|offset| {
                while self.arrived[batch].0 < offset {
                    batch += 1;
                }
                self.arrived[batch].1
            })
            .collect()
    }
}

fn arrival(batch: &StoredBatch<'_>) -> Instant {
    Instant::from_unix_millis(batch.header.enqueue_time().0)
}
