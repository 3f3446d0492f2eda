//! Measures appending a batch and reading its records.
//!
//! `cargo run --release -p highwater-log --example batch_speed`
//!
//! The baseline of appending is one pass of CRC-32C over the same bytes.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, Codec, Decompressor, NewRecord};
use highwater_log::{EnqueueTime, Offset};

const VALUE: &[u8] =
    br#"{"license":"KH 4711","booth":17,"at":"2026-03-02T08:15:00.123Z","toll":4.5}"#;

fn main() {
    println!("{:>32} {:>12} {:>10} {:>8}", "", "each", "rate", "of crc");
    for records in [1, 10, 100, 1_000, 10_000] {
        take_in(records);
    }
    build(1_000);
    for codec in Codec::ALL {
        read(1_000, codec);
    }
}

fn batch(records: usize, codec: Codec) -> Batch {
    let mut builder = BatchBuilder::new();
    fill(&mut builder, records);
    let seal = BatchOptions {
        codec,
        ..BatchOptions::default()
    };
    builder.build(&seal).expect("there are records")
}

fn fill(builder: &mut BatchBuilder, records: usize) {
    for i in 0..records {
        let key = (i as u64).to_be_bytes();
        builder.push(&NewRecord {
            key: Some(&key),
            value: Some(VALUE),
            headers: &[],
        });
    }
}

fn take_in(records: usize) {
    let bytes = batch(records, Codec::None).to_bytes();
    let times = (200_000_000 / bytes.len()).min(300_000);
    let plain = best(times, || black_box(crc32c::crc32c(black_box(&bytes[21..]))));
    let taken = best(times, || {
        let (mut batch, _) = Batch::parse(black_box(Bytes::clone(&bytes))).expect("it is whole");
        batch.stamp(Offset(12_345), EnqueueTime(1_700_000_000_000));
        black_box(batch.header().crc())
    });
    let again = best(times, || {
        let (batch, _) = Batch::parse(black_box(Bytes::clone(&bytes))).expect("it is whole");
        let crc = crc32c::crc32c(&batch.header().as_bytes()[21..]);
        black_box(crc32c::crc32c_append(crc, batch.payload()))
    });
    let row = |what: &str, each: f64| {
        let name = format!("{what}, {} bytes", bytes.len());
        let rate = bytes.len() as f64 / each / 1e9;
        println!(
            "{name:>32} {:>9.0} ns {rate:>5.1} GB/s {:>7.2}",
            each * 1e9,
            each / plain
        );
    };
    row("crc alone", plain);
    row("parse and stamp", taken);
    row("parse and crc again", again);
}

fn build(records: usize) {
    let mut builder = BatchBuilder::new();
    let each = best(2_000, || {
        fill(&mut builder, records);
        builder
            .build(&BatchOptions::default())
            .expect("there are records")
    });
    per_record("build", each, records);
}

fn read(records: usize, codec: Codec) {
    let batch = batch(records, codec);
    let mut decompressor = Decompressor::new(1 << 24);
    let each = best(1_000, || {
        let records = batch
            .records(&mut decompressor)
            .expect("it can be unpacked");
        records.fold(0, |sum, record| {
            let record = record.expect("it is whole");
            sum + record.value.map_or(0, <[u8]>::len)
        })
    });
    per_record(&format!("read, {codec:?}"), each, records);
}

fn per_record(name: &str, each: f64, records: usize) {
    let (each, rate) = (each / records as f64, records as f64 / each / 1e6);
    println!("{name:>32} {:>9.1} ns {rate:>4.0} M/s a record", each * 1e9);
}

/// Seconds for one iteration of `times`, the best of five rounds.
fn best<T>(times: usize, mut work: impl FnMut() -> T) -> f64 {
    let mut round = || {
        let watch = Instant::now();
        for _ in 0..times {
            black_box(work());
        }
        watch.elapsed().as_secs_f64() / times as f64
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}
