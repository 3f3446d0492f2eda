//! The picture of event time against arrival time, with the watermark.
//!
//! Arrival times run to the right and event times run up, so an event without delay lies on the diagonal. The watermark
//! is a staircase; an event below it is late, and is moved up to it or dropped. [`svg()`] draws for pages and
//! [`terminal()`] for terminals.
//!
//! The input is plain data, so a finished run and a live view draw alike. A drawing is a function of its input, to the
//! byte: no clock, no random numbers, no hash maps.

mod axis;
mod char_grid;
mod label_layout;
mod legend;
mod plot_content;
mod svg;
mod terminal;
#[cfg(test)]
mod tests;
mod time_range;

use highwater_time::{Instant, JudgedEvent, TimePolicy};

pub use svg::svg;
pub use terminal::{Terminal, terminal};

/// The input of a drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub title: String,
    pub subtitle: Option<String>,
    /// In arrival order.
    pub points: Vec<Point>,
    /// One, or one for each lane.
    pub watermarks: Vec<WatermarkLine>,
    /// The event times of the revisions of early results, in order.
    pub revisions: Vec<Instant>,
    /// The floor of each partition with substreams, which revisions follow instead of the watermarks.
    pub floors: Vec<WatermarkLine>,
    pub policy: TimePolicy,
    /// False if arrivals are derived from event times. The late and early bounds do not apply then and are not drawn.
    pub arrivals_known: bool,
}

/// An event and its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub arrival: Instant,
    pub event_time: Instant,
    /// The timestamp after adjustment; `None` if the event was dropped.
    pub assigned: Option<Instant>,
    /// The verdict, shown as a tooltip.
    pub verdict: String,
    /// A short text drawn beside the point while there are few events.
    pub label: Option<String>,
    /// The substream key or partition whose watermark applies.
    pub lane: Option<String>,
}

/// The watermark of one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct WatermarkLine {
    pub lane: Option<String>,
    /// In order; neither arrivals nor watermarks go back.
    pub steps: Vec<WatermarkStep>,
}

impl WatermarkLine {
    /// The steps without the ends of time, which have no position on an axis.
    fn drawable_steps(&self) -> impl Iterator<Item = &WatermarkStep> {
        let steps = self.steps.iter();
        steps.filter(|step| step.arrival.is_in_calendar() && step.watermark.is_in_calendar())
    }
}

/// The watermark after an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkStep {
    pub arrival: Instant,
    pub watermark: Instant,
}

/// How a point is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointKind {
    OnTime,
    Adjusted,
    Dropped,
}

impl Point {
    /// The point of an event; `arrived` stands in for an unknown arrival time.
    pub fn new(fate: &JudgedEvent, arrived: Instant) -> Point {
        Point {
            arrival: arrived,
            event_time: fate.event_time,
            assigned: fate.timestamp,
            verdict: fate.verdict.name().to_owned(),
            label: None,
            lane: None,
        }
    }

    pub fn kind(&self) -> PointKind {
        match self.assigned {
            None => PointKind::Dropped,
            Some(at) if at == self.event_time => PointKind::OnTime,
            Some(_) => PointKind::Adjusted,
        }
    }

    /// The adjusted timestamp, or the event time of a dropped event.
    fn final_time(&self) -> Instant {
        self.assigned.unwrap_or(self.event_time)
    }
}

impl Picture {
    fn count(&self, kind: PointKind) -> usize {
        self.points.iter().filter(|p| p.kind() == kind).count()
    }

    /// The lanes in order of appearance: those of watermarks first, then those of points alone.
    fn lanes(&self) -> Vec<&str> {
        let mut lanes: Vec<&str> = Vec::new();
        let lines = self
            .watermarks
            .iter()
            .filter_map(|line| line.lane.as_deref());
        for lane in lines.chain(self.points.iter().filter_map(|p| p.lane.as_deref())) {
            // Lanes beyond the palette share one colour, and there may be a million of them.
            if lanes.len() > LANE_COLOURS {
                break;
            }
            if !lanes.contains(&lane) {
                lanes.push(lane);
            }
        }
        lanes
    }

    /// The watermarks that are drawn. More would be indistinguishable, and too large for a browser.
    fn drawn_watermarks(&self) -> &[WatermarkLine] {
        &self.watermarks[..self.watermarks.len().min(WATERMARKS_MAX)]
    }

    /// Where the watermarks let each revision take place. A revision that comes with the end of the input has no place.
    fn revision_steps(&self) -> Vec<WatermarkStep> {
        let lines = match self.floors.is_empty() {
            true => &self.watermarks,
            false => &self.floors,
        };
        let lines = lines.iter();
        let mut steps: Vec<_> = lines.map(|line| line.drawable_steps().peekable()).collect();
        let mut places = Vec::new();
        for &watermark in &self.revisions {
            let mut arrival: Option<Instant> = None;
            for line in &mut steps {
                while line.next_if(|step| step.watermark < watermark).is_some() {}
                let Some(passed) = line.peek() else {
                    return places;
                };
                arrival = arrival.max(Some(passed.arrival));
            }
            places.extend(arrival.map(|arrival| WatermarkStep { arrival, watermark }));
        }
        places
    }

    /// The policy in one line.
    fn policy_text(&self) -> String {
        let TimePolicy {
            late_arrival,
            out_of_order,
            early_arrival,
            ..
        } = self.policy;
        if !self.arrivals_known {
            return format!("arrivals unknown · out of order {out_of_order}");
        }
        let early = early_arrival.map_or_else(|| "off".to_owned(), |early| early.to_string());
        format!("late {late_arrival} · out of order {out_of_order} · early {early}")
    }

    /// The lines `event time = arrival + c`: no delay, early bound, late bound.
    fn guides(&self) -> Vec<Guide> {
        let mut guides = vec![Guide {
            shift: 0,
            name: "no delay",
            formula: "event = arrival".to_owned(),
        }];
        if !self.arrivals_known {
            return guides;
        }
        if let Some(early) = self.policy.early_arrival {
            let formula = format!("arrival + {early}");
            guides.push(Guide {
                shift: early.ticks(),
                name: "early bound",
                formula,
            });
        }
        let late = self.policy.late_arrival;
        let formula = format!("arrival − {late}");
        guides.push(Guide {
            shift: -late.ticks(),
            name: "late bound",
            formula,
        });
        guides
    }
}

/// Number of distinct lane colours.
const LANE_COLOURS: usize = 6;

const WATERMARKS_MAX: usize = 200;

struct Guide {
    shift: i64,
    name: &'static str,
    formula: String,
}

/// `1,234,567`.
fn with_thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
