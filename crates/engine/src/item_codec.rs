//! Items as bytes, for partitions that are processed by another process than the shared pipeline.
//!
//! `docs/formats/exchange.md` describes the bytes. Values are those of snapshots (`codec.rs`), column by column, so a
//! chunk that was read is equal to the one that was written, though a column may have another representation.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use crate::chunk::{Chunk, ChunkLanes, LaneName};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::ops::{GroupSpec, Groups, Item, PartialPane};

const ROWS: u8 = 0;
const PANES: u8 = 1;
const WATERMARK: u8 = 2;

/// More columns than a query can have.
const WIDTH_MAX: u32 = 1 << 16;

impl Item {
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Item::Rows(chunk) => {
                out.u8(ROWS);
                write_chunk(chunk, out);
            }
            Item::PartialPanes(panes) => {
                out.u8(PANES);
                out.count(panes.len());
                for pane in panes {
                    out.i64(pane.end);
                    pane.groups.snapshot(out);
                }
            }
            Item::Watermark(watermark) => {
                out.u8(WATERMARK);
                out.i64(watermark.ticks());
            }
        }
    }
}

/// Reads the items that partitions have written for the shared pipeline.
#[derive(Clone)]
pub struct ItemReader {
    /// Per input and exit, the groups of its panes.
    panes: Vec<Vec<Option<Arc<GroupSpec>>>>,
}

impl ItemReader {
    pub(crate) fn new(panes: Vec<Vec<Option<Arc<GroupSpec>>>>) -> ItemReader {
        ItemReader { panes }
    }

    /// How many exits the partitions of an input have.
    pub fn exits(&self, input: usize) -> usize {
        self.panes.get(input).map_or(0, Vec::len)
    }

    /// Reads what [`Item::write`] wrote of an item that left a partition of `input` at `exit`.
    pub fn read(
        &self,
        input: usize,
        exit: usize,
        from: &mut Reader<'_>,
    ) -> Result<Item, DecodeError> {
        let no_exit = DecodeError::Invalid("there is no such exit of a partition");
        let panes = self.panes.get(input).and_then(|exits| exits.get(exit));
        match (from.u8()?, panes.ok_or(no_exit)?) {
            (ROWS, None) => Ok(Item::Rows(read_chunk(from)?)),
            (PANES, Some(spec)) => {
                let panes = (0..from.count()?).map(|_| {
                    Ok(PartialPane {
                        end: from.i64()?,
                        groups: Groups::restore(spec, from)?,
                    })
                });
                let panes = panes.collect::<Result<_, DecodeError>>()?;
                Ok(Item::PartialPanes(panes))
            }
            (WATERMARK, _) => Ok(Item::Watermark(Instant::from_ticks(from.i64()?))),
            (kind, _) => Err(DecodeError::unknown("an item of kind", kind)),
        }
    }
}

fn write_chunk(chunk: &Chunk, out: &mut Vec<u8>) {
    out.count(chunk.rows());
    chunk.times.iter().for_each(|time| out.i64(*time));
    out.u32(chunk.columns.len() as u32);
    for column in &chunk.columns {
        (0..chunk.rows()).for_each(|row| out.value(column.get(row)));
    }
    out.bool(chunk.origins.is_some());
    let origins = chunk.origins.iter().flat_map(|origins| origins.iter());
    origins.for_each(|origin| out.u64(*origin));
    out.bool(chunk.lanes.is_some());
    if let Some(lanes) = &chunk.lanes {
        write_lanes(lanes, out);
    }
}

fn read_chunk(from: &mut Reader<'_>) -> Result<Chunk, DecodeError> {
    let rows = from.count()?;
    let times = (0..rows).map(|_| from.i64());
    let times = times.collect::<Result<Vec<i64>, _>>()?;
    // Columns without rows take no bytes, so the count of bytes that are left does not bound them.
    let width = from.u32()?;
    if width > WIDTH_MAX {
        return Err(DecodeError::Invalid("it has too many columns"));
    }
    let mut columns = Vec::new();
    for _ in 0..width {
        columns.push(read_column(rows, from)?);
    }
    let mut chunk = Chunk::new(times.into(), columns);
    if from.bool()? {
        let origins = (0..rows).map(|_| from.u64());
        chunk.origins = Some(origins.collect::<Result<Vec<u64>, _>>()?.into());
    }
    if from.bool()? {
        chunk.lanes = Some(read_lanes(rows, from)?);
    }
    Ok(chunk)
}

fn read_column(rows: usize, from: &mut Reader<'_>) -> Result<Column, DecodeError> {
    let mut column = ColumnBuilder::default();
    for _ in 0..rows {
        column.push_owned(from.value()?);
    }
    Ok(column.finish())
}

fn write_lanes(lanes: &ChunkLanes, out: &mut Vec<u8>) {
    lanes.of_row.iter().for_each(|lane| out.u32(*lane));
    out.count(lanes.watermarks.len());
    for mark in &lanes.watermarks {
        out.u64(mark.before_row as u64);
        out.bool(mark.lane.is_some());
        out.u32(mark.lane.unwrap_or_default());
        out.i64(mark.watermark.ticks());
    }
    out.count(lanes.names.len());
    for name in &lanes.names {
        out.u64(name.after as u64);
        out.u32(name.lane);
        out.blob(&name.key);
    }
}

fn read_lanes(rows: usize, from: &mut Reader<'_>) -> Result<ChunkLanes, DecodeError> {
    let of_row = (0..rows).map(|_| from.u32());
    let of_row = of_row.collect::<Result<_, _>>()?;
    let mut watermarks = Vec::new();
    for _ in 0..from.count()? {
        let before_row = from.u64()? as usize;
        if before_row > rows {
            return Err(DecodeError::Invalid("a watermark is after the last row"));
        }
        let (is_of_lane, lane) = (from.bool()?, from.u32()?);
        watermarks.push(LaneWatermark {
            before_row,
            lane: is_of_lane.then_some(lane),
            watermark: Instant::from_ticks(from.i64()?),
        });
    }
    let mut names = Vec::new();
    for _ in 0..from.count()? {
        let after = from.u64()? as usize;
        if after > watermarks.len() {
            return Err(DecodeError::Invalid("a lane is named too late"));
        }
        names.push(LaneName {
            after,
            lane: from.u32()?,
            key: from.blob()?.into(),
        });
    }
    Ok(ChunkLanes {
        of_row,
        watermarks,
        names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn chunk() -> Chunk {
        let mixed = vec![Value::Int(1), Value::Text("two".into()), Value::Null];
        let mut chunk = Chunk::new(
            vec![10, 20, 20].into(),
            vec![
                Column::from_ints(vec![3, 2, 1]),
                Column::Dynamic(Arc::new(mixed)),
                Column::Null(3),
            ],
        );
        chunk.origins = Some(vec![7u64, 8, 9].into());
        chunk.lanes = Some(ChunkLanes {
            of_row: vec![0, 1, 0],
            watermarks: vec![
                LaneWatermark {
                    before_row: 1,
                    lane: Some(4),
                    watermark: Instant::from_ticks(5),
                },
                LaneWatermark {
                    before_row: 3,
                    lane: None,
                    watermark: Instant::from_ticks(6),
                },
            ],
            names: vec![LaneName {
                after: 2,
                lane: 1,
                key: b"key"[..].into(),
            }],
        });
        chunk
    }

    fn reader() -> ItemReader {
        ItemReader::new(vec![vec![None]])
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        for item in [Item::Rows(chunk()), Item::Watermark(Instant::from_ticks(9))] {
            let mut bytes = Vec::new();
            item.write(&mut bytes);
            let mut from = Reader::new(&bytes);
            let again = reader().read(0, 0, &mut from).unwrap();
            from.end().unwrap();
            let mut bytes_again = Vec::new();
            again.write(&mut bytes_again);
            assert_eq!(bytes, bytes_again);
        }
    }

    #[test]
    fn damaged_bytes_are_refused_without_a_panic() {
        let mut bytes = Vec::new();
        Item::Rows(chunk()).write(&mut bytes);
        for end in 0..bytes.len() {
            let mut from = Reader::new(&bytes[..end]);
            assert!(reader().read(0, 0, &mut from).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            // It may be another item, or none.
            let _ = reader().read(0, 0, &mut Reader::new(&damaged));
        }
        assert!(reader().read(0, 1, &mut Reader::new(&bytes)).is_err());
    }
}
