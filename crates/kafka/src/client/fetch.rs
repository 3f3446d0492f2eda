//! Fetch requests, and their responses reduced to whole batches with valid checksums.

use bytes::Bytes;
use highwater_log::batch::{Batches, CorruptBatch};
use highwater_log::{AbortedTransaction, Bounds, EnqueueTime, FetchData, Isolation, Offset};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};
use uuid::Uuid;

use super::errors::{BrokerError, ok};
use super::versions::BY_ID;
use super::view::Target;

/// The request for one partition.
#[derive(Clone, Debug)]
pub(crate) struct FetchPartitionRequest {
    pub target: Target,
    pub from: Offset,
    pub bytes_max: usize,
}

/// The highest version for these partitions.
pub(crate) fn version_max(partitions: &[FetchPartitionRequest]) -> i16 {
    match partitions.iter().all(|one| one.target.by_id) {
        true => i16::MAX,
        false => BY_ID - 1,
    }
}

/// Partitions of one hub are adjacent in `partitions`.
pub(crate) fn request(
    version: i16,
    partitions: &[FetchPartitionRequest],
    isolation: Isolation,
    wait_ms: i32,
) -> FetchRequest {
    let by_hub = partitions.chunk_by(|a, b| a.target.id == b.target.id);
    let bytes_max = partitions.iter().map(|one| one.bytes_max).max();
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(bytes(bytes_max.unwrap_or(0)))
        .with_isolation_level(level(isolation))
        .with_session_epoch(-1)
        .with_topics(by_hub.map(|of_hub| fetch_topic(version, of_hub)).collect())
}

pub(crate) fn level(isolation: Isolation) -> i8 {
    match isolation {
        Isolation::Uncommitted => 0,
        Isolation::Committed => 1,
    }
}

fn fetch_topic(version: i16, partitions: &[FetchPartitionRequest]) -> FetchTopic {
    let partition = |one: &FetchPartitionRequest| {
        FetchPartition::default()
            .with_partition(one.target.topic_partition.partition as i32)
            .with_fetch_offset(one.from.0)
            .with_partition_max_bytes(bytes(one.bytes_max))
    };
    let requested =
        FetchTopic::default().with_partitions(partitions.iter().map(partition).collect());
    match partitions.first() {
        Some(first) if version >= BY_ID => {
            requested.with_topic_id(Uuid::from_bytes(first.target.id.0))
        }
        Some(first) => requested.with_topic(first.target.topic.clone()),
        None => requested,
    }
}

fn bytes(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The data of a partition of a response. Old versions leave the id nil, later ones the name empty.
pub(crate) struct FetchedPartition {
    pub topic_id: Uuid,
    pub topic: String,
    pub data: PartitionData,
}

/// The partitions of a response, in any order.
pub(crate) fn partitions(
    response: FetchResponse,
) -> Result<impl Iterator<Item = FetchedPartition>, BrokerError> {
    ok(response.error_code)?;
    let topics = response.responses.into_iter();
    Ok(topics.flat_map(|topic| {
        let partitions = topic.partitions.into_iter();
        partitions.map(move |data| FetchedPartition {
            topic_id: topic.topic_id,
            topic: topic.topic.to_string(),
            data,
        })
    }))
}

/// The batches of a partition. Corrupt data is the inner error.
pub(crate) fn fetch_data(
    data: PartitionData,
) -> Result<Result<FetchData, CorruptBatch>, BrokerError> {
    ok(data.error_code)?;
    let mut bounds = Bounds {
        start: Offset(data.log_start_offset.max(0)),
        stable: Offset(data.last_stable_offset),
        end: Offset(data.high_watermark),
        last_time: None,
        bytes: 0,
    };
    if bounds.stable.0 < 0 {
        bounds.stable = bounds.end;
    }
    let aborted = data.aborted_transactions.unwrap_or_default();
    let aborted = aborted.into_iter().map(|aborted| AbortedTransaction {
        producer_id: aborted.producer_id.0,
        first: Offset(aborted.first_offset),
    });
    let (piece, last) = match whole_batches(data.records.unwrap_or_default()) {
        Ok(whole) => whole,
        Err(broken) => return Ok(Err(broken)),
    };
    bounds.last_time = last
        .filter(|(next, _)| *next >= bounds.end)
        .map(|(_, time)| time);
    Ok(Ok(FetchData {
        pieces: Some(piece)
            .filter(|piece| !piece.is_empty())
            .into_iter()
            .collect(),
        bounds,
        aborted: aborted.collect(),
    }))
}

/// The whole batches, with end offset and time of the last. Brokers may truncate the last batch.
fn whole_batches(
    mut records: Bytes,
) -> Result<(Bytes, Option<(Offset, EnqueueTime)>), CorruptBatch> {
    let mut batches = Batches::new(&records);
    let mut last = None;
    let mut good = 0;
    loop {
        match batches.next() {
            Some(Ok(batch)) => {
                batch.check()?;
                good = batch.end();
                last = Some((batch.header.next_offset(), batch.enqueue_time()));
            }
            Some(Err(broken)) if !is_truncated(&records[broken.position..]) => return Err(broken),
            _ => break,
        }
    }
    records.truncate(good);
    Ok((records, last))
}

/// Whether this is only the beginning of a batch.
fn is_truncated(rest: &[u8]) -> bool {
    match highwater_log::batch::BatchHeader::read(rest) {
        Err(_) => true,
        Ok(header) => header.size().is_ok_and(|size| size > rest.len()) && header.magic() == 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord};

    fn batch(offset: i64) -> Bytes {
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: None,
            value: Some(b"value"),
            headers: &[],
        });
        let mut batch = builder.build(&BatchOptions::default()).unwrap();
        batch.stamp(Offset(offset), EnqueueTime(1_000 + offset));
        batch.to_bytes()
    }

    #[test]
    fn a_truncated_batch_is_left_out() {
        let two = [batch(3), batch(4)].concat();
        let one = two.len() / 2;
        for cut in 0..=two.len() {
            let (piece, last) = whole_batches(Bytes::copy_from_slice(&two[..cut])).unwrap();
            assert_eq!(piece.len(), cut / one * one, "{cut}");
            let ends = [
                None,
                Some((Offset(4), EnqueueTime(1_003))),
                Some((Offset(5), EnqueueTime(1_004))),
            ];
            assert_eq!(last, ends[cut / one], "{cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_detected_unless_it_looks_like_truncation() {
        let two = [batch(3), batch(4)].concat();
        for at in 0..two.len() {
            let mut flipped = two.clone();
            flipped[at] ^= 1;
            let Ok((piece, last)) = whole_batches(flipped.into()) else {
                continue;
            };
            // The checksum does not cover offset and epoch; a larger length looks like truncation.
            let in_batch = at % (two.len() / 2);
            assert!(in_batch < 16, "byte {at}: {} bytes, {last:?}", piece.len());
        }
    }
}
