//! Result rows whose HAVING is tested for many of them together, before their keys are written.
//!
//! Most rows of a window that has a row for every change fail a HAVING that counts events. Such a row costs its
//! aggregates and a copy of its encoded key.

use highwater_time::Instant;

use super::groups::{self, GroupSpec};
use super::window_operator::{RowWriter, WindowReport};
use crate::chunk::CHUNK_ROWS;
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::value::Value;

#[derive(Debug, Default)]
pub(super) struct UntestedRows {
    times: Vec<i64>,
    lanes: Vec<u32>,
    /// The encoded keys of all rows, and the end of each.
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    /// The keys of rows whose bytes do not determine them.
    display_keys: Vec<(usize, Vec<Value>)>,
    results: Vec<ColumnBuilder>,
}

impl UntestedRows {
    /// Before the first row.
    pub(super) fn prepare(&mut self, spec: &GroupSpec) {
        if self.results.is_empty() {
            self.results = ColumnBuilder::of_width(spec.aggregates.len());
        }
    }

    /// Adds a row and returns the columns of its aggregates, onto which the caller pushes.
    pub(super) fn begin(
        &mut self,
        lane: u32,
        time: i64,
        key: &[u8],
        display_keys: Option<&[Value]>,
    ) -> &mut [ColumnBuilder] {
        if let Some(keys) = display_keys {
            self.display_keys.push((self.times.len(), keys.to_vec()));
        }
        self.times.push(time);
        self.lanes.push(lane);
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len() as u32);
        &mut self.results
    }

    /// Whether the rows should be written before more are added.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.times.len() >= CHUNK_ROWS
    }

    /// Writes the rows that pass, and forgets all.
    pub(super) fn write(
        &mut self,
        spec: &GroupSpec,
        out: &mut RowWriter<'_>,
        report: &mut WindowReport<'_>,
    ) {
        let width = spec.aggregates.len();
        let results = std::mem::replace(&mut self.results, ColumnBuilder::of_width(width));
        if self.times.is_empty() {
            return;
        }
        let results: Vec<Column> = results.into_iter().map(ColumnBuilder::finish).collect();
        let mut faults = Faults::new(self.times.len());
        let kept = groups::passing(spec, &self.times, &results, &mut faults);
        let times = &self.times;
        report
            .errors
            .add_faults(&faults, |row| Instant::from_ticks(times[row]));
        let mut display_keys = self.display_keys.iter().peekable();
        for row in kept.set_indices() {
            while display_keys.next_if(|(of, _)| *of < row).is_some() {}
            out.lane = self.lanes[row];
            let columns = out.begin(self.times[row]);
            let (shown, computed) = columns.split_at_mut(spec.keys.len());
            match display_keys.next_if(|(of, _)| *of == row) {
                Some((_, values)) => {
                    let values = values.iter().map(Value::view);
                    shown
                        .iter_mut()
                        .zip(values)
                        .for_each(|(column, value)| column.push(value));
                }
                None => {
                    let start = row.checked_sub(1).map_or(0, |before| self.key_ends[before]);
                    let mut key = &self.keys[start as usize..self.key_ends[row] as usize];
                    shown
                        .iter_mut()
                        .for_each(|column| column.push(eval::decode_key(&mut key)));
                }
            }
            for (column, result) in computed.iter_mut().zip(&results) {
                column.push_from(result, row);
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.times.clear();
        self.lanes.clear();
        self.keys.clear();
        self.key_ends.clear();
        self.display_keys.clear();
    }
}
