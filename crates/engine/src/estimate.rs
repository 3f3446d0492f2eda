//! Estimates the state of each step of a plan: bytes per key or event, and its retention.
//!
//! The figures are the sizes of the operators' own types, with one assumption: a column value has [`VALUE_BYTES`]. They
//! show how state grows. For values of about that size they are within a factor of four of a snapshot, which is denser
//! than memory; a test checks that.

use highwater_query::plan::{
    Aggregate, AggregateFunction, Analytic, AnalyticCall, JoinNode, Node, NodeId, Plan, Side,
    Window, WindowNode,
};
use highwater_time::Duration;

use crate::ops::state_sizes;

/// The assumed size of a column value.
pub const VALUE_BYTES: usize = 16;

/// The state of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEstimate {
    pub node: NodeId,
    /// The kind of the step.
    pub step: &'static str,
    pub items: Vec<StateItem>,
}

/// One kind of state that a step keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateItem {
    pub bytes: usize,
    pub unit: StateUnit,
    /// How many windows of a key are open at once; `None` for state that is not per window.
    pub open_windows: Option<u64>,
    /// How long it is retained, in event time.
    pub retention: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateUnit {
    /// For every key that has events.
    Key,
    /// For every key in each open window.
    KeyAndPane,
    /// For every retained event.
    Event,
    LeftEvent,
    RightEvent,
}

impl StateUnit {
    pub fn description(self) -> &'static str {
        match self {
            StateUnit::Key => "key",
            StateUnit::KeyAndPane => "key and open window",
            StateUnit::Event => "event",
            StateUnit::LeftEvent => "event on the left",
            StateUnit::RightEvent => "event on the right",
        }
    }
}

impl StateItem {
    fn new(bytes: usize, unit: StateUnit, retention: Duration) -> StateItem {
        StateItem {
            bytes,
            unit,
            open_windows: None,
            retention,
        }
    }

    /// The bytes for `keys` keys with `events` retained events each.
    pub fn bytes_of(&self, keys: usize, events: usize) -> usize {
        let open_windows = self.open_windows.unwrap_or(1) as usize;
        match self.unit {
            StateUnit::Key => self.bytes * keys,
            StateUnit::KeyAndPane => self.bytes * keys * open_windows,
            StateUnit::Event | StateUnit::LeftEvent | StateUnit::RightEvent => {
                self.bytes * keys * events
            }
        }
    }

    /// The formula in words.
    pub fn description(&self) -> String {
        let (bytes, unit, retention) = (self.bytes, self.unit.description(), self.retention);
        match self.open_windows {
            Some(1) => format!("about {bytes} B per {unit}, 1 open at a time, for {retention}"),
            Some(open_windows) => {
                format!(
                    "about {bytes} B per {unit}, {open_windows} open at a time, for {retention}"
                )
            }
            None => format!("about {bytes} B per {unit}, kept for {retention}"),
        }
    }
}

/// The state of each stateful step, in the order of the plan.
pub fn estimate(plan: &Plan) -> Vec<StateEstimate> {
    let steps = plan.nodes.iter().enumerate();
    let estimates = steps.filter_map(|(index, node)| {
        let (step, items) = match node {
            Node::Window(window) => of_window(window),
            Node::Join(join) => ("join", of_join(join)),
            Node::Analytic(analytic) => {
                let items = analytic.calls.iter().flat_map(of_call);
                ("analytic functions", items.collect())
            }
            Node::Match(node) => {
                let bytes = state_sizes::ATTEMPT + values(node.refs.len() + node.partition.len());
                let items = StateItem::new(bytes, StateUnit::Event, node.limit);
                ("pattern", vec![items])
            }
            _ => return None,
        };
        Some(StateEstimate {
            node: NodeId(index),
            step,
            items,
        })
    });
    estimates.collect()
}

fn values(count: usize) -> usize {
    count * VALUE_BYTES
}

fn of_window(node: &WindowNode) -> (&'static str, Vec<StateItem>) {
    let keys = values(node.keys.len());
    let group: usize = node.aggregates.iter().map(state_sizes::of_group).sum();
    let listed: usize = node.aggregates.iter().map(listed).sum();
    let (step, mut items, retention) = match &node.window {
        Window::Session { timeout, max, .. } => {
            let retention = Duration::from_ticks(timeout.ticks() + 2 * max.ticks());
            let bytes = state_sizes::SESSION + keys + group;
            let items = vec![StateItem::new(bytes, StateUnit::Key, retention)];
            ("session window", items, retention)
        }
        Window::Sliding { size } => {
            let key = StateItem::new(
                state_sizes::SLIDING_GROUP + 3 * keys + group,
                StateUnit::Key,
                *size,
            );
            let arguments = node.aggregates.iter();
            let arguments = arguments.filter(|of| state_sizes::is_read_by_sliding(of));
            let event = state_sizes::SLIDING_EVENT + arguments.count() * VALUE_BYTES;
            let event = StateItem::new(event, StateUnit::Event, *size);
            ("sliding window", vec![key, event], *size)
        }
        on_a_grid => {
            let (panes, size) = panes(on_a_grid);
            let bytes = state_sizes::PANE_GROUP + keys + group;
            let items = StateItem {
                open_windows: Some(panes),
                ..StateItem::new(bytes, StateUnit::KeyAndPane, size)
            };
            let step = match on_a_grid {
                Window::Hopping { .. } => "hopping window",
                Window::Snapshot => "snapshot window",
                _ => "tumbling window",
            };
            (step, vec![items], size)
        }
    };
    if listed > 0 && !matches!(node.window, Window::Sliding { .. }) {
        items.push(StateItem::new(listed, StateUnit::Event, retention));
    }
    (step, items)
}

/// How many panes of a key are open at once, and how long each is retained. A window consists of panes whose length
/// divides both its size and its hop.
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

/// The bytes per event of an aggregate that keeps its events.
fn listed(aggregate: &Aggregate) -> usize {
    match aggregate.function {
        AggregateFunction::Collect
        | AggregateFunction::User(_)
        | AggregateFunction::CountDistinct
        | AggregateFunction::PercentileCont(_)
        | AggregateFunction::PercentileDisc(_) => VALUE_BYTES + state_sizes::VALUE,
        _ => 0,
    }
}

fn of_join(join: &JoinNode) -> Vec<StateItem> {
    let columns = |side: Side| join.columns.iter().filter(|(of, _)| *of == side).count();
    let row = |side| state_sizes::JOINED_ROW + values(columns(side));
    let zero = Duration::ZERO;
    let right_held = Duration::from_ticks(-join.low.ticks());
    let sides = [
        StateItem::new(row(Side::Left), StateUnit::LeftEvent, join.high.max(zero)),
        StateItem::new(
            row(Side::Right),
            StateUnit::RightEvent,
            right_held.max(zero),
        ),
    ];
    sides
        .into_iter()
        .filter(|items| items.retention > zero)
        .collect()
}

fn of_call(call: &AnalyticCall) -> Vec<StateItem> {
    let keys = state_sizes::ANALYTIC_KEY + values(call.partition.len());
    let cell = state_sizes::VALUE + size_of::<i64>();
    match &call.function {
        Analytic::Lag { offset, .. } => {
            vec![StateItem::new(
                keys + offset * cell,
                StateUnit::Key,
                call.limit,
            )]
        }
        Analytic::Last { .. } | Analytic::IsFirst => {
            vec![StateItem::new(keys + cell, StateUnit::Key, call.limit)]
        }
        Analytic::Aggregate(_) => vec![
            StateItem::new(keys, StateUnit::Key, call.limit),
            StateItem::new(cell, StateUnit::Event, call.limit),
        ],
        Analytic::SpikeAndDip { history, .. } | Analytic::ChangePoint { history, .. } => {
            let bytes = keys + history * size_of::<f64>();
            vec![StateItem::new(bytes, StateUnit::Key, call.limit)]
        }
    }
}
