//! Batches written by other clients. See `batches/README.md`.

use bytes::Bytes;
use highwater_log::batch::{Batch, Batches, Codec, Decompressor, HEADER_LEN, TimestampType};
use highwater_log::{EnqueueTime, Offset, Producer, TransactionMarker};

const PRODUCER: Producer = Producer { id: 4242, epoch: 7 };
const BASE_TIME: i64 = 1_700_000_000_000;

macro_rules! batches {
    ($($client:literal)*) => {
        [$(
            ($client, Codec::None, &include_bytes!(concat!("../batches/", $client, "-none.batch"))[..]),
            ($client, Codec::Gzip, &include_bytes!(concat!("../batches/", $client, "-gzip.batch"))[..]),
            ($client, Codec::Snappy, &include_bytes!(concat!("../batches/", $client, "-snappy.batch"))[..]),
            ($client, Codec::Lz4, &include_bytes!(concat!("../batches/", $client, "-lz4.batch"))[..]),
            ($client, Codec::Zstd, &include_bytes!(concat!("../batches/", $client, "-zstd.batch"))[..]),
        )*]
    };
}

// proves L6
#[test]
fn batches_of_every_codec_are_read_record_by_record() {
    for (client, codec, bytes) in batches!("java" "python") {
        let (batch, rest) = Batch::parse(Bytes::from_static(bytes)).unwrap();
        let header = batch.header();
        assert!(rest.is_empty());
        assert_eq!(header.codec(), Ok(codec), "{client}");
        assert_eq!(header.timestamp_type(), TimestampType::Create);
        assert_eq!(header.producer(), Some(PRODUCER));
        assert_eq!(header.base_sequence(), 2_147_483_640);
        assert_eq!(header.last_sequence(), 11);
        assert_eq!((header.count(), header.last_offset_delta()), (20, 19));
        assert_eq!(header.base_timestamp(), BASE_TIME);
        assert_eq!(header.max_timestamp(), BASE_TIME + 190);
        assert!(header.is_transactional() && !header.is_control());

        let mut decompressor = Decompressor::new(100_000);
        let mut count = 0;
        for (i, record) in batch.records(&mut decompressor).unwrap().enumerate() {
            let record = record.unwrap();
            assert_eq!(record.offset, Offset(i as i64));
            assert_eq!(record.timestamp, BASE_TIME + 10 * i as i64);
            let key = (i % 5 != 4).then(|| format!("key-{i}"));
            assert_eq!(record.key, key.as_deref().map(str::as_bytes));
            let value = match (i, codec) {
                (3, Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd) => "x".repeat(70_000),
                _ => format!("value {i}"),
            };
            assert_eq!(record.value, (i % 7 != 6).then_some(value.as_bytes()));
            let headers: Vec<_> = record.headers.collect();
            match i % 3 {
                0 => {
                    let trace = [i as u8];
                    assert_eq!(
                        headers,
                        [("trace".into(), Some(&trace[..])), ("none".into(), None)]
                    );
                }
                _ => assert!(headers.is_empty()),
            }
            count += 1;
        }
        assert_eq!(count, 20);
    }
}

// proves L3
#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for (client, codec, bytes) in batches!("java" "python") {
        let (mut batch, _) = Batch::parse(Bytes::from_static(bytes)).unwrap();
        batch.stamp(Offset(1 << 33), EnqueueTime(BASE_TIME + 500));
        let mut bytes = batch.to_bytes().to_vec();
        let is_whole = |bytes: &[u8]| {
            let mut walk = Batches::new(bytes).following(Offset(1 << 33));
            let first = walk.next();
            first.is_some_and(|stored| stored.is_ok_and(|stored| stored.check().is_ok()))
        };
        assert!(is_whole(&bytes));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_whole(&bytes), "{client} {codec:?} bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..bytes.len() {
            assert!(!is_whole(&bytes[..cut]), "{client} {codec:?} cut at {cut}");
        }
    }
}

#[test]
fn markers_are_those_of_apache_kafka() {
    let written = [
        (
            TransactionMarker::Abort,
            &include_bytes!("../batches/java-abort.batch")[..],
        ),
        (
            TransactionMarker::Commit,
            &include_bytes!("../batches/java-commit.batch")[..],
        ),
    ];
    for (marker, bytes) in written {
        let java = Batches::new(bytes).next().unwrap().unwrap();
        java.check().unwrap();
        assert_eq!(java.as_marker(), Ok(Some(marker)));
        let mut ours = Batch::marker(PRODUCER, marker);
        ours.stamp(Offset(55), EnqueueTime(BASE_TIME + 123));
        let ours = ours.to_bytes();
        assert_eq!(ours[HEADER_LEN..], bytes[HEADER_LEN..]);
        // Equal except for the checksum and the timestamp type.
        let (checksum, attributes) = (17..21, 21..23);
        let differs = |at: &usize| ours[*at] != bytes[*at];
        let differ: Vec<usize> = (0..HEADER_LEN).filter(differs).collect();
        assert!(
            differ
                .iter()
                .all(|at| checksum.contains(at) || attributes.contains(at))
        );
        assert_eq!([ours[22], bytes[22]], [0b111000, 0b110000]);
    }
}
