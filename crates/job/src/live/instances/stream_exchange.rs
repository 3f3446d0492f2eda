//! The part of the exchange that a stream writes: a partition for each combiner.
//!
//! Every output goes to all of them, with the rows and panes of the combiner's keys; the first has the side rows as well. The
//! partitions are written side by side, so after a crash they may end at different positions: a new owner drops from each
//! what it has, and its fetches end at every one of these positions.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::try_join_all;
use highwater_engine::KeyRoutes;
use highwater_log::{Offset, Partition, partition_for_key};

use super::super::feed::StreamPosition;
use super::exchange::{ExchangeError, ExchangePart, ExchangeWriter};
use crate::stream::StreamOutput;

pub(super) struct StreamExchange {
    /// Set if there are several combiners.
    routes: Option<Arc<KeyRoutes>>,
    /// Per combiner.
    ends: Vec<CombinerEnd>,
    /// Outputs up to there are in all partitions.
    processed: StreamPosition,
    /// The version of the reference data, if the job has any.
    tables: Option<u64>,
}

/// The partition of one combiner.
struct CombinerEnd {
    writer: ExchangeWriter,
    /// The position after the last output. Outputs up to it are there.
    last: StreamPosition,
    /// The offset after the outputs that the restored state covers.
    restored: Offset,
}

impl StreamExchange {
    /// The claimed partitions, of which each has the outputs before its offset of `restored`. The stream goes on at
    /// `position`.
    pub(super) async fn open(
        routes: Option<Arc<KeyRoutes>>,
        partitions: Vec<Arc<dyn Partition>>,
        restored: &[Offset],
        position: StreamPosition,
        tables: Option<u64>,
    ) -> Result<StreamExchange, ExchangeError> {
        let opened = partitions.into_iter().zip(restored);
        let opened = opened.map(async |(partition, restored)| {
            let writer = ExchangeWriter::open(partition, *restored).await?;
            let last = writer.position();
            Ok::<CombinerEnd, ExchangeError>(CombinerEnd {
                last: last.map_or(position, |last| last.max(position)),
                restored: *restored,
                writer,
            })
        });
        Ok(StreamExchange {
            routes,
            ends: try_join_all(opened).await?,
            processed: position,
            tables,
        })
    }

    /// A partition that has lost records, if there is one. `is_restored`: the stream goes on from a checkpoint.
    pub(super) fn lost(&self, is_restored: bool) -> Option<String> {
        let is_lost = |end: &&CombinerEnd| match is_restored {
            // Records that were acknowledged are missing.
            true => end.writer.end() < end.restored,
            false => end.writer.position().is_none() && end.writer.start() > Offset(0),
        };
        let lost = self.ends.iter().find(is_lost);
        lost.map(|end| end.writer.place())
    }

    /// Whether all outputs of earlier owners have been computed again.
    pub(super) fn has_caught_up(&self) -> bool {
        self.ends.iter().all(|end| self.processed >= end.last)
    }

    /// The positions at which fetches must end, ascending.
    pub(super) fn stopovers(&self) -> VecDeque<StreamPosition> {
        let ends = self.ends.iter().map(|end| end.last);
        let mut later: Vec<StreamPosition> = ends.filter(|last| *last > self.processed).collect();
        later.sort_unstable();
        later.dedup();
        later.into()
    }

    /// Appends an output that ends at `to`, where it is not there yet. Ready when it is durable.
    pub(super) async fn append(
        &mut self,
        to: StreamPosition,
        output: &StreamOutput,
    ) -> Result<(), ExchangeError> {
        let parts = self.parts(output);
        let ends = self.ends.iter_mut().zip(parts);
        let appends = ends.filter(|(end, _)| to > end.last).map(|(end, part)| {
            let body = part.encode(end.last, to);
            end.last = to;
            end.writer.append(to, body)
        });
        try_join_all(appends).await?;
        self.processed = to;
        Ok(())
    }

    /// The part of each combiner.
    fn parts<'a>(&self, output: &'a StreamOutput) -> Vec<ExchangePart<'a>> {
        let part = |has_side_rows| ExchangePart {
            output,
            deliveries: Vec::new(),
            has_side_rows,
            tables: self.tables,
        };
        let combiners = self.ends.len();
        let mut parts: Vec<ExchangePart<'a>> = (0..combiners).map(|n| part(n == 0)).collect();
        let class_of = |key: Option<&str>| {
            key.map_or(0, |key| {
                partition_for_key(key.as_bytes(), combiners as u32) as usize
            })
        };
        for delivery in &output.deliveries {
            let Some(routes) = &self.routes else {
                let item = Cow::Borrowed(&delivery.item);
                parts[0].deliveries.push((delivery.exit, item));
                continue;
            };
            let (exit, item) = (delivery.exit, &delivery.item);
            let items = routes.split(output.input, exit, item, combiners, &class_of);
            for (part, item) in parts.iter_mut().zip(items) {
                let item = item.map(|item| (exit, Cow::Owned(item)));
                part.deliveries.extend(item);
            }
        }
        parts
    }

    /// Per combiner, the offset after the outputs that the state of the stream covers.
    pub(super) fn covered(&self) -> Vec<Offset> {
        let covered = |end: &CombinerEnd| match self.processed < end.last {
            // Until it has caught up, the outputs after the restored state are those of earlier owners.
            true => end.restored,
            false => end.writer.end(),
        };
        self.ends.iter().map(covered).collect()
    }
}
