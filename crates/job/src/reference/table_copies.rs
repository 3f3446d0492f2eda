//! Copies of the static tables in use.
//!
//! The file of a static table may be replaced at any time. A live job stores a copy of the table in use beside its
//! checkpoints, so that after a crash the same events meet the same table, and a new table takes effect where it was
//! adopted.

use std::collections::BTreeMap;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::codec::{ReadValue, WriteValue};
use highwater_engine::{Chunk, Column, ColumnBuilder, ReferenceTable};
use highwater_time::Instant;

/// By the index of the table among the references of the plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableCopies(BTreeMap<usize, Chunk>);

impl TableCopies {
    pub(crate) fn get(&self, index: usize) -> Option<&Chunk> {
        self.0.get(&index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the static table, if there is one.
    pub(crate) fn add(&mut self, index: usize, table: &ReferenceTable) {
        let mut snapshots = table.snapshots.iter();
        if let Some((_, chunk)) = snapshots.find(|(from, _)| *from == Instant::BEFORE_ALL) {
            self.0.insert(index, chunk.clone());
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.count(self.0.len());
        for (index, chunk) in &self.0 {
            out.u64(*index as u64);
            write_rows(chunk, &mut out);
        }
        let checksum = crc32c::crc32c(&out);
        out.u32(checksum);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<TableCopies, DecodeError> {
        let split = bytes.split_last_chunk();
        let (contents, sum) = split.ok_or(DecodeError::Truncated)?;
        if crc32c::crc32c(contents) != u32::from_le_bytes(*sum) {
            return Err(DecodeError::Invalid("its checksum is wrong"));
        }
        let mut from = Reader::new(contents);
        let mut copies = BTreeMap::new();
        for _ in 0..from.count()? {
            let index = from.u64()?;
            copies.insert(index as usize, read_rows(&mut from)?);
        }
        Ok(TableCopies(copies))
    }
}

/// Writes the rows of a snapshot, without their times.
pub(crate) fn write_rows(chunk: &Chunk, out: &mut Vec<u8>) {
    out.u64(chunk.rows() as u64);
    out.u64(chunk.columns.len() as u64);
    for column in &chunk.columns {
        (0..column.len()).for_each(|row| out.value(column.get(row)));
    }
}

/// Reads what [`write_rows`] wrote.
pub(crate) fn read_rows(from: &mut Reader<'_>) -> Result<Chunk, DecodeError> {
    let (rows, width) = (from.u64()?, from.u64()?);
    let columns = (0..width).map(|_| read_column(from, rows));
    let columns = columns.collect::<Result<_, _>>()?;
    let times = vec![Instant::BEFORE_ALL.ticks(); rows as usize];
    Ok(Chunk::new(times.into(), columns))
}

fn read_column(from: &mut Reader<'_>, rows: u64) -> Result<Column, DecodeError> {
    let mut column = ColumnBuilder::default();
    for _ in 0..rows {
        column.push_owned(from.value()?);
    }
    Ok(column.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_engine::Value;

    #[test]
    fn a_copy_is_read_back_and_no_flipped_bit_goes_unnoticed() {
        let mut mixed = ColumnBuilder::default();
        [Value::Text("x".into()), Value::Null, Value::Bit(true)]
            .into_iter()
            .for_each(|value| mixed.push_owned(value));
        let columns = vec![
            Column::from_ints(vec![1, 2, 3]),
            mixed.finish(),
            Column::Null(3),
        ];
        let times = vec![Instant::BEFORE_ALL.ticks(); 3];
        let table = ReferenceTable {
            snapshots: vec![(Instant::BEFORE_ALL, Chunk::new(times.into(), columns))],
        };
        let mut copies = TableCopies::default();
        copies.add(2, &table);
        let bytes = copies.encode();
        let read = TableCopies::decode(&bytes).unwrap();
        assert_eq!(read.encode(), bytes);
        assert!(read.get(0).is_none() && matches!(read.get(2).unwrap().columns[0], Column::Int(_)));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            TableCopies::decode(&damaged).unwrap_err();
        }
    }
}
