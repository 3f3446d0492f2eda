//! The exchange: the topic through which the streams of a job reach its combiner, whichever instances run them.
//!
//! It has a partition for each stream and combiner (`exchange_producer.rs`). A record is an output of the stream, with
//! the positions in its input before and after it. The owner of the stream claims the partition (`Log::claim`) before
//! it reads the end of the partition, so every output is there once and outputs follow each other without a gap; the
//! combiner checks that. An output that is larger than a record is written in pieces.
//!
//! `docs/formats/exchange.md` describes the bytes.

use std::borrow::Cow;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{Item, ItemReader};
use highwater_log::batch::{Batches, Decompressor, NewRecord};
use highwater_log::{AppendError, BoxFuture, FetchData, Isolation, Offset, Partition, ReadError};
use highwater_time::Instant;

use super::super::feed::StreamPosition;
use crate::partition_pipeline::ExitItem;
use crate::side_row::SideRow;
use crate::stream::StreamOutput;

const VERSION: u8 = 1;

/// Brokers accept records of almost a megabyte by default.
const PIECE_BYTES: usize = 512 << 10;

/// The largest output that is put together again.
const OUTPUT_BYTES_MAX: usize = 1 << 30;

const READ_BYTES: usize = 1 << 20;

/// An output of a stream, with the positions before and after it.
pub(in crate::live) struct ExchangeRecord {
    pub from: StreamPosition,
    pub to: StreamPosition,
    /// The version of the reference data, if the job has any.
    pub tables: Option<u64>,
    pub output: StreamOutput,
}

fn write_position(position: StreamPosition, out: &mut Vec<u8>) {
    out.i64(position.next.0);
    out.i64(position.arrived.ticks());
}

fn read_position(from: &mut Reader<'_>) -> Result<StreamPosition, DecodeError> {
    Ok(StreamPosition {
        next: Offset(from.i64()?),
        arrived: Instant::from_ticks(from.i64()?),
    })
}

/// The part of some outputs of a stream, one after the other, for one combiner.
pub(super) struct CombinerPart<'a> {
    pub outputs: Vec<&'a StreamOutput>,
    /// The items with the exits that they left.
    pub exit_items: Vec<(usize, Cow<'a, Item>)>,
    /// It has the dead letters and late events.
    pub has_side_rows: bool,
    /// The version of the reference data with which it was computed, if the job has any.
    pub tables: Option<u64>,
}

impl CombinerPart<'_> {
    /// The bytes of the outputs, as one that leads from one position to another.
    pub(super) fn encode(&self, from: StreamPosition, to: StreamPosition) -> Vec<u8> {
        let last = self.outputs.last();
        let (watermark, reached) = last
            .map_or((Instant::BEFORE_ALL, Instant::BEFORE_ALL), |last| {
                (last.watermark, last.reached)
            });
        let mut out = Vec::new();
        write_position(from, &mut out);
        write_position(to, &mut out);
        out.i64(watermark.ticks());
        out.i64(reached.ticks());
        out.count(self.exit_items.len());
        for (exit, item) in &self.exit_items {
            out.u32(*exit as u32);
            item.write(&mut out);
        }
        self.write_rows(|output| &output.rejected, &mut out);
        self.write_rows(|output| &output.failed, &mut out);
        self.write_rows(|output| &output.late, &mut out);
        if let Some(tables) = self.tables {
            out.u64(tables);
        }
        out
    }

    fn write_rows(&self, rows_of: impl Fn(&StreamOutput) -> &Vec<SideRow>, out: &mut Vec<u8>) {
        let outputs = match self.has_side_rows {
            true => &self.outputs[..],
            false => &[],
        };
        let rows = || outputs.iter().flat_map(|output| rows_of(output));
        out.count(rows().count());
        rows().for_each(|row| row.write(out));
    }
}

/// The positions of an output, without the rest.
fn positions(bytes: &[u8]) -> Result<(StreamPosition, StreamPosition), DecodeError> {
    let mut from = Reader::new(bytes);
    Ok((read_position(&mut from)?, read_position(&mut from)?))
}

/// A stream whose outputs are decoded.
pub(in crate::live) struct ExchangeDecoder<'a> {
    pub stream: usize,
    pub input: usize,
    /// Its number among the partitions of the input.
    pub partition: usize,
    pub items: &'a ItemReader,
    pub has_tables: bool,
}

impl ExchangeDecoder<'_> {
    pub(in crate::live) fn decode(&self, bytes: &[u8]) -> Result<ExchangeRecord, DecodeError> {
        let mut from = Reader::new(bytes);
        let (begin, end) = (read_position(&mut from)?, read_position(&mut from)?);
        let watermark = Instant::from_ticks(from.i64()?);
        let reached = Instant::from_ticks(from.i64()?);
        let mut exit_items = Vec::new();
        for _ in 0..from.count()? {
            let exit = from.u32()? as usize;
            exit_items.push(ExitItem {
                exit,
                partition: self.partition,
                item: self.items.read(self.input, exit, &mut from)?,
            });
        }
        let mut rows = || -> Result<Vec<SideRow>, DecodeError> {
            (0..from.count()?)
                .map(|_| SideRow::read(&mut from))
                .collect()
        };
        let (rejected, failed, late) = (rows()?, rows()?, rows()?);
        let tables = match self.has_tables {
            true => Some(from.u64()?),
            false => None,
        };
        from.end()?;
        Ok(ExchangeRecord {
            from: begin,
            to: end,
            tables,
            output: StreamOutput {
                stream: self.stream,
                input: self.input,
                exit_items,
                rejected,
                failed,
                late,
                arrived: end.arrived,
                watermark,
                reached,
                progress: None,
            },
        })
    }
}

/// The values of the records of an output.
fn pieces(body: &[u8]) -> Vec<Vec<u8>> {
    let chunks: Vec<&[u8]> = body.chunks(PIECE_BYTES).collect();
    let last = chunks.len() - 1;
    let piece = |(index, chunk): (usize, &&[u8])| {
        let mut out = Vec::with_capacity(chunk.len() + 6);
        out.u8(VERSION);
        out.u32(index as u32);
        out.bool(index == last);
        out.raw(chunk);
        out
    };
    chunks.iter().enumerate().map(piece).collect()
}

/// Puts outputs together from their pieces.
#[derive(Default)]
pub(in crate::live) struct PieceAssembler {
    body: Vec<u8>,
    /// The index of the next piece.
    due: u32,
    /// The offset of the first piece.
    begin: Offset,
}

/// The bytes of an output, and the offset of its first record.
pub(in crate::live) struct EncodedRecord {
    pub begin: Offset,
    pub body: Vec<u8>,
}

impl PieceAssembler {
    /// Takes the value of a record. The first piece of an output may follow the pieces of one that an earlier owner did
    /// not complete.
    pub(in crate::live) fn take(
        &mut self,
        offset: Offset,
        value: &[u8],
    ) -> Result<Option<EncodedRecord>, DecodeError> {
        let mut from = Reader::new(value);
        from.version(VERSION)?;
        let (index, is_last) = (from.u32()?, from.bool()?);
        if index == 0 {
            self.body.clear();
            self.begin = offset;
        } else if index != self.due {
            return Err(DecodeError::Invalid("a piece of an output is missing"));
        }
        let piece = from.rest();
        if self.body.len() + piece.len() > OUTPUT_BYTES_MAX {
            return Err(DecodeError::Invalid("an output is too large"));
        }
        self.body.extend_from_slice(piece);
        self.due = index + 1;
        if !is_last {
            return Ok(None);
        }
        self.due = 0;
        let body = std::mem::take(&mut self.body);
        let begin = self.begin;
        Ok(Some(EncodedRecord { begin, body }))
    }
}

/// Why the exchange cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::live) enum ExchangeError {
    #[error("the exchange was taken over by another instance")]
    Fenced,
    #[error("the exchange cannot be written: {0}")]
    Write(AppendError),
    #[error("the exchange cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("record {offset} of the exchange `{exchange}` is unreadable: {reason}")]
    Damaged {
        exchange: String,
        offset: Offset,
        reason: String,
    },
}

impl From<AppendError> for ExchangeError {
    fn from(error: AppendError) -> ExchangeError {
        match error {
            AppendError::Fenced { .. } => ExchangeError::Fenced,
            error => ExchangeError::Write(error),
        }
    }
}

/// Takes the offset and the value of a record.
type RecordVisitor<'a> = dyn FnMut(Offset, &[u8]) -> Result<(), String> + 'a;

/// Calls `each` with the offset and the value of every record from `from` on, and returns the offset after the last.
pub(in crate::live) fn for_each_record(
    fetched: &FetchData,
    from: Offset,
    unpacker: &mut Decompressor,
    each: &mut RecordVisitor<'_>,
) -> Result<Offset, String> {
    let mut next = from;
    for batch in fetched.pieces.iter().flat_map(|piece| Batches::new(piece)) {
        let batch = batch.map_err(|error| error.to_string())?;
        next = batch.header.next_offset().max(next);
        if batch.header.is_control() {
            continue;
        }
        let records = batch.records(unpacker).map_err(|error| error.to_string())?;
        for record in records {
            let record = record.map_err(|error| error.to_string())?;
            if let Some(value) = record.value.filter(|_| record.offset >= from) {
                each(record.offset, value)?;
            }
        }
    }
    Ok(next)
}

/// The partition of a stream and a combiner, for the owner of the stream.
pub(super) struct ExchangeWriter {
    partition: Arc<dyn Partition>,
    /// The position after the last output.
    position: Option<StreamPosition>,
    /// The offset after the last record.
    end: Offset,
}

impl ExchangeWriter {
    /// Finds the last output of a claimed partition. The outputs before offset `from` are known.
    pub(super) async fn open(
        partition: Arc<dyn Partition>,
        from: Offset,
    ) -> Result<ExchangeWriter, ExchangeError> {
        let bounds = partition.fetch_bounds().await?;
        let end = bounds.visible(Isolation::Committed);
        let mut next = from.max(bounds.start);
        let mut position = None;
        let (mut unpacker, mut pieces) = (Decompressor::default(), PieceAssembler::default());
        while next < end {
            let fetched = partition
                .read(next, READ_BYTES, Isolation::Committed)
                .await?;
            if fetched.pieces.is_empty() {
                // The leader does not show the end that it acknowledged yet.
                partition.wait_past(next, Isolation::Committed).await;
                continue;
            }
            let mut at = next;
            let read = for_each_record(&fetched, next, &mut unpacker, &mut |offset, value| {
                at = offset;
                match pieces.take(offset, value) {
                    Ok(Some(output)) => {
                        let found = positions(&output.body).map_err(|error| error.to_string())?;
                        position = Some(found.1);
                    }
                    // Written by a later version: its position cannot be read.
                    Err(error @ DecodeError::Unknown { .. }) => return Err(error.to_string()),
                    // The first pieces may be before the records that are read.
                    Ok(None) | Err(_) => {}
                }
                Ok(())
            });
            next = read.map_err(|reason| ExchangeError::Damaged {
                exchange: partition.topic_partition().to_string(),
                offset: at,
                reason,
            })?;
        }
        Ok(ExchangeWriter {
            partition,
            position,
            end,
        })
    }

    /// The position after the last output; `None` if there is none.
    pub(super) fn position(&self) -> Option<StreamPosition> {
        self.position
    }

    /// The offset after the last record.
    pub(super) fn end(&self) -> Offset {
        self.end
    }

    /// The first offset that is kept.
    pub(super) fn start(&self) -> Offset {
        self.partition.bounds().start
    }

    pub(super) fn place(&self) -> String {
        self.partition.topic_partition().to_string()
    }

    /// Appends the body of an output that ends at `to`. Completes with the offset after it when it is durable.
    pub(super) fn append(
        &mut self,
        to: StreamPosition,
        body: &[u8],
    ) -> BoxFuture<Result<Offset, ExchangeError>> {
        // The calls fix the order.
        let appends: Vec<_> = pieces(body)
            .iter()
            .map(|piece| {
                self.partition.append_records(&[NewRecord {
                    key: None,
                    value: Some(piece),
                    headers: &[],
                }])
            })
            .collect();
        self.position = Some(to);
        let mut end = self.end;
        Box::pin(async move {
            for append in appends {
                let appended = append.await?;
                end = end.max(Offset(appended.offset.0 + 1));
            }
            Ok(end)
        })
    }

    /// The records before `end` are durable.
    pub(super) fn note_end(&mut self, end: Offset) {
        self.end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::super::exchange_reader::tests::exchange;
    use super::*;

    // proves X3
    #[tokio::test]
    async fn an_owner_does_not_go_on_where_a_later_version_has_written() {
        let partition = exchange().await;
        let to = StreamPosition {
            next: Offset(4),
            arrived: Instant::from_ticks(4),
        };
        let mut body = Vec::new();
        write_position(to, &mut body);
        write_position(to, &mut body);
        let mut writer = ExchangeWriter::open(partition.clone(), Offset(0))
            .await
            .unwrap();
        writer.append(to, &body).await.unwrap();
        let again = ExchangeWriter::open(partition.clone(), Offset(0)).await;
        assert_eq!(again.unwrap().position(), Some(to));
        let mut later = pieces(&body).remove(0);
        later[0] = VERSION + 1;
        let record = NewRecord {
            key: None,
            value: Some(&later),
            headers: &[],
        };
        partition.append_records(&[record]).await.unwrap();
        let refused = ExchangeWriter::open(partition, Offset(0)).await;
        let refused = refused.err().unwrap().to_string();
        assert!(
            refused.contains("record 1 of the exchange") && refused.contains("version 2"),
            "{refused}"
        );
    }

    #[test]
    fn an_output_of_any_size_is_put_together_again() {
        for length in [1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5] {
            let body: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let mut assembler = PieceAssembler::default();
            let mut found = None;
            for (offset, piece) in pieces(&body).iter().enumerate() {
                assert!(found.is_none());
                found = assembler.take(Offset(offset as i64 + 7), piece).unwrap();
            }
            let found = found.unwrap();
            assert_eq!((found.begin, found.body), (Offset(7), body));
        }
    }

    #[test]
    fn what_an_earlier_owner_left_incomplete_is_dropped() {
        let (long, short) = (vec![1; 2 * PIECE_BYTES], vec![2; 10]);
        let mut assembler = PieceAssembler::default();
        assert!(
            assembler
                .take(Offset(0), &pieces(&long)[0])
                .unwrap()
                .is_none()
        );
        let found = assembler.take(Offset(1), &pieces(&short)[0]).unwrap();
        assert_eq!(found.unwrap().body, short);
        assert!(assembler.take(Offset(2), &pieces(&long)[1]).is_err());
    }
}
