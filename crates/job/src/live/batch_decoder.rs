//! Decodes fetched batches of a partition into blocks of events and punctuations.

use std::path::PathBuf;
use std::sync::Arc;

use highwater_connect::{BadEvent, BadKind, Events, SliceKind, SourceOptions, ValueDecoder};
use highwater_log::batch::{Batches, CorruptBatch, Decompressor, ReadCommittedFilter, StoredBatch};
use highwater_log::{FetchData, Offset};
use highwater_time::Instant;

use super::files::FileMarker;
use super::time_journal::PassedTime;
use crate::account::shown_file;
use crate::record_property::{PropertyColumns, RecordProperty};

/// The target size of a block.
const BLOCK_BYTES: usize = 1 << 20;

pub(super) enum DecodedItem {
    /// Events, identified by their offsets, with their arrival times.
    Events {
        events: Events,
        arrivals: Vec<Instant>,
        /// The arrival time of each bad event.
        bad_arrivals: Vec<Instant>,
        /// The followed file that they were read from.
        file: Option<Arc<SourceFile>>,
    },
    /// No further event arrived up to this time.
    Punctuation(Instant),
}

/// A followed file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub name: String,
    /// Its modification time.
    pub modified: Instant,
}

/// The followed file of the next records, and how to decode them.
struct FileContext {
    options: SourceOptions,
    /// Left out of shown paths.
    folder: PathBuf,
    kind: SliceKind,
    file: Option<Arc<SourceFile>>,
}

/// The offsets from `from` to before `until`.
pub(super) struct OffsetRange {
    pub from: Offset,
    pub until: Option<Offset>,
}

pub(super) struct BatchDecoder {
    unpacker: Decompressor,
    values: ValueDecoder,
    properties: PropertyColumns,
    file_context: Option<FileContext>,
    bad: Vec<BadEvent>,
    /// The last offset and the arrival time of each batch of the block.
    arrived: Vec<(u64, Instant)>,
    /// The latest arrival so far. The clocks of brokers differ, and arrivals never go back.
    latest: Instant,
}

impl BatchDecoder {
    /// Adds the columns of `properties` after those of the values.
    pub(super) fn new(values: ValueDecoder, properties: &[RecordProperty]) -> BatchDecoder {
        BatchDecoder {
            unpacker: Decompressor::default(),
            values,
            properties: PropertyColumns::new(properties),
            file_context: None,
            bad: Vec::new(),
            arrived: Vec::new(),
            latest: Instant::BEFORE_ALL,
        }
    }

    /// Arrivals are at least `latest`.
    pub(super) fn continue_from(&mut self, latest: Instant) {
        self.latest = latest;
    }

    /// For the hub of followed files; their paths are shown without `folder`.
    pub(super) fn of_files(options: SourceOptions, folder: PathBuf) -> BatchDecoder {
        let kind = SliceKind::Json;
        let values = ValueDecoder::of_slices(kind, options.clone());
        BatchDecoder {
            file_context: Some(FileContext {
                options,
                folder,
                kind,
                file: None,
            }),
            ..BatchDecoder::new(values, &[])
        }
    }

    /// Decodes the offsets of `range`, with the times of a journal, and returns the offset after the last.
    pub(super) fn decode(
        &mut self,
        fetched: &FetchData,
        passed: &[PassedTime],
        range: &OffsetRange,
        emit: &mut dyn FnMut(DecodedItem),
    ) -> Result<Offset, CorruptBatch> {
        let mut skip = ReadCommittedFilter::new(&fetched.aborted);
        let OffsetRange { from, until } = *range;
        let mut next = from;
        let mut passed = passed.iter().peekable();
        for piece in &fetched.pieces {
            for batch in Batches::new(piece) {
                let batch = batch?;
                let base = batch.header.base_offset();
                if until.is_some_and(|until| base >= until) {
                    break;
                }
                while let Some(passed) = passed.next_if(|passed| passed.before <= base) {
                    self.punctuate(passed.time, emit);
                }
                next = batch.header.next_offset().max(next);
                if batch.is_punctuation() && base >= from {
                    self.punctuate(enqueue_time(&batch), emit);
                } else if !skip.skips(&batch.header) {
                    self.gather(&batch, from, emit);
                }
            }
        }
        self.emit_block(emit);
        let at_end = passed.filter(|passed| passed.before <= next);
        at_end.for_each(|passed| self.punctuate(passed.time, emit));
        Ok(next)
    }

    fn punctuate(&mut self, time: Instant, emit: &mut dyn FnMut(DecodedItem)) {
        self.emit_block(emit);
        self.latest = self.latest.max(time);
        emit(DecodedItem::Punctuation(self.latest));
    }

    fn gather(&mut self, batch: &StoredBatch<'_>, from: Offset, emit: &mut dyn FnMut(DecodedItem)) {
        let last = batch.header.last_offset().0 as u64;
        let arrival = enqueue_time(batch).max(self.latest);
        self.latest = arrival;
        self.arrived.push((last, arrival));
        // Moved out of `self`, because `emit_block` borrows it.
        let mut unpacker = std::mem::take(&mut self.unpacker);
        let mut at = batch.header.base_offset().max(from);
        let unreadable = match batch.records(&mut unpacker) {
            Err(error) => Some(error),
            Ok(records) => records
                .map(|record| {
                    let record = record?;
                    at = record.offset;
                    if self.file_context.is_some()
                        && let Some(Ok(marker)) = FileMarker::of(record.headers)
                    {
                        self.emit_block(emit);
                        self.arrived.push((last, arrival));
                        self.apply_marker(&marker);
                    } else if let (Some(value), true) = (record.value, record.offset >= from) {
                        self.values.push(value, record.offset.0 as u64);
                        self.properties.push(&record);
                        if self.values.bytes() >= BLOCK_BYTES {
                            self.emit_block(emit);
                            self.arrived.push((last, arrival));
                        }
                    }
                    Ok(())
                })
                .find_map(Result::err),
        };
        unpacker.release();
        self.unpacker = unpacker;
        self.bad.extend(unreadable.map(|error| BadEvent {
            line: at.0 as u64,
            kind: BadKind::InvalidData,
            reason: format!("the records of a batch cannot be read from here on: {error}"),
            text: String::new(),
        }));
    }

    /// The next records are of the marker's file.
    fn apply_marker(&mut self, marker: &FileMarker) {
        let Some(file_context) = &mut self.file_context else {
            return;
        };
        if file_context.kind != marker.kind {
            file_context.kind = marker.kind;
            self.values = ValueDecoder::of_slices(marker.kind, file_context.options.clone());
        }
        file_context.file = Some(Arc::new(SourceFile {
            name: shown_file(&marker.file, &file_context.folder),
            modified: Instant::from_unix_nanos(marker.modified()),
        }));
    }

    fn emit_block(&mut self, emit: &mut dyn FnMut(DecodedItem)) {
        let mut events = self.values.finish();
        events.columns.extend(self.properties.take(&events.lines));
        events.bad.append(&mut self.bad);
        events.bad.sort_by_key(|bad| bad.line);
        if events.rows + events.bad.len() > 0 {
            let bad = events.bad.iter().map(|bad| bad.line);
            emit(DecodedItem::Events {
                arrivals: self.arrivals(events.lines.iter().copied()),
                bad_arrivals: self.arrivals(bad),
                file: self
                    .file_context
                    .as_ref()
                    .and_then(|file_context| file_context.file.clone()),
                events,
            });
        }
        self.arrived.clear();
    }

    /// The arrival times of ascending offsets.
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

fn enqueue_time(batch: &StoredBatch<'_>) -> Instant {
    Instant::from_unix_millis(batch.enqueue_time().0)
}
