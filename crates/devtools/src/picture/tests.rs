#![allow(clippy::disallowed_methods, reason = "tests make their own files")]
use highwater_job::config::JobFile;
use highwater_time::{
    Arrivals, Duration, EventBatch, Instant, JudgedEvent, TimeDomain, TimePolicy, Timeline,
};

use super::*;
use crate::tollbooth;

fn step(arrival: Instant, watermark: Instant) -> WatermarkStep {
    WatermarkStep { arrival, watermark }
}

fn at(clock: &str) -> Instant {
    let text = format!("2026-01-01T{clock}:00Z");
    Instant::parse_iso(text.as_bytes()).expect("a valid time")
}

/// The rows of worked example B: event time, arrival, device.
const ROWS: [(&str, &str, &str); 12] = [
    ("12:07", "12:07", "d1"),
    ("12:08", "12:08", "d2"),
    ("12:17", "12:11", "d1"),
    ("12:08", "12:13", "d3"),
    ("12:19", "12:16", "d1"),
    ("12:12", "12:17", "d3"),
    ("12:17", "12:18", "d2"),
    ("12:20", "12:19", "d2"),
    ("12:16", "12:21", "d3"),
    ("12:23", "12:22", "d2"),
    ("12:22", "12:24", "d2"),
    ("12:21", "12:27", "d3"),
];

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Plain,
    EarlyOff,
    OverDevice,
}

/// Worked example B, judged by the real timelines: one for all, or one for each device.
fn worked_example(variant: Variant) -> Picture {
    let policy = TimePolicy {
        late_arrival: Duration::from_minutes(5),
        out_of_order: Duration::from_minutes(2),
        early_arrival: (variant != Variant::EarlyOff).then(|| Duration::from_minutes(5)),
        ..TimePolicy::default()
    };
    let lanes: &[Option<&str>] = match variant {
        Variant::OverDevice => &[Some("d1"), Some("d2"), Some("d3")],
        _ => &[None],
    };
    let mut timelines: Vec<_> = lanes
        .iter()
        .map(|_| Timeline::new(policy, TimeDomain::EventTime))
        .collect();
    let mut lines: Vec<_> = lanes
        .iter()
        .map(|lane| WatermarkLine {
            lane: lane.map(str::to_owned),
            steps: Vec::new(),
        })
        .collect();
    let mut points = Vec::new();
    for (i, (event, arrival, device)) in ROWS.into_iter().enumerate() {
        let lane = lanes
            .iter()
            .position(|lane| *lane == Some(device))
            .unwrap_or(0);
        let (event, arrival) = (at(event), at(arrival));
        let mut fates: Vec<JudgedEvent> = Vec::new();
        let arrivals = Arrivals::Each(&[arrival]);
        timelines[lane].push(
            EventBatch {
                first_row: 0,
                times: &[event],
                arrivals,
            },
            &mut fates,
        );
        lines[lane]
            .steps
            .push(step(arrival, timelines[lane].watermark()));
        let mut point = Point::new(&fates[0], arrival);
        point.label = Some(format!("{} {device}", i + 1));
        point.lane = lanes[lane].map(str::to_owned);
        points.push(point);
    }
    let (title, subtitle) = match variant {
        Variant::Plain => (
            "Event time against arrival time",
            "One watermark for three devices",
        ),
        Variant::EarlyOff => (
            "With early arrival off",
            "Row 3 runs ahead and pulls the watermark along",
        ),
        Variant::OverDevice => (
            "With TIMESTAMP BY … OVER device",
            "Each device has a watermark of its own",
        ),
    };
    Picture {
        title: title.to_owned(),
        subtitle: Some(subtitle.to_owned()),
        points,
        watermarks: lines,
        revisions: Vec::new(),
        floors: Vec::new(),
        policy,
        arrivals_known: true,
    }
}

const VARIANTS: [(&str, Variant); 3] = [
    ("plain", Variant::Plain),
    ("early-off", Variant::EarlyOff),
    ("over", Variant::OverDevice),
];

/// Rows (from 1) with the time that they were moved to, or `dropped`; the rest are on time.
fn exceptions(picture: &Picture) -> Vec<(usize, String)> {
    let exceptions = picture
        .points
        .iter()
        .enumerate()
        .filter(|(_, p)| p.kind() != PointKind::OnTime);
    exceptions
        .map(|(i, p)| {
            (
                i + 1,
                p.assigned.map_or("dropped".to_owned(), axis::date_and_time),
            )
        })
        .map(|(row, time)| (row, time.trim_start_matches("2026-01-01 ").to_owned()))
        .collect()
}

#[track_caller]
fn check_exceptions(variant: Variant, expected: &[(usize, &str)]) {
    let exceptions = exceptions(&worked_example(variant));
    let exceptions: Vec<_> = exceptions
        .iter()
        .map(|(row, time)| (*row, time.as_str()))
        .collect();
    assert_eq!(exceptions, expected);
}

// proves T16
#[test]
fn worked_example_b_has_the_fates_that_it_must() {
    let plain = [
        (3, "dropped"),
        (6, "12:17:00"),
        (9, "12:18:00"),
        (12, "12:22:00"),
    ];
    check_exceptions(Variant::Plain, &plain);
    let early_off = [
        (4, "12:15:00"),
        (6, "12:17:00"),
        (9, "12:18:00"),
        (12, "12:22:00"),
    ];
    check_exceptions(Variant::EarlyOff, &early_off);
    check_exceptions(Variant::OverDevice, &[(3, "dropped"), (12, "12:22:00")]);
}

// proves T16
#[test]
fn worked_example_b_can_be_drawn_in_all_three_variants() {
    for (name, variant) in VARIANTS {
        let picture = worked_example(variant);
        let drawing = svg(&picture);
        check_well_formed(&drawing);
        assert_eq!(drawing, svg(&picture), "the same picture is the same bytes");
        let count = |class: &str| drawing.matches(class).count();
        let lanes = picture.watermarks.len();
        assert_eq!(count("<path class=\"watermark "), lanes);
        assert_eq!(
            count("class=\"label mid\""),
            12,
            "{name}: every row is labelled"
        );
        // One of each is in the legend.
        assert_eq!(
            count("class=\"cross\""),
            picture.count(PointKind::Dropped) + 1
        );
        assert_eq!(
            count("class=\"hollow\""),
            picture.count(PointKind::Adjusted) + 1
        );
        write_if_asked(name, &drawing);
    }
}

/// Set PICTURE_DIR to a folder to have the drawings written there.
fn write_if_asked(name: &str, drawing: &str) {
    if let Some(folder) = std::env::var_os("PICTURE_DIR") {
        let name = if name.contains('.') {
            name.to_owned()
        } else {
            format!("{name}.svg")
        };
        let path = std::path::Path::new(&folder).join(name);
        std::fs::write(path, drawing).expect("the folder can be written to");
    }
}

// proves T16
#[test]
fn the_terminal_shows_the_same_picture() {
    let drawing = terminal(&worked_example(Variant::Plain), 80, 24);
    let expected = r#"
Event time against arrival time                                   2026-01-01 UTC
One watermark for three devices · late 5m · out of order 2m · early 5m
↑ event                              early bound   no delay
      │                                 ∙ ∙          ···          ∙ late bound
      │                               ∙     10 d2 ●··  ● 11 d2 ◆━━━ watermark
      │                           ∙ ∙          ···┏━━━━━━━━━━━━○
12:20 ┤                         ∙         ● 8 d2  ┃       ∙
      │                     ∙ ∙   ● 5 d1 ···      ┃   ∙ ∙
      │                   ∙           ··· ┏━━━━◆━━┛ ∙
      │              ✗ 3 d1       ┏━━◆━●━━┛    ↑∙ ∙
      │             ∙           ··┃  ↑        ∙○ 9 d3
12:15 ┤         ∙ ∙          ···  ┃  ╎    ∙ ∙
      │       ∙           ···     ┃  ╎  ∙
      │   ∙ ∙          ···        ┃ ∙○ 6 d3
      │ ∙           ···           ┃
12:10 ┤          ···          ∙ ∙ ┃
      │       ···           ∙     ┃
      │    ··● 2 d2  4 d3 ●━━━━━━━┛
      │ ··● 1 d1      ∙   ┃
12:05 ┤·  ┏━━━━━━━━━━━━━━━┛
      │   ┃     ∙
      └───────────┬────────────┬─────────────┬────────────┬────────
                12:10        12:15         12:20        12:25          arrival →
● on time 8   ○↑◆ adjusted 3   ✗ dropped 1   ━ watermark   · no delay   ∙ bounds
"#;
    assert_eq!(drawing.trim_end(), expected.trim(), "\n{drawing}");
}

#[test]
fn the_terminal_is_never_overrun() {
    for (_, variant) in VARIANTS {
        for (width, height) in [(0, 0), (40, 12), (80, 24), (120, 40), (10_000, 10_000)] {
            let drawing = terminal(&worked_example(variant), width, height);
            let width = width.clamp(40, 500);
            assert!(drawing.lines().all(|line| line.chars().count() <= width));
            assert_eq!(drawing.lines().count(), height.clamp(12, 200));
        }
    }
}

#[test]
fn colour_only_repeats_what_the_shapes_say() {
    let picture = worked_example(Variant::OverDevice);
    let coloured = Terminal {
        width: 80,
        height: 24,
        colour: true,
    }
    .draw(&picture);
    assert!(coloured.contains("\u{1b}[34m"));
    let mut plain = String::new();
    for (i, piece) in coloured.split('\u{1b}').enumerate() {
        let text = if i == 0 {
            piece
        } else {
            piece.split_once('m').expect("an escape").1
        };
        plain.push_str(text);
    }
    assert_eq!(plain, terminal(&picture, 80, 24));
}

/// The demo's traffic, judged by its own policy.
fn toll_booth(events: usize) -> Picture {
    let job = JobFile::parse(tollbooth::JOB, "job.toml").expect("the demo's job is valid");
    let mut text = Vec::new();
    tollbooth::generate(events, 7, &mut text);
    let text = String::from_utf8(text).expect("JSON is text");
    let mut timeline = Timeline::new(job.time, TimeDomain::EventTime);
    let (mut points, mut steps) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        let time = |field: &str| Instant::parse_iso(row[field].as_str()?.as_bytes());
        let entered = time("EntryTime").expect("a time");
        let arrived = time("ArrivalTime").expect("a time");
        let mut fates: Vec<JudgedEvent> = Vec::new();
        let arrivals = Arrivals::Each(&[arrived]);
        timeline.push(
            EventBatch {
                first_row: 0,
                times: &[entered],
                arrivals,
            },
            &mut fates,
        );
        steps.push(step(arrived, timeline.watermark()));
        points.push(Point::new(&fates[0], arrived));
    }
    Picture {
        title: "Toll booths".to_owned(),
        subtitle: Some(format!("{} events at four booths", with_thousands(events))),
        points,
        watermarks: vec![WatermarkLine { lane: None, steps }],
        revisions: Vec::new(),
        floors: Vec::new(),
        policy: job.time,
        arrivals_known: true,
    }
}

#[test]
fn a_crowd_can_be_drawn() {
    for events in [40, 500, 20_000] {
        let picture = toll_booth(events);
        let drawing = svg(&picture);
        check_well_formed(&drawing);
        write_if_asked(&format!("toll-{events}"), &drawing);
        write_if_asked(&format!("toll-{events}.txt"), &terminal(&picture, 120, 40));
    }
}

fn on_time(second: i64) -> Point {
    let time = at("12:00") + Duration::from_secs(second);
    Point {
        arrival: time,
        event_time: time,
        assigned: Some(time),
        verdict: "on time".to_owned(),
        label: Some("x".to_owned()),
        lane: None,
    }
}

fn picture_of(points: Vec<Point>) -> Picture {
    let steps = points.iter().map(|p| step(p.arrival, p.arrival)).collect();
    Picture {
        title: "test".to_owned(),
        subtitle: None,
        points,
        watermarks: vec![WatermarkLine { lane: None, steps }],
        revisions: Vec::new(),
        floors: Vec::new(),
        policy: TimePolicy::default(),
        arrivals_known: true,
    }
}

#[test]
fn text_from_outside_cannot_break_the_file() {
    let mut picture = picture_of(vec![on_time(0), on_time(5)]);
    picture.title = "<script>alert(\"&\")</script>\u{0}".to_owned();
    picture.subtitle = Some("]]> & more".to_owned());
    picture.points[0].label = Some("<b>".to_owned());
    picture.points[0].lane = Some("\"quoted\"".to_owned());
    picture.points[0].verdict = "a < b".to_owned();
    let drawing = svg(&picture);
    check_well_formed(&drawing);
    assert!(!drawing.contains("<script") && !drawing.contains("<b>") && !drawing.contains('\u{0}'));
    assert!(!terminal(&picture, 80, 24).contains('\u{0}'));
}

#[test]
fn revisions_are_drawn_where_the_watermark_passes_them() {
    let mut picture = picture_of(vec![on_time(0), on_time(5), on_time(12)]);
    let at = |seconds| on_time(seconds).event_time;
    // The watermark passes 4 with the second event and 10 with the third; 14 comes with the end of the input.
    picture.revisions = vec![at(4), at(10), at(14)];
    let places = picture.revision_steps();
    assert_eq!(places, [step(at(5), at(4)), step(at(12), at(10))]);
    let drawing = svg(&picture);
    check_well_formed(&drawing);
    assert_eq!(drawing.matches("<title>early results as of").count(), 2);
    assert!(drawing.contains("early results (3)"));
    assert_eq!(terminal(&picture, 100, 30).matches('◇').count(), 2 + 1);

    // With a watermark for each lane, the last one to pass decides.
    let late = vec![step(at(9), at(4)), step(at(20), at(11))];
    picture.watermarks.push(WatermarkLine {
        lane: Some("b".to_owned()),
        steps: late,
    });
    assert_eq!(
        picture.revision_steps(),
        [step(at(9), at(4)), step(at(20), at(10))]
    );

    // With substreams the floor decides, however far their watermarks are.
    picture.floors.push(WatermarkLine {
        lane: None,
        steps: vec![step(at(9), at(3)), step(at(16), at(10))],
    });
    assert_eq!(
        picture.revision_steps(),
        [step(at(16), at(4)), step(at(16), at(10))]
    );
}

#[test]
fn many_points_are_sampled_but_exceptions_are_kept() {
    let mut points: Vec<Point> = (0..50_000).map(on_time).collect();
    for point in points.iter_mut().step_by(500) {
        point.assigned = None;
    }
    let drawing = svg(&picture_of(points));
    assert_eq!(drawing.matches("class=\"cross\"").count(), 100 + 1);
    assert_eq!(drawing.matches("class=\"dot\"").count(), 3_900 + 2);
    assert!(
        drawing.contains("shows 3,900 of 49,900 on-time events"),
        "the remark is missing"
    );
    assert!(
        !drawing.contains("class=\"label mid\""),
        "labels would hide the points"
    );
    assert!(drawing.len() < 1_000_000, "{} bytes", drawing.len());
}

#[test]
fn a_million_keys_do_not_make_a_million_lines() {
    let mut picture = picture_of((0..20).map(on_time).collect());
    let line = picture.watermarks[0].clone();
    let lane = |i: usize| WatermarkLine {
        lane: Some(i.to_string()),
        ..line.clone()
    };
    picture.watermarks = (0..5_000).map(lane).collect();
    let drawing = svg(&picture);
    assert_eq!(drawing.matches("<path class=\"watermark").count(), 200);
    assert!(drawing.contains("shows 200 of 5,000 watermarks") && drawing.contains(">others<"));
    terminal(&picture, 80, 24);
}

#[test]
fn many_exceptions_are_sampled_too() {
    let mut points: Vec<Point> = (0..10_000).map(on_time).collect();
    points.iter_mut().for_each(|p| p.assigned = None);
    let drawing = svg(&picture_of(points));
    assert!(drawing.contains("shows 3,000 of 10,000 adjusted and dropped events"));
}

#[test]
fn an_event_from_another_century_is_drawn_at_the_edge() {
    let mut points: Vec<Point> = (0..20).map(on_time).collect();
    let far = Instant::parse_iso(b"2099-01-01T00:00:00Z").expect("a valid time");
    points[7].event_time = far;
    points[7].assigned = None;
    let drawing = svg(&picture_of(points));
    assert!(drawing.contains("1 event lies outside and is drawn at the edge"));
    assert!(drawing.contains(">12:00:10<"), "the rest keeps its scale");
    check_well_formed(&drawing);
}

#[test]
fn a_bound_far_from_everything_does_not_stretch_the_picture() {
    let mut picture = picture_of((0..20).map(on_time).collect());
    picture.policy.late_arrival = Duration::from_days(20);
    let drawing = svg(&picture);
    assert!(!drawing.contains("late bound") && drawing.contains("late 20d"));
    assert!(drawing.contains(">12:00:10<"));
}

#[test]
fn unknown_arrivals_have_no_bounds() {
    let mut picture = picture_of((0..20).map(on_time).collect());
    picture.arrivals_known = false;
    let drawing = svg(&picture);
    assert!(!drawing.contains(" bound<") && drawing.contains("arrivals unknown"));
}

#[test]
fn an_empty_picture_and_the_ends_of_time_can_be_drawn() {
    check_well_formed(&svg(&picture_of(Vec::new())));
    let mut picture = picture_of(vec![on_time(0)]);
    let ends = [Instant::BEFORE_ALL, Instant::AFTER_ALL];
    picture.watermarks[0]
        .steps
        .extend(ends.map(|end| step(at("12:01"), end)));
    picture.points.extend(ends.map(|end| Point {
        event_time: end,
        ..on_time(1)
    }));
    picture.points.extend(ends.map(|end| Point {
        arrival: end,
        ..on_time(1)
    }));
    let drawing = svg(&picture);
    check_well_formed(&drawing);
    assert!(!drawing.contains("\"NaN") && !drawing.contains("\"inf"));
    terminal(&picture, 80, 24);
}

proptest::proptest! {
    #[test]
    fn the_watermark_is_never_drawn_going_back(
        steps in proptest::collection::vec((0i64..5, 0i64..5), 1..200),
    ) {
        let mut picture = picture_of(vec![on_time(0), on_time(900)]);
        let (mut arrival, mut mark) = (at("12:00"), at("12:00"));
        let steps = steps.into_iter().map(|(a, m)| {
            arrival = arrival + Duration::from_secs(a);
            mark = mark + Duration::from_secs(m);
            step(arrival, mark)
        });
        picture.watermarks[0].steps = steps.collect();
        let drawing = svg(&picture);
        let (_, path) = drawing.split_once("<path class=\"watermark water\" d=\"M").expect("a line");
        let (path, _) = path.split_once('"').expect("its end");
        let places: Vec<(f64, f64)> = path
            .split('L')
            .map(|place| place.split_once(' ').expect("two numbers"))
            .map(|(x, y)| (x.parse().expect("a number"), y.parse().expect("a number")))
            .collect();
        for pair in places.windows(2) {
            assert!(pair[1].0 >= pair[0].0 && pair[1].1 <= pair[0].1, "{pair:?}");
        }
    }
}

/// Every element is closed by its own name, and no stray `&` or `<` stands in text.
#[track_caller]
fn check_well_formed(xml: &str) {
    let mut open = Vec::new();
    for piece in xml.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("every tag ends");
        let name = tag
            .split([' ', '/'])
            .find(|word| !word.is_empty())
            .expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert!(tag.matches('"').count() % 2 == 0, "{tag}");
        for entity in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;", "quot;"];
            assert!(
                known.iter().any(|known| entity.starts_with(known)),
                "{entity}"
            );
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
