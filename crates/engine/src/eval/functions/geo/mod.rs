//! The geospatial functions: constructing shapes, and their relations.
//!
//! ST_DISTANCE measures on the WGS-84 ellipsoid and matches the reference's example to the last digit. Topological
//! relations use the plane of longitude and latitude, or below compatibility level 1.2 the [`globe`], by the rules of
//! OGC: a point on the edge of a polygon intersects it but is not within it.

mod geometry;
mod globe;
mod wkt;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use geo::algorithm::{Contains, CoordsIter, Distance, Intersects, LinesIter, Relate};
use geo::geometry::{Coord, Geometry, Line, Point};
use geo::line_intersection::{LineIntersection, line_intersection};
use geo::line_measures::metric_spaces::Geodesic;
use highwater_query::functions::Function;

use crate::column::ColumnBuilder;
use crate::eval::fault::EvalError;
use crate::eval::operand::Datum;
use crate::value::Value;

use self::geometry::{GeoJsonBuilder, GeometryReader, Malformed, OPEN_RING, Surface};
use self::globe::Shape;
use super::call::{Call, Row};

/// The value of a geospatial function in every row.
pub(super) fn call(function: Function, call: Call<'_, '_>) -> Datum {
    match function {
        Function::CreatePoint => create_point(call),
        Function::CreateLineString => create_line_string(call, Surface::Plane),
        Function::CreatePolygon => create_polygon(call, Surface::Plane),
        Function::StDistance => distance(call),
        Function::StIntersects => intersects(call),
        Function::StOverlaps => overlaps(call),
        Function::StWithin => within(call),
        Function::GlobeLineString => create_line_string(call, Surface::Globe),
        Function::GlobePolygon => create_polygon(call, Surface::Globe),
        Function::GlobeIntersects => ask_globe(call, globe::intersects),
        Function::GlobeOverlaps => ask_globe(call, globe::overlaps),
        Function::GlobeWithin => ask_globe(call, globe::within),
        other => unreachable!("{other:?} is not geospatial"),
    }
}

/// CreatePoint(latitude, longitude). The stored order is the reverse.
fn create_point(call: Call<'_, '_>) -> Datum {
    let maker = GeoJsonBuilder::new("Point");
    call.strict(|row, out| {
        let (y, x) = (row.float(0)?, row.float(1)?);
        out.push_owned(maker.record(geometry::pair(Coord { x, y })));
        Ok(())
    })
}

/// CreateLineString(point, point, ..)
fn create_line_string(call: Call<'_, '_>, surface: Surface) -> Datum {
    let maker = GeoJsonBuilder::new("LineString");
    call.strict(|row, out| {
        let points = points(row)?;
        if !geometry::has_length(&points) {
            return Err(row.wrong_value(row.len() - 1, geometry::TWO_POINTS));
        }
        let over = match surface {
            Surface::Plane => Ok(runs_over_itself(&points)),
            Surface::Globe => globe::runs_over_itself(&points),
        };
        if let Some(at) = over.map_err(|malformed| row.wrong_value(row.len() - 1, malformed))? {
            return Err(row.wrong_value(at, "the line that leads there runs along itself"));
        }
        let pairs = points.into_iter().map(geometry::pair).collect();
        out.push_owned(maker.record(Value::Array(pairs)));
        Ok(())
    })
}

/// CreatePolygon(point, point, point, ..)
fn create_polygon(mut call: Call<'_, '_>, surface: Surface) -> Datum {
    let maker = GeoJsonBuilder::new("Polygon");
    let mut open = Vec::new();
    let made = call.reborrow().strict(|row, out| {
        let mut points = points(row)?;
        let ring = match surface {
            Surface::Plane if geometry::has_area(&points) => Ok(()),
            Surface::Plane => Err(geometry::THREE_POINTS),
            Surface::Globe => globe::check_ring(&points),
        };
        ring.map_err(|malformed| row.wrong_value(row.len() - 1, malformed))?;
        if points.first() != points.last() {
            points.extend(points.first().copied());
            open.push(row.row_index());
        }
        let ring = Value::Array(points.into_iter().map(geometry::pair).collect());
        out.push_owned(maker.record(Value::Array([ring].into())));
        Ok(())
    });
    call.warn(&open, OPEN_RING);
    made
}

/// All arguments, which are points.
fn points(row: Row<'_>) -> Result<Vec<Coord>, EvalError> {
    let point = |at| match geometry::read(row, at, &mut GeometryReader::on(Surface::Plane))? {
        Geometry::Point(point) => Ok(point.0),
        _ => Err(row.wrong_value(at, "it must be a point")),
    };
    (0..row.len()).map(point).collect()
}

/// The first point whose segment shares more than a point with an earlier part of the line.
fn runs_over_itself(points: &[Coord]) -> Option<usize> {
    let ways: Vec<Line> = points
        .windows(2)
        .map(|way| Line::new(way[0], way[1]))
        .collect();
    let shared = |a: &Line, b: &Line| match line_intersection(*a, *b) {
        Some(LineIntersection::Collinear { intersection }) => {
            intersection.start != intersection.end
        }
        _ => false,
    };
    let overlaps = |at: &usize| {
        ways[..*at]
            .iter()
            .any(|earlier| shared(earlier, &ways[*at]))
    };
    (1..ways.len()).find(overlaps).map(|at| at + 1)
}

/// ST_INTERSECTS(a, b)
fn intersects(call: Call<'_, '_>) -> Datum {
    ask(call, |a, b| a.intersects(b))
}

/// ST_OVERLAPS(a, b): shapes of one dimension whose interiors intersect but do not contain each other.
fn overlaps(call: Call<'_, '_>) -> Datum {
    ask(call, |a, b| a.relate(b).is_overlaps())
}

/// ST_WITHIN(shape, polygon)
fn within(call: Call<'_, '_>) -> Datum {
    ask(call, |a, b| match (a, b) {
        (Geometry::Point(point), Geometry::Polygon(polygon)) => polygon.contains(point),
        _ => a.relate(b).is_within(),
    })
}

fn ask(call: Call<'_, '_>, question: fn(&Geometry, &Geometry) -> bool) -> Datum {
    on_two(call, Surface::Plane, Ok, |row, a, b, out| {
        // The library asserts properties of simple shapes with exact coordinates, which data may violate: rings that
        // cross themselves, intersections that no float can represent. Then the event fails, not the job.
        let answer = catch_unwind(AssertUnwindSafe(|| question(a, b)));
        let answer =
            answer.map_err(|_| row.wrong_value(0, "it cannot be related to argument 2"))?;
        out.push_int(i64::from(answer));
        Ok(())
    })
}

/// The same relations on the globe.
fn ask_globe(call: Call<'_, '_>, question: fn(&Shape, &Shape) -> bool) -> Datum {
    let shape = |geometry: Geometry| Shape::new(&geometry);
    on_two(call, Surface::Globe, shape, |_, a, b, out| {
        out.push_int(i64::from(question(a, b)));
        Ok(())
    })
}

/// ST_DISTANCE(a, b) in metres; 0 where a polygon is involved, as the reference has it.
fn distance(call: Call<'_, '_>) -> Datum {
    on_two(call, Surface::Plane, Ok, |row, a, b, out| {
        for (at, shape) in [a, b].into_iter().enumerate() {
            let on_earth = |coord: Coord| coord.y.abs() <= 90.0;
            if !shape.coords_iter().all(on_earth) {
                return Err(row.wrong_value(at, "a latitude lies between -90 and 90"));
            }
        }
        match metres(a, b) {
            Some(metres) if metres.is_finite() => out.push_float(metres),
            Some(_) => return Err(row.wrong_value(0, "the distance cannot be measured")),
            None => out.push_null(),
        }
        Ok(())
    })
}

/// `None` where a shape has no points. Between lines it is the way between the points that lie closest on the plane,
/// its longitudes scaled to the latitude.
fn metres(a: &Geometry, b: &Geometry) -> Option<f64> {
    if let (Geometry::Point(a), Geometry::Point(b)) = (a, b) {
        return Some(Geodesic.distance(*a, *b));
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let areas = [path_lines(a, &mut left), path_lines(b, &mut right)];
    if left.is_empty() || right.is_empty() {
        return None;
    }
    if areas.contains(&true) || a.intersects(b) {
        return Some(0.0);
    }
    let latitudes = left.iter().chain(&right).map(|way| way.start.y);
    let scale = latitudes.sum::<f64>() / (left.len() + right.len()) as f64;
    let scale = scale.to_radians().cos();
    let mut best: Option<(f64, Point, Point)> = None;
    for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (a, b))) {
        for (from, way) in [(a.start, b), (a.end, b), (b.start, a), (b.end, a)] {
            let to = closest(from, way, scale);
            let (dx, dy) = ((to.x - from.x) * scale, to.y - from.y);
            let squared = dx * dx + dy * dy;
            if best.is_none_or(|(least, ..)| squared < least) {
                best = Some((squared, Point(from), Point(to)));
            }
        }
    }
    best.map(|(_, from, to)| Geodesic.distance(from, to))
}

/// Collects what a shape is drawn with, points as lines without length. Answers whether it has an area.
fn path_lines(shape: &Geometry, out: &mut Vec<Line>) -> bool {
    match shape {
        Geometry::Point(point) => out.push(Line::new(point.0, point.0)),
        Geometry::MultiPoint(points) => {
            out.extend(points.iter().map(|point| Line::new(point.0, point.0)));
        }
        Geometry::LineString(line) => out.extend(line.lines_iter()),
        Geometry::MultiLineString(lines) => out.extend(lines.lines_iter()),
        Geometry::GeometryCollection(parts) => {
            return parts
                .iter()
                .fold(false, |area, part| path_lines(part, out) | area);
        }
        _ => {
            // Where it lies is not asked, only whether it is anywhere.
            out.extend(shape.coords_iter().take(1).map(|at| Line::new(at, at)));
            return true;
        }
    }
    false
}

fn closest(from: Coord, way: &Line, scale: f64) -> Coord {
    let (x, y) = (way.dx() * scale, way.dy());
    let along = (from.x - way.start.x) * scale * x + (from.y - way.start.y) * y;
    let length = x * x + y * y;
    let share = match length > 0.0 {
        true => (along / length).clamp(0.0, 1.0),
        false => 0.0,
    };
    Coord {
        x: way.start.x + share * way.dx(),
        y: way.start.y + share * way.dy(),
    }
}

/// Applies a rule to two shapes. A scalar shape is read once.
fn on_two<S: Clone>(
    mut call: Call<'_, '_>,
    surface: Surface,
    shape: impl Fn(Geometry) -> Result<S, Malformed>,
    mut rule: impl FnMut(Row<'_>, &S, &S, &mut ColumnBuilder) -> Result<(), EvalError>,
) -> Datum {
    let read = |row: Row<'_>, at: usize, reading: &mut GeometryReader| {
        let shape = shape(geometry::read(row, at, reading)?);
        shape.map_err(|malformed| row.wrong_value(at, malformed))
    };
    let mut fixed: [Option<Result<S, EvalError>>; 2] = [None, None];
    let same: [bool; 2] = std::array::from_fn(|at| matches!(call.args[at], Datum::Scalar(_)));
    let mut open = Vec::new();
    let answers = call.reborrow().strict(|row, out| {
        for at in 0..2 {
            if same[at] && fixed[at].is_none() {
                // The binder has warned about constants.
                fixed[at] = Some(read(row, at, &mut GeometryReader::on(surface)));
            }
        }
        let mut reading = GeometryReader::on(surface);
        let mut shape = |at: usize| match &fixed[at] {
            Some(Ok(shape)) => Ok(Cow::Borrowed(shape)),
            Some(Err(reason)) => Err(reason.clone()),
            None => read(row, at, &mut reading).map(Cow::Owned),
        };
        let (a, b) = (shape(0)?, shape(1)?);
        if reading.open_ring {
            open.push(row.row_index());
        }
        rule(row, &*a, &*b, out)
    });
    call.warn(&open, OPEN_RING);
    answers
}
