//! Which part of time the picture shows, and which events it shows when there are too many.

use highwater_time::Instant;

use super::axis::Axis;
use super::{Kind, Picture, Point, grouped};

/// More points than this are thinned.
pub(super) const POINTS_MAX: usize = 4_000;
/// Of those, so many may be adjusted or dropped ones, which nobody wants to miss.
const STRAYS_MAX: usize = 3_000;

/// The two ranges of time that the picture spans.
pub(super) struct Frame {
    pub arrival: Axis,
    pub event: Axis,
}

impl Frame {
    /// Room for everything that was kept. An event that strays much further than that (a clock that
    /// is years off) would shrink the rest to a line; it is drawn at the edge instead.
    pub(super) fn of(picture: &Picture) -> Frame {
        let (points, lines) = (&picture.points, &picture.watermarks);
        let steps = || lines.iter().flat_map(|line| &line.steps);
        let arrivals = points
            .iter()
            .map(|p| p.arrival)
            .chain(steps().map(|s| s.arrival));
        let (left, right) = range(arrivals).unwrap_or(ORIGIN);
        let kept = points
            .iter()
            .filter_map(|p| p.assigned)
            .chain(steps().map(|s| s.watermark));
        let all = || points.iter().map(|p| p.event_time);
        let (low, high) = range(kept).or_else(|| range(all())).unwrap_or(ORIGIN);
        let reach = (high - low).max(right - left);
        let near = all().filter(|at| (low - reach..=high + reach).contains(at));
        let (low, high) = range(near.chain([low, high])).unwrap_or((low, high));
        Frame {
            arrival: Axis::around(left, right),
            event: Axis::around(low, high),
        }
    }

    pub(super) fn shows(&self, point: &Point) -> bool {
        self.event.contains(point.event_time) && self.event.contains(point.landed())
    }
}

/// What an empty picture shows.
const ORIGIN: (Instant, Instant) = (Instant::CALENDAR_START, Instant::CALENDAR_START);

/// The least and the greatest; the ends of time cannot be drawn and do not count.
fn range(values: impl Iterator<Item = Instant>) -> Option<(Instant, Instant)> {
    let drawable = values.filter(|at| at.is_in_calendar());
    drawable.fold(None, |range, at| match range {
        None => Some((at, at)),
        Some((lo, hi)) => Some((at.min(lo), at.max(hi))),
    })
}

/// The points to draw, and a remark if these are not all.
pub(super) fn thinned(points: &[Point]) -> (Vec<&Point>, Option<String>) {
    if points.len() <= POINTS_MAX {
        return (points.iter().collect(), None);
    }
    let on_time = points.iter().filter(|p| p.kind() == Kind::OnTime).count();
    let strays = points.len() - on_time;
    let strays_kept = strays.min(STRAYS_MAX);
    let on_time_kept = on_time.min(POINTS_MAX - strays_kept);
    let mut on_time_sieve = Sieve::new(on_time_kept, on_time);
    let mut stray_sieve = Sieve::new(strays_kept, strays);
    let kept = points.iter().filter(|p| match p.kind() {
        Kind::OnTime => on_time_sieve.keeps_next(),
        _ => stray_sieve.keeps_next(),
    });
    let kept: Vec<&Point> = kept.collect();
    let mut remarks = Vec::new();
    for (drawn, all, name) in [
        (on_time_kept, on_time, "on-time"),
        (strays_kept, strays, "adjusted and dropped"),
    ] {
        if drawn < all {
            remarks.push(format!("{} of {} {name}", grouped(drawn), grouped(all)));
        }
    }
    (
        kept,
        Some(format!("shows {} events", remarks.join(" and "))),
    )
}

/// Lets `keep` of `all` through, evenly.
struct Sieve {
    keep: usize,
    all: usize,
    seen: usize,
}

impl Sieve {
    fn new(keep: usize, all: usize) -> Sieve {
        Sieve { keep, all, seen: 0 }
    }

    fn keeps_next(&mut self) -> bool {
        let before = self.seen * self.keep / self.all.max(1);
        self.seen += 1;
        self.seen * self.keep / self.all.max(1) > before
    }
}
