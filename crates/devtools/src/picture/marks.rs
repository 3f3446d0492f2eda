//! What lies inside the plot: water, guides, events, and their labels.

use std::fmt::Write;

use highwater_time::Instant;

use super::axis::clock;
use super::labels::{Rect, Room, text_width};
use super::svg::{LineName, Place, Sheet, escape, line, text};
use super::{Kind, LANES_TOLD_APART, Picture, Point, WatermarkLine};

/// With more events than this their labels are left out: they would hide what they name.
const LABELLED_MAX: usize = 60;
/// With more events than this only adjusted and dropped ones explain themselves to the pointer.
const EXPLAINED_MAX: usize = 600;
const LABEL_SIZE: f64 = 12.0;

pub(super) struct Marks<'a> {
    picture: &'a Picture,
    sheet: &'a Sheet,
    points: &'a [&'a Point],
    lanes: Vec<&'a str>,
    radius: f64,
}

impl<'a> Marks<'a> {
    pub(super) fn new(
        picture: &'a Picture,
        sheet: &'a Sheet,
        points: &'a [&'a Point],
    ) -> Marks<'a> {
        let radius = match points.len() {
            n if n <= LABELLED_MAX => 5.0,
            n if n <= EXPLAINED_MAX => 3.6,
            _ => 2.2,
        };
        Marks {
            picture,
            sheet,
            points,
            lanes: picture.lanes(),
            radius,
        }
    }

    pub(super) fn draw(&self, out: &mut String) {
        self.sheet.open_clip(out);
        if let [only] = self.picture.watermarks.as_slice() {
            self.settled(out, only);
        }
        for guide in self.picture.guides() {
            if let Some((from, to)) = self.sheet.guide_line(guide.shift) {
                line(
                    out,
                    if guide.shift == 0 {
                        "diagonal"
                    } else {
                        "bound"
                    },
                    from,
                    to,
                );
            }
        }
        for watermark in self.picture.drawn_watermarks() {
            self.watermark(out, watermark);
        }
        // Strays go on top: they are what one looks for.
        for kind in [Kind::OnTime, Kind::Adjusted, Kind::Dropped] {
            for point in self.points.iter().filter(|p| p.kind() == kind) {
                self.point(out, point);
            }
        }
        out.push_str("</svg>\n");
        if self.points.len() <= LABELLED_MAX {
            self.point_labels(out, &mut self.room());
        }
    }

    /// The corners of the staircase, from the bottom of the plot to its right end.
    fn stairs(&self, watermark: &WatermarkLine) -> Vec<Place> {
        let right = self.sheet.plot.x + self.sheet.plot.width;
        let mut corners: Vec<Place> = Vec::new();
        for step in watermark.drawable_steps() {
            let (x, y) = (self.sheet.x(step.arrival), self.sheet.y(step.watermark));
            let Some(&(last_x, last_y)) = corners.last() else {
                corners.extend([(x, self.sheet.bottom()), (x, y)]);
                continue;
            };
            // Steps too small to see would make the file as long as the input.
            if last_y - y > 0.2 || x - last_x > 40.0 {
                corners.extend([(x, last_y), (x, y)]);
            }
        }
        if let Some(&(_, y)) = corners.last() {
            corners.push((right, y));
        }
        corners
    }

    fn settled(&self, out: &mut String, watermark: &WatermarkLine) {
        let corners = self.stairs(watermark);
        let Some(&(last_x, _)) = corners.last() else {
            return;
        };
        let path = path(&corners);
        let bottom = self.sheet.bottom();
        let _ = writeln!(
            out,
            r#"<path class="settled water" d="{path}L{last_x:.1} {bottom:.1}Z"/>"#
        );
    }

    fn watermark(&self, out: &mut String, watermark: &WatermarkLine) {
        let corners = self.stairs(watermark);
        if corners.is_empty() {
            return;
        }
        let colour = watermark
            .lane
            .as_deref()
            .map_or("water", |lane| self.lane_colour(lane));
        let weight = if self.picture.watermarks.len() > 1 {
            " thin"
        } else {
            ""
        };
        let path = path(&corners);
        let _ = writeln!(
            out,
            r#"<path class="watermark {colour}{weight}" d="{path}"/>"#
        );
    }

    fn lane_colour(&self, lane: &str) -> &'static str {
        const COLOURS: [&str; LANES_TOLD_APART] = ["l0", "l1", "l2", "l3", "l4", "l5"];
        let place = self.lanes.iter().position(|l| *l == lane);
        place
            .and_then(|i| COLOURS.get(i))
            .copied()
            .unwrap_or("rest")
    }

    fn point(&self, out: &mut String, point: &Point) {
        let kind = point.kind();
        let colour = match (kind, point.lane.as_deref()) {
            (Kind::Dropped, _) => "dropped",
            (_, Some(lane)) => self.lane_colour(lane),
            (Kind::OnTime, None) => "on",
            (Kind::Adjusted, None) => "adjusted",
        };
        let _ = write!(out, r#"<g class="{colour}">"#);
        let (x, from) = self.place(point.arrival, point.event_time);
        match kind {
            Kind::OnTime => dot(out, "dot", (x, from), self.radius),
            Kind::Adjusted => {
                let (_, to) = self.place(point.arrival, point.landed());
                arrow(out, x, from, to, self.radius);
                dot(out, "hollow", (x, from), self.radius - 0.4);
                dot(out, "dot", (x, to), self.radius);
            }
            Kind::Dropped => cross(out, (x, from), self.radius),
        }
        if self.points.len() <= EXPLAINED_MAX || kind != Kind::OnTime {
            let _ = write!(out, "<title>{}</title>", escape(&explanation(point)));
        }
        out.push_str("</g>\n");
    }

    /// A place inside the plot, at its edge for what lies outside.
    fn place(&self, arrival: Instant, event: Instant) -> Place {
        let plot = &self.sheet.plot;
        let inset = self.radius + 2.0;
        let y = self
            .sheet
            .y(event)
            .clamp(plot.y + inset, self.sheet.bottom() - inset);
        let x = self.sheet.x(arrival).clamp(plot.x, plot.x + plot.width);
        (x, y)
    }

    /// The plot with everything in it that a label could hide.
    fn room(&self) -> Room {
        let mut room = Room::new(self.sheet.plot);
        for guide in self.picture.guides() {
            if let Some((from, to)) = self.sheet.guide_line(guide.shift) {
                sampled(from, to).for_each(|rect| room.line(rect));
            }
        }
        for watermark in self.picture.drawn_watermarks() {
            let corners = self.stairs(watermark);
            for pair in corners.windows(2).take(200) {
                room.line(around(pair[0], pair[1], 2.0));
            }
        }
        for point in self.points.iter().take(LABELLED_MAX) {
            let at = self.place(point.arrival, point.event_time);
            let landed = self.place(point.arrival, point.landed());
            room.take(around(at, landed, self.radius));
        }
        room
    }

    /// What each watermark is called, and the height at which it ends.
    pub(super) fn watermark_names(&self) -> Vec<LineName> {
        if self.picture.watermarks.len() > LANES_TOLD_APART {
            return Vec::new();
        }
        let mut names = Vec::new();
        for watermark in self.picture.drawn_watermarks() {
            let Some(&(_, at)) = self.stairs(watermark).last() else {
                continue;
            };
            let (name, colour) = match watermark.lane.as_deref() {
                Some(lane) => (shortened(lane), self.lane_colour(lane)),
                None => ("watermark".to_owned(), "water"),
            };
            names.push(LineName {
                at,
                name,
                detail: String::new(),
                colour,
            });
        }
        names
    }

    fn point_labels(&self, out: &mut String, room: &mut Room) {
        for point in self.points {
            let Some(label) = point.label.as_deref() else {
                continue;
            };
            let (x, y) = self.place(point.arrival, point.event_time);
            let width = text_width(label, LABEL_SIZE) + 2.0;
            // A cross has a halo.
            let size = 2.0 * self.radius + if point.assigned.is_none() { 7.0 } else { 0.0 };
            let dot = Rect::centred(x, y, size, size);
            if let Some(rect) = room.place(dot, width, LABEL_SIZE + 2.0) {
                text(
                    out,
                    "label mid",
                    rect.x + width / 2.0,
                    rect.y + LABEL_SIZE - 0.5,
                    label,
                );
            }
        }
    }
}

fn explanation(point: &Point) -> String {
    let Point {
        arrival,
        event_time,
        assigned,
        verdict,
        label,
        lane,
    } = point;
    let name: Vec<&str> = [label.as_deref(), lane.as_deref()]
        .into_iter()
        .flatten()
        .collect();
    let name = if name.is_empty() {
        "event".to_owned()
    } else {
        name.join(", ")
    };
    let moved = match assigned {
        Some(at) if at != event_time => format!(", moved to {}", clock(*at)),
        _ => String::new(),
    };
    let (happened, arrived) = (clock(*event_time), clock(*arrival));
    format!("{name}: happened {happened}, arrived {arrived}, {verdict}{moved}")
}

/// The margin is narrow.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(14) {
        Some((cut, _)) => format!("{}…", &name[..cut]),
        None => name.to_owned(),
    }
}

fn path(corners: &[Place]) -> String {
    let mut path = String::new();
    for (i, (x, y)) in corners.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    path
}

pub(super) fn dot(out: &mut String, class: &str, (x, y): Place, radius: f64) {
    let _ = write!(
        out,
        r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#
    );
}

pub(super) fn cross(out: &mut String, (x, y): Place, radius: f64) {
    let arm = radius + 0.5;
    dot(out, "faint", (x, y), radius + 3.0);
    let (left, right, top, bottom) = (x - arm, x + arm, y - arm, y + arm);
    let _ = write!(
        out,
        r#"<path class="cross" d="M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}"/>"#
    );
}

/// A vertical arrow between two dots; its head is left out where there is no room for it.
pub(super) fn arrow(out: &mut String, x: f64, from: f64, to: f64, radius: f64) {
    let sign = if to < from { -1.0 } else { 1.0 };
    let tip = to - sign * (radius + 1.5);
    let room = (to - from).abs() - 2.0 * radius;
    let _ = write!(
        out,
        r#"<path class="arrow" d="M{x:.1} {from:.1}L{x:.1} {tip:.1}"#
    );
    if room > radius {
        let (left, right, back) = (x - radius, x + radius, tip - sign * radius);
        let _ = write!(
            out,
            "M{left:.1} {back:.1}L{x:.1} {tip:.1}L{right:.1} {back:.1}"
        );
    }
    out.push_str("\"/>");
}

/// The box around two places, grown by `margin`.
fn around(a: Place, b: Place, margin: f64) -> Rect {
    Rect {
        x: a.0.min(b.0) - margin,
        y: a.1.min(b.1) - margin,
        width: (a.0 - b.0).abs() + 2.0 * margin,
        height: (a.1 - b.1).abs() + 2.0 * margin,
    }
}

/// A slanted line as a row of small boxes.
fn sampled(from: Place, to: Place) -> impl Iterator<Item = Rect> {
    const PIECES: usize = 120;
    (0..=PIECES).map(move |i| {
        let part = i as f64 / PIECES as f64;
        let (x, y) = (
            from.0 + (to.0 - from.0) * part,
            from.1 + (to.1 - from.1) * part,
        );
        Rect::centred(x, y, 4.0, 4.0)
    })
}
