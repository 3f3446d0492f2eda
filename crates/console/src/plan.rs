//! The plan of a query as a diagram: steps in layers, each after the steps that it reads.

use maud::{Markup, html};

use crate::format;
use crate::parts::Tone;

/// One step of a plan. `inputs` are the ids of earlier steps.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub id: String,
    pub label: String,
    pub inputs: Vec<String>,
    /// The second line: rate, state, backlog.
    pub facts: String,
    /// The third line: the delay of its watermark, if it has one.
    pub watermark: Option<String>,
    /// By the delay and the back-pressure of the step.
    pub tone: Tone,
}

/// The width of a panel, which the layers share; many layers scroll.
const PANEL_WIDTH: usize = 1000;
const BOX_WIDTH_MIN: usize = 150;
const BOX_WIDTH_MAX: usize = 250;
const BOX_HEIGHT: usize = 66;
/// Between two layers.
const GAP: usize = 30;
const ROW: usize = BOX_HEIGHT + 14;
/// Of one character, about: of a label, which is bold, and of the lines below it.
const CHAR_WIDTH: usize = 7;
const FACT_CHAR_WIDTH: usize = 6;

/// More steps are not drawn: a diagram of hundreds shows nothing.
const STEPS_MAX: usize = 200;

#[derive(Clone, Copy)]
struct Position {
    layer: usize,
    row: usize,
}

/// The size of the boxes, by the number of layers.
#[derive(Clone, Copy)]
struct Scale {
    box_width: usize,
}

impl Scale {
    fn of(layers: usize) -> Scale {
        let share = (PANEL_WIDTH / layers.max(1)).saturating_sub(GAP);
        Scale {
            box_width: share.clamp(BOX_WIDTH_MIN, BOX_WIDTH_MAX),
        }
    }

    /// The left edge of a box.
    fn x(self, at: Position) -> usize {
        2 + at.layer * (self.box_width + GAP)
    }

    /// The upper edge of a box.
    fn y(self, at: Position) -> usize {
        2 + at.row * ROW
    }

    fn line(self, text: &str, char_width: usize) -> String {
        format::shortened(text, (self.box_width - 18) / char_width)
    }
}

/// Each step one layer after the last of its inputs, and in the first free row from that of its first input on.
fn positions(steps: &[Step]) -> Vec<Position> {
    let mut positions: Vec<Position> = Vec::with_capacity(steps.len());
    let mut next_row: Vec<usize> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let index = |id: &String| steps[..at].iter().position(|earlier| earlier.id == *id);
        let inputs: Vec<Position> = step
            .inputs
            .iter()
            .filter_map(index)
            .map(|at| positions[at])
            .collect();
        let layer = inputs
            .iter()
            .map(|input| input.layer + 1)
            .max()
            .unwrap_or(0);
        let row = inputs.iter().map(|input| input.row).min().unwrap_or(0);
        if next_row.len() <= layer {
            next_row.resize(layer + 1, 0);
        }
        let row = row.max(next_row[layer]);
        next_row[layer] = row + 1;
        positions.push(Position { layer, row });
    }
    positions
}

/// The diagram as SVG; the text of each step is in its title too.
pub(crate) fn diagram(steps: &[Step]) -> Markup {
    let steps = &steps[..steps.len().min(STEPS_MAX)];
    let positions = positions(steps);
    let layers = positions.iter().map(|at| at.layer + 1).max().unwrap_or(0);
    let rows = positions.iter().map(|at| at.row + 1).max().unwrap_or(0);
    let scale = Scale::of(layers);
    let (width, height) = (4 + layers * (scale.box_width + GAP), rows * ROW);
    let edges = steps.iter().enumerate().flat_map(|(to, step)| {
        let from = move |id: &String| steps[..to].iter().position(|earlier| earlier.id == *id);
        let positions = &positions;
        step.inputs
            .iter()
            .filter_map(from)
            .map(move |from| edge(scale, positions[from], positions[to]))
    });
    html! {
        svg class="plan" viewBox={ "0 0 " (width) " " (height) } width=(width) role="img" aria-label="Plan of the query" {
            defs { marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" {
                path d="M0 0L8 4L0 8z" {}
            } }
            @for edge in edges { path d=(edge) marker-end="url(#arrow)" {} }
            @for (step, at) in steps.iter().zip(&positions) {
                g class=(step.tone.class()) {
                    title {
                        (step.label) " · " (step.facts)
                        @if let Some(watermark) = &step.watermark { " · " (watermark) }
                    }
                    rect x=(scale.x(*at)) y=(scale.y(*at)) width=(scale.box_width) height=(BOX_HEIGHT) rx="9" {}
                    text x=(scale.x(*at) + 10) y=(scale.y(*at) + 21) { (scale.line(&step.label, CHAR_WIDTH)) }
                    text class="facts" x=(scale.x(*at) + 10) y=(scale.y(*at) + 39) { (scale.line(&step.facts, FACT_CHAR_WIDTH)) }
                    @if let Some(watermark) = &step.watermark {
                        text class="facts" x=(scale.x(*at) + 10) y=(scale.y(*at) + 55) { (scale.line(watermark, FACT_CHAR_WIDTH)) }
                    }
                }
            }
        }
    }
}

fn edge(scale: Scale, from: Position, to: Position) -> String {
    let (x0, y0) = (
        scale.x(from) + scale.box_width,
        scale.y(from) + BOX_HEIGHT / 2,
    );
    let (x1, y1) = (scale.x(to) - 2, scale.y(to) + BOX_HEIGHT / 2);
    // The bend is in front of the target, where the gap between the columns is.
    let bend = x1 - 17;
    match y0 == y1 {
        true => format!("M{x0} {y0}H{x1}"),
        false => format!("M{x0} {y0}H{bend}V{y1}H{x1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: &str, inputs: &[&str]) -> Step {
        Step {
            id: id.into(),
            label: format!("<{id}>"),
            inputs: inputs.iter().map(|&id| id.to_owned()).collect(),
            ..Step::default()
        }
    }

    #[test]
    fn steps_follow_their_inputs_and_do_not_overlap() {
        let steps = [
            step("a", &[]),
            step("b", &[]),
            step("join", &["a", "b"]),
            step("x", &["join"]),
            step("y", &["join"]),
            step("z", &["unknown"]),
        ];
        let at = positions(&steps);
        let places: Vec<(usize, usize)> = at.iter().map(|at| (at.layer, at.row)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (0, 2)]);
        let html = diagram(&steps).into_string();
        assert!(html.contains("&lt;join&gt;") && !html.contains("<join>"));
    }

    #[test]
    fn a_plan_of_any_size_is_bounded() {
        let steps: Vec<Step> = (0..5000).map(|n| step(&n.to_string(), &[])).collect();
        assert!(diagram(&steps).into_string().len() < 200_000);
        assert!(!diagram(&[]).into_string().is_empty());
    }
}
