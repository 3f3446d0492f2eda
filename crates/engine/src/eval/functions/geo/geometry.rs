//! Reads geometries: GeoJSON records or WKT text, both [longitude, latitude].
//!
//! An open ring is closed. On the plane its direction does not matter, because it has only one inside there.
//! Coordinates beyond the second (height, measure) are ignored.

use std::sync::Arc;

use geo::algorithm::CoordsIter;
use geo::algorithm::kernels::{Kernel, Orientation};
use geo::geometry::{
    Coord, Geometry, LineString, MultiLineString, MultiPoint, MultiPolygon, Point, Polygon,
};

use crate::value::{Record, Value, ValueRef};

use super::super::call::Row;
use super::wkt;
use crate::eval::fault::EvalError;

/// Why a value is no geometry, as the second half of a sentence.
pub(super) type Malformed = &'static str;

pub(super) const OPEN_RING: &str = "a ring does not end where it began, so it was closed";
pub(super) const TWO_POINTS: Malformed = "a line needs at least 2 different points";
pub(super) const THREE_POINTS: Malformed =
    "a ring needs at least 3 different points that do not lie on one line";

/// No system of coordinates goes further, in degrees or metres; beyond, the products that topology is decided by would
/// leave the range of floats.
const COORDINATE_MAX: f64 = 1e9;

/// The surface of shapes, which determines what a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    Plane,
    /// The constructor of the shape validates its rings.
    Globe,
}

/// Reads a geometry and records open rings.
#[derive(Debug)]
pub(super) struct GeometryReader {
    surface: Surface,
    /// A ring was open.
    pub open_ring: bool,
}

impl GeometryReader {
    pub(super) fn on(surface: Surface) -> GeometryReader {
        GeometryReader {
            surface,
            open_ring: false,
        }
    }
}

/// An argument that is a geometry.
pub(super) fn read(
    row: Row<'_>,
    at: usize,
    reading: &mut GeometryReader,
) -> Result<Geometry, EvalError> {
    let geometry = match row.value(at) {
        ValueRef::Record(record) => from_record(record, reading),
        ValueRef::Text(text) => wkt::parse(text, reading),
        _ => return Err(row.wrong_type(at, "GeoJSON records and WKT text")),
    };
    let far = |coord: Coord| coord.x.abs() > COORDINATE_MAX || coord.y.abs() > COORDINATE_MAX;
    match geometry {
        Ok(geometry) if geometry.coords_iter().any(far) => {
            Err(row.wrong_value(at, "its coordinates must lie between -1E+09 and 1E+09"))
        }
        Ok(geometry) => Ok(geometry),
        Err(malformed) => Err(row.wrong_value(at, malformed)),
    }
}

fn from_record(record: &Record, reading: &mut GeometryReader) -> Result<Geometry, Malformed> {
    const SHAPES: Malformed =
        "its type must be Point, LineString, Polygon or one of these behind Multi";
    let Some(Value::Text(shape)) = record.get("type") else {
        return Err(SHAPES);
    };
    let coordinates = record.get("coordinates").unwrap_or(&Value::Null);
    Ok(match &**shape {
        "Point" => Geometry::Point(Point(coord(coordinates)?)),
        "LineString" => Geometry::LineString(line_of(coordinates)?),
        "Polygon" => Geometry::Polygon(polygon_of(coordinates, reading)?),
        "MultiPoint" => {
            let points = items(coordinates)?.iter();
            let points: Result<_, _> = points.map(|item| coord(item).map(Point)).collect();
            Geometry::MultiPoint(MultiPoint(points?))
        }
        "MultiLineString" => {
            let lines: Result<_, _> = items(coordinates)?.iter().map(line_of).collect();
            Geometry::MultiLineString(MultiLineString(lines?))
        }
        "MultiPolygon" => {
            let polygons = items(coordinates)?.iter();
            let polygons: Result<_, _> = polygons.map(|item| polygon_of(item, reading)).collect();
            Geometry::MultiPolygon(MultiPolygon(polygons?))
        }
        _ => return Err(SHAPES),
    })
}

fn items(value: &Value) -> Result<&Arc<[Value]>, Malformed> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err("its coordinates must be an array"),
    }
}

fn coord(value: &Value) -> Result<Coord, Malformed> {
    const NUMBERS: Malformed = "each of its points must be an array of longitude and latitude";
    let number = |value: &Value| match value {
        Value::Int(int) => Ok(*int as f64),
        Value::Float(float) => Ok(*float),
        _ => Err(NUMBERS),
    };
    match &items(value)?[..] {
        [x, y, ..] => Ok(Coord {
            x: number(x)?,
            y: number(y)?,
        }),
        _ => Err(NUMBERS),
    }
}

fn coords(value: &Value) -> Result<Vec<Coord>, Malformed> {
    items(value)?.iter().map(coord).collect()
}

fn line_of(value: &Value) -> Result<LineString, Malformed> {
    line(coords(value)?)
}

/// The documentation nests the ring of a polygon once too little in places, so a bare ring will do.
fn polygon_of(value: &Value, reading: &mut GeometryReader) -> Result<Polygon, Malformed> {
    let rings = items(value)?;
    let bare = rings
        .first()
        .and_then(|first| items(first).ok())
        .is_some_and(|first| matches!(first.first(), Some(Value::Int(_) | Value::Float(_))));
    match bare {
        true => polygon(vec![coords(value)?], reading),
        false => polygon(rings.iter().map(coords).collect::<Result<_, _>>()?, reading),
    }
}

/// A line through these points.
pub(super) fn line(points: Vec<Coord>) -> Result<LineString, Malformed> {
    match has_length(&points) {
        true => Ok(LineString(points)),
        false => Err(TWO_POINTS),
    }
}

/// A polygon of an outer ring and holes.
pub(super) fn polygon(
    rings: Vec<Vec<Coord>>,
    reading: &mut GeometryReader,
) -> Result<Polygon, Malformed> {
    let is_ring = |ring: &Vec<Coord>| reading.surface == Surface::Globe || has_area(ring);
    if rings.is_empty() || !rings.iter().all(is_ring) {
        return Err(THREE_POINTS);
    }
    reading.open_ring |= rings.iter().any(|ring| ring.first() != ring.last());
    let mut rings = rings.into_iter().map(LineString);
    let outer = rings.next().unwrap_or_else(|| LineString(Vec::new()));
    Ok(Polygon::new(outer, rings.collect()))
}

/// Whether there are two points that differ.
pub(super) fn has_length(points: &[Coord]) -> bool {
    points.iter().any(|point| *point != points[0])
}

/// Whether there are three points that do not lie on one line.
pub(super) fn has_area(points: &[Coord]) -> bool {
    let Some(second) = points.iter().find(|point| **point != points[0]) else {
        return false;
    };
    let turn = |third| <f64 as geo::GeoNum>::Ker::orient2d(points[0], *second, third);
    points
        .iter()
        .any(|third| turn(*third) != Orientation::Collinear)
}

/// Makes GeoJSON records of one type; the names in them are the same in all rows.
pub(super) struct GeoJsonBuilder {
    names: [Arc<str>; 2],
    shape: Value,
}

impl GeoJsonBuilder {
    pub(super) fn new(shape: &str) -> GeoJsonBuilder {
        GeoJsonBuilder {
            names: ["type".into(), "coordinates".into()],
            shape: Value::text(shape),
        }
    }

    /// `coordinates` are nested as the type asks for.
    pub(super) fn record(&self, coordinates: Value) -> Value {
        let values = [self.shape.clone(), coordinates];
        let fields = self.names.iter().cloned().zip(values).collect();
        Value::Record(Arc::new(Record::from_fields(fields)))
    }
}

pub(super) fn pair(point: Coord) -> Value {
    Value::Array([Value::Float(point.x), Value::Float(point.y)].into())
}
