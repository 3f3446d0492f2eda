//! Encodes and decodes the same records with another implementation of the format, both ways.

use bytes::{Bytes, BytesMut};
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, Decompressor, NewRecord};
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
