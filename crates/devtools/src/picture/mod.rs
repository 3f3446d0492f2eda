//! The picture of event time against arrival time, with the watermark.
//!
//! Everything that this project does with time can be seen in one drawing: arrivals run to the
//! right, event times run up, and an event that keeps pace with the clock lies on the diagonal.
//! The watermark is a staircase below which nothing new may land, so an event that falls under it
//! is lifted onto it or crossed out. [`svg()`] draws it for pages and [`terminal()`] for terminals.
//!
//! A drawing is a function of its input, to the byte: no clock, no random numbers, no hash maps.

mod axis;
mod frame;
mod grid;
mod labels;
mod legend;
mod marks;
mod svg;
mod terminal;
#[cfg(test)]
mod tests;

use highwater_time::{Instant, JudgedEvent, TimePolicy};

pub use svg::svg;
pub use terminal::{Terminal, terminal};

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub title: String,
    pub subtitle: Option<String>,
    /// In the order of arrival.
    pub points: Vec<Point>,
    /// One line, or one for each lane.
    pub watermarks: Vec<WatermarkLine>,
    pub policy: TimePolicy,
    /// False where arrivals are made up from event times: the late and early bounds, which then do
    /// not apply, are left out.
    pub arrivals_known: bool,
}

/// An event and its fate.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub arrival: Instant,
    pub event_time: Instant,
    /// The timestamp that it got; none if it was dropped.
    pub assigned: Option<Instant>,
    /// The verdict in words, shown when the pointer rests on the event.
    pub verdict: String,
    /// A few letters drawn beside it, as long as there are few events.
    pub label: Option<String>,
    /// The key or partition whose watermark it met.
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

/// What became of an event, as far as the eye is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    OnTime,
    Adjusted,
    Dropped,
}

impl Point {
    /// The point of an event that `arrived` (for an unknown arrival: what stands in for it).
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

    pub fn kind(&self) -> Kind {
        match self.assigned {
            None => Kind::Dropped,
            Some(at) if at == self.event_time => Kind::OnTime,
            Some(_) => Kind::Adjusted,
        }
    }

    /// Where it ended: where it was moved to, or else where it was.
    fn landed(&self) -> Instant {
        self.assigned.unwrap_or(self.event_time)
    }
}

impl Picture {
    fn count(&self, kind: Kind) -> usize {
        self.points.iter().filter(|p| p.kind() == kind).count()
    }

    /// The lanes in the order in which they appear: lines first, then points without a line.
    fn lanes(&self) -> Vec<&str> {
        let mut lanes: Vec<&str> = Vec::new();
        let lines = self
            .watermarks
            .iter()
            .filter_map(|line| line.lane.as_deref());
        for lane in lines.chain(self.points.iter().filter_map(|p| p.lane.as_deref())) {
            // Past the palette the rest look alike, and a list of a million is of no use.
            if lanes.len() > LANES_TOLD_APART {
                break;
            }
            if !lanes.contains(&lane) {
                lanes.push(lane);
            }
        }
        lanes
    }

    /// The watermarks that are drawn: more of them could not be told apart, nor sent to a browser.
    fn drawn_watermarks(&self) -> &[WatermarkLine] {
        &self.watermarks[..self.watermarks.len().min(WATERMARKS_MAX)]
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

    /// The straight lines `event time = arrival + c` that frame the events, with their names.
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

/// Colours that can be told apart.
const LANES_TOLD_APART: usize = 6;

const WATERMARKS_MAX: usize = 200;

struct Guide {
    shift: i64,
    name: &'static str,
    formula: String,
}

/// `1234567` as people write it.
fn grouped(n: usize) -> String {
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
