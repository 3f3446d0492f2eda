//! Letters of many partitions on their way to one output, in an order that depends on the input alone.
//!
//! Letters of events come in order of arrival, so those of all partitions are merged by arrival. Letters of rows that the
//! query failed on go by the row's time; they come from several steps of the query, which one first is a matter of how
//! the input was cut, so they are sorted among themselves before they are merged with the others.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{Chunk, Column, Context, DataErrors, Item, Merge, Operator, Value};
use highwater_time::Instant;

use super::side_row::SideRow;

pub(super) struct SideOutput {
    merge: Merge,
    /// Of the shared part of the query and then of each stream: letters of rows that wait to be sorted. `None` where it
    /// takes no letters of rows.
    unsorted: Option<Vec<Vec<SideRow>>>,
}

impl SideOutput {
    /// `rows`: it takes letters of rows, too.
    pub fn new(streams: usize, rows: bool) -> SideOutput {
        let mut side_output = SideOutput {
            merge: Merge::new(usize::from(rows)),
            unsorted: rows.then(|| vec![Vec::new()]),
        };
        (0..streams).for_each(|_| side_output.add_stream());
        side_output
    }

    /// A stream behind the others. Its letters wait for theirs, and theirs for its own, from now on.
    pub fn add_stream(&mut self) {
        self.merge.add_port();
        if let Some(unsorted) = &mut self.unsorted {
            self.merge.add_port();
            unsorted.push(Vec::new());
        }
    }

    /// Letters of events of a stream, which has come to `arrived`.
    pub fn take_events(
        &mut self,
        stream: usize,
        letters: Vec<SideRow>,
        arrived: Instant,
    ) -> Vec<Chunk> {
        let port = match self.unsorted {
            Some(_) => 1 + 2 * stream,
            None => stream,
        };
        self.push(port, letters, arrived)
    }

    /// Letters of rows of a stream whose watermark is `watermark`; without a stream, of the shared part of the query.
    pub fn take_rows(
        &mut self,
        stream: Option<usize>,
        letters: Vec<SideRow>,
        watermark: Instant,
    ) -> Vec<Chunk> {
        let place = stream.map_or(0, |stream| stream + 1);
        let Some(unsorted) = &mut self.unsorted else {
            return Vec::new();
        };
        let unsorted = &mut unsorted[place];
        unsorted.extend(letters);
        let (mut due, rest): (Vec<_>, Vec<_>) = std::mem::take(unsorted)
            .into_iter()
            .partition(|letter| letter.time < watermark);
        *unsorted = rest;
        due.sort_by_cached_key(SideRow::order);
        self.push(2 * place, due, watermark)
    }

    fn push(&mut self, port: usize, letters: Vec<SideRow>, passed: Instant) -> Vec<Chunk> {
        let mut items = Vec::new();
        let mut errors = DataErrors::default();
        let mut context = Context {
            out: &mut items,
            errors: &mut errors,
            trace: None,
        };
        if !letters.is_empty() {
            let times = letters.iter().map(|letter| letter.time.ticks()).collect();
            let rows: Vec<Value> = letters.into_iter().map(|letter| letter.row).collect();
            let chunk = Chunk::new(times, vec![Column::Dynamic(Arc::new(rows))]);
            self.merge.push(port, Item::Rows(chunk), &mut context);
        }
        self.merge.push(port, Item::Watermark(passed), &mut context);
        items
            .into_iter()
            .filter_map(|item| match item {
                Item::Rows(chunk) => Some(chunk),
                _ => None,
            })
            .collect()
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let mut merge = Vec::new();
        self.merge.snapshot(&mut merge);
        out.blob(&merge);
        for letters in self.unsorted.iter().flatten() {
            out.count(letters.len());
            letters.iter().for_each(|letter| letter.write(out));
        }
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.merge.restore(&mut Reader::new(from.blob()?))?;
        for letters in self.unsorted.iter_mut().flatten() {
            let count = from.count()?;
            *letters = (0..count)
                .map(|_| SideRow::read(from))
                .collect::<Result<_, _>>()?;
        }
        Ok(())
    }
}
