//! What a producer sends to the log, and what the log finds on its disk.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use highwater_log::batch::{
    Batch, BatchBuilder, BatchError, BatchOptions, Batches, Decompressor, HEADER_LEN, NewRecord,
    Record, TimestampType, without_frames,
};
use highwater_log::producer_states::ProducerStates;
use highwater_log::{EnqueueTime, Offset};

const UNPACKED_MAX: usize = 1 << 17;

/// Any bytes are a batch or are refused. A batch that is taken can be stamped and found again, its records are as many
/// as it says or one of them is wrong, and put together anew they are the same.
pub(crate) fn batch(bytes: &[u8]) -> u64 {
    let _ = ProducerStates::restore(bytes);
    walked(bytes);
    let sealed = sealed(bytes);
    walked(&sealed);
    match Batch::parse(sealed.into()) {
        Err(error) => kind(&error),
        Ok((batch, _)) => taken(batch),
    }
}

/// With a length and a checksum that are right: else hardly any change would get past them.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= HEADER_LEN {
        let length = sealed.len() as u32 - 12;
        sealed[8..12].copy_from_slice(&length.to_be_bytes());
        let checksum = crc32c::crc32c(&sealed[21..]);
        sealed[17..21].copy_from_slice(&checksum.to_be_bytes());
    }
    sealed
}

/// However damaged, a walk ends, stays inside and loses no byte.
fn walked(bytes: &[u8]) {
    let mut walk = Batches::new(bytes);
    let mut end = 0;
    for stored in walk.by_ref().map_while(Result::ok) {
        assert_eq!(stored.position, end);
        end = stored.end();
        let _ = stored.check();
        let _ = stored.as_marker();
        if let Ok(records) = stored.records(&mut Decompressor::new(UNPACKED_MAX)) {
            records.for_each(drop);
        }
    }
    assert_eq!(walk.position(), end);
    assert!(end <= bytes.len() && walk.next().is_none());
}

fn taken(mut batch: Batch) -> u64 {
    batch.stamp(Offset(1 << 40), EnqueueTime(1_700_000_000_000));
    let bytes = batch.to_bytes();
    let mut walk = Batches::new(&bytes).following(Offset(1 << 40));
    let stored = walk.next().expect("one").expect("a whole one");
    stored.check().expect("the stamp left the checksum right");
    assert_eq!(stored.end(), bytes.len());
    created(batch.clone());

    match again(&batch) {
        Err(error) => kind(&error),
        Ok(copy) => {
            let records = facts(&batch);
            assert_eq!(records.len(), batch.header().count() as usize);
            assert_eq!(records, facts(&copy));
            hash((batch.header().attributes(), records.len().min(5)))
        }
    }
}

/// With its producer's timestamps it is found behind its enqueue time.
fn created(mut batch: Batch) {
    let time = EnqueueTime(1_700_000_000_000);
    batch.stamp_as(TimestampType::Create, Offset(1 << 40), time);
    let bytes = batch.stored_parts().concat();
    let mut walk = Batches::new(&bytes).following(Offset(1 << 40));
    let stored = walk.next().expect("one").expect("a whole one");
    stored.check().expect("the stamp left the checksum right");
    assert_eq!((stored.end(), stored.enqueue_time()), (bytes.len(), time));
    assert_eq!(without_frames(&bytes.into()).concat(), batch.to_bytes());
}

/// What is in each record of a batch that has been read before.
fn facts(batch: &Batch) -> Vec<u64> {
    let mut unpacker = Decompressor::new(UNPACKED_MAX);
    let records = batch
        .records(&mut unpacker)
        .expect("it was unpacked before");
    let fact = |record: Result<Record<'_>, BatchError>| {
        let record = record.expect("it was read before");
        hash((record.key, record.value, record.headers.collect::<Vec<_>>()))
    };
    records.map(fact).collect()
}

/// The same records in a batch of our own making.
fn again(batch: &Batch) -> Result<Batch, BatchError> {
    let mut builder = BatchBuilder::new();
    let mut unpacker = Decompressor::new(UNPACKED_MAX);
    for record in batch.records(&mut unpacker)? {
        let record = record?;
        let headers: Vec<_> = record.headers.collect();
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (&name[..], *value))
            .collect();
        builder.push(&NewRecord {
            key: record.key,
            value: record.value,
            headers: &headers,
        });
    }
    builder.build(&BatchOptions::default())
}

fn kind(error: &BatchError) -> u64 {
    match error {
        BatchError::Record { reason, .. } => hash(reason),
        BatchError::Compression { codec, reason } => hash((codec, reason.len())),
        other => hash(std::mem::discriminant(other)),
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
