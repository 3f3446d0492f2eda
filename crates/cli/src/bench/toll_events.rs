//! Generates toll-booth events for benchmarks: any number, the same bytes for the same seed.
//!
//! They have the shape of the published workloads: eight fields and about 150 bytes an event, 1,000 events per second
//! of event time at 100 booths, one in twenty up to two seconds out of order, amounts that are multiples of a quarter
//! so that sums are exact in any order.

use highwater_env::random::Random;
use highwater_time::{Instant, TICKS_PER_MILLI};
use std::io::Write;

const BOOTHS: u64 = 100;
const STATES: [&str; 8] = ["NY", "NJ", "PA", "CT", "MA", "OR", "WA", "CA"];
const MAKES: [&str; 8] = [
    "Toyota", "Honda", "Ford", "Volvo", "Tesla", "BMW", "Mack", "Kenworth",
];

pub(super) struct TollEvents {
    random: Random,
    plates: u64,
    next: u64,
    start: Instant,
}

impl TollEvents {
    pub(super) fn new(seed: u64, plates: u64) -> TollEvents {
        let start = Instant::parse_iso(b"2026-01-01T00:00:00Z").unwrap_or(Instant::from_ticks(0));
        TollEvents {
            random: Random::seeded(seed),
            plates: plates.max(1),
            next: 0,
            start,
        }
    }

    /// Appends the next event to `out` as a line.
    pub(super) fn write_next(&mut self, out: &mut Vec<u8>) {
        let late_ms = match self.random.below(20) {
            0 => self.random.below(2001),
            _ => 0,
        };
        let at_ms = self.next.saturating_sub(late_ms) as i64;
        self.next += 1;
        let at = Instant::from_ticks(self.start.ticks() + at_ms * TICKS_PER_MILLI);
        self.write_at(at, out);
    }

    /// Appends an event of this time to `out` as a line.
    pub(super) fn write_at(&mut self, at: Instant, out: &mut Vec<u8>) {
        let random = &mut self.random;
        let mut time = Vec::with_capacity(28);
        at.write_iso(&mut time);
        time.truncate(23); // to the millisecond
        let plate = random.below(self.plates);
        // The properties of a car follow from its plate.
        let mut car = Random::seeded(plate);
        let (state, make) = (car.below(8) as usize, car.below(8) as usize);
        let kind = 1 + car.below(3);
        let quarters = 4 + random.below(60);
        let toll = quarters as f64 / 4.0;
        let (booth, tag) = (
            1 + random.below(BOOTHS),
            100_000_000 + random.below(900_000_000),
        );
        let written = writeln!(
            out,
            "{{\"TollId\":{booth},\"EntryTime\":\"{}Z\",\"LicensePlate\":\"P{plate:07}\",\"State\":\"{}\",\
             \"Make\":\"{}\",\"VehicleType\":{kind},\"Toll\":{toll:?},\"Tag\":\"{tag}\"}}",
            String::from_utf8_lossy(&time),
            STATES[state],
            MAKES[make],
        );
        debug_assert!(written.is_ok(), "writing to memory succeeds");
    }
}
