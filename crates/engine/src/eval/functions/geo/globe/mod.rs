//! Topological relations on the globe, for compatibility levels below 1.2 (geography).
//!
//! The lines and edges of one shape are split where they intersect the other, and each piece is located relative to the
//! other shape. The two sides of an edge are inside and outside of its own shape, so the pieces determine which
//! interiors and exteriors intersect.

mod shape;
mod vector;

#[cfg(test)]
mod tests;

use shape::Position;
use vector::{ArcIntersection, Vector};

pub(super) use shape::{Shape, check_ring, runs_over_itself};

/// Whether two shapes have a point in common.
pub(super) fn intersects(a: &Shape, b: &Shape) -> bool {
    let touches = |a: &Shape, b: &Shape| {
        let mut points = a
            .points
            .iter()
            .copied()
            .chain(a.drawn().map(|arc| arc.from));
        points.any(|point| b.position(point) != Position::Outside)
    };
    let crosses = || {
        a.drawn().any(|arc| {
            let meets = |other| !matches!(arc.meets(other), ArcIntersection::Nowhere);
            b.drawn().any(meets)
        })
    };
    touches(a, b) || touches(b, a) || crosses()
}

/// Whether `a` lies in `b`, and not only on its edge.
pub(super) fn within(a: &Shape, b: &Shape) -> bool {
    if a.dimension() > b.dimension() {
        return false;
    }
    let lies = lie(a, b);
    if lies.contains(&Position::Outside) || lies.is_empty() {
        return false;
    }
    if !a.has_areas() {
        return lies.contains(&Position::Inside);
    }
    // No edge of the one that holds the other runs through it; then all of its inside is on one side.
    if lie(b, a).contains(&Position::Inside) {
        return false;
    }
    lies.contains(&Position::Inside) || interiors_intersect(a, b)
}

/// Whether two shapes of one dimension share some of their insides but not all.
pub(super) fn overlaps(a: &Shape, b: &Shape) -> bool {
    if a.dimension() != b.dimension() {
        return false;
    }
    let (of_a, of_b) = (lie(a, b), lie(b, a));
    let [a_in, b_in] = [&of_a, &of_b].map(|lies| lies.contains(&Position::Inside));
    let [a_out, b_out] = [&of_a, &of_b].map(|lies| lies.contains(&Position::Outside));
    match a.has_areas() {
        // An edge inside the other has both of its own sides there.
        true => (a_in && (a_out || b_in)) || (b_in && b_out),
        false => a_in && a_out && b_out,
    }
}

/// On which sides of `b` the pieces of `a` lie.
fn lie(a: &Shape, b: &Shape) -> Vec<Position> {
    let mut found = Vec::new();
    let mut see = |point: Vector| {
        let position = b.position(point);
        if !found.contains(&position) {
            found.push(position);
        }
    };
    a.points.iter().for_each(|point| see(*point));
    for arc in a.drawn() {
        let mut cuts = vec![arc.from, arc.to];
        for other in b.drawn() {
            match arc.meets(other) {
                ArcIntersection::Nowhere => {}
                ArcIntersection::Crossing(point) => cuts.push(point),
                ArcIntersection::Touching => {
                    let ends = [other.from, other.to];
                    cuts.extend(ends.into_iter().filter(|end| arc.holds(*end)));
                }
            }
        }
        let along = |point: &Vector| {
            let turned = arc.from.cross(*point).dot(arc.normal);
            turned.atan2(arc.from.dot(*point))
        };
        cuts.sort_by(|a, b| along(a).total_cmp(&along(b)));
        let pieces = cuts.windows(2).filter(|cut| !cut[0].is_close(cut[1]));
        pieces.for_each(|cut| see(cut[0].plus(cut[1]).unit()));
    }
    found
}

/// Whether something just inside an edge of `a` is inside `b`, where the two have all edges in common.
fn interiors_intersect(a: &Shape, b: &Shape) -> bool {
    let steps = [1e-2, 1e-4, 1e-6, 1e-8];
    let mut near = a.drawn().flat_map(|arc| {
        let beside = |step: f64| arc.middle().plus(arc.normal.times(step)).unit();
        steps.map(beside)
    });
    let inside = near.find(|point| a.position(*point) == Position::Inside);
    inside.is_some_and(|point| b.position(point) == Position::Inside)
}
