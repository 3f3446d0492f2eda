use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Producer, TransactionMarker};

/// A record with owned fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

fn text(text: &str) -> Owned {
    Owned {
        key: None,
        value: Some(text.into()),
        headers: Vec::new(),
    }
}

fn push(builder: &mut BatchBuilder, record: &Owned) -> i32 {
    let headers = record.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (&name[..], value.as_deref()))
        .collect();
    builder.push(&NewRecord {
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
    })
}

pub(super) fn build(records: &[Owned], seal: &BatchOptions) -> Batch {
    let mut builder = BatchBuilder::new();
    for record in records {
        push(&mut builder, record);
    }
    builder.build(seal).unwrap()
}

fn compressed_with(codec: Codec) -> BatchOptions {
    BatchOptions {
        codec,
        ..BatchOptions::default()
    }
}

fn read(batch: &Batch) -> Result<Vec<Owned>, BatchError> {
    let mut decompressor = Decompressor::new(1 << 20);
    let records = batch.records(&mut decompressor)?;
    records.map(|record| record.map(owned)).collect()
}

fn owned(record: Record<'_>) -> Owned {
    let headers = record.headers;
    Owned {
        key: record.key.map(Into::into),
        value: record.value.map(Into::into),
        headers: headers
            .map(|(name, value)| (name.into_owned(), value.map(Into::into)))
            .collect(),
    }
}

fn any_record() -> impl Strategy<Value = Owned> {
    let bytes = || proptest::option::of(vec(any::<u8>(), 0..300));
    let headers = vec(("[a-zäπ]{0,5}", bytes()), 0..4);
    (bytes(), bytes(), headers).prop_map(|(key, value, headers)| Owned {
        key,
        value,
        headers,
    })
}

fn any_codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(&Codec::ALL[..])
}

proptest! {
    #[test]
    fn reading_undoes_building(records in vec(any_record(), 1..40), codec in any_codec()) {
        let batch = build(&records, &compressed_with(codec));
        prop_assert_eq!(batch.header().codec(), Ok(codec));
        let (parsed, rest) = Batch::parse(batch.to_bytes()).unwrap();
        prop_assert!(rest.is_empty());
        prop_assert_eq!(read(&parsed).unwrap(), records);
    }

    #[test]
    fn a_stamp_leaves_a_right_checksum(
        records in vec(any_record(), 1..40),
        codec in any_codec(),
        offset in 0..i64::MAX / 2,
        time in 0..i64::MAX / 2,
    ) {
        let mut batch = build(&records, &compressed_with(codec));
        batch.stamp(Offset(offset), EnqueueTime(time));
        let bytes = batch.to_bytes();
        let stored = Batches::new(&bytes).next().unwrap().unwrap();
        prop_assert_eq!(stored.check(), Ok(()));
        prop_assert_eq!(stored.header.timestamp_type(), TimestampType::LogAppend);
        let mut decompressor = Decompressor::new(1 << 20);
        for (i, record) in stored.records(&mut decompressor).unwrap().enumerate() {
            let record = record.unwrap();
            prop_assert_eq!(record.offset, Offset(offset + i as i64));
            prop_assert_eq!((record.timestamp, record.created), (time, time));
        }
    }

    #[test]
    fn a_number_and_a_date_leave_a_right_checksum_and_the_records_alone(
        records in vec(any_record(), 1..40),
        codec in any_codec(),
        id in 0..i64::MAX,
        epoch in 0..i16::MAX,
        sequence in 0..i32::MAX,
        time in 0..i64::MAX / 2,
    ) {
        let mut batch = build(&records, &compressed_with(codec));
        let producer = Producer { id, epoch };
        for sequence in [7, sequence] {
            batch.assign_sequence(producer, sequence);
        }
        for time in [time, 7] {
            // Only the first call sets it.
            batch.default_timestamp(time);
        }
        let (parsed, _) = Batch::parse(batch.to_bytes()).unwrap();
        prop_assert_eq!(parsed.header().producer(), Some(producer));
        prop_assert_eq!(parsed.header().base_sequence(), sequence);
        let header = parsed.header();
        prop_assert_eq!((header.base_timestamp(), header.max_timestamp()), (time, time));
        prop_assert_eq!(read(&parsed).unwrap(), records);
    }

    // proves L3
    #[test]
    fn any_flipped_bit_is_noticed(
        records in vec(any_record(), 1..5),
        codec in any_codec(),
        index in any::<proptest::sample::Index>(),
        bit in 0..8u8,
    ) {
        let mut batch = build(&records, &compressed_with(codec));
        batch.stamp(Offset(41), EnqueueTime(1_000));
        let mut bytes = batch.to_bytes().to_vec();
        let at = index.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let walked = Batches::new(&bytes).following(Offset(41)).next().unwrap();
        prop_assert!(walked.and_then(|stored| stored.check()).is_err(), "byte {}", at);
    }

    // proves L3
    #[test]
    fn a_truncated_batch_is_short(records in vec(any_record(), 1..5), index in any::<proptest::sample::Index>()) {
        let bytes = build(&records, &BatchOptions::default()).to_bytes();
        let cut = index.index(bytes.len());
        let parsed = Batch::parse(bytes.slice(..cut)).map(drop);
        prop_assert!(matches!(parsed, Err(BatchError::Short { .. })), "{:?}", parsed);
        let walked = Batches::new(&bytes[..cut]).next();
        let short = matches!(walked, Some(Err(CorruptBatch { position: 0, error: BatchError::Short { .. } })));
        prop_assert!(short || cut == 0);
    }

    /// Valid checksums around random bytes give errors, and never more records than the count.
    #[test]
    fn records_of_any_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), count in 1..20, codec in any_codec()) {
        let whole = build(&[text("x")], &BatchOptions::default());
        let mut header = *whole.header();
        header.set_kind(codec, false, false);
        header.set_count(count);
        header.set_last_offset_delta(count - 1);
        header.set_length((HEADER_LEN - LENGTH_END + bytes.len()) as i32);
        header.set_crc(header.crc_with(&bytes));
        let sent = [&header.as_bytes()[..], &bytes].concat();
        let (batch, _) = Batch::parse(sent.into()).unwrap();
        if let Ok(records) = read(&batch) {
            prop_assert_eq!(records.len(), count as usize);
        }
    }

    #[test]
    fn a_changed_record_never_panics(records in vec(any_record(), 1..5), changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4)) {
        let batch = build(&records, &BatchOptions::default());
        let mut bytes = batch.payload().to_vec();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let mut decompressor = Decompressor::new(1 << 20);
        let found = decompressor.decompress(batch.header(), &bytes).unwrap().count();
        prop_assert!(found <= records.len() + 1);
    }
}

/// A batch with one header field changed and a valid checksum.
fn changed(change: impl Fn(&mut BatchHeader)) -> Bytes {
    let batch = build(&[text("a"), text("b")], &BatchOptions::default());
    let mut header = *batch.header();
    change(&mut header);
    header.set_crc(header.crc_with(batch.payload()));
    [&header.as_bytes()[..], batch.payload()].concat().into()
}

#[test]
fn batches_that_producers_may_not_send_are_refused() {
    let refused = |change: fn(&mut BatchHeader)| Batch::parse(changed(change)).unwrap_err();
    let count = |count, last_offset_delta| BatchError::Count {
        count,
        last_offset_delta,
    };
    assert_eq!(refused(|h| h.set_magic(1)), BatchError::Magic(1));
    assert_eq!(refused(|h| h.set_attributes(5)), BatchError::Codec(5));
    assert_eq!(refused(|h| h.set_attributes(1 << 5)), BatchError::Control);
    assert_eq!(
        refused(|h| h.set_attributes(1 << 4)),
        BatchError::Unnumbered
    );
    assert_eq!(refused(|h| h.set_producer_id(7)), BatchError::Unnumbered);
    assert_eq!(refused(|h| h.set_count(1)), count(1, 1));
    assert_eq!(refused(|h| h.set_count(3)), count(3, 1));
    assert_eq!(refused(|h| h.set_last_offset_delta(-1)), count(2, -1));
    assert_eq!(refused(|h| h.set_length(48)), BatchError::Length(48));
    assert_eq!(refused(|h| h.set_length(-1)), BatchError::Length(-1));
    let nothing = |h: &mut BatchHeader| {
        h.set_count(0);
        h.set_last_offset_delta(-1);
    };
    assert_eq!(refused(nothing), count(0, -1));
    let wrapped = |h: &mut BatchHeader| {
        h.set_count(i32::MIN);
        h.set_last_offset_delta(i32::MAX);
    };
    assert_eq!(refused(wrapped), count(i32::MIN, i32::MAX));
}

#[test]
fn the_bytes_after_a_batch_are_returned() {
    let one = build(&[text("one")], &BatchOptions::default()).to_bytes();
    let two = build(&[text("two")], &BatchOptions::default()).to_bytes();
    let both = Bytes::from([&one[..], &two[..]].concat());
    let (first, rest) = Batch::parse(both).unwrap();
    assert_eq!(read(&first).unwrap(), [text("one")]);
    assert_eq!(rest, two);
}

#[test]
fn a_small_batch_that_holds_a_lot_is_refused() {
    let big = Owned {
        value: Some(vec![0; 1 << 20]),
        ..text("")
    };
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = build(std::slice::from_ref(&big), &compressed_with(codec));
        assert!(batch.size() < 100_000, "{codec:?}: {}", batch.size());
        let error = batch.records(&mut Decompressor::new(1 << 20)).unwrap_err();
        assert_eq!(error, BatchError::DecompressedTooLarge { max: 1 << 20 });
        assert!(
            batch
                .records(&mut Decompressor::new((1 << 20) + 100))
                .is_ok()
        );
    }
}

#[test]
fn raw_snappy_is_read_too() {
    let plain = build(&[text("as librdkafka packs it")], &BatchOptions::default());
    let compressed = snap::raw::Encoder::new()
        .compress_vec(plain.payload())
        .unwrap();
    let mut header = *plain.header();
    header.set_kind(Codec::Snappy, false, false);
    let mut decompressor = Decompressor::new(100);
    let mut records = decompressor.decompress(&header, &compressed).unwrap();
    assert_eq!(
        owned(records.next().unwrap().unwrap()),
        text("as librdkafka packs it")
    );
}

#[test]
fn a_walk_says_at_which_byte_it_ended() {
    let mut bytes = Vec::new();
    for (offset, value) in [(5, "a"), (6, "b"), (8, "c")] {
        let mut batch = build(&[text(value)], &BatchOptions::default());
        batch.stamp(Offset(offset), EnqueueTime(1));
        bytes.extend_from_slice(&batch.to_bytes());
    }
    let one = bytes.len() / 3;
    let positions = Batches::new(&bytes).map(|b| b.map(|b| (b.position, b.header.base_offset().0)));
    let positions: Result<Vec<_>, _> = positions.collect();
    assert_eq!(positions.unwrap(), [(0, 5), (one, 6), (2 * one, 8)]);

    let mut gapless = Batches::new(&bytes).following(Offset(5));
    assert_eq!(gapless.by_ref().filter(|b| b.is_ok()).count(), 2);
    assert_eq!(gapless.position(), 2 * one);
    let gap = Batches::new(&bytes)
        .following(Offset(5))
        .last()
        .unwrap()
        .unwrap_err();
    let (expected, found) = (Offset(7), Offset(8));
    assert_eq!(
        (gap.position, gap.error),
        (2 * one, BatchError::Offset { expected, found })
    );

    bytes.truncate(2 * one + 65);
    let torn = Batches::new(&bytes).last().unwrap().unwrap_err();
    assert_eq!(
        (torn.position, torn.error),
        (
            2 * one,
            BatchError::Short {
                have: 65,
                need: one
            }
        )
    );
}

#[test]
fn a_marker_says_how_the_transaction_ended() {
    let producer = Producer { id: 7, epoch: 3 };
    for marker in [TransactionMarker::Abort, TransactionMarker::Commit] {
        let mut batch = Batch::marker(producer, marker);
        batch.stamp(Offset(10), EnqueueTime(20));
        let bytes = batch.to_bytes();
        let stored = Batches::new(&bytes).next().unwrap().unwrap();
        stored.check().unwrap();
        assert_eq!(stored.as_marker(), Ok(Some(marker)));
        assert_eq!(stored.header.producer(), Some(producer));
        assert!(stored.header.is_control() && stored.header.is_transactional());
        assert_eq!(Batch::parse(bytes).unwrap_err(), BatchError::Control);
    }
    assert_eq!(
        build(&[text("a")], &BatchOptions::default()).as_marker(),
        Ok(None)
    );
}

#[test]
fn numbers_of_a_producer_begin_again_after_the_last() {
    let seal = BatchOptions {
        producer: Some((Producer { id: 1, epoch: 0 }, i32::MAX)),
        ..BatchOptions::default()
    };
    let batch = build(&[text("a"), text("b")], &seal);
    assert_eq!(batch.header().base_sequence(), i32::MAX);
    assert_eq!(batch.header().last_sequence(), 0);
}

#[test]
fn a_builder_without_records_makes_no_batch_and_can_go_on() {
    let mut builder = BatchBuilder::new();
    assert!(builder.build(&BatchOptions::default()).is_err());
    assert_eq!(
        [
            push(&mut builder, &text("a")),
            push(&mut builder, &text("b"))
        ],
        [0, 1]
    );
    assert_eq!(builder.count(), 2);
    let size = builder.size();
    let first = builder.build(&BatchOptions::default()).unwrap();
    assert_eq!(first.size(), size);
    assert_eq!(push(&mut builder, &text("c")), 0);
    let second = builder.build(&BatchOptions::default()).unwrap();
    assert_eq!(read(&first).unwrap(), [text("a"), text("b")]);
    assert_eq!(read(&second).unwrap(), [text("c")]);
}
