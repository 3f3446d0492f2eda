//! Shapes on the globe, and the position of a point relative to them.
//!
//! A ring has its inside on the left, so one that runs clockwise around a town is the whole globe but the town. Holes
//! are rings like others: a polygon is what lies to the left of all of its rings.

use geo::algorithm::CoordsIter;
use geo::geometry::{Coord, Geometry, LineString, Polygon};

use super::super::geometry::{Malformed, THREE_POINTS, TWO_POINTS};
use super::vector::{Arc, CLOSE, Vector};

#[derive(Clone, Debug, Default)]
pub(in super::super) struct Shape {
    pub(super) points: Vec<Vector>,
    /// Of lines.
    pub(super) arcs: Vec<Arc>,
    /// Where lines begin and end.
    ends: Vec<Vector>,
    areas: Vec<Area>,
}

#[derive(Clone, Debug)]
struct Area {
    rings: Vec<Vec<Arc>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Inside,
    Edge,
    Outside,
}

impl Shape {
    pub(crate) fn new(geometry: &Geometry) -> Result<Shape, Malformed> {
        let on_earth = |coord: Coord| coord.y.abs() <= 90.0;
        if !geometry.coords_iter().all(on_earth) {
            return Err("a latitude lies between -90 and 90");
        }
        let mut shape = Shape::default();
        shape.add(geometry)?;
        Ok(shape)
    }

    fn add(&mut self, geometry: &Geometry) -> Result<(), Malformed> {
        match geometry {
            Geometry::Point(point) => self.points.push(Vector::of(point.0)),
            Geometry::MultiPoint(points) => {
                self.points.extend(points.iter().map(|p| Vector::of(p.0)));
            }
            Geometry::LineString(line) => self.add_line(line)?,
            Geometry::MultiLineString(lines) => {
                lines.iter().try_for_each(|line| self.add_line(line))?;
            }
            Geometry::Polygon(polygon) => self.areas.push(Area::new(polygon)?),
            Geometry::MultiPolygon(polygons) => {
                let areas: Result<Vec<Area>, _> = polygons.iter().map(Area::new).collect();
                self.areas.extend(areas?);
            }
            Geometry::GeometryCollection(parts) => {
                parts.iter().try_for_each(|part| self.add(part))?;
            }
            Geometry::Line(line) => self.add_line(&LineString(vec![line.start, line.end]))?,
            Geometry::Rect(rect) => self.areas.push(Area::new(&rect.to_polygon())?),
            Geometry::Triangle(three) => self.areas.push(Area::new(&three.to_polygon())?),
        }
        Ok(())
    }

    fn add_line(&mut self, line: &LineString) -> Result<(), Malformed> {
        let points = distinct_points(line.coords().copied());
        let arcs = arcs_between(&points)?;
        if arcs.is_empty() {
            return Err(TWO_POINTS);
        }
        if let (Some(first), Some(last)) = (points.first(), points.last())
            && !first.is_close(*last)
        {
            self.ends.extend([*first, *last]);
        }
        self.arcs.extend(arcs);
        Ok(())
    }

    pub(super) fn has_areas(&self) -> bool {
        !self.areas.is_empty()
    }

    /// 2 for areas, 1 for lines, 0 for points.
    pub(super) fn dimension(&self) -> u8 {
        match (self.areas.is_empty(), self.arcs.is_empty()) {
            (false, _) => 2,
            (true, false) => 1,
            (true, true) => 0,
        }
    }

    /// All that it is drawn with: its lines and the edges of its areas.
    pub(super) fn drawn(&self) -> impl Iterator<Item = &Arc> {
        let rings = self.areas.iter().flat_map(|area| &area.rings);
        self.arcs.iter().chain(rings.flatten())
    }

    pub(super) fn position(&self, point: Vector) -> Position {
        let mut edge = self.ends.iter().any(|end| end.is_close(point));
        for area in &self.areas {
            match area.position(point) {
                Position::Inside => return Position::Inside,
                Position::Edge => edge = true,
                Position::Outside => {}
            }
        }
        let on_line = || self.arcs.iter().any(|arc| arc.holds(point));
        let on_point = || self.points.iter().any(|own| own.is_close(point));
        match edge {
            true => Position::Edge,
            false if on_line() || on_point() => Position::Inside,
            false => Position::Outside,
        }
    }
}

impl Area {
    fn new(polygon: &Polygon) -> Result<Area, Malformed> {
        let rings = std::iter::once(polygon.exterior()).chain(polygon.interiors());
        let rings: Result<Vec<_>, _> = rings
            .map(|ring| self::ring(ring.coords().copied()))
            .collect();
        Ok(Area { rings: rings? })
    }

    fn position(&self, point: Vector) -> Position {
        let on_edge = |ring: &Vec<Arc>| ring.iter().any(|arc| arc.holds(point));
        if self.rings.iter().any(on_edge) {
            return Position::Edge;
        }
        match self.rings.iter().all(|ring| is_left(ring, point)) {
            true => Position::Inside,
            false => Position::Outside,
        }
    }
}

/// Whether a point that is not on a ring lies to the left of it.
///
/// The arc from the middle of an edge to the point begins on the point's side of that edge, and changes sides wherever
/// it crosses another edge. The edge that is furthest from the point gives the clearest result.
fn is_left(ring: &[Arc], point: Vector) -> bool {
    let distance = |arc: &&Arc| arc.left(point).abs();
    let Some(base) = ring
        .iter()
        .max_by(|a, b| distance(a).total_cmp(&distance(b)))
    else {
        return false;
    };
    let way = Arc::new(base.middle(), point);
    let crossed = |arc: &&Arc| {
        // An end on the way counts as one side of it, so that of two edges that meet there one is crossed or none.
        let (a, b) = (way.left(arc.from), way.left(arc.to));
        if (a >= 0.0) == (b >= 0.0) || std::ptr::eq(*arc, base) {
            return false;
        }
        let at = arc.from.times(b.abs()).plus(arc.to.times(a.abs()));
        way.from.cross(at).dot(way.normal) >= 0.0 && at.cross(way.to).dot(way.normal) >= 0.0
    };
    let crossings = ring.iter().filter(crossed).count();
    (base.left(point) > 0.0) != (crossings % 2 == 1)
}

/// Directions of points, without repetitions of the previous one.
fn distinct_points(coords: impl Iterator<Item = Coord>) -> Vec<Vector> {
    let mut points: Vec<Vector> = coords.map(Vector::of).collect();
    points.dedup_by(|a, b| a.is_close(*b));
    points
}

fn arc_between(from: Vector, to: Vector) -> Result<Arc, Malformed> {
    match from.is_close(to.times(-1.0)) {
        true => Err("an edge must not join two points that lie opposite each other"),
        false => Ok(Arc::new(from, to)),
    }
}

fn arcs_between(points: &[Vector]) -> Result<Vec<Arc>, Malformed> {
    points
        .windows(2)
        .map(|pair| arc_between(pair[0], pair[1]))
        .collect()
}

/// A ring through these points, closed if it is not.
fn ring(coords: impl Iterator<Item = Coord>) -> Result<Vec<Arc>, Malformed> {
    let mut points = distinct_points(coords);
    while points.len() > 1 && points[0].is_close(points[points.len() - 1]) {
        points.pop();
    }
    points.extend(points.first().copied());
    let ring = arcs_between(&points)?;
    match ring.len() >= 3 && has_inside(&ring) {
        true => Ok(ring),
        false => Err(THREE_POINTS),
    }
}

/// Whether a ring goes around something: it leaves its first great circle, or runs all the way along it.
fn has_inside(ring: &[Arc]) -> bool {
    let base = &ring[0];
    let leaves = |arc: &Arc| base.left(arc.to).abs() > CLOSE;
    let angle = |arc: &Arc| {
        let turned = arc.from.cross(arc.to).dot(base.normal);
        turned.atan2(arc.from.dot(arc.to))
    };
    ring.iter().any(leaves) || ring.iter().map(angle).sum::<f64>().abs() > 1.0
}

/// Whether these points make a ring.
pub(in super::super) fn check_ring(points: &[Coord]) -> Result<(), Malformed> {
    ring(points.iter().copied()).map(drop)
}

/// The first point whose arc shares more than a point with an earlier part of the line.
pub(in super::super) fn runs_over_itself(points: &[Coord]) -> Result<Option<usize>, Malformed> {
    let arcs: Vec<Option<Arc>> = points
        .windows(2)
        .map(|pair| {
            let (from, to) = (Vector::of(pair[0]), Vector::of(pair[1]));
            (!from.is_close(to))
                .then(|| arc_between(from, to))
                .transpose()
        })
        .collect::<Result<_, _>>()?;
    let over = |at: &usize| {
        let earlier = arcs[..*at].iter().flatten();
        arcs[*at].is_some_and(|arc| earlier.into_iter().any(|other| other.runs_along(&arc)))
    };
    Ok((1..arcs.len()).find(over).map(|at| at + 1))
}
