//! How many events a second one core puts into order.
//!
//! `cargo run --release -p highwater-time --example ordering_speed`
//!
//! 20 million events, pushed and released in batches of 8,192, a thousand to a second of event
//! time, with 5 s of tolerance. The input is the same on every run.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::Instant as Stopwatch;

use highwater_time::*;

const EVENTS: usize = 20_000_000;
const BATCH: usize = 8_192;

fn main() {
    let orderly = stream(0, 0);
    let disorderly = stream(5, 2_000);
    let shuffled = stream(100, 4_000);
    for (name, times) in [
        ("in order", &orderly),
        ("5% up to 2 s back", &disorderly),
        ("all up to 4 s back", &shuffled),
    ] {
        for arrivals in [Arrivals::Unknown, Arrivals::Each(&orderly)] {
            let kind = if matches!(arrivals, Arrivals::Unknown) {
                "unknown"
            } else {
                "known"
            };
            report(&format!("{name}, arrivals {kind}"), EVENTS, || {
                order(times, arrivals)
            });
        }
    }
    report("in order, over 1,000 keys", EVENTS, || {
        order_by_key(&orderly, &orderly)
    });
    for (name, length) in [("seconds", 19), ("milliseconds", 23), ("ticks", 27)] {
        let texts: Vec<_> = orderly[..1_000]
            .iter()
            .map(|time| iso(time, length))
            .collect();
        report(&format!("ISO texts read, to {name}"), EVENTS, || {
            read(&texts)
        });
    }
    report("ISO texts written", EVENTS, || write(&orderly));
}

fn report(name: &str, events: usize, work: impl Fn()) {
    let best = (0..3)
        .map(|_| {
            let watch = Stopwatch::now();
            work();
            watch.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    let (rate, each) = (events as f64 / best / 1e6, best / events as f64 * 1e9);
    println!("{name:<40} {rate:>8.1} million/s {each:>8.2} ns each");
}

fn order(times: &[Instant], arrivals: Arrivals<'_>) {
    let policy = TimePolicy {
        late_arrival: Duration::from_secs(10),
        out_of_order: Duration::from_secs(5),
        ..TimePolicy::default()
    };
    let mut timeline = Timeline::new(policy, TimeDomain::EventTime);
    let mut released = ReleasedEvents::default();
    let mut total = 0;
    for start in (0..times.len()).step_by(BATCH) {
        let range = start..times.len().min(start + BATCH);
        let arrivals = match arrivals {
            Arrivals::Each(arrivals) => Arrivals::Each(&arrivals[range.clone()]),
            other => other,
        };
        timeline.push(
            EventBatch {
                first_row: start as u64,
                times: &times[range],
                arrivals,
            },
            &mut (),
        );
        timeline.release(&mut released);
        total += released.len();
        black_box(&released);
        released.clear();
    }
    timeline.end();
    timeline.release(&mut released);
    assert_eq!(total + released.len(), times.len());
    assert_eq!(timeline.counts().out_of_order(), 0);
}

fn order_by_key(times: &[Instant], arrivals: &[Instant]) {
    let policy = TimePolicy {
        out_of_order: Duration::from_secs(1),
        ..TimePolicy::default()
    };
    let mut substreams = Substreams::new(policy, Duration::from_secs(60));
    let mut out = ReleasedLaneEvents::default();
    let offsets: Vec<u32> = (0..=BATCH as u32).map(|i| i * 8).collect();
    for start in (0..times.len()).step_by(BATCH) {
        let range = start..times.len().min(start + BATCH);
        let keys: Vec<u8> = range
            .clone()
            .flat_map(|i| (i as u64 % 1_000).to_le_bytes())
            .collect();
        let keys = EventKeys {
            offsets: &offsets[..=range.len()],
            bytes: &keys,
        };
        let arrivals = Arrivals::Each(&arrivals[range.clone()]);
        let events = EventBatch {
            first_row: start as u64,
            times: &times[range],
            arrivals,
        };
        substreams.push(events, &keys, &mut out, &mut ());
        black_box(&out);
        out.clear();
    }
}

/// Events a millisecond apart; `percent` of them lie up to `back_ms` before their position.
fn stream(percent: u64, back_ms: u64) -> Vec<Instant> {
    let start = Instant::from_unix_millis(1_767_225_600_000);
    let mut random = Random(1);
    (0..EVENTS)
        .map(|i| {
            let strays = random.below(100) < percent;
            let back = if strays {
                random.below(back_ms) as i64
            } else {
                0
            };
            start + Duration::from_millis(i as i64 - back)
        })
        .collect()
}

/// A time as text, cut to `length` bytes before its `Z`.
fn iso(time: &Instant, length: usize) -> Vec<u8> {
    let text = time.to_string();
    [&text.as_bytes()[..length], b"Z"].concat()
}

fn read(texts: &[Vec<u8>]) {
    for text in texts.iter().cycle().take(EVENTS) {
        black_box(Instant::parse_iso(black_box(text)));
    }
}

fn write(times: &[Instant]) {
    let mut text = Vec::new();
    for time in times {
        text.clear();
        time.write_iso(&mut text);
        black_box(&text);
    }
}

/// Marsaglia's xorshift: enough disorder, and the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
