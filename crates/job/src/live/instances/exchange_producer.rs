//! The part of the exchange that a stream writes: a partition for each combiner.
//!
//! Every output goes to all of them, with the rows and panes of the combiner's keys; the first has the side rows as
//! well. The partitions are written side by side, so after a crash they may end at different positions: a new owner
//! drops from each what it has, and its fetches end at every one of these positions.
//!
//! One append is in flight at a time. Outputs that come meanwhile go into the next as one, so a slow broker gets fewer
//! requests.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::try_join_all;
use highwater_engine::{Item, KeyRoutes};
use highwater_log::{BoxFuture, Offset, Partition, partition_for_key};

use super::super::feed::StreamPosition;
use super::super::state_limit::BytesInFlight;
use super::super::status::PartitionStatus;
use super::exchange::{CombinerPart, ExchangeError, ExchangeWriter};
use crate::partition_pipeline::ExitItem;
use crate::stream::StreamOutput;

/// Outputs with more rows than this share no append.
const APPEND_BYTES: u64 = 512 << 10;

pub(super) struct ExchangeProducer {
    /// Set if there are several combiners.
    routes: Option<Arc<KeyRoutes>>,
    /// Per combiner.
    ends: Vec<CombinerPartition>,
    /// Outputs up to there are in all partitions.
    processed: StreamPosition,
    /// The position after the last output of earlier owners.
    inherited: StreamPosition,
    /// The version of the reference data, if the job has any.
    tables: Option<u64>,
    /// Outputs that wait for the append in flight.
    waiting: VecDeque<PendingOutput>,
    appending: Option<InFlightAppend>,
}

/// An output in flight to the exchange.
pub(super) struct PendingOutput {
    pub to: StreamPosition,
    pub output: Box<StreamOutput>,
    pub status: Box<PartitionStatus>,
    /// Released when the output is durable.
    pub _in_flight: BytesInFlight,
}

/// An append to the partitions of all combiners.
struct InFlightAppend {
    outputs: Vec<PendingOutput>,
    /// The offset after the append in each partition, where there was something to append.
    done: BoxFuture<Result<Vec<Option<Offset>>, ExchangeError>>,
}

/// The bytes for a combiner, which end at `to`.
struct AppendedPart {
    to: StreamPosition,
    body: Vec<u8>,
}

/// The partition of one combiner.
struct CombinerPartition {
    writer: ExchangeWriter,
    /// The position after the last output. Outputs up to it are there.
    last: StreamPosition,
    /// The offset after the outputs that the restored state covers.
    restored: Offset,
}

impl ExchangeProducer {
    /// The claimed partitions, of which each has the outputs before its offset of `restored`. The stream continues at
    /// `position`.
    pub(super) async fn open(
        routes: Option<Arc<KeyRoutes>>,
        partitions: Vec<Arc<dyn Partition>>,
        restored: &[Offset],
        position: StreamPosition,
        tables: Option<u64>,
    ) -> Result<ExchangeProducer, ExchangeError> {
        let opened = partitions.into_iter().zip(restored);
        let opened = opened.map(async |(partition, restored)| {
            let writer = ExchangeWriter::open(partition, *restored).await?;
            let last = writer.position();
            Ok::<CombinerPartition, ExchangeError>(CombinerPartition {
                last: last.map_or(position, |last| last.max(position)),
                restored: *restored,
                writer,
            })
        });
        let ends = try_join_all(opened).await?;
        let inherited = ends.iter().map(|end| end.last).max();
        Ok(ExchangeProducer {
            routes,
            inherited: inherited.unwrap_or(position),
            ends,
            processed: position,
            tables,
            waiting: VecDeque::new(),
            appending: None,
        })
    }

    /// A partition that has lost records, if there is one. `is_restored`: the stream resumes from a checkpoint.
    pub(super) fn lost(&self, is_restored: bool) -> Option<String> {
        let is_lost = |end: &&CombinerPartition| match is_restored {
            // Records that were acknowledged are missing.
            true => end.writer.end() < end.restored,
            false => end.writer.position().is_none() && end.writer.start() > Offset(0),
        };
        let lost = self.ends.iter().find(is_lost);
        lost.map(|end| end.writer.place())
    }

    /// Whether all outputs of earlier owners have been computed again.
    pub(super) fn has_caught_up(&self) -> bool {
        self.processed >= self.inherited
    }

    /// The positions at which fetches must end, ascending.
    pub(super) fn stopovers(&self) -> VecDeque<StreamPosition> {
        let ends = self.ends.iter().map(|end| end.last);
        let mut later: Vec<StreamPosition> = ends.filter(|last| *last > self.processed).collect();
        later.sort_unstable();
        later.dedup();
        later.into()
    }

    /// Takes the next output.
    pub(super) fn push(&mut self, output: PendingOutput) {
        self.waiting.push_back(output);
    }

    /// Whether there are outputs that are not durable.
    pub(super) fn has_work(&self) -> bool {
        self.appending.is_some() || !self.waiting.is_empty()
    }

    /// The outputs that are durable next. There must be some that are not; none is lost if this is dropped.
    pub(super) async fn appended(&mut self) -> Result<Vec<PendingOutput>, ExchangeError> {
        let appending = match &mut self.appending {
            Some(appending) => appending,
            None => {
                let begun = self.begin();
                self.appending.insert(begun)
            }
        };
        let ends = (&mut appending.done).await?;
        let outputs = self.appending.take().map(|appending| appending.outputs);
        let outputs = outputs.unwrap_or_default();
        for (end, written) in self.ends.iter_mut().zip(ends) {
            if let Some(written) = written {
                end.writer.note_end(written);
            }
        }
        if let Some(last) = outputs.last() {
            self.processed = last.to;
        }
        Ok(outputs)
    }

    /// Appends waiting outputs where they are not there yet.
    fn begin(&mut self) -> InFlightAppend {
        let mut size = 0;
        let fits = |waiting: &&PendingOutput| {
            let is_first = size == 0;
            size += 1 + waiting.output.size();
            is_first || size <= APPEND_BYTES
        };
        let count = self.waiting.iter().take_while(fits).count();
        let outputs: Vec<PendingOutput> = self.waiting.drain(..count).collect();
        let parts = self.encode(&outputs);
        let ends = self.ends.iter_mut().zip(parts);
        let appends = ends.map(|(end, part)| {
            let append = part.map(|part| {
                end.last = part.to;
                end.writer.append(part.to, &part.body)
            });
            async move {
                match append {
                    Some(append) => append.await.map(Some),
                    None => Ok(None),
                }
            }
        });
        let appends: Vec<_> = appends.collect();
        InFlightAppend {
            outputs,
            done: Box::pin(try_join_all(appends)),
        }
    }

    /// For each combiner, what it does not have yet.
    fn encode(&self, outputs: &[PendingOutput]) -> Vec<Option<AppendedPart>> {
        let parts = self.parts(outputs).into_iter().zip(&self.ends);
        let encoded = parts.map(|(part, end)| {
            let to = outputs.last()?.to;
            (!part.outputs.is_empty()).then(|| AppendedPart {
                to,
                body: part.encode(end.last, to),
            })
        });
        encoded.collect()
    }

    /// The part of each combiner.
    fn parts<'a>(&self, outputs: &'a [PendingOutput]) -> Vec<CombinerPart<'a>> {
        let combiners = self.ends.len();
        let part = |combiner| CombinerPart {
            outputs: Vec::new(),
            exit_items: Vec::new(),
            has_side_rows: combiner == 0,
            tables: self.tables,
        };
        let mut parts: Vec<CombinerPart<'a>> = (0..combiners).map(part).collect();
        for PendingOutput { to, output, .. } in outputs {
            let wanted = self.ends.iter().map(|end| *to > end.last);
            let wanted: Vec<bool> = wanted.collect();
            let takers = parts.iter_mut().zip(&wanted).filter(|(_, wanted)| **wanted);
            takers.for_each(|(part, _)| part.outputs.push(output));
            for ExitItem { exit, item, .. } in &output.exit_items {
                let items = self.split(output.input, *exit, item);
                let takers = parts.iter_mut().zip(items).zip(&wanted);
                for ((part, item), _) in takers.filter(|(_, wanted)| **wanted) {
                    part.exit_items.extend(item.map(|item| (*exit, item)));
                }
            }
        }
        parts
    }

    /// The part of an item for each combiner.
    fn split<'a>(&self, input: usize, exit: usize, item: &'a Item) -> Vec<Option<Cow<'a, Item>>> {
        let Some(routes) = &self.routes else {
            return vec![Some(Cow::Borrowed(item))];
        };
        let combiners = self.ends.len();
        let class_of = |key: Option<&str>| {
            key.map_or(0, |key| {
                partition_for_key(key.as_bytes(), combiners as u32) as usize
            })
        };
        let items = routes.split(input, exit, item, combiners, &class_of);
        items.into_iter().map(|item| item.map(Cow::Owned)).collect()
    }

    /// Per combiner, the offset after the outputs that the state of the stream covers.
    pub(super) fn covered(&self) -> Vec<Offset> {
        let covered = |end: &CombinerPartition| match self.processed < end.last {
            // Until it has caught up, the outputs after the restored state are those of earlier owners.
            true => end.restored,
            false => end.writer.end(),
        };
        self.ends.iter().map(covered).collect()
    }
}
