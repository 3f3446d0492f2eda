//! Section 9.

use highwater_query::functions::Function::*;
use proptest::prelude::*;

use super::*;

fn point(x: f64, y: f64) -> Value {
    json(&format!(
        r#"{{"type":"Point","coordinates":[{x:?},{y:?}]}}"#
    ))
}

/// A square with this corner to the lower left.
fn square(x: f64, y: f64, size: f64) -> Value {
    let (right, top) = (x + size, y + size);
    json(&format!(
        r#"{{"type":"Polygon","coordinates":[[[{x:?},{y:?}],[{right:?},{y:?}],[{right:?},{top:?}],[{x:?},{top:?}],[{x:?},{y:?}]]]}}"#
    ))
}

// proves S1
#[test]
fn shapes_are_made_as_geojson() {
    check(CreatePoint, args![40.5, -120], point(-120.0, 40.5));
    check(CreatePoint, args!["40.5", "-120"], point(-120.0, 40.5));
    check(CreatePoint, args![NULL, 1], NULL);
    fails(
        CreatePoint,
        args!["x", 1],
        "argument 1 of CreatePoint: cannot read the text 'x' as a number; \
         TRY_CAST(.. AS float) gives NULL instead",
    );
    check(
        CreateLineString,
        args![point(0.0, 0.0), "POINT(1 2)", point(3.0, 0.0)],
        json(r#"{"type":"LineString","coordinates":[[0.0,0.0],[1.0,2.0],[3.0,0.0]]}"#),
    );
    let ring =
        json(r#"{"type":"Polygon","coordinates":[[[0.0,0.0],[1.0,0.0],[1.0,1.0],[0.0,0.0]]]}"#);
    let [a, b, c] = [point(0.0, 0.0), point(1.0, 0.0), point(1.0, 1.0)];
    check(
        CreatePolygon,
        args![a.clone(), b.clone(), c.clone(), a.clone()],
        ring.clone(),
    );
    check(CreatePolygon, args![a.clone(), b.clone(), c.clone()], ring);
    check(CreatePolygon, args![a, b, NULL], NULL);
    check(CreateLineString, args![c, NULL], NULL);
}

// proves S2
#[test]
fn shapes_that_are_none_fail() {
    let [a, b] = [point(0.0, 0.0), point(2.0, 0.0)];
    let message = |function, args: &[Value]| {
        answer(function, None, args)
            .expect_err("no shape")
            .to_string()
    };
    let reason = |function, args: &[Value]| {
        let message = message(function, args);
        message
            .split_once(", but ")
            .map(|(_, reason)| reason.to_string())
            .unwrap_or(message)
    };
    let two = "a line needs at least 2 different points";
    assert_eq!(reason(CreateLineString, args![a.clone(), a.clone()]), two);
    let along = "the line that leads there runs along itself";
    assert_eq!(
        reason(CreateLineString, args![a.clone(), b.clone(), a.clone()]),
        along
    );
    assert_eq!(
        reason(
            CreateLineString,
            args![a.clone(), b.clone(), point(1.0, 0.0)]
        ),
        along
    );
    let three = "a ring needs at least 3 different points that do not lie on one line";
    assert_eq!(
        reason(CreatePolygon, args![a.clone(), b.clone(), a.clone()]),
        three
    );
    assert_eq!(
        reason(CreatePolygon, args![a.clone(), b.clone(), point(3.0, 0.0)]),
        three
    );
    assert_eq!(
        reason(CreateLineString, args![a.clone(), square(0.0, 0.0, 1.0)]),
        "it must be a point"
    );
    assert_eq!(
        reason(CreateLineString, args![a.clone(), 5]),
        "it takes GeoJSON records and WKT text"
    );
    fails(
        StWithin,
        args![r#"POINT(1)"#, "POLYGON((0 0, 1 0, 1 1))"],
        "argument 1 of ST_WITHIN is 'POINT(1)', but it is no well-known text such as POINT (30 10)",
    );
    for shape in [
        "{}",
        r#"{"type":"Circle","coordinates":[0,0]}"#,
        r#"{"type":"Point"}"#,
        r#"{"type":"Point","coordinates":[1]}"#,
        r#"{"type":"Point","coordinates":["1","2"]}"#,
        r#"{"type":"Point","coordinates":{"x":1}}"#,
        r#"{"type":"LineString","coordinates":[[0,0]]}"#,
        r#"{"type":"LineString","coordinates":[[0,0],[0,0]]}"#,
        r#"{"type":"Polygon","coordinates":[]}"#,
        r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[0,0]]]}"#,
    ] {
        assert!(
            answer(StIntersects, None, args![a.clone(), json(shape)]).is_err(),
            "{shape}"
        );
    }
    for text in [
        "",
        "POINT",
        "POINT()",
        "POINT(1 2",
        "POINT(1 2))",
        "POINT(1, 2)",
        "POINT(1 2 3 4 5)",
        "POINT(x y)",
        "POINT(1e999 0)",
        "POINT(0 1.1e9)",
        "LINESTRING(0 0)",
        "POLYGON(0 0, 1 0, 1 1)",
        "POLYGON((0 0, 1 0))",
        "CIRCLE(0 0)",
        "{}",
        "GEOMETRYCOLLECTION(1 2)",
    ] {
        assert!(
            answer(StIntersects, None, args![a.clone(), text]).is_err(),
            "{text}"
        );
    }
    let deep = "GEOMETRYCOLLECTION(".repeat(10_000);
    assert!(answer(StIntersects, None, args![a.clone(), deep.as_str()]).is_err());
    for function in [StDistance, StIntersects, StOverlaps, StWithin] {
        check(function, args![NULL, "no shape"], NULL);
        check(function, args![5, NULL], NULL);
    }
}

/// A float that must be met up to a millionth.
fn check_metres(a: Value, b: Value, expected: f64) {
    for args in [[a.clone(), b.clone()], [b, a]] {
        let found = answer(StDistance, None, &args).expect("a distance");
        let found = found.trim_start_matches("Float(").trim_end_matches(')');
        let found: f64 = found.parse().expect("a float");
        assert!(
            (found - expected).abs() <= expected * 1e-6,
            "{found} is not {expected}"
        );
    }
}

// proves S1
#[test]
fn distances_are_geodesic() {
    check_metres(point(-5.0, -5.0), point(0.0, 0.0), 784_028.740_775_018_2);
    check_metres(
        "POINT(-5 -5)".into_value(),
        point(0.0, 0.0),
        784_028.740_775_018_2,
    );
    check(StDistance, args![point(1.0, 2.0), point(1.0, 2.0)], 0.0);
    check(
        StDistance,
        args![square(0.0, 0.0, 1.0), point(50.0, 50.0)],
        0.0,
    );
    check(
        StDistance,
        args![square(0.0, 0.0, 1.0), square(50.0, 50.0, 1.0)],
        0.0,
    );
    check(
        StDistance,
        args!["LINESTRING(0 0, 2 2)", point(1.0, 1.0)],
        0.0,
    );
    let degree = 111_319.490_793;
    check_metres(
        "LINESTRING(0 -1, 0 1)".into_value(),
        point(1.0, 0.0),
        degree,
    );
    check_metres(
        "LINESTRING(0 -1, 0 1)".into_value(),
        "LINESTRING(1 0, 5 0)".into_value(),
        degree,
    );
    check_metres("MULTIPOINT(9 9, 1 0)".into_value(), point(0.0, 0.0), degree);
    check(StDistance, args!["POINT EMPTY", point(0.0, 0.0)], NULL);
    fails(
        StDistance,
        args![point(0.0, 0.0), "POINT(0 91)"],
        "argument 2 of ST_DISTANCE is 'POINT(0 91)', but a latitude lies between -90 and 90",
    );
}

// proves S1
#[test]
fn topology_goes_by_the_rules_of_ogc() {
    let big = || square(0.0, 0.0, 10.0);
    for (function, a, b, expected) in [
        (StWithin, point(5.0, 5.0), big(), 1),
        (StWithin, point(0.0, 5.0), big(), 0),
        (StWithin, point(11.0, 5.0), big(), 0),
        (StWithin, square(1.0, 1.0, 2.0), big(), 1),
        (StWithin, big(), big(), 1),
        (StWithin, square(9.0, 9.0, 2.0), big(), 0),
        (StWithin, big(), square(1.0, 1.0, 2.0), 0),
        (StIntersects, point(0.0, 5.0), big(), 1),
        (StIntersects, square(10.0, 0.0, 1.0), big(), 1),
        (StIntersects, square(10.5, 0.0, 1.0), big(), 0),
        (StOverlaps, square(9.0, 9.0, 2.0), big(), 1),
        (StOverlaps, square(1.0, 1.0, 2.0), big(), 0),
        (StOverlaps, big(), square(1.0, 1.0, 2.0), 0),
        (StOverlaps, big(), big(), 0),
        (StOverlaps, square(10.0, 0.0, 1.0), big(), 0),
        (StOverlaps, square(20.0, 0.0, 1.0), big(), 0),
    ] {
        check(function, args![a, b], expected);
    }
    for (a, b, expected) in [
        ("LINESTRING(0 0, 10 10)", "LINESTRING(0 10, 10 0)", 1),
        ("LINESTRING(0 0, 1 1)", "LINESTRING(1 1, 2 0)", 1),
        ("LINESTRING(0 0, 1 1)", "LINESTRING(5 5, 6 6)", 0),
        (
            "GEOMETRYCOLLECTION(POINT(9 9), LINESTRING(0 0, 1 1))",
            "POINT(0.5 0.5)",
            1,
        ),
        (
            "MULTIPOLYGON(((0 0, 1 0, 1 1)), ((5 5, 6 5, 6 6)))",
            "POINT Z (5.9 5.5 100)",
            1,
        ),
        (
            "multilinestring((0 0, 1 1), (5 5, 6 5))",
            "MULTIPOINT((5.5 5), (7 7))",
            1,
        ),
        (
            "POLYGON((0 0, 9 0, 9 9, 0 9), (3 3, 6 3, 6 6, 3 6))",
            "POINT(4 4)",
            0,
        ),
        ("POLYGON EMPTY", "POINT(4 4)", 0),
    ] {
        check(StIntersects, args![a, b], expected);
        check(StIntersects, args![b, a], expected);
    }
    // Neither the direction of a ring nor a level of brackets matters.
    let clockwise = r#"{"type":"Polygon","coordinates":[[0,0],[0,10],[10,10],[10,0],[0,0]]}"#;
    check(StWithin, args![point(5.0, 5.0), json(clockwise)], 1);
    check(StWithin, args![point(50.0, 5.0), json(clockwise)], 0);
}

fn shapes() -> impl Strategy<Value = String> {
    let number = || {
        let odd = prop::sample::select(vec!["1e9", "-1e9", "1e-300", "0.1", "0.30000000000000004"]);
        prop_oneof![9 => (0..6_i32).prop_map(|n| n.to_string()), 1 => odd.prop_map(str::to_string)]
    };
    let point = move || (number(), number()).prop_map(|(x, y)| format!("{x} {y}"));
    let list = move |least: usize| {
        prop::collection::vec(point(), least..7).prop_map(|points| points.join(", "))
    };
    prop_oneof![
        point().prop_map(|point| format!("POINT({point})")),
        list(2).prop_map(|line| format!("LINESTRING({line})")),
        list(3).prop_map(|ring| format!("POLYGON(({ring}))")),
        (list(3), list(3)).prop_map(|(ring, hole)| format!("POLYGON(({ring}), ({hole}))")),
        (list(3), list(3)).prop_map(|(a, b)| format!("MULTIPOLYGON((({a})), (({b})))")),
        (list(2), list(3))
            .prop_map(|(a, b)| { format!("GEOMETRYCOLLECTION(LINESTRING({a}), POLYGON(({b})))") }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    // proves S2
    #[test]
    fn no_shapes_however_crooked_make_a_question_panic(a in shapes(), b in shapes()) {
        for function in [
            StDistance, StIntersects, StOverlaps, StWithin, GlobeIntersects, GlobeOverlaps, GlobeWithin,
        ] {
            let shapes = [a.as_str(), b.as_str()].map(|text| Datum::Scalar(Value::text(text)));
            let _ = run(function, None, &shapes, 1);
        }
    }

    // proves S2
    #[test]
    fn no_text_makes_the_reader_panic(text in "[A-Z(), 0-9.e-]{0,40}|POINT[A-Z(), 0-9.é-]{0,20}") {
        let _ = answer(StIntersects, None, args![text.as_str(), "POINT(0 0)"]);
    }
}
