use std::collections::BTreeMap;
use std::path::Path;

use highwater_time::{Arrivals, EventBatch, JudgedEvent, TimeDomain, Timeline};
use serde_json::Value;

use super::*;
use highwater_job::config::{JobFile, QuerySource};

fn rows(events: usize, seed: u64) -> Vec<Value> {
    let mut out = Vec::new();
    generate(events, seed, &mut out);
    let text = String::from_utf8(out).expect("JSON is text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

fn times(rows: &[Value], field: &str) -> Vec<Instant> {
    let time = |row: &Value| Instant::parse_iso(row[field].as_str()?.as_bytes());
    rows.iter().map(|row| time(row).expect("a time")).collect()
}

#[test]
fn the_demo_files_fit_together() {
    let job = JobFile::parse(JOB, "job.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(job.query, QuerySource::File("query.saql".into()));
    assert_eq!(job.inputs[0].paths, [Path::new("input/Entry.jsonl")]);
    assert_eq!(job.inputs[0].arrival.as_deref(), Some("ArrivalTime"));
    assert!(QUERY.contains(&format!(
        "FROM {} TIMESTAMP BY EntryTime",
        job.inputs[0].name
    )));
}

#[test]
fn a_line_looks_like_this() {
    let mut out = Vec::new();
    generate(300, 7, &mut out);
    let text = String::from_utf8(out).expect("JSON is text");
    assert_eq!(
        text.lines().next(),
        Some(
            r#"{"TollId":2,"EntryTime":"2026-01-01T07:59:57.945Z","ArrivalTime":"2026-01-01T08:00:00.684Z","LicensePlate":"BNB 4623","State":"VT","Make":"Volvo","Model":"FH16","VehicleType":2,"Toll":15.5,"Tag":"529943887"}"#
        )
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let bytes = |seed| {
        let mut out = Vec::new();
        generate(200, seed, &mut out);
        out
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

// proves T1
#[test]
fn arrivals_never_go_back_and_counts_are_exact() {
    for (events, seed) in [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 9),
        (17, 5),
        (500, 42),
        (20_000, 3),
    ] {
        let rows = rows(events, seed);
        assert_eq!(rows.len(), events);
        assert!(times(&rows, "ArrivalTime").is_sorted());
    }
}

// proves T3, T4, T5
#[test]
fn every_anomaly_meets_the_policy_even_in_a_short_demo() {
    let policy = JobFile::parse(JOB, "job.toml").expect("valid").time;
    for seed in 0..50 {
        let rows = rows(120, seed);
        let (entered, arrived) = (times(&rows, "EntryTime"), times(&rows, "ArrivalTime"));
        let mut timeline = Timeline::new(policy, TimeDomain::EventTime);
        let mut fates: Vec<JudgedEvent> = Vec::new();
        let arrivals = Arrivals::Each(&arrived);
        timeline.push(
            EventBatch {
                first_row: 0,
                times: &entered,
                arrivals,
            },
            &mut fates,
        );
        let counts = timeline.counts();
        assert!(counts.late_adjusted >= 1, "seed {seed}: {counts:?}");
        assert!(counts.early_dropped >= 1, "seed {seed}: {counts:?}");
        assert!(counts.out_of_order_adjusted >= 1, "seed {seed}: {counts:?}");
        let exceptions = counts.late() + counts.early() + counts.out_of_order();
        assert!(
            exceptions < 30,
            "seed {seed}: most events are on time: {counts:?}"
        );
    }
}

#[test]
fn one_event_is_sent_twice() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for mut row in rows(500, 42) {
        row["ArrivalTime"] = Value::Null;
        *seen.entry(row.to_string()).or_default() += 1;
    }
    let repeated: Vec<usize> = seen.into_values().filter(|count| *count > 1).collect();
    assert_eq!(repeated, [2]);
}

#[test]
fn there_is_one_silent_gap() {
    let arrived = times(&rows(500, 42), "ArrivalTime");
    let long = Duration::from_secs(30);
    let gaps = arrived.windows(2).filter(|pair| pair[1] - pair[0] > long);
    assert_eq!(gaps.filter(|pair| pair[1] < at_minute(7)).count(), 1);
}

fn at_minute(minute: i64) -> Instant {
    OPENING + Duration::from_minutes(minute)
}

#[test]
fn clocks_differ_between_booths() {
    let rows = rows(2_000, 11);
    let (entered, arrived) = (times(&rows, "EntryTime"), times(&rows, "ArrivalTime"));
    let mut delays: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (row, (entered, arrived)) in rows.iter().zip(entered.into_iter().zip(arrived)) {
        let booth = row["TollId"].as_i64().expect("a number");
        delays
            .entry(booth)
            .or_default()
            .push((arrived - entered).ticks());
    }
    let medians = delays.into_values().map(|mut delays| {
        delays.sort_unstable();
        delays[delays.len() / 2] / (200 * TICKS_PER_MILLI)
    });
    let mut medians: Vec<i64> = medians.collect();
    assert_eq!(medians.len(), BOOTHS);
    medians.sort_unstable();
    medians.dedup();
    assert!(medians.len() > 1, "{medians:?}");
}
