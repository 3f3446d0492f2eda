//! Encodes and decodes the same records with another implementation of the format, both ways.

use bytes::{Bytes, BytesMut};
use highwater_log::batch::{
    Batch, BatchBuilder, BatchOptions, Batches, Codec, Decompressor, NewRecord, RecordSummary,
    RetainResult, TimestampType as Timestamps, without_frames,
};
use highwater_log::{EnqueueTime, Offset, Producer};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

const TIME: i64 = 1_700_000_000_000;

fn any_bytes() -> impl Strategy<Value = Option<Bytes>> {
    option::of(vec(any::<u8>(), 0..200).prop_map(Bytes::from))
}

prop_compose! {
    fn any_record()(
        key in any_bytes(),
        value in any_bytes(),
        headers in btree_map("[a-zé]{1,6}", any_bytes(), 0..4),
        time in 0..100_000_000i64,
    ) -> Record {
        let headers = headers.into_iter().map(|(name, value)| (StrBytes::from_string(name), value));
        Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: 77,
            producer_epoch: 3,
            timestamp_type: TimestampType::Creation,
            offset: 0,
            sequence: 0,
            timestamp: TIME + time,
            key,
            value,
            headers: headers.collect(),
        }
    }
}

fn any_records(same_time: bool) -> impl Strategy<Value = Vec<Record>> {
    (vec(any_record(), 1..30), any::<bool>()).prop_map(move |(mut records, transactional)| {
        for (i, record) in records.iter_mut().enumerate() {
            record.offset = i as i64;
            record.sequence = 100 + i as i32;
            record.transactional = transactional;
            if same_time {
                record.timestamp = TIME;
            }
        }
        records
    })
}

fn theirs(records: &[Record]) -> Bytes {
    let mut bytes = BytesMut::new();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    RecordBatchEncoder::encode(&mut bytes, records, &options).unwrap();
    bytes.freeze()
}

fn ours(records: &[Record]) -> Batch {
    let mut builder = BatchBuilder::new();
    for record in records {
        let headers = record.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (&name[..], value.as_deref()))
            .collect();
        builder.push(&NewRecord {
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        });
    }
    let producer = Producer { id: 77, epoch: 3 };
    let seal = BatchOptions {
        timestamp: Some(TIME),
        producer: Some((producer, 100)),
        transactional: records[0].transactional,
        ..BatchOptions::default()
    };
    builder.build(&seal).unwrap()
}

proptest! {
    #[test]
    fn we_write_the_same_bytes(records in any_records(true)) {
        prop_assert_eq!(ours(&records).to_bytes(), theirs(&records));
    }

    #[test]
    fn batches_of_other_clients_are_read(records in any_records(false)) {
        let (batch, _) = Batch::parse(theirs(&records)).unwrap();
        let mut decompressor = Decompressor::new(1 << 20);
        let read: Vec<_> = batch.records(&mut decompressor).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), records.len());
        for (read, written) in read.iter().zip(&records) {
            prop_assert_eq!(read.offset.0, written.offset);
            prop_assert_eq!(read.timestamp, written.timestamp);
            prop_assert_eq!(read.key, written.key.as_deref());
            prop_assert_eq!(read.value, written.value.as_deref());
            let headers = written.headers.iter().map(|(name, value)| (&name[..], value.as_deref()));
            let same = read.headers.eq(headers.map(|(name, value)| (name.into(), value)));
            prop_assert!(same, "{:?}", written.headers);
        }
    }

    // proves K4
    #[test]
    fn other_clients_read_their_own_timestamps(
        records in any_records(false),
        offset in 0..1i64 << 40,
        codec in prop::sample::select(Codec::ALL.to_vec()),
        wrong_max in any::<bool>(),
    ) {
        let (mut batch, _) = Batch::parse(theirs(&records)).unwrap();
        let times = || records.iter().map(|record| record.timestamp);
        if wrong_max {
            batch.set_max_timestamp(5);
        }
        let packed = batch.recompressed(codec, &mut Decompressor::new(1 << 20)).unwrap();
        let summary = packed.check_records().unwrap();
        prop_assert_eq!(summary, RecordSummary {
            timestamp_min: times().min(),
            timestamp_max: times().max().unwrap(),
            null_key: records.iter().any(|record| record.key.is_none()),
            bytes: batch.payload().len(),
        });
        batch.set_max_timestamp(summary.timestamp_max);
        batch.stamp_as(Timestamps::Create, Offset(offset), EnqueueTime(TIME + 5));
        let stored = Bytes::from(batch.stored_parts().concat());
        let mut wire = BytesMut::from(&without_frames(&stored).concat()[..]).freeze();
        let read = RecordBatchDecoder::decode(&mut wire).unwrap().records;
        prop_assert_eq!(read.len(), records.len());
        for (i, (read, written)) in read.iter().zip(&records).enumerate() {
            prop_assert_eq!(read.offset, offset + i as i64);
            prop_assert_eq!(read.timestamp_type, TimestampType::Creation);
            prop_assert_eq!(read.timestamp, written.timestamp);
        }
    }

    // proves K4
    #[test]
    fn a_timestamp_finds_the_first_record_that_has_it_or_a_later_one(
        records in any_records(false),
        wanted in -5..100_000_100i64,
        start in 0..35i64,
        kept in vec(any::<bool>(), 30),
    ) {
        let (mut batch, _) = Batch::parse(theirs(&records)).unwrap();
        let max = batch.check_records().unwrap().timestamp_max;
        batch.set_max_timestamp(max);
        batch.stamp_as(Timestamps::Create, Offset(0), EnqueueTime(TIME + 5));
        let bytes = batch.stored_parts().concat();
        let stored = Batches::new(&bytes).next().unwrap().unwrap();
        let mut decompressor = Decompressor::new(1 << 20);
        let keep = |offset: i64| kept[offset as usize];
        let retained = stored.retain(&mut decompressor, |record| keep(record.offset.0)).unwrap();
        let (bytes, keeps_all) = match &retained {
            RetainResult::All => (bytes.clone(), true),
            RetainResult::Some(shorter) => (shorter.stored_parts().concat(), false),
            RetainResult::None => return Ok(()),
        };
        let stored = Batches::new(&bytes).next().unwrap().unwrap();
        stored.check().unwrap();
        prop_assert_eq!(stored.enqueue_time(), EnqueueTime(TIME + 5));
        let left: Vec<_> = (0..).zip(&records)
            .filter(|(offset, _)| keeps_all || keep(*offset))
            .map(|(offset, record)| (Offset(offset), record.timestamp))
            .collect();
        let from_start = || left.iter().copied().filter(|(offset, _)| offset.0 >= start);
        prop_assert_eq!(stored.header.consumer_timestamp(), left.iter().map(|(_, time)| *time).max());
        let found = stored.find_timestamp(TIME + wanted, Offset(start), &mut decompressor);
        let expected = from_start().find(|(_, time)| *time >= TIME + wanted);
        prop_assert_eq!(found.unwrap(), expected);
        let max = stored.max_timestamp_from(Offset(start), &mut decompressor).unwrap();
        prop_assert_eq!(max, from_start().map(|(_, time)| time).max());
    }

    #[test]
    fn other_clients_read_stamped_batches(records in any_records(false), offset in 0..1i64 << 40) {
        let mut batch = ours(&records);
        batch.stamp(Offset(offset), EnqueueTime(TIME + 5));
        let read = RecordBatchDecoder::decode(&mut batch.to_bytes()).unwrap().records;
        prop_assert_eq!(read.len(), records.len());
        for (i, (read, written)) in read.iter().zip(&records).enumerate() {
            prop_assert_eq!(read.offset, offset + i as i64);
            prop_assert_eq!(read.timestamp_type, TimestampType::LogAppend);
            prop_assert_eq!(read.partition_leader_epoch, 0);
            prop_assert_eq!((read.producer_id, read.producer_epoch), (77, 3));
            prop_assert_eq!(read.transactional, written.transactional);
            prop_assert_eq!((&read.key, &read.value), (&written.key, &written.value));
            prop_assert_eq!(&read.headers, &written.headers);
        }
    }
}
