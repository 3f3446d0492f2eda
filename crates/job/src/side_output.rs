//! Merges the side rows of all streams into one output, in an order that depends on the input alone.
//!
//! A job over files processes its streams in an order that the files determine, so rows are sent in the order of
//! reading.
//!
//! A job over hubs processes its streams in any order. Rows of events come in order of arrival, so those of all streams
//! are merged by arrival. Failed rows are ordered by the row's time; several operators emit them, and the batching of
//! the input decides which comes first, so they are sorted before the merge.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::EndpointError;
use highwater_engine::{
    Chunk, Column, Context, DataErrors, Item, Merge, Operator, OutputBudget, Value,
};
use highwater_time::Instant;

use crate::output_merge::{OutputMerge, RowForm};
use crate::side_row::SideRow;

pub(crate) struct SideOutput {
    /// Its index among the outputs of the job.
    output: usize,
    form: RowForm,
    order: Order,
    /// Rows sent so far.
    rows: u64,
}

enum Order {
    Reading,
    Time {
        merge: Merge,
        /// Failed rows that wait to be sorted: of the shared part of the query, then of each stream. `None` if it has
        /// no failed rows.
        unsorted: Option<Vec<Vec<SideRow>>>,
    },
}

impl SideOutput {
    /// Sends rows in the order of reading.
    pub(crate) fn in_reading_order(output: usize, form: RowForm) -> SideOutput {
        SideOutput {
            output,
            form,
            order: Order::Reading,
            rows: 0,
        }
    }

    /// Merges rows by time. `failed_rows`: it has failed rows as well.
    pub(crate) fn in_time_order(output: usize, streams: usize, failed_rows: bool) -> SideOutput {
        let mut side_output = SideOutput {
            output,
            form: RowForm::Columns,
            order: Order::Time {
                merge: Merge::new(usize::from(failed_rows)),
                unsorted: failed_rows.then(|| vec![Vec::new()]),
            },
            rows: 0,
        };
        (0..streams).for_each(|_| side_output.add_stream());
        side_output
    }

    /// Rows sent so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a stream to the merge.
    pub(crate) fn add_stream(&mut self) {
        let Order::Time { merge, unsorted } = &mut self.order else {
            return;
        };
        merge.add_port();
        if let Some(unsorted) = unsorted {
            merge.add_port();
            unsorted.push(Vec::new());
        }
    }

    /// Pushes rows of events of a stream whose latest arrival is `arrived`.
    pub(crate) fn push_events(
        &mut self,
        stream: usize,
        rows: Vec<SideRow>,
        arrived: Instant,
        outputs: &mut [OutputMerge],
    ) -> Result<(), EndpointError> {
        match &mut self.order {
            Order::Reading => self.send(chunk(rows), outputs),
            Order::Time { merge, unsorted } => {
                let port = match unsorted {
                    Some(_) => 1 + 2 * stream,
                    None => stream,
                };
                let due = merged(merge, port, rows, arrived);
                self.send(due, outputs)
            }
        }
    }

    /// Pushes failed rows of a stream with its watermark; without a stream, of the shared part of the query.
    pub(crate) fn push_failed(
        &mut self,
        stream: Option<usize>,
        rows: Vec<SideRow>,
        watermark: Instant,
        outputs: &mut [OutputMerge],
    ) -> Result<(), EndpointError> {
        let (merge, unsorted) = match &mut self.order {
            Order::Reading => return self.send(chunk(rows), outputs),
            Order::Time { unsorted: None, .. } => return Ok(()),
            Order::Time {
                merge,
                unsorted: Some(unsorted),
            } => (merge, unsorted),
        };
        let place = stream.map_or(0, |stream| stream + 1);
        let unsorted = &mut unsorted[place];
        unsorted.extend(rows);
        let (mut due, rest): (Vec<_>, Vec<_>) = std::mem::take(unsorted)
            .into_iter()
            .partition(|row| row.time < watermark);
        *unsorted = rest;
        due.sort_by_cached_key(SideRow::order);
        let due = merged(merge, 2 * place, due, watermark);
        self.send(due, outputs)
    }

    fn send(
        &mut self,
        chunks: impl IntoIterator<Item = Chunk>,
        outputs: &mut [OutputMerge],
    ) -> Result<(), EndpointError> {
        let output = &mut outputs[self.output];
        chunks.into_iter().try_for_each(|chunk| {
            self.rows += chunk.rows() as u64;
            output.send_rows(self.form.apply(chunk))
        })
    }

    pub(crate) fn state_bytes(&self) -> usize {
        let Order::Time { merge, unsorted } = &self.order else {
            return 0;
        };
        let unsorted = unsorted.iter().flatten();
        merge.state_bytes() + unsorted.map(|rows| size_of_val(&rows[..])).sum::<usize>()
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        let Order::Time { merge, unsorted } = &self.order else {
            return;
        };
        let mut merged = Vec::new();
        merge.snapshot(&mut merged);
        out.blob(&merged);
        for rows in unsorted.iter().flatten() {
            out.count(rows.len());
            rows.iter().for_each(|row| row.write(out));
        }
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let Order::Time { merge, unsorted } = &mut self.order else {
            return Ok(());
        };
        merge.restore(&mut Reader::new(from.blob()?))?;
        for rows in unsorted.iter_mut().flatten() {
            let count = from.count()?;
            *rows = (0..count)
                .map(|_| SideRow::read(from))
                .collect::<Result<_, _>>()?;
        }
        Ok(())
    }
}

/// Rows as a chunk of records; `None` for no rows.
fn chunk(rows: Vec<SideRow>) -> Option<Chunk> {
    if rows.is_empty() {
        return None;
    }
    let times = rows.iter().map(|row| row.time.ticks()).collect();
    let rows: Vec<Value> = rows.into_iter().map(|row| row.row).collect();
    Some(Chunk::new(times, vec![Column::Dynamic(Arc::new(rows))]))
}

/// Pushes rows of a port that has passed `watermark`. Returns the rows that all ports have passed.
fn merged(merge: &mut Merge, port: usize, rows: Vec<SideRow>, watermark: Instant) -> Vec<Chunk> {
    let mut items = Vec::new();
    let mut errors = DataErrors::default();
    let mut context = Context {
        out: &mut items,
        errors: &mut errors,
        budget: &OutputBudget::default(),
        trace: None,
    };
    if let Some(chunk) = chunk(rows) {
        merge.push(port, Item::Rows(chunk), &mut context);
    }
    merge.push(port, Item::Watermark(watermark), &mut context);
    items
        .into_iter()
        .filter_map(|item| match item {
            Item::Rows(chunk) => Some(chunk),
            _ => None,
        })
        .collect()
}
