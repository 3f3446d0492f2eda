//! Finds room for text: beside points where nothing else is, and along margins without touching.
//!
//! Placing labels well is hard in general. Few labels and eight places for each, the emptiest taken
//! first come first served, look right; a label that finds no empty place is left out.

/// A box on the page, in pixels from the top left.
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

    fn holds(&self, other: &Rect) -> bool {
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

/// How wide a text is, roughly: fonts differ from reader to reader.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars()
        .map(|c| if c.is_ascii() { 0.58 } else { 0.95 })
        .sum::<f64>()
        * size
}

/// The room that is left inside the plot.
pub(super) struct Room {
    bounds: Rect,
    /// What must not be covered.
    taken: Vec<Rect>,
    /// What had better not be covered.
    lines: Vec<Rect>,
}

/// Right, left, above, below, then the corners: signs of the way from the point.
const PLACES: [(f64, f64); 8] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (1.0, -1.0),
    (-1.0, -1.0),
    (1.0, 1.0),
    (-1.0, 1.0),
];

impl Room {
    pub(super) fn new(bounds: Rect) -> Room {
        Room {
            bounds,
            taken: Vec::new(),
            lines: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, rect: Rect) {
        self.taken.push(rect);
    }

    pub(super) fn line(&mut self, rect: Rect) {
        self.lines.push(rect);
    }

    /// The best free box of this size beside the point, which it then takes.
    pub(super) fn place(&mut self, point: Rect, width: f64, height: f64) -> Option<Rect> {
        let (x, y) = (point.x + point.width / 2.0, point.y + point.height / 2.0);
        let gap = point.width / 2.0 + 2.0;
        let beside = |(dx, dy): (f64, f64)| {
            // Corners may come closer, because a point is round.
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
        let free = PLACES.into_iter().map(beside).filter(|rect| {
            self.bounds.holds(rect) && self.taken.iter().all(|t| t.overlap(rect) == 0.0)
        });
        let crossed = |rect: &Rect| self.lines.iter().map(|l| l.overlap(rect)).sum::<f64>();
        let best = free.min_by(|a, b| crossed(a).total_cmp(&crossed(b)))?;
        self.taken.push(best);
        Some(best)
    }
}

/// Moves places on a line apart until each has room, none leaves `lo..=hi` if they fit, and the
/// order stays. `places` are (centre, length), sorted.
pub(super) fn spread(places: &mut [(f64, f64)], lo: f64, hi: f64) {
    let mut edge = lo;
    for (centre, length) in places.iter_mut() {
        *centre = centre.max(edge + *length / 2.0);
        edge = *centre + *length / 2.0;
    }
    let mut edge = hi;
    for (centre, length) in places.iter_mut().rev() {
        *centre = centre.min(edge - *length / 2.0);
        edge = *centre - *length / 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_avoids_what_is_there_and_is_left_out_when_nothing_is_free() {
        let mut room = Room::new(Rect {
            x: 0.0,
            y: 0.0,
            width: 100.0,
            height: 100.0,
        });
        let point = Rect::centred(50.0, 50.0, 10.0, 10.0);
        let first = room.place(point, 20.0, 10.0).expect("all is free");
        assert!(first.x > 50.0, "right comes first");
        let second = room.place(point, 20.0, 10.0).expect("the left is free");
        assert!(second.overlap(&first) == 0.0);
        room.take(Rect {
            x: 0.0,
            y: 0.0,
            width: 100.0,
            height: 100.0,
        });
        assert_eq!(room.place(point, 20.0, 10.0), None);
    }

    #[test]
    fn places_are_spread_within_their_bounds() {
        let mut places = [(50.0, 20.0), (51.0, 20.0), (99.0, 20.0)];
        spread(&mut places, 0.0, 100.0);
        assert_eq!(places, [(50.0, 20.0), (70.0, 20.0), (90.0, 20.0)]);
    }
}
