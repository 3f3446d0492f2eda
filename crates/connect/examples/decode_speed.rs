//! How long one line takes to decode: `decode_speed [FILE]`, or lines made up in the shape of the
//! toll workload. `ONLY="3 fields"` in the environment leaves the other measurements out, for a
//! profiler.
//!
//! One thread, blocks of 1 MiB as the file source cuts them, best of several rounds (the machine
//! may be shared).
#![allow(
    clippy::disallowed_methods,
    reason = "measuring is this example's purpose"
)]

use std::time::Instant;

use highwater_connect::json::{Batch, Decoder, Field, JsonWriter};
use highwater_engine::Chunk;
use highwater_query::plan::Name;

const LINES: usize = 20_000;
const ROUNDS: usize = 300;
const BLOCK_BYTES: usize = 1 << 20;

fn main() {
    let data = match std::env::args().nth(1) {
        Some(path) => std::fs::read(path).expect("the file can be read"),
        None => toll_lines(LINES),
    };
    let lines = memchr::memchr_iter(b'\n', &data).count();
    println!(
        "{lines} lines of {} bytes on average",
        data.len() / lines.max(1)
    );
    let text = |name: &str| Field::Path(vec![name.into()]);
    let time = || Field::Time(vec!["EntryTime".into()]);
    let all = ["LicensePlate", "State", "Make", "VehicleType", "Tag"];
    let three = || vec![text("TollId"), time(), text("Toll")];
    measure("0 fields", &data, lines, Vec::new);
    measure("3 fields", &data, lines, three);
    measure("3 as text", &data, lines, || {
        vec![text("TollId"), text("EntryTime"), text("Toll")]
    });
    measure("8 fields", &data, lines, || {
        three().into_iter().chain(all.map(text)).collect()
    });
    measure("whole", &data, lines, || vec![Field::Whole]);
    measure_utf8(&data, lines);
    measure_write(
        &data,
        lines,
        three().into_iter().chain(all.map(text)).collect(),
    );
}

fn measure(what: &str, data: &[u8], lines: usize, fields: impl Fn() -> Vec<Field>) {
    if left_out(what) {
        return;
    }
    let mut best = f64::INFINITY;
    let mut rows = 0;
    for _ in 0..ROUNDS {
        let fields = fields();
        let mut batch = Batch::new(fields.len());
        let mut decoder = Decoder::new(fields);
        let start = Instant::now();
        rows = 0;
        for block in blocks(data) {
            decoder.decode(block, 1, &mut batch);
            let decoded = std::hint::black_box(batch.finish());
            assert!(decoded.bad.is_empty(), "{:?}", decoded.bad[0]);
            rows += decoded.rows;
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{what:>10}: {:6.1} ns a line, {rows} rows",
        best * 1e9 / lines as f64
    );
}

fn left_out(what: &str) -> bool {
    std::env::var("ONLY").is_ok_and(|only| only != what)
}

fn measure_utf8(data: &[u8], lines: usize) {
    if left_out("UTF-8") {
        return;
    }
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for block in blocks(data) {
            assert!(std::hint::black_box(std::str::from_utf8(block)).is_ok());
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{:>10}: {:6.1} ns a line",
        "UTF-8",
        best * 1e9 / lines as f64
    );
}

fn measure_write(data: &[u8], lines: usize, fields: Vec<Field>) {
    if left_out("write") {
        return;
    }
    let names = (0..fields.len())
        .map(|i| Name::Field(format!("Column{i}")))
        .collect();
    let (mut writer, mut out) = (JsonWriter::new(names), Vec::new());
    let mut batch = Batch::new(fields.len());
    let mut decoder = Decoder::new(fields);
    let chunks: Vec<Chunk> = blocks(data)
        .map(|block| {
            decoder.decode(block, 1, &mut batch);
            let decoded = batch.finish();
            Chunk::new(vec![0; decoded.rows].into(), decoded.columns)
        })
        .collect();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for chunk in &chunks {
            out.clear();
            writer.write(chunk, &mut out);
            std::hint::black_box(&out);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{:>10}: {:6.1} ns a line, 8 fields",
        "write",
        best * 1e9 / lines as f64
    );
}

fn blocks(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let window = &rest[..rest.len().min(BLOCK_BYTES)];
        let end = memchr::memrchr(b'\n', window).map_or(rest.len(), |at| at + 1);
        let (block, after) = rest.split_at(end);
        rest = after;
        (!block.is_empty()).then_some(block)
    })
}

fn toll_lines(count: usize) -> Vec<u8> {
    let makes = [
        "Toyota",
        "Honda",
        "Ford",
        "Chevy",
        "Kenworth",
        "Peterbilt",
        "Volvo",
        "Tesla",
    ];
    let states = ["NY", "NJ", "PA", "CT", "MA", "OR", "WA", "CA"];
    let mut random = highwater_env::random::Random::seeded(1);
    let mut out = Vec::new();
    for i in 0..count as u64 {
        let mut below = |limit| random.below(limit);
        let late = if below(20) == 0 { below(2000) } else { 0 };
        let ms = (i + 10_000).saturating_sub(late);
        let line = format!(
            "{{\"TollId\":{},\"EntryTime\":\"2026-01-01T{:02}:{:02}:{:02}.{:03}Z\",\
             \"LicensePlate\":\"BVM {:04}\",\"State\":\"{}\",\"Make\":\"{}\",\
             \"VehicleType\":{},\"Toll\":{:?},\"Tag\":\"{:09}\"}}\n",
            1 + below(100),
            ms / 3_600_000,
            ms / 60_000 % 60,
            ms / 1000 % 60,
            ms % 1000,
            below(1000),
            states[below(8) as usize],
            makes[below(8) as usize],
            1 + below(3),
            below(80) as f64 * 0.25,
            below(1_000_000_000),
        );
        out.extend_from_slice(line.as_bytes());
    }
    out
}
