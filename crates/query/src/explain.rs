//! A plan for people: what runs, over which columns, and what that means for starting and scaling.
//!
//! [`explain`] prints the tree from the outputs down to the sources; what several outputs share is
//! printed once and then referred to by number. [`lookback`] says how much of the past a start
//! needs.

use std::fmt::Write;

use highwater_time::Duration;

use crate::plan::{ExprKind, Item, Name, Node, NodeId, Plan, Read, Window, WindowNode};
use crate::print;

/// How far back by event time a start must read for its first results to be whole: the largest sum
/// of window lengths on any way from a source to an output.
pub fn lookback(plan: &Plan) -> Duration {
    let mut ticks: Vec<i64> = Vec::new();
    for node in &plan.nodes {
        let here = match node {
            Node::Source { .. } => 0,
            Node::Filter { from, .. } | Node::Project { from, .. } => ticks[from.0],
            Node::Window(window) => ticks[window.from.0].saturating_add(span(&window.window)),
            Node::Union { from, .. } => from
                .iter()
                .map(|(from, _)| ticks[from.0])
                .max()
                .unwrap_or(0),
        };
        ticks.push(here);
    }
    let longest = plan.outputs.iter().map(|output| ticks[output.from.0]).max();
    Duration::from_ticks(longest.unwrap_or(0))
}

/// The longest time between an event and the end of a window that it is in. A session lasts less
/// than twice its limit, and then waits for its timeout.
fn span(window: &Window) -> i64 {
    match window {
        Window::Tumbling { size, .. } | Window::Hopping { size, .. } | Window::Sliding { size } => {
            size.ticks()
        }
        Window::Session { timeout, max, .. } => max
            .ticks()
            .saturating_mul(2)
            .saturating_add(timeout.ticks()),
        Window::Snapshot => 0,
    }
}

pub fn explain(plan: &Plan) -> String {
    let explainer = Explainer::new(plan);
    let mut printed = vec![false; plan.nodes.len()];
    let mut out = String::new();
    for output in &plan.outputs {
        let _ = writeln!(out, "output {}", print::name(&output.name));
        // Deep plans are chains of steps: a stack of our own instead of recursion.
        let mut todo = vec![(output.from, 1)];
        while let Some((node, depth)) = todo.pop() {
            explainer.line(&mut out, node, depth, printed[node.0]);
            if !std::mem::replace(&mut printed[node.0], true) {
                let below = plan.nodes[node.0].below();
                todo.extend(below.into_iter().rev().map(|below| (below, depth + 1)));
            }
        }
    }
    let lookback = lookback(plan);
    if lookback > Duration::ZERO {
        let _ = writeln!(out, "a start reads back {}", print::spoken(lookback));
    }
    out
}

struct Explainer<'p> {
    plan: &'p Plan,
    /// The columns of each node, as they are called in expressions over it.
    columns: Vec<Vec<String>>,
    readers: Vec<usize>,
    /// Can the node run per partition, and why or why not?
    apart: Vec<(bool, &'static str)>,
}

impl<'p> Explainer<'p> {
    fn new(plan: &'p Plan) -> Explainer<'p> {
        let nodes = plan.nodes.len();
        let mut explainer = Explainer {
            plan,
            columns: Vec::new(),
            readers: vec![0; nodes],
            apart: Vec::new(),
        };
        for node in &plan.nodes {
            let columns = explainer.columns_of(node);
            explainer.columns.push(columns);
            let apart = explainer.apart_of(node);
            explainer.apart.push(apart);
            node.below()
                .into_iter()
                .for_each(|below| explainer.readers[below.0] += 1);
        }
        plan.outputs
            .iter()
            .for_each(|output| explainer.readers[output.from.0] += 1);
        explainer
    }

    fn columns_of(&self, node: &Node) -> Vec<String> {
        match node {
            Node::Source { input } => self.plan.inputs[*input]
                .reads
                .iter()
                .map(print::read)
                .collect(),
            Node::Filter { from, .. } => self.columns[from.0].clone(),
            Node::Project { items, .. } => {
                items.iter().map(|item| column_name(&item.name)).collect()
            }
            Node::Union { names, .. } => names.iter().map(column_name).collect(),
            Node::Window(window) => {
                let below = &self.columns[window.from.0];
                let keys = window.keys.iter().map(|key| print::name(&key.name));
                let aggregates = window.aggregates.iter().map(|a| print::aggregate(a, below));
                keys.chain(aggregates).collect()
            }
        }
    }

    fn apart_of(&self, node: &Node) -> (bool, &'static str) {
        if node.below().iter().any(|below| !self.apart[below.0].0) {
            return (false, "what it reads is merged already");
        }
        match node {
            Node::Source { .. } => (true, "partitions are read on their own"),
            Node::Filter { .. } | Node::Project { .. } => (true, "row by row"),
            Node::Union { .. } => (true, "partition by partition"),
            Node::Window(window) => self.apart_of_window(window),
        }
    }

    fn apart_of_window(&self, window: &WindowNode) -> (bool, &'static str) {
        if window.by_partition {
            return (true, "PARTITION BY PartitionId");
        }
        if matches!(window.window, Window::Session { over: None, .. }) {
            return (false, "sessions span all events");
        }
        match window
            .keys
            .iter()
            .any(|key| self.is_partition(window.from, &key.expr.kind))
        {
            true => (true, "PartitionId is a key"),
            false => (false, "groups span partitions"),
        }
    }

    /// Only the direct way: a key over the source itself, or carried along unchanged.
    fn is_partition(&self, node: NodeId, kind: &ExprKind) -> bool {
        match (&self.plan.nodes[node.0], kind) {
            (Node::Source { input }, ExprKind::Coalesce(all)) => {
                all.iter().any(|one| match one.kind {
                    ExprKind::Column(column) => {
                        self.plan.inputs[*input].reads[column] == Read::Partition
                    }
                    _ => false,
                })
            }
            (Node::Filter { from, .. }, _) => self.is_partition(*from, kind),
            (Node::Project { from, items }, ExprKind::Column(column)) => {
                self.is_partition(*from, &items[*column].expr.kind)
            }
            _ => false,
        }
    }

    fn line(&self, out: &mut String, node: NodeId, depth: usize, known: bool) {
        let indent = "  ".repeat(depth);
        let number = if self.readers[node.0] > 1 {
            format!("#{} ", node.0)
        } else {
            String::new()
        };
        if known {
            let _ = writeln!(out, "{indent}{number}as above");
            return;
        }
        let text = self.describe(&self.plan.nodes[node.0]);
        let (apart, why) = self.apart[node.0];
        let apart = if apart {
            "per partition"
        } else {
            "all partitions together"
        };
        let _ = writeln!(out, "{indent}{number}{text}  -- {apart}: {why}");
        if let Node::Source { input } = self.plan.nodes[node.0] {
            self.reads(out, input, &indent);
        }
    }

    fn describe(&self, node: &Node) -> String {
        match node {
            Node::Source { input } => self.source(*input),
            Node::Filter { from, keep } => {
                format!("filter {}", print::pred(keep, &self.columns[from.0]))
            }
            Node::Project { from, items } => {
                let below = &self.columns[from.0];
                let items: Vec<String> = items.iter().map(|item| show_item(item, below)).collect();
                format!("select {}", items.join(", "))
            }
            Node::Window(window) => self.window(window),
            Node::Union { names, .. } => {
                let names: Vec<String> = names.iter().map(column_name).collect();
                format!("union {}", names.join(", "))
            }
        }
    }

    fn source(&self, input: usize) -> String {
        let input = &self.plan.inputs[input];
        let columns: Vec<String> = input.reads.iter().map(print::read).collect();
        let mut text = format!("source {}", print::name(&input.name));
        if let Some(timestamp) = &input.timestamp {
            text += &format!(" timestamp by {}", print::expr(timestamp, &columns));
        }
        if !input.substream.is_empty() {
            let keys: Vec<String> = input
                .substream
                .iter()
                .map(|key| print::expr(key, &columns))
                .collect();
            text += &format!(" over {}", keys.join(", "));
        }
        text
    }

    fn window(&self, window: &WindowNode) -> String {
        let below = &self.columns[window.from.0];
        let mut text = format!("group by {}", print::window(window));
        for key in &window.keys {
            let expr = print::expr(&key.expr, below);
            let name = print::name(&key.name);
            text += &if expr == name {
                format!(", {name}")
            } else {
                format!(", {expr} AS {name}")
            };
        }
        let aggregates: Vec<String> = window
            .aggregates
            .iter()
            .map(|a| print::aggregate(a, below))
            .collect();
        if !aggregates.is_empty() {
            text += &format!(" computing {}", aggregates.join(", "));
        }
        text
    }

    fn reads(&self, out: &mut String, input: usize, indent: &str) {
        let reads = self.plan.inputs[input].reads.iter().map(|read| match read {
            Read::TimePath(_) => format!("{} as datetime", print::read(read)),
            Read::Whole => "the whole event".to_string(),
            _ => print::read(read),
        });
        let reads: Vec<String> = reads.collect();
        let reads = if reads.is_empty() {
            "no fields".to_string()
        } else {
            reads.join(", ")
        };
        let _ = writeln!(out, "{indent}  reads {reads}");
    }
}

fn column_name(name: &Name) -> String {
    match name {
        Name::Field(name) => print::name(name),
        Name::Spread => "*".to_string(),
        // The parts of a path, already joined.
        Name::Hidden(name) => name.clone(),
    }
}

fn show_item(item: &Item, below: &[String]) -> String {
    let expr = print::expr(&item.expr, below);
    match &item.name {
        Name::Spread if expr == "*" => expr,
        Name::Spread => format!("{expr}.*"),
        Name::Field(name) if print::name(name) == expr => expr,
        Name::Field(name) => format!("{expr} AS {}", print::name(name)),
        Name::Hidden(_) => format!("{expr} (carried)"),
    }
}
