//! Places labels: beside points without overlap, and along margins.
//!
//! Optimal placement is hard in general. With few labels, eight candidates for each and a greedy choice look right; a
//! label without a free candidate is omitted.

/// A rectangle on the page, in pixels from the top left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub(super) fn centred(x: f64, y: f64, width: f64, height: f64) -> Rect {
        Rect {
            x: x - width / 2.0,
            y: y - height / 2.0,
            width,
            height,
        }
    }

    fn contains(&self, other: &Rect) -> bool {
        self.x <= other.x
            && self.y <= other.y
            && other.x + other.width <= self.x + self.width
            && other.y + other.height <= self.y + self.height
    }

    /// The area that both cover.
    pub(super) fn overlap(&self, other: &Rect) -> f64 {
        let width = (self.x + self.width).min(other.x + other.width) - self.x.max(other.x);
        let height = (self.y + self.height).min(other.y + other.height) - self.y.max(other.y);
        width.max(0.0) * height.max(0.0)
    }
}

/// The approximate width of a text: the font is unknown.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars()
        .map(|c| if c.is_ascii() { 0.58 } else { 0.95 })
        .sum::<f64>()
        * size
}

/// The occupied and free parts of the plot.
pub(super) struct LabelLayout {
    bounds: Rect,
    /// Must not be covered.
    occupied: Vec<Rect>,
    /// Covered only if there is no better place.
    lines: Vec<Rect>,
}

/// Candidates as directions from the point: right, left, above, below, then the corners.
const DIRECTIONS: [(f64, f64); 8] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (1.0, -1.0),
    (-1.0, -1.0),
    (1.0, 1.0),
    (-1.0, 1.0),
];

impl LabelLayout {
    pub(super) fn new(bounds: Rect) -> LabelLayout {
        LabelLayout {
            bounds,
            occupied: Vec::new(),
            lines: Vec::new(),
        }
    }

    pub(super) fn occupy(&mut self, rect: Rect) {
        self.occupied.push(rect);
    }

    pub(super) fn add_line(&mut self, rect: Rect) {
        self.lines.push(rect);
    }

    /// Occupies and returns the best free rectangle of this size beside the point.
    pub(super) fn place(&mut self, point: Rect, width: f64, height: f64) -> Option<Rect> {
        let (x, y) = (point.x + point.width / 2.0, point.y + point.height / 2.0);
        let gap = point.width / 2.0 + 2.0;
        let beside = |(dx, dy): (f64, f64)| {
            // Corners may be closer, because a point is round.
            let gap = if dx != 0.0 && dy != 0.0 {
                gap * 0.6
            } else {
                gap
            };
            Rect::centred(
                x + dx * (gap + width / 2.0),
                y + dy * (gap + height / 2.0),
                width,
                height,
            )
        };
        let free = DIRECTIONS.into_iter().map(beside).filter(|rect| {
            self.bounds.contains(rect) && self.occupied.iter().all(|t| t.overlap(rect) == 0.0)
        });
        let crossed = |rect: &Rect| self.lines.iter().map(|l| l.overlap(rect)).sum::<f64>();
        let best = free.min_by(|a, b| crossed(a).total_cmp(&crossed(b)))?;
        self.occupied.push(best);
        Some(best)
    }
}

/// Moves intervals on a line apart until none overlap, within `lo..=hi` if they fit, in the same order. `intervals` are
/// (centre, length), sorted.
pub(super) fn spread(intervals: &mut [(f64, f64)], lo: f64, hi: f64) {
    let mut edge = lo;
    for (centre, length) in intervals.iter_mut() {
        *centre = centre.max(edge + *length / 2.0);
        edge = *centre + *length / 2.0;
    }
    let mut edge = hi;
    for (centre, length) in intervals.iter_mut().rev() {
        *centre = centre.min(edge - *length / 2.0);
        edge = *centre - *length / 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_avoids_occupied_space_and_is_omitted_without_any() {
        let mut layout = LabelLayout::new(Rect {
            x: 0.0,
            y: 0.0,
            width: 100.0,
            height: 100.0,
        });
        let point = Rect::centred(50.0, 50.0, 10.0, 10.0);
        let first = layout.place(point, 20.0, 10.0).expect("all is free");
        assert!(first.x > 50.0, "right comes first");
        let second = layout.place(point, 20.0, 10.0).expect("the left is free");
        assert!(second.overlap(&first) == 0.0);
        layout.occupy(Rect {
            x: 0.0,
            y: 0.0,
            width: 100.0,
            height: 100.0,
        });
        assert_eq!(layout.place(point, 20.0, 10.0), None);
    }

    #[test]
    fn intervals_are_spread_within_their_bounds() {
        let mut places = [(50.0, 20.0), (51.0, 20.0), (99.0, 20.0)];
        spread(&mut places, 0.0, 100.0);
        assert_eq!(places, [(50.0, 20.0), (70.0, 20.0), (90.0, 20.0)]);
    }
}
