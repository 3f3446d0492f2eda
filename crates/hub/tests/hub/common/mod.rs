//! Helpers for tests of the hub: ready futures, batches of texts, the contents of a partition.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use highwater_env::{Clock, Disk};
use highwater_hub::{Hub, OpenError, Options, Recovery};
use highwater_log::batch::{
    Batch, BatchBuilder, BatchHeader, BatchOptions, Batches, Decompressor, NewRecord, TimestampType,
};
use highwater_log::{
    BoxFuture, EnqueueTime, FetchData, HubName, HubSettings, HubSpec, Isolation, Offset, Partition,
    Producer, ReadError, TimestampSettings,
};

pub(crate) const DATA: &str = "data";

/// Without threads: the test commits, and everything runs on its thread.
pub(crate) fn by_hand() -> Options {
    Options {
        committers: 0,
        readers: 0,
        maintenance: Duration::from_secs(3600),
        ..Options::default()
    }
}

pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    clock: &Arc<dyn Clock>,
    options: &Options,
) -> Result<(Hub, Vec<Recovery>), OpenError> {
    let recoveries = parking_lot::Mutex::new(Vec::new());
    let hub = Hub::open(
        disk.clone(),
        Path::new(DATA),
        options.clone(),
        clock.clone(),
        &|progress| recoveries.lock().push(progress.recovery),
    )?;
    Ok((hub, recoveries.into_inner()))
}

/// The result, if it is ready.
pub(crate) fn poll<T>(pending: &mut BoxFuture<T>) -> Option<T> {
    match pending
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

pub(crate) fn done<T>(mut pending: BoxFuture<T>) -> T {
    poll(&mut pending).expect("it is ready")
}

pub(crate) fn name(name: &str) -> HubName {
    HubName::new(name).unwrap()
}

pub(crate) fn spec(hub: &str, partitions: u32, settings: HubSettings) -> HubSpec {
    HubSpec {
        name: name(hub),
        partitions,
        settings,
    }
}

pub(crate) fn record(text: &str) -> NewRecord<'_> {
    NewRecord {
        key: None,
        value: Some(text.as_bytes()),
        headers: &[],
    }
}

pub(crate) fn batch(
    values: &[String],
    producer: Option<(Producer, i32)>,
    transactional: bool,
) -> Batch {
    created_batch(values, producer, transactional, None)
}

/// A batch with a producer's timestamp.
pub(crate) fn created_batch(
    values: &[String],
    producer: Option<(Producer, i32)>,
    transactional: bool,
    timestamp: Option<i64>,
) -> Batch {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(&record(value));
    }
    let seal = BatchOptions {
        producer,
        transactional,
        timestamp,
        ..BatchOptions::default()
    };
    builder.build(&seal).unwrap()
}

/// Settings with these timestamps.
pub(crate) fn timestamps(kind: TimestampType) -> HubSettings {
    HubSettings {
        timestamps: TimestampSettings {
            kind,
            ..TimestampSettings::default()
        },
        ..HubSettings::default()
    }
}

/// The header and the enqueue time of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadHeader {
    header: BatchHeader,
    pub time: EnqueueTime,
}

impl std::ops::Deref for ReadHeader {
    type Target = BatchHeader;

    fn deref(&self) -> &BatchHeader {
        &self.header
    }
}

/// A record as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadRecord {
    pub offset: i64,
    /// The enqueue time.
    pub time: i64,
    /// The producer's timestamp.
    pub created: i64,
    pub value: String,
}

/// The headers of the batches in these pieces, and the records of the data batches.
pub(crate) fn contents(fetched: &FetchData) -> (Vec<ReadHeader>, Vec<ReadRecord>) {
    let mut decompressor = Decompressor::new(1 << 20);
    let (mut headers, mut seen) = (Vec::new(), Vec::new());
    for piece in &fetched.pieces {
        for batch in Batches::new(piece) {
            let batch = batch.expect("only whole batches are served");
            batch.check().expect("only good batches are served");
            headers.push(ReadHeader {
                header: batch.header,
                time: batch.enqueue_time(),
            });
            if batch.header.is_control() {
                continue;
            }
            for record in batch.records(&mut decompressor).unwrap() {
                let record = record.unwrap();
                seen.push(ReadRecord {
                    offset: record.offset.0,
                    time: record.timestamp,
                    created: record.created,
                    value: String::from_utf8(record.value.unwrap_or(b"-").to_vec()).unwrap(),
                });
            }
        }
    }
    (headers, seen)
}

/// Everything from `from` on, read in parts of about `bytes_max`, until the end or an error.
pub(crate) fn read_from(
    partition: &dyn Partition,
    from: Offset,
    bytes_max: usize,
    isolation: Isolation,
) -> (Vec<ReadHeader>, Vec<ReadRecord>, Option<ReadError>) {
    let (mut headers, mut seen) = (Vec::new(), Vec::new());
    let mut from = from;
    loop {
        let fetched = match done(partition.read(from, bytes_max, isolation)) {
            Ok(fetched) => fetched,
            Err(error) => return (headers, seen, Some(error)),
        };
        let (more_headers, more) = contents(&fetched);
        let Some(last) = more_headers.last() else {
            return (headers, seen, None);
        };
        assert!(last.next_offset() > from, "a read makes progress");
        from = last.next_offset();
        headers.extend(more_headers);
        seen.extend(more);
    }
}
