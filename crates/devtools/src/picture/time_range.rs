//! The time range of the picture, and the sample of events when there are too many.

use highwater_time::Instant;

use super::axis::Axis;
use super::{Picture, Point, PointKind, with_thousands};

/// With more points than this a sample is drawn.
pub(super) const POINTS_MAX: usize = 4_000;
/// At most this many of them are adjusted or dropped events, which have priority.
const EXCEPTIONS_MAX: usize = 3_000;

/// The axes of the picture.
pub(super) struct TimeRange {
    pub arrival: Axis,
    pub event: Axis,
}

impl TimeRange {
    /// Covers all kept events. A far outlier, such as an event of a clock that is years off, would shrink the rest to a
    /// line; it is drawn at the edge instead.
    pub(super) fn of(picture: &Picture) -> TimeRange {
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
        TimeRange {
            arrival: Axis::with_margin(left, right),
            event: Axis::with_margin(low, high),
        }
    }

    pub(super) fn shows(&self, point: &Point) -> bool {
        self.event.contains(point.event_time) && self.event.contains(point.final_time())
    }
}

/// The range of an empty picture.
const ORIGIN: (Instant, Instant) = (Instant::CALENDAR_START, Instant::CALENDAR_START);

/// The minimum and maximum, without the ends of time, which cannot be drawn.
fn range(values: impl Iterator<Item = Instant>) -> Option<(Instant, Instant)> {
    let drawable = values.filter(|at| at.is_in_calendar());
    drawable.fold(None, |range, at| match range {
        None => Some((at, at)),
        Some((lo, hi)) => Some((at.min(lo), at.max(hi))),
    })
}

/// The points to draw, and a remark if they are a sample.
pub(super) fn sample_points(points: &[Point]) -> (Vec<&Point>, Option<String>) {
    if points.len() <= POINTS_MAX {
        return (points.iter().collect(), None);
    }
    let on_time = points
        .iter()
        .filter(|p| p.kind() == PointKind::OnTime)
        .count();
    let exceptions = points.len() - on_time;
    let exceptions_kept = exceptions.min(EXCEPTIONS_MAX);
    let on_time_kept = on_time.min(POINTS_MAX - exceptions_kept);
    let mut on_time_sampler = EvenSampler::new(on_time_kept, on_time);
    let mut exception_sampler = EvenSampler::new(exceptions_kept, exceptions);
    let kept = points.iter().filter(|p| match p.kind() {
        PointKind::OnTime => on_time_sampler.keeps_next(),
        _ => exception_sampler.keeps_next(),
    });
    let kept: Vec<&Point> = kept.collect();
    let mut remarks = Vec::new();
    for (drawn, all, name) in [
        (on_time_kept, on_time, "on-time"),
        (exceptions_kept, exceptions, "adjusted and dropped"),
    ] {
        if drawn < all {
            remarks.push(format!(
                "{} of {} {name}",
                with_thousands(drawn),
                with_thousands(all)
            ));
        }
    }
    (
        kept,
        Some(format!("shows {} events", remarks.join(" and "))),
    )
}

/// Selects `keep` of `all` items, evenly.
struct EvenSampler {
    keep: usize,
    all: usize,
    seen: usize,
}

impl EvenSampler {
    fn new(keep: usize, all: usize) -> EvenSampler {
        EvenSampler { keep, all, seen: 0 }
    }

    fn keeps_next(&mut self) -> bool {
        let before = self.seen * self.keep / self.all.max(1);
        self.seen += 1;
        self.seen * self.keep / self.all.max(1) > before
    }
}
