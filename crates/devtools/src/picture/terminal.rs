//! The picture in characters, for a terminal of any size.
//!
//! A cell holds one character, so the drawing order is the priority: guides, watermarks, points, then labels in free
//! cells. Each kind has a shape of its own; colour only repeats it.

use highwater_time::{Duration, Instant};

use super::char_grid::{CharGrid, Style};
use super::time_range::TimeRange;
use super::{LANE_COLOURS, Picture, Point, PointKind, WatermarkLine, with_thousands};

/// With more events than this labels are omitted.
const LABELLED_MAX: usize = 60;
/// Rows outside the plot: title, policy, names of guides, axis, ticks, legend.
const ROWS_AROUND: usize = 6;
/// Columns for the names of watermarks and guides, on a wide terminal.
const NAMES_WIDTH: usize = 13;

/// The picture without colour.
pub fn terminal(picture: &Picture, width: usize, height: usize) -> String {
    Terminal {
        width,
        height,
        colour: false,
    }
    .draw(picture)
}

/// A terminal to draw on, treated as at least 40 by 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    pub width: usize,
    pub height: usize,
    /// Whether to use ANSI escapes.
    pub colour: bool,
}

impl Terminal {
    pub fn draw(self, picture: &Picture) -> String {
        let (width, height) = (self.width.clamp(40, 500), self.height.clamp(12, 200));
        let range = TimeRange::of(picture);
        let ticks = range.event.ticks((height - ROWS_AROUND) / 2);
        let gutter = ticks
            .iter()
            .map(|t| t.label.chars().count())
            .max()
            .unwrap_or(0)
            + 2;
        let names = if width >= 70 { NAMES_WIDTH } else { 0 };
        let plot = Plot {
            left: gutter,
            top: 3,
            width: width.saturating_sub(gutter + names).max(10),
            height: height - ROWS_AROUND,
            range,
        };
        let mut grid = CharGrid::new(width, height);
        grid.text(0, 0, &picture.title, Style::Bold);
        grid.text(0, 1, &heading(picture, width), Style::Faint);
        plot.axes(&mut grid, &ticks);
        plot.guides(&mut grid, picture);
        plot.watermarks(&mut grid, picture);
        plot.revisions(&mut grid, picture);
        plot.points(&mut grid, picture);
        grid.text(0, height - 1, &legend(picture, width), Style::Plain);
        grid.render(self.colour)
    }
}

/// The subtitle and the policy, or the policy alone if both do not fit.
fn heading(picture: &Picture, width: usize) -> String {
    let policy = picture.policy_text();
    let both = picture
        .subtitle
        .as_ref()
        .map(|subtitle| format!("{subtitle} · {policy}"));
    both.filter(|both| both.chars().count() <= width)
        .unwrap_or(policy)
}

/// The legend, shorter on a narrow terminal.
fn legend(picture: &Picture, width: usize) -> String {
    let count = |kind| with_thousands(picture.count(kind));
    let (on_time, adjusted) = (count(PointKind::OnTime), count(PointKind::Adjusted));
    let mut text = format!("● on time {on_time}   ○↑◆ adjusted {adjusted}   ");
    text += &format!("✗ dropped {}   ━ watermark", count(PointKind::Dropped));
    if !picture.revisions.is_empty() {
        let revisions = with_thousands(picture.revisions.len());
        text += &format!("   ◇ early results {revisions}");
    }
    let long = format!("{text}   · no delay   ∙ bounds");
    if long.chars().count() <= width {
        long
    } else {
        text
    }
}

/// The part of the grid inside the axes.
struct Plot {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    range: TimeRange,
}

impl Plot {
    fn column(&self, arrival: Instant) -> usize {
        self.left + cell(self.range.arrival.fraction(arrival), self.width)
    }

    fn row(&self, event: Instant) -> usize {
        self.top + self.height - 1 - cell(self.range.event.fraction(event), self.height)
    }

    fn bottom(&self) -> usize {
        self.top + self.height
    }

    fn right(&self) -> usize {
        self.left + self.width
    }

    fn axes(&self, grid: &mut CharGrid, ticks: &[super::axis::Tick]) {
        for row in self.top..self.bottom() {
            grid.set(self.left - 1, row, '│', Style::Faint);
        }
        for tick in ticks {
            let row = self.row(tick.at);
            let indent = (self.left - 2).saturating_sub(tick.label.chars().count());
            grid.text(indent, row, &tick.label, Style::Plain);
            grid.set(self.left - 1, row, '┤', Style::Faint);
        }
        grid.set(self.left - 1, self.bottom(), '└', Style::Faint);
        for column in self.left..self.right() {
            grid.set(column, self.bottom(), '─', Style::Faint);
        }
        let ticks = self.range.arrival.ticks(self.width / 9);
        let mut free_from = 0;
        for tick in ticks {
            let (column, length) = (self.column(tick.at), tick.label.chars().count());
            let start = column.saturating_sub(length / 2).max(free_from);
            if start <= column && start + length <= grid.width() {
                grid.set(column, self.bottom(), '┬', Style::Faint);
                grid.text(start, self.bottom() + 1, &tick.label, Style::Plain);
                free_from = start + length + 2;
            }
        }
        let caption = "arrival →";
        let start = grid.width() - caption.chars().count();
        if start > free_from {
            grid.text(start, self.bottom() + 1, caption, Style::Faint);
        }
        grid.text(0, self.top - 1, "↑ event", Style::Faint);
        let day = format!("  {} UTC", self.range.arrival.day());
        let start = grid.width().saturating_sub(day.chars().count());
        grid.text_if_free(start, 0, &day, Style::Faint);
    }

    /// Dotted lines, each named where it leaves the plot.
    fn guides(&self, grid: &mut CharGrid, picture: &Picture) {
        for guide in picture.guides() {
            let shift = Duration::from_ticks(guide.shift);
            let mark = if guide.shift == 0 { '·' } else { '∙' };
            let mut last = None;
            for column in self.left..self.right() {
                let event = self.arrival_at(column) + shift;
                if self.range.event.contains(event) {
                    let row = self.row(event);
                    // The bounds are sparser than the diagonal.
                    if guide.shift == 0 || column % 2 == 0 {
                        grid.set(column, row, mark, Style::Faint);
                    }
                    last = Some((column, row));
                }
            }
            match last {
                Some((column, row)) if column + 1 == self.right() => {
                    self.name(grid, row, guide.name, Style::Faint);
                }
                Some((column, _)) => {
                    let start = column.saturating_sub(guide.name.len() / 2);
                    grid.text_if_free(start, self.top - 1, guide.name, Style::Faint);
                }
                None => {}
            }
        }
    }

    fn arrival_at(&self, column: usize) -> Instant {
        let (lo, hi) = (self.range.arrival.lo(), self.range.arrival.hi());
        let part = ((column - self.left) as f64 + 0.5) / self.width as f64;
        lo + Duration::from_ticks(((hi - lo).ticks() as f64 * part) as i64)
    }

    /// Writes a name in the right margin, on the nearest free row.
    fn name(&self, grid: &mut CharGrid, row: usize, name: &str, style: Style) {
        let start = self.right() + 1;
        let name: String = name.chars().take(NAMES_WIDTH - 1).collect();
        let rows = [
            row,
            row + 1,
            row.saturating_sub(1),
            row + 2,
            row.saturating_sub(2),
        ];
        for row in rows
            .into_iter()
            .filter(|row| (self.top..self.bottom()).contains(row))
        {
            if grid.text_if_free(start, row, &name, style) {
                return;
            }
        }
    }

    fn watermarks(&self, grid: &mut CharGrid, picture: &Picture) {
        let lanes = picture.lanes();
        for line in picture.drawn_watermarks() {
            let style = lane_style(&lanes, line.lane.as_deref()).unwrap_or(Style::Water);
            let heights = self.heights(line);
            let mut below = self.bottom();
            for (column, height) in (self.left..).zip(&heights) {
                let Some(row) = *height else { continue };
                if row == below {
                    grid.set(column, row, '━', style);
                    continue;
                }
                for between in row + 1..below {
                    grid.set(column, between, '┃', style);
                }
                if below < self.bottom() {
                    grid.set(column, below, '┛', style);
                }
                grid.set(column, row, '┏', style);
                below = row;
            }
            let few = picture.watermarks.len() <= LANE_COLOURS;
            if let (Some(Some(row)), true) = (heights.last(), few) {
                self.name(
                    grid,
                    *row,
                    line.lane.as_deref().unwrap_or("watermark"),
                    style,
                );
            }
        }
    }

    fn revisions(&self, grid: &mut CharGrid, picture: &Picture) {
        for step in picture.revision_steps() {
            let (column, row) = (self.column(step.arrival), self.row(step.watermark));
            grid.set(column, row, '◇', Style::Plain);
        }
    }

    /// The row of the watermark in each column; none before its first step.
    fn heights(&self, line: &WatermarkLine) -> Vec<Option<usize>> {
        let mut heights = vec![None; self.width];
        for step in line.drawable_steps() {
            heights[self.column(step.arrival) - self.left] = Some(self.row(step.watermark));
        }
        let mut last: Option<usize> = None;
        for height in &mut heights {
            // A watermark never goes back, even if the input does.
            last = match (last, *height) {
                (Some(last), Some(row)) => Some(last.min(row)),
                (last, row) => row.or(last),
            };
            *height = last;
        }
        heights
    }

    fn points(&self, grid: &mut CharGrid, picture: &Picture) {
        let lanes = picture.lanes();
        let marks = [PointKind::OnTime, PointKind::Adjusted, PointKind::Dropped];
        for kind in marks {
            for point in picture.points.iter().filter(|p| p.kind() == kind) {
                self.point(grid, point, lane_style(&lanes, point.lane.as_deref()));
            }
        }
        if picture.points.len() <= LABELLED_MAX {
            for point in &picture.points {
                self.label(grid, point);
            }
        }
    }

    fn point(&self, grid: &mut CharGrid, point: &Point, lane: Option<Style>) {
        let (column, from) = (self.column(point.arrival), self.row(point.event_time));
        match point.kind() {
            PointKind::OnTime => grid.set(column, from, '●', lane.unwrap_or(Style::OnTime)),
            PointKind::Dropped => grid.set(column, from, '✗', Style::Dropped),
            PointKind::Adjusted => {
                let style = lane.unwrap_or(Style::Adjusted);
                let to = self.row(point.final_time());
                let head = if to < from { '↑' } else { '↓' };
                for row in from.min(to) + 1..from.max(to) {
                    let mark = if row.abs_diff(to) == 1 { head } else { '╎' };
                    grid.set(column, row, mark, style);
                }
                grid.set(column, from, '○', style);
                grid.set(column, to, '◆', style);
            }
        }
    }

    /// Writes the label right or left of the point, if there is room.
    fn label(&self, grid: &mut CharGrid, point: &Point) {
        let Some(label) = point.label.as_deref() else {
            return;
        };
        let (column, row) = (self.column(point.arrival), self.row(point.event_time));
        let length = label.chars().count();
        let right = column + 1;
        let fits = right + length < self.right();
        if fits && grid.text_if_free(right, row, &format!(" {label}"), Style::Plain) {
            return;
        }
        if column > self.left + length {
            grid.text_if_free(column - length - 1, row, &format!("{label} "), Style::Plain);
        }
    }
}

fn lane_style(lanes: &[&str], lane: Option<&str>) -> Option<Style> {
    let lane = lane?;
    lanes.iter().position(|l| *l == lane).map(Style::Lane)
}

/// The index of the cell at a fraction, clamped to the range.
fn cell(fraction: f64, cells: usize) -> usize {
    ((fraction * cells as f64).max(0.0) as usize).min(cells - 1)
}
