//! Tables from the requirements and the language's documentation, row by row.

use highwater_time::*;

use crate::{at, long};

/// (event time, arrival, timestamp or `-`, watermark after it).
type Row = (&'static str, &'static str, &'static str, &'static str);

#[track_caller]
fn check(policy: TimePolicy, rows: &[Row], order: &[u64]) {
    let times: Vec<_> = rows.iter().map(|row| at(row.0)).collect();
    let arrivals: Vec<_> = rows.iter().map(|row| at(row.1)).collect();
    let mut timeline = Timeline::new(policy, TimeDomain::EventTime);
    let mut fates: Vec<JudgedEvent> = Vec::new();
    let arrivals = Arrivals::Each(&arrivals);
    timeline.push(
        EventBatch {
            first_row: 1,
            times: &times,
            arrivals,
        },
        &mut fates,
    );
    for (fate, row) in fates.iter().zip(rows) {
        let timestamp = (row.2 != "-").then(|| at(row.2));
        assert_eq!(
            (fate.timestamp, fate.watermark_after),
            (timestamp, at(row.3)),
            "row {}",
            fate.row
        );
    }
    let mut released = ReleasedEvents::default();
    timeline.end();
    timeline.release(&mut released);
    assert_eq!(released.rows, order);
}

// proves T15
#[test]
fn example_a() {
    let policy = TimePolicy {
        late_arrival: long("10m"),
        out_of_order: long("3m"),
        ..TimePolicy::default()
    };
    let rows = [
        ("00:00:00", "00:10:01", "00:00:01", "00:00:01"),
        ("00:00:01", "00:10:01", "00:00:01", "00:00:01"),
        ("00:10:00", "00:10:02", "00:10:00", "00:07:00"),
        ("00:09:00", "00:10:03", "00:09:00", "00:07:00"),
        ("00:06:00", "00:10:04", "00:07:00", "00:07:00"),
    ];
    check(policy, &rows, &[1, 2, 5, 4, 3]);
}

#[test]
fn the_example_of_the_language_reference() {
    let policy = TimePolicy {
        late_arrival: long("15s"),
        out_of_order: long("8s"),
        ..TimePolicy::default()
    };
    let rows = [
        ("00:10:00", "00:10:40", "00:10:25", "00:10:25"),
        ("00:10:30", "00:10:41", "00:10:30", "00:10:26"),
        ("00:10:42", "00:10:42", "00:10:42", "00:10:34"),
        ("00:10:38", "00:10:43", "00:10:38", "00:10:34"),
        ("00:10:33", "00:10:45", "00:10:34", "00:10:34"),
    ];
    check(policy, &rows, &[1, 2, 5, 4, 3]);
}

fn example_b_policy() -> TimePolicy {
    TimePolicy {
        late_arrival: long("5m"),
        out_of_order: long("2m"),
        ..TimePolicy::default()
    }
}

// proves T16
#[test]
fn example_b() {
    let rows = [
        ("12:07", "12:07", "12:07", "12:05"),
        ("12:08", "12:08", "12:08", "12:06"),
        ("12:17", "12:11", "-", "12:06"), // early: the watermark does not move
        ("12:08", "12:13", "12:08", "12:08"),
        ("12:19", "12:16", "12:19", "12:17"),
        ("12:12", "12:17", "12:17", "12:17"), // out of order
        ("12:17", "12:18", "12:17", "12:17"),
        ("12:20", "12:19", "12:20", "12:18"),
        ("12:16", "12:21", "12:18", "12:18"), // out of order
        ("12:23", "12:22", "12:23", "12:21"),
        ("12:22", "12:24", "12:22", "12:21"),
        ("12:21", "12:27", "12:22", "12:22"), // late
    ];
    check(
        example_b_policy(),
        &rows,
        &[1, 2, 4, 6, 7, 9, 5, 8, 11, 12, 10],
    );
}

// proves T16
#[test]
fn example_b_with_early_arrival_off() {
    let policy = TimePolicy {
        early_arrival: None,
        ..example_b_policy()
    };
    let rows = [
        ("12:07", "12:07", "12:07", "12:05"),
        ("12:08", "12:08", "12:08", "12:06"),
        ("12:17", "12:11", "12:17", "12:15"), // one fast clock moves time for everybody
        ("12:08", "12:13", "12:15", "12:15"), // so this one is out of order
        ("12:19", "12:16", "12:19", "12:17"),
        ("12:12", "12:17", "12:17", "12:17"),
        ("12:17", "12:18", "12:17", "12:17"),
        ("12:20", "12:19", "12:20", "12:18"),
        ("12:16", "12:21", "12:18", "12:18"),
        ("12:23", "12:22", "12:23", "12:21"),
        ("12:22", "12:24", "12:22", "12:21"),
        ("12:21", "12:27", "12:22", "12:22"),
    ];
    check(policy, &rows, &[1, 2, 4, 3, 6, 7, 9, 5, 8, 11, 12, 10]);
}

/// By hand, where a lane's own watermark is its latest timestamp less 2 minutes, the floor is the
/// arrival less 5, and what an event meets is the later of the two:
///
/// | row | event | arrival | device | meets | gets  | lane's own | floor | released, by what     |
/// |-----|-------|---------|--------|-------|-------|------------|-------|-----------------------|
/// |   1 | 12:07 |   12:07 | d1     | none  | 12:07 |      12:05 | 12:02 |                       |
/// |   2 | 12:08 |   12:08 | d2     | 12:02 | 12:08 |      12:06 | 12:03 |                       |
/// |   3 | 12:17 |   12:11 | d1     | 12:05 | none  |      12:05 | 12:03 | (early: dropped)      |
/// |   4 | 12:08 |   12:13 | d3     | 12:03 | 12:08 |      12:06 | 12:08 | 1, 2, 4 by the floor  |
/// |   5 | 12:19 |   12:16 | d1     | 12:08 | 12:19 |      12:17 | 12:11 |                       |
/// |   6 | 12:12 |   12:17 | d3     | 12:11 | 12:12 |      12:10 | 12:12 | 6 by the floor        |
/// |   7 | 12:17 |   12:18 | d2     | 12:12 | 12:17 |      12:15 | 12:13 |                       |
/// |   8 | 12:20 |   12:19 | d2     | 12:15 | 12:20 |      12:18 | 12:14 | 7 by its lane         |
/// |   9 | 12:16 |   12:21 | d3     | 12:14 | 12:16 |      12:14 | 12:16 | 9 by the floor        |
/// |  10 | 12:23 |   12:22 | d2     | 12:18 | 12:23 |      12:21 | 12:17 | 8 by its lane         |
/// |  11 | 12:22 |   12:24 | d2     | 12:21 | 12:22 |      12:21 | 12:19 | 5 by the floor        |
/// |  12 | 12:21 |   12:27 | d3     | 12:19 | 12:22 |      12:20 | 12:22 | 11, 12 by the floor   |
/// | end |       |         |        |       |       |            |       | 10                    |
///
/// Rows 6 and 9 keep their times, which a single timeline adjusted; row 12 is late all the same.
// proves T11, T16
#[test]
fn example_b_over_the_device() {
    let times = [
        "12:07", "12:08", "12:17", "12:08", "12:19", "12:12", "12:17", "12:20", "12:16", "12:23",
        "12:22", "12:21",
    ]
    .map(at);
    let arrivals = [
        "12:07", "12:08", "12:11", "12:13", "12:16", "12:17", "12:18", "12:19", "12:21", "12:22",
        "12:24", "12:27",
    ]
    .map(at);
    let offsets: Vec<u32> = (0..=12).map(|i| i * 2).collect();
    let keys = EventKeys {
        offsets: &offsets,
        bytes: b"d1d2d1d3d1d3d2d2d3d2d2d3",
    };

    let mut substreams = Substreams::new(example_b_policy(), long("1h"));
    let mut out = ReleasedLaneEvents::default();
    let mut fates: Vec<JudgedEvent> = Vec::new();
    let events = EventBatch {
        first_row: 1,
        times: &times,
        arrivals: Arrivals::Each(&arrivals),
    };
    substreams.push(events, &keys, &mut out, &mut fates);
    substreams.end(&mut out);

    assert_eq!(out.rows, [1, 2, 4, 6, 7, 9, 8, 5, 11, 12, 10]);
    let expected = [
        "12:07", "12:08", "12:08", "12:12", "12:17", "12:16", "12:20", "12:19", "12:22", "12:22",
        "12:23",
    ];
    assert_eq!(out.times, expected.map(at));
    assert_eq!(out.lanes, [0, 1, 2, 2, 1, 2, 1, 0, 1, 2, 1]);
    assert_eq!(fates[2].verdict.name(), "early: dropped");
    assert_eq!(fates[11].verdict.name(), "late: adjusted");
    assert_eq!(
        fates.iter().filter(|fate| fate.verdict.on_time()).count(),
        10
    );

    let mark = |before, lane, watermark| LaneWatermark {
        before_row: before,
        lane,
        watermark: at(watermark),
    };
    let expected = [
        mark(0, Some(0), "12:05"),
        mark(0, None, "12:02"),
        mark(0, Some(1), "12:06"),
        mark(0, None, "12:03"),
        mark(0, Some(2), "12:06"),
        mark(3, None, "12:08"),
        mark(3, Some(0), "12:17"),
        mark(3, None, "12:11"),
        mark(4, None, "12:12"),
        mark(4, Some(1), "12:15"),
        mark(4, None, "12:13"),
        mark(5, Some(1), "12:18"),
        mark(5, None, "12:14"),
        mark(6, None, "12:16"),
        mark(7, Some(1), "12:21"),
        mark(7, None, "12:17"),
        mark(8, None, "12:19"),
        mark(8, Some(2), "12:20"),
        mark(10, None, "12:22"),
        LaneWatermark {
            before_row: 11,
            lane: None,
            watermark: Instant::AFTER_ALL,
        },
    ];
    assert_eq!(out.watermarks, expected);
}
