//! The content of the plot: watermarks, guides, points and labels.

use std::fmt::Write;

use highwater_time::Instant;

use super::axis::date_and_time;
use super::label_layout::{LabelLayout, Rect, text_width};
use super::svg::{LineName, PlotArea, Position, escape, line, text};
use super::{LANE_COLOURS, Picture, Point, PointKind, WatermarkLine};

/// With more events than this labels are omitted: they would hide the points.
const LABELLED_MAX: usize = 60;
/// With more events than this only adjusted and dropped ones have tooltips.
const EXPLAINED_MAX: usize = 600;
const LABEL_SIZE: f64 = 12.0;
const REVISION_RADIUS: f64 = 4.5;

pub(super) struct PlotContent<'a> {
    picture: &'a Picture,
    area: &'a PlotArea,
    points: &'a [&'a Point],
    lanes: Vec<&'a str>,
    radius: f64,
}

impl<'a> PlotContent<'a> {
    pub(super) fn new(
        picture: &'a Picture,
        area: &'a PlotArea,
        points: &'a [&'a Point],
    ) -> PlotContent<'a> {
        let radius = match points.len() {
            n if n <= LABELLED_MAX => 5.0,
            n if n <= EXPLAINED_MAX => 3.6,
            _ => 2.2,
        };
        PlotContent {
            picture,
            area,
            points,
            lanes: picture.lanes(),
            radius,
        }
    }

    pub(super) fn draw(&self, out: &mut String) {
        self.area.open_clip(out);
        if let [only] = self.picture.watermarks.as_slice() {
            self.area_below(out, only);
        }
        for guide in self.picture.guides() {
            if let Some((from, to)) = self.area.guide_line(guide.shift) {
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
        self.revisions(out);
        // Adjusted and dropped events are drawn on top.
        for kind in [PointKind::OnTime, PointKind::Adjusted, PointKind::Dropped] {
            for point in self.points.iter().filter(|p| p.kind() == kind) {
                self.point(out, point);
            }
        }
        out.push_str("</svg>\n");
        if self.points.len() <= LABELLED_MAX {
            self.point_labels(out, &mut self.label_layout());
        }
    }

    /// The corners of the staircase, from the bottom of the plot to its right end.
    fn stairs(&self, watermark: &WatermarkLine) -> Vec<Position> {
        let right = self.area.plot.x + self.area.plot.width;
        let mut corners: Vec<Position> = Vec::new();
        for step in watermark.drawable_steps() {
            let (x, y) = (self.area.x(step.arrival), self.area.y(step.watermark));
            let Some(&(last_x, last_y)) = corners.last() else {
                corners.extend([(x, self.area.bottom()), (x, y)]);
                continue;
            };
            // Invisible steps are skipped, or the file would grow with the input.
            if last_y - y > 0.2 || x - last_x > 40.0 {
                corners.extend([(x, last_y), (x, y)]);
            }
        }
        if let Some(&(_, y)) = corners.last() {
            corners.push((right, y));
        }
        corners
    }

    fn area_below(&self, out: &mut String, watermark: &WatermarkLine) {
        let corners = self.stairs(watermark);
        let Some(&(last_x, _)) = corners.last() else {
            return;
        };
        let path = path(&corners);
        let bottom = self.area.bottom();
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

    /// A mark where each revision takes place. Marks that would cover each other are left out.
    fn revisions(&self, out: &mut String) {
        let mut last_y = f64::INFINITY;
        for step in self.picture.revision_steps() {
            let (x, y) = (self.area.x(step.arrival), self.area.y(step.watermark));
            if last_y - y < 2.0 * REVISION_RADIUS {
                continue;
            }
            last_y = y;
            out.push_str(r#"<g class="neutral">"#);
            diamond(out, (x, y));
            let time = date_and_time(step.watermark);
            let _ = writeln!(out, "<title>early results as of {time}</title></g>");
        }
    }

    fn lane_colour(&self, lane: &str) -> &'static str {
        const COLOURS: [&str; LANE_COLOURS] = ["l0", "l1", "l2", "l3", "l4", "l5"];
        let index = self.lanes.iter().position(|l| *l == lane);
        index
            .and_then(|i| COLOURS.get(i))
            .copied()
            .unwrap_or("rest")
    }

    fn point(&self, out: &mut String, point: &Point) {
        let kind = point.kind();
        let colour = match (kind, point.lane.as_deref()) {
            (PointKind::Dropped, _) => "dropped",
            (_, Some(lane)) => self.lane_colour(lane),
            (PointKind::OnTime, None) => "on",
            (PointKind::Adjusted, None) => "adjusted",
        };
        let _ = write!(out, r#"<g class="{colour}">"#);
        let (x, from) = self.position(point.arrival, point.event_time);
        match kind {
            PointKind::OnTime => dot(out, "dot", (x, from), self.radius),
            PointKind::Adjusted => {
                let (_, to) = self.position(point.arrival, point.final_time());
                arrow(out, x, from, to, self.radius);
                dot(out, "hollow", (x, from), self.radius - 0.4);
                dot(out, "dot", (x, to), self.radius);
            }
            PointKind::Dropped => cross(out, (x, from), self.radius),
        }
        if self.points.len() <= EXPLAINED_MAX || kind != PointKind::OnTime {
            let _ = write!(out, "<title>{}</title>", escape(&explanation(point)));
        }
        out.push_str("</g>\n");
    }

    /// The position of a point, clamped to the plot.
    fn position(&self, arrival: Instant, event: Instant) -> Position {
        let plot = &self.area.plot;
        let inset = self.radius + 2.0;
        let y = self
            .area
            .y(event)
            .clamp(plot.y + inset, self.area.bottom() - inset);
        let x = self.area.x(arrival).clamp(plot.x, plot.x + plot.width);
        (x, y)
    }

    /// The plot with all points and lines, for placing labels.
    fn label_layout(&self) -> LabelLayout {
        let mut layout = LabelLayout::new(self.area.plot);
        for guide in self.picture.guides() {
            if let Some((from, to)) = self.area.guide_line(guide.shift) {
                sampled(from, to).for_each(|rect| layout.add_line(rect));
            }
        }
        for watermark in self.picture.drawn_watermarks() {
            let corners = self.stairs(watermark);
            for pair in corners.windows(2).take(200) {
                layout.add_line(bounding_box(pair[0], pair[1], 2.0));
            }
        }
        for point in self.points.iter().take(LABELLED_MAX) {
            let at = self.position(point.arrival, point.event_time);
            let end = self.position(point.arrival, point.final_time());
            layout.occupy(bounding_box(at, end, self.radius));
        }
        layout
    }

    /// The names of the watermarks, at the heights where they end.
    pub(super) fn watermark_names(&self) -> Vec<LineName> {
        if self.picture.watermarks.len() > LANE_COLOURS {
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

    fn point_labels(&self, out: &mut String, layout: &mut LabelLayout) {
        for point in self.points {
            let Some(label) = point.label.as_deref() else {
                continue;
            };
            let (x, y) = self.position(point.arrival, point.event_time);
            let width = text_width(label, LABEL_SIZE) + 2.0;
            // A cross has a halo.
            let size = 2.0 * self.radius + if point.assigned.is_none() { 7.0 } else { 0.0 };
            let dot = Rect::centred(x, y, size, size);
            if let Some(rect) = layout.place(dot, width, LABEL_SIZE + 2.0) {
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
        Some(at) if at != event_time => format!(", moved to {}", date_and_time(*at)),
        _ => String::new(),
    };
    let (happened, arrived) = (date_and_time(*event_time), date_and_time(*arrival));
    format!("{name}: happened {happened}, arrived {arrived}, {verdict}{moved}")
}

/// The name, shortened to the narrow margin.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(14) {
        Some((cut, _)) => format!("{}…", &name[..cut]),
        None => name.to_owned(),
    }
}

fn path(corners: &[Position]) -> String {
    let mut path = String::new();
    for (i, (x, y)) in corners.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    path
}

pub(super) fn dot(out: &mut String, class: &str, (x, y): Position, radius: f64) {
    let _ = write!(
        out,
        r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#
    );
}

pub(super) fn diamond(out: &mut String, (x, y): Position) {
    let arm = REVISION_RADIUS;
    let (left, right, top, bottom) = (x - arm, x + arm, y - arm, y + arm);
    let _ = write!(
        out,
        r#"<path class="hollow" d="M{left:.1} {y:.1}L{x:.1} {top:.1}L{right:.1} {y:.1}L{x:.1} {bottom:.1}Z"/>"#
    );
}

pub(super) fn cross(out: &mut String, (x, y): Position, radius: f64) {
    let arm = radius + 0.5;
    dot(out, "faint", (x, y), radius + 3.0);
    let (left, right, top, bottom) = (x - arm, x + arm, y - arm, y + arm);
    let _ = write!(
        out,
        r#"<path class="cross" d="M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}"/>"#
    );
}

/// A vertical arrow between two dots, without a head if it is too short.
pub(super) fn arrow(out: &mut String, x: f64, from: f64, to: f64, radius: f64) {
    let sign = if to < from { -1.0 } else { 1.0 };
    let tip = to - sign * (radius + 1.5);
    let length = (to - from).abs() - 2.0 * radius;
    let _ = write!(
        out,
        r#"<path class="arrow" d="M{x:.1} {from:.1}L{x:.1} {tip:.1}"#
    );
    if length > radius {
        let (left, right, back) = (x - radius, x + radius, tip - sign * radius);
        let _ = write!(
            out,
            "M{left:.1} {back:.1}L{x:.1} {tip:.1}L{right:.1} {back:.1}"
        );
    }
    out.push_str("\"/>");
}

/// The bounding box of two positions, grown by `margin`.
fn bounding_box(a: Position, b: Position, margin: f64) -> Rect {
    Rect {
        x: a.0.min(b.0) - margin,
        y: a.1.min(b.1) - margin,
        width: (a.0 - b.0).abs() + 2.0 * margin,
        height: (a.1 - b.1).abs() + 2.0 * margin,
    }
}

/// A slanted line as a series of small rectangles.
fn sampled(from: Position, to: Position) -> impl Iterator<Item = Rect> {
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
