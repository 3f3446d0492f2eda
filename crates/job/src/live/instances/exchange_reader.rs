//! A stream whose outputs come from the exchange: another instance, or another part of this one, processes its events.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::ItemReader;
use highwater_log::batch::Decompressor;
use highwater_log::{FetchData, Offset, TopicPartition};
use highwater_time::Instant;

use super::super::feed::StreamPosition;
use super::super::hub_stream::StreamSnapshot;
use super::super::state_limit::{BytesInFlight, StateMeter};
use super::super::status::PartitionStatus;
use super::exchange::{ExchangeDecoder, PieceAssembler, for_each_record};
use crate::stream::StreamOutput;

pub(in crate::live) struct ExchangeReader {
    number: usize,
    input: usize,
    /// Its number among the partitions of the input.
    partition: usize,
    place: TopicPartition,
    items: ItemReader,
    unpacker: Decompressor,
    pieces: PieceAssembler,
    /// The next record to read.
    next: Offset,
    /// The record after the last whole output: a restart reads from here.
    settled: Offset,
    /// The first record of the last whole output: the owner of the stream may have to find it.
    keep_from: Offset,
    position: StreamPosition,
    watermark: Instant,
    reached: Instant,
    meter: StateMeter,
    /// The version of the reference data of the combiner, if the job has any.
    tables: Option<u64>,
}

/// The identity of a stream within the job.
pub(in crate::live) struct StreamIdentity {
    pub number: usize,
    pub input: usize,
    /// Its number among the partitions of the input.
    pub partition: usize,
    pub place: TopicPartition,
    /// The version of the reference data of the combiner, if the job has any.
    pub tables: Option<u64>,
}

impl ExchangeReader {
    /// Its input starts at `start`.
    pub(in crate::live) fn new(
        id: StreamIdentity,
        items: ItemReader,
        start: Offset,
        meter: StateMeter,
    ) -> ExchangeReader {
        ExchangeReader {
            number: id.number,
            input: id.input,
            partition: id.partition,
            place: id.place,
            items,
            unpacker: Decompressor::default(),
            pieces: PieceAssembler::default(),
            next: Offset(0),
            settled: Offset(0),
            keep_from: Offset(0),
            position: StreamPosition {
                next: start,
                arrived: Instant::BEFORE_ALL,
            },
            watermark: Instant::BEFORE_ALL,
            reached: Instant::BEFORE_ALL,
            meter,
            tables: id.tables,
        }
    }

    pub(in crate::live) fn number(&self) -> usize {
        self.number
    }

    pub(in crate::live) fn input(&self) -> usize {
        self.input
    }

    pub(in crate::live) fn next(&self) -> Offset {
        self.next
    }

    pub(in crate::live) fn arrived(&self) -> Instant {
        self.position.arrived
    }

    pub(in crate::live) fn watermark(&self) -> Instant {
        self.watermark
    }

    /// Sets the first record.
    pub(in crate::live) fn begin(&mut self, next: Offset) {
        (self.next, self.settled, self.keep_from) = (next, next, next);
    }

    /// The outputs of the fetched records, as one. The error says why the job fails.
    pub(in crate::live) fn take(&mut self, fetched: &FetchData) -> Result<StreamOutput, String> {
        let mut whole = Vec::new();
        let (from, pieces) = (self.next, &mut self.pieces);
        let next = for_each_record(fetched, from, &mut self.unpacker, &mut |offset, value| {
            let taken = pieces.take(offset, value);
            let taken = taken.map_err(|error| format!("record {offset}: {error}"))?;
            whole.extend(taken.map(|output| (offset, output)));
            Ok(())
        });
        let unreadable =
            |reason: String| format!("the exchange of `{}` cannot be read: {reason}", self.place);
        self.next = next.map_err(unreadable)?;
        let mut output = self.empty_output();
        for (last, assembled) in whole {
            let stream = ExchangeDecoder {
                stream: self.number,
                input: self.input,
                partition: self.partition,
                items: &self.items,
                has_tables: self.tables.is_some(),
            };
            let decoded = stream.decode(&assembled.body);
            let decoded = decoded.map_err(|error| {
                format!(
                    "the exchange of `{}` cannot be read: record {last}: {error}",
                    self.place
                )
            })?;
            if decoded.tables > self.tables {
                return Err(format!(
                    "the exchange of `{}` continues with newer reference data",
                    self.place
                ));
            }
            self.settled = Offset(last.0 + 1);
            self.keep_from = assembled.begin;
            if decoded.to <= self.position {
                continue;
            }
            if decoded.from != self.position {
                return Err(format!(
                    "the exchange of `{}` goes on at {:?}, and {:?} was expected: were records of the exchange topic \
                     deleted?",
                    self.place, decoded.from, self.position
                ));
            }
            self.position = decoded.to;
            let made = decoded.output;
            (self.watermark, self.reached) = (made.watermark, made.reached);
            output.exit_items.extend(made.exit_items);
            output.rejected.extend(made.rejected);
            output.failed.extend(made.failed);
            output.late.extend(made.late);
        }
        output.arrived = self.position.arrived;
        (output.watermark, output.reached) = (self.watermark, self.reached);
        Ok(output)
    }

    fn empty_output(&self) -> StreamOutput {
        StreamOutput {
            arrived: self.position.arrived,
            watermark: self.watermark,
            reached: self.reached,
            ..StreamOutput::new(self.number, self.input)
        }
    }

    pub(in crate::live) fn put_in_flight(
        &self,
        output: &StreamOutput,
        input: u64,
    ) -> Result<BytesInFlight, String> {
        self.meter.put_in_flight(output.size(), input)
    }

    pub(in crate::live) fn status(&self) -> PartitionStatus {
        PartitionStatus {
            next: self.position.next,
            watermark: self.watermark,
            ..PartitionStatus::new(self.place.clone())
        }
    }

    pub(in crate::live) fn snapshot(&self) -> StreamSnapshot {
        let mut state = Vec::new();
        state.i64(self.position.next.0);
        state.i64(self.watermark.ticks());
        state.i64(self.reached.ticks());
        state.i64(self.keep_from.0);
        StreamSnapshot::of_exchange(self.settled, self.position.arrived, self.keep_from, state)
    }

    /// Reads what the snapshot wrote.
    pub(in crate::live) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.begin(Offset(from.i64()?));
        let arrived = Instant::from_ticks(from.i64()?);
        let next = Offset(from.i64()?);
        self.position = StreamPosition { next, arrived };
        self.watermark = Instant::from_ticks(from.i64()?);
        self.reached = Instant::from_ticks(from.i64()?);
        self.keep_from = Offset(from.i64()?);
        from.end()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use highwater_log::{HubName, HubSettings, HubSpec, Isolation, Log, MemoryLog, Partition};

    use super::super::super::state_limit::StateLimit;
    use super::super::exchange::{CombinerPart, ExchangeWriter};
    use super::*;
    use crate::config::JobFile;
    use crate::load::Job;

    fn position(next: i64) -> StreamPosition {
        StreamPosition {
            next: Offset(next),
            arrived: match next {
                0 => Instant::BEFORE_ALL,
                next => Instant::from_ticks(next * 10),
            },
        }
    }

    fn stream(tables: Option<u64>) -> ExchangeReader {
        let text = "sql = \"SELECT k INTO x FROM a\"\n[inputs.a]\nhub = \"a\"\n";
        let job = Job::new(JobFile::parse(text, "job.toml").unwrap()).unwrap();
        let id = StreamIdentity {
            number: 0,
            input: 0,
            partition: 0,
            place: TopicPartition {
                hub: HubName::new("a").unwrap(),
                partition: 0,
            },
            tables,
        };
        let meter = StateLimit::new(u64::MAX).meter();
        ExchangeReader::new(id, job.physical.item_reader(), Offset(0), meter)
    }

    pub(in crate::live::instances) async fn exchange() -> Arc<dyn Partition> {
        let log = MemoryLog::new(|| 0);
        let spec = HubSpec {
            name: HubName::new("exchange").unwrap(),
            partitions: 1,
            settings: HubSettings::default(),
        };
        log.create(spec).await.unwrap();
        log.partition("exchange", 0).unwrap()
    }

    // proves X3
    #[tokio::test]
    async fn outputs_with_newer_reference_data_than_the_combiner_has_are_refused() {
        let partition = exchange().await;
        let mut writer = ExchangeWriter::open(partition.clone(), Offset(0))
            .await
            .unwrap();
        let mut output = stream(None).empty_output();
        output.watermark = Instant::from_ticks(5);
        for (from, to, version) in [(0, 4, 1), (4, 9, 2)] {
            let part = CombinerPart {
                // Two outputs that share an append are one.
                outputs: vec![&output, &output],
                exit_items: Vec::new(),
                has_side_rows: true,
                tables: Some(version),
            };
            let body = part.encode(position(from), position(to));
            writer.append(position(to), &body).await.unwrap();
        }
        let read = partition.read(Offset(0), 1 << 20, Isolation::Committed);
        let fetched = read.await.unwrap();
        let refused = stream(Some(1)).take(&fetched).err().unwrap();
        assert!(refused.contains("newer reference data"), "{refused}");
        let mut current = stream(Some(2));
        let taken = current.take(&fetched).unwrap();
        assert_eq!(taken.watermark, Instant::from_ticks(5));
        assert_eq!(current.status().next, Offset(9));
        // Of an earlier version are the rows before those that a later one has changed.
        stream(Some(3)).take(&fetched).unwrap();
    }
}
