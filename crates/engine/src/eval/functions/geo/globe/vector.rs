//! Directions from the middle of the earth, and the arcs between them.
//!
//! A point on the WGS-84 ellipsoid is the direction in which it is seen from the middle, so the latitude of a map,
//! which stands upright on the ellipsoid, is turned into that of the middle first. An edge is where the plane through
//! its two ends and the middle cuts the surface, the short way: a *great elliptic arc*, which as directions is a great
//! circle.

use geo::geometry::Coord;

/// Points closer than this are one point: a hundredth of a millimetre.
pub(super) const CLOSE: f64 = 1.5e-12;

/// The square of the eccentricity of WGS-84.
const SQUASHED: f64 = 0.006_694_379_990_141_33;

/// A direction has the length 1; products of directions have any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

impl Vector {
    /// Of longitude and latitude in degrees.
    pub(super) fn of(point: Coord) -> Vector {
        let (longitude, latitude) = (point.x.to_radians(), point.y.to_radians());
        let (sin, cos) = latitude.sin_cos();
        Vector {
            x: cos * longitude.cos(),
            y: cos * longitude.sin(),
            z: (1.0 - SQUASHED) * sin,
        }
        .unit()
    }

    pub(super) fn dot(self, other: Vector) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub(super) fn cross(self, other: Vector) -> Vector {
        Vector {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    pub(super) fn plus(self, other: Vector) -> Vector {
        Vector {
            x: self.x + other.x,
            y: self.y + other.y,
            z: self.z + other.z,
        }
    }

    pub(super) fn times(self, factor: f64) -> Vector {
        Vector {
            x: self.x * factor,
            y: self.y * factor,
            z: self.z * factor,
        }
    }

    pub(super) fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The same direction with the length 1.
    pub(super) fn unit(self) -> Vector {
        self.times(1.0 / self.length())
    }

    pub(super) fn is_close(self, other: Vector) -> bool {
        self.plus(other.times(-1.0)).length() <= CLOSE
    }
}

/// The shortest arc between two points that are neither close nor antipodal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arc {
    pub from: Vector,
    pub to: Vector,
    /// Stands upright on its plane, to the left of the way.
    pub normal: Vector,
}

/// How two arcs intersect.
pub(super) enum ArcIntersection {
    Nowhere,
    /// They cross inside of both.
    Crossing(Vector),
    /// An end of one lies on the other, or several do.
    Touching,
}

impl Arc {
    pub(super) fn new(from: Vector, to: Vector) -> Arc {
        Arc {
            from,
            to,
            normal: from.cross(to).unit(),
        }
    }

    pub(super) fn middle(&self) -> Vector {
        self.from.plus(self.to).unit()
    }

    /// How far to the left of the arc's plane a point lies.
    pub(super) fn left(&self, point: Vector) -> f64 {
        self.normal.dot(point)
    }

    pub(super) fn holds(&self, point: Vector) -> bool {
        if point.is_close(self.from) || point.is_close(self.to) {
            return true;
        }
        self.left(point).abs() <= CLOSE
            && self.from.cross(point).dot(self.normal) > 0.0
            && point.cross(self.to).dot(self.normal) > 0.0
    }

    pub(super) fn meets(&self, other: &Arc) -> ArcIntersection {
        let ends = [self.holds(other.from), self.holds(other.to)];
        if ends.contains(&true) || other.holds(self.from) || other.holds(self.to) {
            return ArcIntersection::Touching;
        }
        let (a, b) = (other.left(self.from), other.left(self.to));
        let (c, d) = (self.left(other.from), self.left(other.to));
        if a * b >= 0.0 || c * d >= 0.0 {
            return ArcIntersection::Nowhere;
        }
        // Where each passes through the plane of the other; the planes meet on the other side of the earth, too.
        let here = self.from.times(b.abs()).plus(self.to.times(a.abs()));
        let there = other.from.times(d.abs()).plus(other.to.times(c.abs()));
        match here.dot(there) > 0.0 {
            true => ArcIntersection::Crossing(here.unit()),
            false => ArcIntersection::Nowhere,
        }
    }

    /// Whether they have more than a point in common.
    pub(super) fn runs_along(&self, other: &Arc) -> bool {
        let candidates = [other.from, other.to, self.from, self.to];
        let shared = candidates
            .into_iter()
            .filter(|point| self.holds(*point) && other.holds(*point));
        let mut shared = shared.collect::<Vec<_>>().into_iter();
        let first = shared.next();
        first.is_some_and(|first| shared.any(|point| !point.is_close(first)))
    }
}
