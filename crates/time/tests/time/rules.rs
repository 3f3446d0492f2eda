//! One test for each rule of time, named after what it says.

use highwater_time::*;

use crate::{at, long};

/// Pushes one event and returns its fate.
fn push(timeline: &mut Timeline, row: u64, time: &str, arrival: &str) -> JudgedEvent {
    let mut fates: Vec<JudgedEvent> = Vec::new();
    let arrivals = Arrivals::All(at(arrival));
    timeline.push(
        EventBatch {
            first_row: row,
            times: &[at(time)],
            arrivals,
        },
        &mut fates,
    );
    fates[0]
}

fn release(timeline: &mut Timeline) -> Vec<u64> {
    let mut released = ReleasedEvents::default();
    timeline.release(&mut released);
    released.rows
}

fn application(policy: TimePolicy) -> Timeline {
    Timeline::new(policy, TimeDomain::EventTime)
}

#[test]
fn the_defaults_are_those_of_the_requirements() {
    let policy = TimePolicy::default();
    assert_eq!(policy.late_arrival, long("5s"));
    assert_eq!(policy.out_of_order, long("0s"));
    assert_eq!(policy.early_arrival, Some(long("5m")));
    let actions = [
        policy.late_events,
        policy.out_of_order_events,
        policy.early_events,
    ];
    assert_eq!(
        actions,
        [
            ViolationAction::Adjust,
            ViolationAction::Adjust,
            ViolationAction::Drop
        ]
    );
}

// proves T2
#[test]
fn on_the_arrival_clock_the_policy_is_ignored() {
    let policy = TimePolicy {
        out_of_order: long("1h"),
        late_arrival: long("1h"),
        late_events: ViolationAction::Drop,
        out_of_order_events: ViolationAction::Drop,
        ..TimePolicy::default()
    };
    let mut timeline = Timeline::new(policy, TimeDomain::ArrivalTime);
    let times = ["12:00", "12:00", "12:01"].map(at);
    timeline.push(
        EventBatch {
            first_row: 0,
            times: &times,
            arrivals: Arrivals::Unknown,
        },
        &mut (),
    );
    assert_eq!(timeline.watermark(), at("12:01"));
    assert_eq!(release(&mut timeline), [0, 1, 2]);
}

// proves T2, T7
#[test]
fn on_the_arrival_clock_an_event_behind_a_punctuation_takes_its_time() {
    let mut timeline = Timeline::new(TimePolicy::default(), TimeDomain::ArrivalTime);
    timeline.punctuate(at("12:10"));
    assert_eq!(timeline.watermark(), at("12:10"));
    let fate = push(&mut timeline, 0, "12:09", "12:09");
    assert_eq!(fate.timestamp, Some(at("12:10")));
    assert_eq!(fate.verdict.name(), "out of order: adjusted");
    assert_eq!(timeline.counts().out_of_order_adjusted, 1);
}

// proves T3
#[test]
fn a_late_event_is_moved_to_its_arrival_less_the_tolerance() {
    let mut timeline = application(TimePolicy::default());
    let fate = push(&mut timeline, 0, "12:00:00", "12:00:06");
    assert_eq!(fate.timestamp, Some(at("12:00:01")));
    assert_eq!(fate.verdict, Verdict::adjusted_for(Violation::Late));
    assert_eq!(
        push(&mut timeline, 1, "12:00:02", "12:00:07").verdict,
        Verdict::ON_TIME
    );
}

// proves T3, T6
#[test]
fn a_late_event_that_is_dropped_still_moves_time_by_its_arrival() {
    let mut timeline = application(TimePolicy {
        late_events: ViolationAction::Drop,
        ..TimePolicy::default()
    });
    let fate = push(&mut timeline, 0, "11:00:00", "12:00:05");
    assert_eq!(fate.verdict, Verdict::dropped_for(Violation::Late));
    assert_eq!(
        (fate.timestamp, fate.watermark_after),
        (None, at("12:00:00"))
    );
}

// proves T3
#[test]
fn tolerances_of_twenty_days_and_beyond_are_allowed() {
    let policy = TimePolicy {
        late_arrival: long("400d"),
        ..TimePolicy::default()
    };
    let mut timeline = application(policy);
    let old = at("12:00") - long("399d");
    let arrivals = Arrivals::All(at("12:00"));
    timeline.push(
        EventBatch {
            first_row: 0,
            times: &[old],
            arrivals,
        },
        &mut (),
    );
    assert_eq!(timeline.watermark(), old);
    assert_eq!(timeline.counts().late(), 0);
}

// proves T3, T4
#[test]
fn late_is_checked_before_out_of_order_and_both_may_move_an_event() {
    let mut timeline = application(TimePolicy::default());
    push(&mut timeline, 0, "12:00:20", "12:00:20");
    let fate = push(&mut timeline, 1, "12:00:00", "12:00:21");
    assert_eq!(fate.timestamp, Some(at("12:00:20")));
    assert_eq!(fate.verdict.name(), "late and out of order: adjusted");
    assert_eq!(
        (timeline.counts().late(), timeline.counts().out_of_order()),
        (1, 1)
    );
}

// proves T4
#[test]
fn events_within_the_tolerance_are_held_and_released_sorted() {
    let policy = TimePolicy {
        late_arrival: long("1m"),
        out_of_order: long("10s"),
        ..TimePolicy::default()
    };
    let mut timeline = application(policy);
    for (row, time) in [
        (0, "12:00:10"),
        (1, "12:00:05"),
        (2, "12:00:07"),
        (3, "12:00:07"),
    ] {
        assert_eq!(
            push(&mut timeline, row, time, "12:00:10").verdict,
            Verdict::ON_TIME
        );
    }
    assert_eq!(release(&mut timeline), [0u64; 0]);
    assert_eq!(timeline.buffered(), 4);
    push(&mut timeline, 4, "12:00:18", "12:00:18");
    assert_eq!(release(&mut timeline), [1, 2, 3]);
    push(&mut timeline, 5, "12:00:20", "12:00:20");
    assert_eq!(release(&mut timeline), [0]);
}

// proves T4
#[test]
fn an_event_before_the_watermark_is_moved_to_it_or_dropped() {
    let mut timeline = application(TimePolicy::default());
    push(&mut timeline, 0, "12:00:10", "12:00:10");
    let fate = push(&mut timeline, 1, "12:00:09", "12:00:10");
    assert_eq!(
        (fate.watermark_before, fate.timestamp),
        (at("12:00:10"), Some(at("12:00:10")))
    );

    let mut timeline = application(TimePolicy {
        out_of_order_events: ViolationAction::Drop,
        ..TimePolicy::default()
    });
    push(&mut timeline, 0, "12:00:10", "12:00:10");
    let fate = push(&mut timeline, 1, "12:00:09", "12:00:10");
    assert_eq!(fate.verdict, Verdict::dropped_for(Violation::OutOfOrder));
    assert_eq!(release(&mut timeline), [0]);
}

// proves T5
#[test]
fn an_early_event_is_dropped_and_moves_nothing() {
    let mut timeline = application(TimePolicy::default());
    push(&mut timeline, 0, "12:00", "12:00");
    let before = timeline.watermark();
    let fate = push(&mut timeline, 1, "13:30", "13:00");
    assert_eq!(fate.verdict, Verdict::dropped_for(Violation::Early));
    assert_eq!(timeline.watermark(), before);
    assert_eq!(
        push(&mut timeline, 2, "13:05", "13:00").verdict,
        Verdict::ON_TIME
    );
}

// proves T5
#[test]
fn an_early_event_may_be_adjusted_instead_or_the_check_turned_off() {
    let mut timeline = application(TimePolicy {
        early_events: ViolationAction::Adjust,
        ..TimePolicy::default()
    });
    assert_eq!(
        push(&mut timeline, 0, "13:00", "12:00").timestamp,
        Some(at("12:05"))
    );

    let mut timeline = application(TimePolicy {
        early_arrival: None,
        ..TimePolicy::default()
    });
    assert_eq!(
        push(&mut timeline, 0, "13:00", "12:00").timestamp,
        Some(at("13:00"))
    );
}

// proves T6
#[test]
fn the_watermark_is_the_largest_of_three_and_an_event_equal_to_it_is_on_time() {
    let policy = TimePolicy {
        late_arrival: long("5m"),
        out_of_order: long("2m"),
        ..TimePolicy::default()
    };
    let mut timeline = application(policy);
    assert_eq!(timeline.watermark(), Instant::BEFORE_ALL);
    assert_eq!(
        push(&mut timeline, 0, "12:10", "12:10").watermark_after,
        at("12:08")
    );
    assert_eq!(
        push(&mut timeline, 1, "12:09", "12:11").watermark_after,
        at("12:08")
    );
    assert_eq!(
        push(&mut timeline, 2, "12:10", "12:14").watermark_after,
        at("12:09")
    );
    let equal = push(&mut timeline, 3, "12:09", "12:14");
    assert_eq!(
        (equal.verdict, equal.timestamp),
        (Verdict::ON_TIME, Some(at("12:09")))
    );
}

// proves T6
#[test]
fn with_unknown_arrivals_only_event_times_move_the_watermark() {
    let policy = TimePolicy {
        out_of_order: long("1m"),
        ..TimePolicy::default()
    };
    let mut timeline = application(policy);
    let times = ["00:00", "23:59", "23:58"].map(at);
    timeline.push(
        EventBatch {
            first_row: 0,
            times: &times,
            arrivals: Arrivals::Unknown,
        },
        &mut (),
    );
    assert_eq!(timeline.watermark(), at("23:58"));
    assert_eq!(timeline.counts().kept, 3);
    assert_eq!(timeline.counts().late() + timeline.counts().early(), 0);
}

// proves T7
#[test]
fn in_silence_time_follows_the_estimated_arrival() {
    let policy = TimePolicy {
        late_arrival: long("5s"),
        out_of_order: long("1h"),
        ..TimePolicy::default()
    };
    let mut timeline = application(policy);
    push(&mut timeline, 0, "12:00:00", "12:00:00");
    assert_eq!(release(&mut timeline), [0u64; 0]);
    timeline.punctuate(at("12:03:06"));
    assert_eq!(timeline.watermark(), at("12:03:01"));
    assert_eq!(release(&mut timeline), [0]);
    timeline.punctuate(at("12:01:00"));
    assert_eq!(timeline.watermark(), at("12:03:01"));
}

// proves T9
#[test]
fn a_silent_timeline_holds_the_others_back_by_the_late_tolerance() {
    let policy = TimePolicy {
        late_arrival: long("1m"),
        ..TimePolicy::default()
    };
    let mut busy = application(policy);
    let mut silent = application(policy);
    let mut combined = CombinedWatermark::new(2);
    push(&mut busy, 0, "12:10", "12:10");
    assert_eq!(combined.advance(0, busy.watermark()), None);
    silent.punctuate(at("12:10"));
    assert_eq!(combined.advance(1, silent.watermark()), Some(at("12:09")));
}

// proves T12
#[test]
fn adjusting_changes_the_timestamp_and_leaves_the_event_time_as_sent() {
    let mut timeline = application(TimePolicy::default());
    let fate = push(&mut timeline, 0, "11:00:00", "12:00:05");
    assert_eq!(
        (fate.event_time, fate.timestamp),
        (at("11:00:00"), Some(at("12:00:00")))
    );
}

// proves T13
#[test]
fn what_follows_a_release_is_never_earlier() {
    let mut timeline = application(TimePolicy {
        late_arrival: long("1h"),
        ..TimePolicy::default()
    });
    let mut released = ReleasedEvents::default();
    for (row, time) in [
        (0, "12:00"),
        (1, "12:20"),
        (2, "12:10"),
        (3, "12:20"),
        (4, "11:30"),
    ] {
        push(&mut timeline, row, time, "12:20");
        timeline.release(&mut released);
        assert_eq!(released.times.last(), Some(&timeline.watermark()));
    }
    assert!(released.times.is_sorted());
}

// proves T18
#[test]
fn the_fate_of_an_event_tells_everything_about_it() {
    let mut timeline = application(TimePolicy::default());
    push(&mut timeline, 6, "12:00:00", "12:00:00");
    let fate = push(&mut timeline, 7, "11:59:58", "12:00:01");
    let expected = JudgedEvent {
        row: 7,
        arrival: Some(at("12:00:01")),
        event_time: at("11:59:58"),
        verdict: Verdict::adjusted_for(Violation::OutOfOrder),
        watermark_before: at("12:00:00"),
        timestamp: Some(at("12:00:00")),
        watermark_after: at("12:00:00"),
        lane: None,
    };
    assert_eq!(fate, expected);
}

// proves T11
#[test]
fn a_million_keys_of_which_a_thousand_are_active_take_the_room_of_thousands() {
    let policy = TimePolicy {
        out_of_order: long("1s"),
        ..TimePolicy::default()
    };
    let mut substreams = Substreams::new(policy, long("1s"));
    let mut out = ReleasedLaneEvents::default();
    let (mut most_lanes, mut highest_lane, mut largest_snapshot) = (0, 0, 0);
    // Every second a thousand new keys say one thing each, and are never heard of again.
    for second in 0..1_000u64 {
        let time = at("00:00") + Duration::from_secs(second as i64);
        let bytes: Vec<u8> = (0..1_000)
            .flat_map(|key| (second * 1_000 + key).to_le_bytes())
            .collect();
        let offsets: Vec<u32> = (0..=1_000).map(|i| i * 8).collect();
        let events = EventBatch {
            first_row: second * 1_000,
            times: &[time; 1_000],
            arrivals: Arrivals::All(time),
        };
        substreams.push(
            events,
            &EventKeys {
                offsets: &offsets,
                bytes: &bytes,
            },
            &mut out,
            &mut (),
        );
        most_lanes = most_lanes.max(substreams.lane_count());
        highest_lane = highest_lane.max(out.lanes.iter().copied().max().unwrap_or(0));
        if second % 100 == 99 {
            let mut snapshot = Vec::new();
            substreams.snapshot(&mut snapshot);
            largest_snapshot = largest_snapshot.max(snapshot.len());
        }
        out.clear();
    }
    // Late tolerance 5 s and linger 1 s: a key is remembered for seven seconds.
    assert!(most_lanes <= 8_000, "{most_lanes} keys remembered");
    assert!(highest_lane < 8_000, "lane {highest_lane} in use");
    assert!(
        largest_snapshot < 1_000_000,
        "{largest_snapshot} bytes of state"
    );
    assert_eq!(substreams.counts().kept, 1_000_000);
}
