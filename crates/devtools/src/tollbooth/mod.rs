//! Generates the events of `highwater demo`: some minutes at four toll booths, with the usual time anomalies.
//!
//! Each booth's clock is off by a second or two, the network delays and reorders, a booth is offline and sends minutes
//! late, another's clock is wrong by more than the policy allows, one event is sent twice, and for a while no event
//! arrives. The anomalies occur at fixed positions as well as at random, so that a short demo shows each of them.
//!
//! The same count and seed give the same bytes, without a clock.

use std::io::Write;

use highwater_time::{Duration, Instant, TICKS_PER_MILLI};

/// The demo's job file, for a folder with [`QUERY`] and the events.
pub const JOB: &str = r#"name = "toll-booth"
query = "query.saql"

[time]
late_arrival = "1m"       # a booth may lose its line for a minute
out_of_order = "10s"      # and the network may shuffle what it delivers
early_arrival = "5m"      # a clock that runs further ahead is broken

[inputs.Entry]
path = "input/Entry.jsonl"
arrival = "ArrivalTime"
"#;

/// The demo's query.
pub const QUERY: &str = "\
-- Cars and takings at each booth in each minute, by the time at which the cars drove in.
SELECT
    TollId,
    System.Timestamp() AS WindowEnd,
    COUNT(*) AS Cars,
    SUM(Toll) AS Takings,
    AVG(Toll) AS AverageToll
FROM Entry TIMESTAMP BY EntryTime
GROUP BY TollId, TumblingWindow(minute, 1)
";

const BOOTHS: usize = 4;
/// The duration of the demo, gap included.
const DURATION_MS: u64 = 8 * 60_000;
const GAP_START_MS: u64 = 5 * 60_000;
const GAP_END_MS: u64 = GAP_START_MS + 45_000;
/// 2026-01-01T08:00:00Z.
const OPENING: Instant = match Instant::from_civil(2026, 1, 1) {
    Some(midnight) => Instant::from_ticks(midnight.ticks() + 8 * 3_600 * 1_000 * TICKS_PER_MILLI),
    None => panic!("the first of January exists"),
};

/// Appends this number of events to `out` as JSON lines, in arrival order.
pub fn generate(events: usize, seed: u64, out: &mut Vec<u8>) {
    for passage in passages(events, seed) {
        let arrived = OPENING + Duration::from_millis(passage.arrived_ms as i64);
        passage.write(OPENING, 1, Some(arrived), out);
        out.push(b'\n');
    }
}

/// This number of passages, in arrival order.
pub fn passages(events: usize, seed: u64) -> Vec<Passage> {
    let mut random = SplitMix(seed);
    let skews_ms: [i64; BOOTHS] = std::array::from_fn(|_| random.below(5_000) as i64 - 2_500);
    // The last event is a duplicate.
    let originals = events.saturating_sub(1).max(events.min(1));
    let mut passages: Vec<Passage> = (0..originals)
        .map(|i| Passage::new(i, originals, &skews_ms, &mut random))
        .collect();
    if originals < events {
        let copied = &passages[originals / 2];
        let resent_ms = outside_gap(copied.arrived_ms + 3_000);
        passages.push(Passage {
            arrived_ms: resent_ms,
            ..copied.clone()
        });
    }
    // A stable sort: simultaneous arrivals keep their order.
    passages.sort_by_key(|passage| passage.arrived_ms);
    passages
}

/// A car passes a booth, and the event arrives.
#[derive(Clone, Debug)]
pub struct Passage {
    booth: usize,
    /// Since the opening, by the booth's clock.
    entered_ms: i64,
    arrived_ms: u64,
    /// Seed of the car's properties.
    car: u64,
}

impl Passage {
    fn new(i: usize, of: usize, skews_ms: &[i64; BOOTHS], random: &mut SplitMix) -> Passage {
        let booth = random.below(BOOTHS as u64) as usize;
        let drove_in_ms = drove_in_ms(i, of, random);
        let anomaly = Anomaly::of(i, of, random);
        let arrived_ms = outside_gap(drove_in_ms + anomaly.delay_ms(random));
        let clock_error_ms = skews_ms[booth] + anomaly.clock_error_ms(random);
        Passage {
            booth,
            entered_ms: drove_in_ms as i64 + clock_error_ms,
            arrived_ms,
            car: random.next(),
        }
    }

    /// The index of the booth, from 0.
    pub fn booth(&self) -> usize {
        self.booth
    }

    /// The licence plate of the car.
    pub fn plate(&self) -> String {
        Car::new(self.car).plate
    }

    /// The arrival time since the opening, at this multiple of real speed.
    pub fn arrives_after(&self, speed: u32) -> std::time::Duration {
        std::time::Duration::from_millis(self.arrived_ms) / speed
    }

    /// Appends the event to `out` as JSON, with its arrival time if given.
    pub fn write(&self, opening: Instant, speed: u32, arrived: Option<Instant>, out: &mut Vec<u8>) {
        let car = Car::new(self.car);
        let entered =
            iso_millis(opening + Duration::from_millis(self.entered_ms / i64::from(speed)));
        let arrived = arrived.map(|arrived| format!(r#""ArrivalTime":"{}","#, iso_millis(arrived)));
        let arrived = arrived.unwrap_or_default();
        let tag = car
            .tag
            .map_or_else(|| "null".to_owned(), |tag| format!("\"{tag:09}\""));
        let Model {
            make,
            model,
            vehicle_type,
            toll,
        } = car.model;
        let Car { plate, state, .. } = &car;
        let toll = toll + self.booth as f64 * 0.5;
        write!(
            out,
            r#"{{"TollId":{},"EntryTime":"{entered}",{arrived}"LicensePlate":"{plate}","State":"{state}","Make":"{make}","Model":"{model}","VehicleType":{vehicle_type},"Toll":{toll:.1},"Tag":{tag}}}"#,
            self.booth + 1,
        )
        .expect("writing to memory succeeds");
    }
}

/// Cars enter evenly, with some jitter, and none during the gap.
fn drove_in_ms(i: usize, of: usize, random: &mut SplitMix) -> u64 {
    let busy_ms = DURATION_MS - (GAP_END_MS - GAP_START_MS);
    let slot_ms = busy_ms as f64 / of as f64;
    let at_ms = (slot_ms * i as f64) as u64 + random.below(slot_ms as u64 + 1);
    if at_ms < GAP_START_MS {
        at_ms
    } else {
        at_ms + GAP_END_MS - GAP_START_MS
    }
}

/// Events of the gap arrive after its end.
fn outside_gap(arrival_ms: u64) -> u64 {
    if (GAP_START_MS..GAP_END_MS).contains(&arrival_ms) {
        GAP_END_MS + (arrival_ms - GAP_START_MS) / 50
    } else {
        arrival_ms
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Anomaly {
    None,
    /// Overtaken by later events, within the demo's tolerance.
    Shuffled,
    /// Overtaken by more than the tolerance.
    Overtaken,
    /// Sent after the booth was offline.
    Late,
    /// Stamped by a clock that runs far ahead.
    Early,
}

impl Anomaly {
    fn of(i: usize, of: usize, random: &mut SplitMix) -> Anomaly {
        let random_anomaly = match random.below(1_000) {
            0..4 => Anomaly::Early,
            // Not in the second half, or the demo would end minutes late.
            4..20 if i * 2 < of => Anomaly::Late,
            20..32 => Anomaly::Overtaken,
            32..110 => Anomaly::Shuffled,
            _ => Anomaly::None,
        };
        // At least one of each, at fixed positions.
        match i {
            _ if i == of / 4 => Anomaly::Late,
            _ if i == of / 3 => Anomaly::Early,
            _ if i == of * 2 / 5 => Anomaly::Overtaken,
            _ if i == of * 3 / 5 => Anomaly::Shuffled,
            // The duplicated event has no other anomaly.
            _ if i == of / 2 => Anomaly::None,
            _ => random_anomaly,
        }
    }

    fn delay_ms(self, random: &mut SplitMix) -> u64 {
        let (least, most) = match self {
            Anomaly::None | Anomaly::Early => (40, 900),
            Anomaly::Shuffled => (2_000, 7_000),
            Anomaly::Overtaken => (17_000, 40_000),
            Anomaly::Late => (75_000, 240_000),
        };
        least + random.below(most - least)
    }

    fn clock_error_ms(self, random: &mut SplitMix) -> i64 {
        if self == Anomaly::Early {
            6 * 60_000 + random.below(3 * 60_000) as i64
        } else {
            0
        }
    }
}

/// ISO form with milliseconds.
fn iso_millis(moment: Instant) -> String {
    let mut text = moment.to_string();
    text.truncate("2026-01-01T08:00:00.000".len());
    text + "Z"
}

struct Car {
    plate: String,
    state: &'static str,
    model: Model,
    tag: Option<u64>,
}

#[derive(Clone, Copy)]
struct Model {
    make: &'static str,
    model: &'static str,
    /// 1 for passengers, 2 for goods.
    vehicle_type: u8,
    /// At the cheapest booth.
    toll: f64,
}

const fn model(make: &'static str, model: &'static str, vehicle_type: u8, toll: f64) -> Model {
    Model {
        make,
        model,
        vehicle_type,
        toll,
    }
}

const MODELS: [Model; 9] = [
    model("Toyota", "Corolla", 1, 4.0),
    model("Toyota", "Camry", 1, 4.0),
    model("Honda", "Civic", 1, 4.0),
    model("Honda", "CRV", 1, 5.0),
    model("Ford", "Focus", 1, 4.0),
    model("Ford", "F150", 1, 5.5),
    model("Volvo", "V70", 1, 5.0),
    model("Volvo", "FH16", 2, 15.0),
    model("Peterbilt", "389", 2, 18.5),
];

const STATES: [&str; 6] = ["NY", "NJ", "CT", "PA", "MA", "VT"];

impl Car {
    fn new(seed: u64) -> Car {
        let mut random = SplitMix(seed);
        let mut letter = || (b'A' + random.below(26) as u8) as char;
        let letters: String = [letter(), letter(), letter()].into_iter().collect();
        Car {
            plate: format!("{letters} {:04}", random.below(10_000)),
            state: STATES[random.below(STATES.len() as u64) as usize],
            model: MODELS[random.below(MODELS.len() as u64) as usize],
            tag: (random.below(4) > 0).then(|| random.below(1_000_000_000)),
        }
    }
}

/// The SplitMix64 generator of Steele, Lea and Flood.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests;
