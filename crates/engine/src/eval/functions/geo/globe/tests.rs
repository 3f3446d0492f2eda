//! Compares with shapes whose content a few lines of arithmetic give.

use std::f64::consts::{PI, TAU};

use geo::geometry::{Coord, LineString, Polygon};
use proptest::prelude::*;

use super::*;
use crate::eval::functions::geo::geometry::{GeometryReader, Surface};
use crate::eval::functions::geo::wkt;

fn shape(text: &str) -> Shape {
    let geometry =
        wkt::parse(text, &mut GeometryReader::on(Surface::Globe)).expect("well-known text");
    Shape::new(&geometry).unwrap_or_else(|malformed| panic!("{text}: {malformed}"))
}

fn point(longitude: f64, latitude: f64) -> Shape {
    shape(&format!("POINT({longitude:?} {latitude:?})"))
}

const ARCTIC: &str = "POLYGON((0 66, 90 66, 180 66, -90 66, 0 66))";
const FIJI: &str = "POLYGON((177 -20, -178 -20, -178 -15, 177 -15, 177 -20))";
const AROUND_FIJI: &str = "POLYGON((177 -20, 177 -15, -178 -15, -178 -20, 177 -20))";
const NORTH: &str = "POLYGON((0 0, 120 0, -120 0, 0 0))";

// proves S1
#[test]
fn poles_the_date_line_and_the_far_side_are_places_like_others() {
    for (text, longitude, latitude, expected) in [
        (ARCTIC, 0.0, 90.0, true),
        (ARCTIC, 33.0, 89.0, true),
        (ARCTIC, 0.0, 65.0, false),
        // Along a parallel the short way leads past it to the north.
        (ARCTIC, 45.0, 67.0, false),
        (ARCTIC, 45.0, 73.0, true),
        (ARCTIC, 0.0, -90.0, false),
        (FIJI, 179.0, -18.0, true),
        (FIJI, -179.0, -18.0, true),
        (FIJI, 180.0, -18.0, true),
        (FIJI, -180.0, -18.0, true),
        (FIJI, 541.0, -18.0, true),
        (FIJI, 0.0, -18.0, false),
        (FIJI, 170.0, -18.0, false),
        (AROUND_FIJI, 179.0, -18.0, false),
        (AROUND_FIJI, 0.0, -18.0, true),
        (AROUND_FIJI, 0.0, 90.0, true),
        (NORTH, 10.0, 1.0, true),
        (NORTH, 190.0, 1e-6, true),
        (NORTH, 10.0, -1.0, false),
        (NORTH, 0.0, 90.0, true),
        // On the edge.
        (NORTH, 60.0, 0.0, false),
        (FIJI, 177.0, -20.0, false),
        (FIJI, 177.0, -18.0, false),
    ] {
        let (place, area) = (point(longitude, latitude), shape(text));
        assert_eq!(
            within(&place, &area),
            expected,
            "{longitude} {latitude} in {text}"
        );
        if expected {
            assert!(intersects(&place, &area) && intersects(&area, &place));
        }
    }
    assert!(
        intersects(&point(60.0, 0.0), &shape(NORTH)),
        "an edge is touched"
    );
    let hole = "POLYGON((0 66, 90 66, 180 66, -90 66, 0 66), (0 80, -90 80, 180 80, 90 80, 0 80))";
    assert!(!within(&point(0.0, 90.0), &shape(hole)));
    assert!(within(&point(0.0, 75.0), &shape(hole)));
}

// proves S1
#[test]
fn areas_and_lines_lie_to_each_other_as_they_do_on_a_map() {
    let square = |x: f64, y: f64, size: f64| {
        let (right, top) = (x + size, y + size);
        format!("POLYGON(({x} {y}, {right} {y}, {right} {top}, {x} {top}, {x} {y}))")
    };
    let check = |a: &str, b: &str, expected: [bool; 4]| {
        let (a_shape, b_shape) = (shape(a), shape(b));
        let found = [
            intersects(&a_shape, &b_shape),
            within(&a_shape, &b_shape),
            within(&b_shape, &a_shape),
            overlaps(&a_shape, &b_shape),
        ];
        assert_eq!(
            found, expected,
            "{a} and {b}: intersects, within both ways, overlaps"
        );
        assert_eq!(intersects(&b_shape, &a_shape), expected[0]);
        assert_eq!(overlaps(&b_shape, &a_shape), expected[3]);
    };
    let big = square(175.0, -5.0, 10.0);
    check(&square(176.0, -4.0, 2.0), &big, [true, true, false, false]);
    check(&square(184.0, 4.0, 2.0), &big, [true, false, false, true]);
    check(&square(10.0, 4.0, 2.0), &big, [false, false, false, false]);
    check(&big, &big, [true, true, true, false]);
    // With an edge in common along a meridian: beside it, and inside.
    check(
        &square(185.0, -5.0, 10.0),
        &big,
        [true, false, false, false],
    );
    check(
        "POLYGON((175 -5, 180 0, 175 5, 175 -5))",
        &big,
        [true, true, false, false],
    );
    // A square and all but the square share only its edges.
    let around = "POLYGON((175 -5, 175 5, 185 5, 185 -5, 175 -5))";
    check(&big, around, [true, false, false, false]);
    check(
        &square(176.0, -4.0, 2.0),
        around,
        [false, false, false, false],
    );
    check(&square(10.0, 4.0, 2.0), around, [true, true, false, false]);
    // Together they cover the globe, and neither holds the other.
    check(AROUND_FIJI, around, [true, false, false, true]);
    check(
        "LINESTRING(170 0, 190 0)",
        &big,
        [true, false, false, false],
    );
    check("LINESTRING(176 0, 184 0)", &big, [true, true, false, false]);
    check(
        "LINESTRING(175 -5, 175 5)",
        &big,
        [true, false, false, false],
    );
    // From London to Tokyo the short way leads over the Arctic.
    check(
        "LINESTRING(0 51.5, 139.7 35.7)",
        ARCTIC,
        [true, false, false, false],
    );
    check(
        "LINESTRING(0 0, 10 0)",
        "LINESTRING(5 0, 15 0)",
        [true, false, false, true],
    );
    check(
        "LINESTRING(0 0, 10 0)",
        "LINESTRING(2 0, 5 0)",
        [true, false, true, false],
    );
    check(
        "LINESTRING(0 -5, 0 5)",
        "LINESTRING(-5 0, 5 0)",
        [true, false, false, false],
    );
    check(
        "LINESTRING(0 -5, 0 5)",
        "LINESTRING(175 0, 185 0)",
        [false, false, false, false],
    );
    check(
        "POINT(5 0)",
        "LINESTRING(0 0, 10 0)",
        [true, true, false, false],
    );
    check(
        "POINT(0 0)",
        "LINESTRING(0 0, 10 0)",
        [true, false, false, false],
    );
    check("POLYGON EMPTY", &big, [false, false, false, false]);
}

// proves S2
#[test]
fn what_is_no_shape_on_the_globe_is_told() {
    for (text, reason) in [
        ("POINT(0 91)", "a latitude lies between -90 and 90"),
        ("LINESTRING(180 0, -180 0)", "a line needs at least 2"),
        ("LINESTRING(0 0, 180 0)", "lie opposite each other"),
        (
            "POLYGON((0 90, 50 90, 100 90, 0 90))",
            "a ring needs at least 3",
        ),
        ("POLYGON((0 0, 10 0, 20 0, 0 0))", "a ring needs at least 3"),
        ("POLYGON((0 0, 100 0, 0 0, 0 0))", "a ring needs at least 3"),
    ] {
        let geometry =
            wkt::parse(text, &mut GeometryReader::on(Surface::Globe)).expect("well-known text");
        let malformed = Shape::new(&geometry).expect_err(text);
        assert!(malformed.contains(reason), "{text}: {malformed}");
    }
    let line = |places: &[(f64, f64)]| {
        let points: Vec<Coord> = places.iter().map(|&(x, y)| Coord { x, y }).collect();
        runs_over_itself(&points).expect("a line")
    };
    // The way on, across the date line, is no way back.
    assert_eq!(line(&[(0.0, 0.0), (100.0, 0.0), (-160.0, 0.0)]), None);
    assert_eq!(line(&[(0.0, 0.0), (100.0, 0.0), (50.0, 0.0)]), Some(2));
}

/// A polygon that is seen whole from its middle, so that triangles from there tell what it holds.
#[derive(Clone, Debug)]
struct Star {
    middle: [f64; 3],
    corners: Vec<[f64; 3]>,
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn unit(a: [f64; 3]) -> [f64; 3] {
    a.map(|x| x / dot(a, a).sqrt())
}

/// Anywhere on the globe, everywhere as likely.
fn directions() -> impl Strategy<Value = [f64; 3]> {
    (-1.0..1.0f64, 0.0..TAU).prop_map(|(z, turn)| {
        let flat = (1.0 - z * z).sqrt();
        [flat * turn.cos(), flat * turn.sin(), z]
    })
}

fn stars() -> impl Strategy<Value = Star> {
    let corners = prop::collection::vec((0.05..1.3f64, 0.1..1.0f64), 4..9);
    (directions(), corners)
        .prop_map(|(middle, corners)| {
            let beside = match middle[2].abs() < 0.9 {
                true => [0.0, 0.0, 1.0],
                false => [1.0, 0.0, 0.0],
            };
            let east = unit(cross(beside, middle));
            let north = cross(middle, east);
            let turns: f64 = corners.iter().map(|(_, turn)| turn).sum();
            let mut turned = 0.0;
            let corner = |&(far, turn): &(f64, f64)| {
                // No step is as much as half a turn: there are four at least, and none is ten times another.
                turned += turn / turns * TAU;
                let (sin, cos) = turned.sin_cos();
                std::array::from_fn(|i| {
                    middle[i] * far.cos() + (east[i] * cos + north[i] * sin) * far.sin()
                })
            };
            let corners = corners.iter().map(corner).collect();
            Star { middle, corners }
        })
        .prop_filter("no step of half a turn", |star| {
            let pairs = star.corners.iter().zip(star.corners.iter().cycle().skip(1));
            pairs
                .into_iter()
                .all(|(a, b)| dot(cross(*a, *b), star.middle) > 1e-6)
        })
}

/// What the direction is called on a map, where latitudes stand upright on the ellipsoid.
fn on_map(direction: [f64; 3]) -> Coord {
    let [x, y, z] = direction;
    let flattened = 1.0 - 1.0 / 298.257_223_563;
    let latitude = (z / (flattened * flattened)).atan2(x.hypot(y));
    Coord {
        x: y.atan2(x) * 180.0 / PI,
        y: (latitude * 180.0 / PI).clamp(-90.0, 90.0),
    }
}

impl Star {
    fn shape(&self, clockwise: bool) -> Shape {
        let mut ring: Vec<Coord> = self.corners.iter().map(|c| on_map(*c)).collect();
        if clockwise {
            ring.reverse();
        }
        let polygon = Polygon::new(LineString(ring), Vec::new());
        Shape::new(&polygon.into()).expect("a ring")
    }

    /// How far inside a place lies; below 0 outside.
    fn depth(&self, place: [f64; 3]) -> f64 {
        let next = self.corners.iter().cycle().skip(1);
        let triangles = self.corners.iter().zip(next).map(|(a, b)| {
            let sides = [(self.middle, *a), (*a, *b), (*b, self.middle)];
            let left = sides.map(|(from, to)| dot(unit(cross(from, to)), place));
            (left[1], left[0].min(left[2]))
        });
        // A place is in the wedge of one triangle; its far side tells.
        let wedge =
            triangles.filter(|(_, wedge)| *wedge >= -1e-12 && dot(self.middle, place) > -0.999);
        wedge.map(|(far, _)| far).fold(f64::NEG_INFINITY, f64::max)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    // proves S1
    #[test]
    fn a_ring_holds_what_its_triangles_hold(
        star in stars(), places in prop::collection::vec(directions(), 20)
    ) {
        let (area, rest) = (star.shape(false), star.shape(true));
        for place in places.into_iter().chain([star.middle]) {
            let depth = star.depth(place);
            // Nearer to an edge than the oracle can tell.
            if depth.abs() < 1e-9 {
                continue;
            }
            let coord = on_map(place);
            let display_value = point(coord.x, coord.y);
            prop_assert_eq!(within(&display_value, &area), depth > 0.0, "{:?}", coord);
            prop_assert_eq!(within(&display_value, &rest), depth < 0.0, "{:?} in all but it", coord);
            prop_assert_eq!(intersects(&area, &display_value), depth > 0.0);
        }
    }

    // proves S1
    #[test]
    fn two_areas_lie_as_samples_of_both_say(
        a in stars(), b in stars(), near in prop::collection::vec(directions(), 60),
        small in prop::collection::vec((0..8usize, 0.0..1.0f64, any::<bool>()), 60)
    ) {
        let (left, right) = (a.shape(false), b.shape(false));
        let rest = b.shape(true);
        let inside = within(&left, &right);
        prop_assert_eq!(inside, !intersects(&left, &rest), "within it is clear of the rest");
        prop_assert_eq!(overlaps(&left, &right), overlaps(&right, &left));
        prop_assert_eq!(intersects(&left, &right), intersects(&right, &left));
        let held = within(&right, &left);
        let lie = [inside, held, overlaps(&left, &right), !intersects(&left, &right)];
        prop_assert_eq!(lie.iter().filter(|holds| **holds).count(), 1, "{:?}", lie);
        // Anywhere, and on the way from the middle of each to its corners.
        let toward = small.iter().map(|&(corner, share, of_a)| {
            let star = if of_a { &a } else { &b };
            let corner = star.corners[corner % star.corners.len()];
            unit(std::array::from_fn(|i| star.middle[i] * (1.0 - share) + corner[i] * share))
        });
        for place in near.into_iter().chain(toward) {
            let (in_a, in_b) = (a.depth(place), b.depth(place));
            if in_a.abs() < 1e-9 || in_b.abs() < 1e-9 {
                continue;
            }
            match (in_a > 0.0, in_b > 0.0) {
                (true, true) => prop_assert!(intersects(&left, &right)),
                (true, false) => prop_assert!(!inside),
                (false, true) => prop_assert!(!held),
                (false, false) => {}
            }
        }
    }
}
