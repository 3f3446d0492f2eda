//! How much the steps of a plan keep: per key, per event, for how long.
//!
//! The figures come from the sizes of what the operators really keep, with one guess: a value of a column is taken to
//! have [`VALUE_BYTES`]. They say what grows with what, and for values of about that size they are within a factor of four
//! of what a run writes down, which is denser than what it keeps in memory (a test holds them to it).

use highwater_query::plan::{
    Aggregate, AggregateFunction, Analytic, AnalyticCall, JoinNode, Node, NodeId, Plan, Side,
    Window, WindowNode,
};
use highwater_time::Duration;

use crate::ops::sizes;

/// What one value of a column is taken to need.
pub const VALUE_BYTES: usize = 16;

/// What one step keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEstimate {
    pub node: NodeId,
    /// What the step is, in words.
    pub step: &'static str,
    pub kept: Vec<Kept>,
}

/// One kind of thing that a step keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub bytes: usize,
    pub each: Each,
    /// How many there are of each key, where that is known: the panes that are open at once.
    pub times: Option<u64>,
    /// How long it is kept, by event time.
    pub held: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// For every key that has events.
    Key,
    /// For every key in each open pane.
    KeyAndPane,
    /// For every event that is kept.
    Event,
    LeftEvent,
    RightEvent,
}

impl Each {
    pub fn words(self) -> &'static str {
        match self {
            Each::Key => "key",
            Each::KeyAndPane => "key and open window",
            Each::Event => "event",
            Each::LeftEvent => "event on the left",
            Each::RightEvent => "event on the right",
        }
    }
}

impl Kept {
    fn new(bytes: usize, each: Each, held: Duration) -> Kept {
        Kept {
            bytes,
            each,
            times: None,
            held,
        }
    }

    /// The bytes for so many keys that have so many events each while these are kept.
    pub fn bytes_of(&self, keys: usize, events: usize) -> usize {
        let times = self.times.unwrap_or(1) as usize;
        match self.each {
            Each::Key => self.bytes * keys,
            Each::KeyAndPane => self.bytes * keys * times,
            Each::Event | Each::LeftEvent | Each::RightEvent => self.bytes * keys * events,
        }
    }

    /// The formula in words.
    pub fn words(&self) -> String {
        let (bytes, each, held) = (self.bytes, self.each.words(), self.held);
        match self.times {
            Some(1) => format!("about {bytes} B per {each}, 1 open at a time, for {held}"),
            Some(times) => {
                format!("about {bytes} B per {each}, {times} open at a time, for {held}")
            }
            None => format!("about {bytes} B per {each}, kept for {held}"),
        }
    }
}

/// What the steps of a plan keep, in the order of the plan; steps that keep nothing are left out.
pub fn estimate(plan: &Plan) -> Vec<StateEstimate> {
    let steps = plan.nodes.iter().enumerate();
    let estimates = steps.filter_map(|(index, node)| {
        let (step, kept) = match node {
            Node::Window(window) => of_window(window),
            Node::Join(join) => ("join", of_join(join)),
            Node::Analytic(analytic) => {
                let kept = analytic.calls.iter().flat_map(of_call);
                ("analytic functions", kept.collect())
            }
            Node::Match(node) => {
                let bytes = sizes::ATTEMPT + values(node.refs.len() + node.partition.len());
                let kept = Kept::new(bytes, Each::Event, node.limit);
                ("pattern", vec![kept])
            }
            _ => return None,
        };
        Some(StateEstimate {
            node: NodeId(index),
            step,
            kept,
        })
    });
    estimates.collect()
}

fn values(count: usize) -> usize {
    count * VALUE_BYTES
}

fn of_window(node: &WindowNode) -> (&'static str, Vec<Kept>) {
    let keys = values(node.keys.len());
    let group: usize = node.aggregates.iter().map(sizes::of_group).sum();
    let listed: usize = node.aggregates.iter().map(listed).sum();
    let (step, mut kept, held) = match &node.window {
        Window::Session { timeout, max, .. } => {
            let held = Duration::from_ticks(timeout.ticks() + 2 * max.ticks());
            let bytes = sizes::SESSION + keys + group;
            let kept = vec![Kept::new(bytes, Each::Key, held)];
            ("session window", kept, held)
        }
        Window::Sliding { size } => {
            let key = Kept::new(sizes::SLIDING_GROUP + 3 * keys + group, Each::Key, *size);
            let event = sizes::SLIDING_EVENT + node.aggregates.len() * VALUE_BYTES;
            let event = Kept::new(event, Each::Event, *size);
            ("sliding window", vec![key, event], *size)
        }
        on_a_grid => {
            let (panes, size) = panes(on_a_grid);
            let bytes = sizes::PANE_GROUP + keys + group;
            let kept = Kept {
                times: Some(panes),
                ..Kept::new(bytes, Each::KeyAndPane, size)
            };
            let step = match on_a_grid {
                Window::Hopping { .. } => "hopping window",
                Window::Snapshot => "snapshot window",
                _ => "tumbling window",
            };
            (step, vec![kept], size)
        }
    };
    if listed > 0 && !matches!(node.window, Window::Sliding { .. }) {
        kept.push(Kept::new(listed, Each::Event, held));
    }
    (step, kept)
}

/// How many panes of a key are open at once, and how long each is kept: a window is put together from panes that divide
/// both its size and its hop.
fn panes(window: &Window) -> (u64, Duration) {
    fn gcd(a: i64, b: i64) -> i64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    match window {
        Window::Tumbling { size, .. } => (1, *size),
        Window::Hopping { size, hop, .. } => {
            let pane = gcd(size.ticks(), hop.ticks());
            ((size.ticks() / pane) as u64, *size)
        }
        Window::Snapshot | Window::Sliding { .. } | Window::Session { .. } => (1, Duration::ZERO),
    }
}

/// The bytes per event of an aggregate that keeps the events it has seen.
fn listed(aggregate: &Aggregate) -> usize {
    match aggregate.function {
        AggregateFunction::Collect
        | AggregateFunction::User(_)
        | AggregateFunction::CountDistinct
        | AggregateFunction::PercentileCont(_)
        | AggregateFunction::PercentileDisc(_) => VALUE_BYTES + sizes::VALUE,
        _ => 0,
    }
}

fn of_join(join: &JoinNode) -> Vec<Kept> {
    let columns = |side: Side| join.columns.iter().filter(|(of, _)| *of == side).count();
    let row = |side| sizes::JOINED_ROW + values(columns(side) + join.keys.len());
    let zero = Duration::ZERO;
    let right_held = Duration::from_ticks(-join.low.ticks());
    let sides = [
        Kept::new(row(Side::Left), Each::LeftEvent, join.high.max(zero)),
        Kept::new(row(Side::Right), Each::RightEvent, right_held.max(zero)),
    ];
    sides.into_iter().filter(|kept| kept.held > zero).collect()
}

fn of_call(call: &AnalyticCall) -> Vec<Kept> {
    let keys = sizes::ANALYTIC_KEY + values(call.partition.len());
    let cell = sizes::VALUE + size_of::<i64>();
    match &call.function {
        Analytic::Lag { offset, .. } => {
            vec![Kept::new(keys + offset * cell, Each::Key, call.limit)]
        }
        Analytic::Last { .. } | Analytic::IsFirst => {
            vec![Kept::new(keys + cell, Each::Key, call.limit)]
        }
        Analytic::Aggregate(_) => vec![
            Kept::new(keys, Each::Key, call.limit),
            Kept::new(cell, Each::Event, call.limit),
        ],
        Analytic::SpikeAndDip { history, .. } | Analytic::ChangePoint { history, .. } => {
            let bytes = keys + history * size_of::<f64>();
            vec![Kept::new(bytes, Each::Key, call.limit)]
        }
    }
}
