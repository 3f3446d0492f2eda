//! The picture as a self-contained SVG: own background, system fonts, light and dark.
//!
//! Elements carry classes and no ids, so that several pictures can share a page.

use std::fmt::Write;

use super::axis::Tick;
use super::label_layout::{Rect, spread, text_width};
use super::legend;
use super::plot_content::PlotContent;
use super::time_range::{TimeRange, sample_points};
use super::{Guide, Picture, with_thousands};
use highwater_time::{Duration, Instant};

pub(super) const WIDTH: f64 = 960.0;
const MARGIN: f64 = 28.0;
const PLOT_LEFT: f64 = 92.0;
const PLOT_RIGHT: f64 = 126.0;
const PLOT_HEIGHT: f64 = 440.0;
const BELOW_PLOT: f64 = 66.0;

/// The SVG file.
pub fn svg(picture: &Picture) -> String {
    let range = TimeRange::of(picture);
    let (points, sampling) = sample_points(&picture.points);
    let outside = points.iter().filter(|p| !range.shows(p)).count();
    let heading = heading(picture, sampling, outside);
    let top = 46.0 + 19.0 * heading.len() as f64 + 34.0;
    let plot = Rect {
        x: PLOT_LEFT,
        y: top,
        width: WIDTH - PLOT_LEFT - PLOT_RIGHT,
        height: PLOT_HEIGHT,
    };
    let area = PlotArea { range, plot };
    let mut body = String::new();
    title(&mut body, &picture.title, &heading);
    area.grid(&mut body);
    let marks = PlotContent::new(picture, &area, &points);
    marks.draw(&mut body);
    area.line_names(&mut body, &picture.guides(), marks.watermark_names());
    let legend_top = plot.y + plot.height + BELOW_PLOT;
    let legend_height = legend::draw(&mut body, picture, MARGIN, legend_top);
    let height = legend_top + legend_height + 14.0;
    wrap(&body, &picture.title, height)
}

/// Maps times to positions on the page.
pub(super) struct PlotArea {
    pub range: TimeRange,
    pub plot: Rect,
}

impl PlotArea {
    pub(super) fn x(&self, arrival: Instant) -> f64 {
        self.plot.x + self.range.arrival.fraction(arrival) * self.plot.width
    }

    pub(super) fn y(&self, event: Instant) -> f64 {
        self.plot.y + (1.0 - self.range.event.fraction(event)) * self.plot.height
    }

    fn right(&self) -> f64 {
        self.plot.x + self.plot.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.plot.y + self.plot.height
    }

    /// Opens an element that clips to the plot. Coordinates stay those of the page.
    pub(super) fn open_clip(&self, out: &mut String) {
        let Rect {
            x,
            y,
            width,
            height,
        } = self.plot;
        let _ = writeln!(
            out,
            r#"<svg x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" viewBox="{x:.1} {y:.1} {width:.1} {height:.1}">"#
        );
    }

    fn grid(&self, out: &mut String) {
        let Rect {
            x,
            y,
            width,
            height,
        } = self.plot;
        let _ = writeln!(
            out,
            r#"<rect class="plot" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
        for tick in self.arrival_ticks() {
            let at = self.x(tick.at);
            line(out, "grid", (at, y), (at, self.bottom()));
            text(out, "tick mid", at, self.bottom() + 18.0, &tick.label);
        }
        for tick in self.range.event.ticks(12) {
            let at = self.y(tick.at);
            line(out, "grid", (x, at), (self.right(), at));
            text(out, "tick end", x - 8.0, at + 4.0, &tick.label);
        }
        let caption = format!("arrival time (UTC, {}) →", self.range.arrival.day());
        text(
            out,
            "axis mid",
            x + width / 2.0,
            self.bottom() + 40.0,
            &caption,
        );
        let caption = format!("event time (UTC, {}) →", self.range.event.day());
        let middle = y + height / 2.0;
        let _ = writeln!(
            out,
            r#"<text class="axis mid" transform="translate({:.1} {middle:.1}) rotate(-90)">{}</text>"#,
            MARGIN,
            escape(&caption)
        );
    }

    /// As many ticks as their labels have room for.
    fn arrival_ticks(&self) -> Vec<Tick> {
        let fits = |ticks: &Vec<Tick>| {
            let widths = ticks
                .iter()
                .map(|tick| text_width(&tick.label, 12.0) + 14.0);
            widths.fold(0.0, f64::max) * ticks.len() as f64 <= self.plot.width
        };
        let candidates = [12, 9, 7, 5].map(|at_most| self.range.arrival.ticks(at_most));
        candidates
            .into_iter()
            .find(fits)
            .unwrap_or_else(|| self.range.arrival.ticks(3))
    }

    /// The ends of the line `event = arrival + shift` within the plot, if it crosses the plot.
    pub(super) fn guide_line(&self, shift: i64) -> Option<(Position, Position)> {
        let shift = Duration::from_ticks(shift);
        let (arrival, event) = (&self.range.arrival, &self.range.event);
        let from = arrival.lo().max(event.lo() - shift);
        let to = arrival.hi().min(event.hi() - shift);
        let place = |at: Instant| (self.x(at), self.y(at + shift));
        (from < to).then(|| (place(from), place(to)))
    }

    /// Names each line where it leaves the plot: in the right margin, or above.
    fn line_names(&self, out: &mut String, guides: &[Guide], watermarks: Vec<LineName>) {
        let mut right = watermarks;
        let mut above = Vec::new();
        for guide in guides {
            let Some((_, (x, y))) = self.guide_line(guide.shift) else {
                continue;
            };
            let name = LineName {
                at: if y > self.plot.y + 1.0 { y } else { x },
                name: guide.name.to_owned(),
                detail: guide.formula.clone(),
                colour: "",
            };
            if y > self.plot.y + 1.0 {
                right.push(name)
            } else {
                above.push(name)
            }
        }
        right.sort_by(|a, b| a.at.total_cmp(&b.at));
        above.sort_by(|a, b| a.at.total_cmp(&b.at));
        let mut places: Vec<_> = right.iter().map(|n| (n.at, n.height())).collect();
        spread(&mut places, self.plot.y - 8.0, self.bottom() + 8.0);
        for ((y, _), name) in places.into_iter().zip(&right) {
            name.draw(out, "", self.right() + 9.0, y);
        }
        let widths = above
            .iter()
            .map(|n| (n.at, text_width(&n.detail, 12.0) + 20.0));
        let mut places: Vec<_> = widths.collect();
        spread(&mut places, self.plot.x, WIDTH - 10.0);
        for ((x, _), name) in places.into_iter().zip(&above) {
            name.draw(out, " mid", x, self.plot.y - 19.0);
        }
    }
}

/// The name of a line, and the position along the margin where the line ends.
pub(super) struct LineName {
    pub at: f64,
    pub name: String,
    /// A second row; may be empty.
    pub detail: String,
    /// Empty for guides.
    pub colour: &'static str,
}

impl LineName {
    fn height(&self) -> f64 {
        if self.detail.is_empty() { 19.0 } else { 34.0 }
    }

    /// Draws the name, vertically centred at `y`.
    fn draw(&self, out: &mut String, anchor: &str, x: f64, y: f64) {
        if self.detail.is_empty() {
            let _ = write!(out, r#"<g class="{}">"#, self.colour);
            text(out, &format!("mark{anchor}"), x, y + 4.5, &self.name);
            out.push_str("</g>\n");
        } else {
            text(out, &format!("guide{anchor}"), x, y - 3.0, &self.name);
            text(out, &format!("formula{anchor}"), x, y + 12.0, &self.detail);
        }
    }
}

/// A position on the page, in pixels.
pub(super) type Position = (f64, f64);

/// The lines below the title.
fn heading(picture: &Picture, sampling: Option<String>, outside: usize) -> Vec<String> {
    let mut lines: Vec<String> = picture.subtitle.iter().cloned().collect();
    lines.push(format!("policy: {}", picture.policy_text()));
    let outside = match outside {
        0 => None,
        1 => Some("1 event lies outside and is drawn at the edge".to_owned()),
        n => Some(format!(
            "{} events lie outside and are drawn at the edge",
            with_thousands(n)
        )),
    };
    let (drawn, all) = (picture.drawn_watermarks().len(), picture.watermarks.len());
    let cut = (drawn < all).then(|| format!("shows {drawn} of {} watermarks", with_thousands(all)));
    let remarks: Vec<String> = [sampling, cut, outside].into_iter().flatten().collect();
    if !remarks.is_empty() {
        lines.push(remarks.join(" · "));
    }
    lines
}

fn title(out: &mut String, title: &str, heading: &[String]) {
    text(out, "title", MARGIN, 40.0, title);
    for (i, line) in heading.iter().enumerate() {
        text(out, "sub", MARGIN, 62.0 + 19.0 * i as f64, line);
    }
}

pub(super) fn text(out: &mut String, class: &str, x: f64, y: f64, content: &str) {
    let content = escape(content);
    let _ = writeln!(
        out,
        r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{content}</text>"#
    );
}

pub(super) fn line(out: &mut String, class: &str, from: Position, to: Position) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
    );
}

/// Escapes text for XML. Control characters, which XML forbids, become U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn wrap(body: &str, title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="hw-time" viewBox="0 0 {WIDTH:.0} {height:.0}" width="{WIDTH:.0}" height="{height:.0}" role="img" aria-label="{title}">
<style>{STYLE}</style>
<rect class="page" width="{WIDTH:.0}" height="{height:.0}" rx="10"/>
{body}</svg>
"#
    )
}

/// Colours are given as `color`, and shapes use `currentColor`, so that one class paints a lane's
/// points, arrows and watermark alike.
const STYLE: &str = "
.hw-time text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif; fill: #1f2a37; }
.hw-time .page { fill: #ffffff; }
.hw-time .plot { fill: #f8fafc; }
.hw-time text.title { font-size: 21px; font-weight: 650; }
.hw-time text.sub { font-size: 13.5px; fill: #5b6878; }
.hw-time text.tick { fill: #5b6878; font-variant-numeric: tabular-nums; }
.hw-time text.axis { font-size: 13px; fill: #5b6878; }
.hw-time text.guide { fill: #5b6878; font-weight: 600; }
.hw-time text.formula { fill: #7b8794; }
.hw-time text.legend { font-size: 13px; }
.hw-time text.label { font-size: 12px; fill: #374151; stroke: #f8fafc; stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
.hw-time text.mark { font-size: 13px; font-weight: 700; fill: currentColor; }
.hw-time text.mid { text-anchor: middle; }
.hw-time text.end { text-anchor: end; }
.hw-time .grid { stroke: #e3e8ee; }
.hw-time .diagonal { stroke: #94a3b3; stroke-width: 1.4; }
.hw-time .bound { stroke: #94a3b3; stroke-width: 1.4; stroke-dasharray: 5 5; }
.hw-time .settled { fill: currentColor; opacity: 0.09; }
.hw-time .watermark { fill: none; stroke: currentColor; stroke-width: 3.2; stroke-linejoin: round; }
.hw-time .thin { stroke-width: 1.8; }
.hw-time .dot { fill: currentColor; }
.hw-time .hollow { fill: #f8fafc; stroke: currentColor; stroke-width: 2; }
.hw-time .arrow { fill: none; stroke: currentColor; stroke-width: 2; }
.hw-time .cross { fill: none; stroke: currentColor; stroke-width: 2.6; stroke-linecap: round; }
.hw-time .faint { fill: currentColor; opacity: 0.25; }
.hw-time .water { color: #0b69b7; }
.hw-time .on { color: #128a5c; }
.hw-time .adjusted { color: #c2620a; }
.hw-time .dropped { color: #cf2f48; }
.hw-time .neutral { color: #4b5563; }
.hw-time .l0 { color: #0b69b7; }
.hw-time .l1 { color: #c2620a; }
.hw-time .l2 { color: #128a5c; }
.hw-time .l3 { color: #8b4fc0; }
.hw-time .l4 { color: #b8336a; }
.hw-time .l5 { color: #7a6a00; }
.hw-time .rest { color: #64748b; }
@media (prefers-color-scheme: dark) {
.hw-time text { fill: #e6edf3; }
.hw-time .page { fill: #0f151c; }
.hw-time .plot { fill: #141c25; }
.hw-time text.sub, .hw-time text.tick, .hw-time text.axis, .hw-time text.guide { fill: #9fb0c0; }
.hw-time text.formula { fill: #8494a4; }
.hw-time text.label { fill: #d5dee7; stroke: #141c25; }
.hw-time text.mark { fill: currentColor; }
.hw-time .grid { stroke: #24303c; }
.hw-time .diagonal, .hw-time .bound { stroke: #6f8194; }
.hw-time .settled { opacity: 0.14; }
.hw-time .hollow { fill: #141c25; }
.hw-time .water, .hw-time .l0 { color: #4fb0ff; }
.hw-time .on, .hw-time .l2 { color: #43c98f; }
.hw-time .adjusted, .hw-time .l1 { color: #f5a344; }
.hw-time .dropped { color: #ff7085; }
.hw-time .neutral { color: #b6c2cf; }
.hw-time .l3 { color: #c79bf2; }
.hw-time .l4 { color: #f48fb8; }
.hw-time .l5 { color: #d9c64a; }
.hw-time .rest { color: #94a3b8; }
}
";
