//! A plan for people: operators, columns, and the consequences for starting and scaling.
//!
//! [`explain`] prints the tree from the outputs down to the sources; subtrees that several outputs share are printed
//! once and then referred to by number. [`lookback`] computes how much of the past a start needs.

use std::fmt::Write;

use highwater_time::Duration;

use crate::plan::{
    Aggregate, AggregateFunction, AnalyticColumn, AnalyticNode, ApplyColumn, Each, Expr, ExprKind,
    Item, JoinNode, LookupNode, MatchNode, Name, Node, NodeId, Plan, Pred, Read, Reference,
    ReferenceStep, Side, Window, WindowNode,
};
use crate::print;

/// How far back by event time a start must read for its first results to be complete: the largest sum of window lengths
/// on any path from a source to an output.
pub fn lookback(plan: &Plan) -> Duration {
    let mut ticks: Vec<i64> = Vec::new();
    for node in &plan.nodes {
        let here = match node {
            Node::Source { .. } => 0,
            other => {
                let below = other.below().into_iter().map(|below| ticks[below.0]).max();
                below.unwrap_or(0).saturating_add(retention(other))
            }
        };
        ticks.push(here);
    }
    let longest = plan.outputs.iter().map(|output| ticks[output.from.0]).max();
    Duration::from_ticks(longest.unwrap_or(0))
}

/// How long a node may keep a row.
fn retention(node: &Node) -> i64 {
    match node {
        Node::Window(window) => span(&window.window).saturating_mul(windows_kept(window)),
        Node::Join(join) => join.low.ticks().abs().max(join.high.ticks().abs()),
        Node::Analytic(analytic) => analytic
            .calls
            .iter()
            .map(|call| call.limit.ticks())
            .max()
            .unwrap_or(0),
        Node::Match(node) => node.limit.ticks(),
        _ => 0,
    }
}

/// How many lengths of a window a result may depend on. A script that removes events where windows overlap starts over
/// after every length, from the events of the window then; only the engine knows whether it does.
fn windows_kept(node: &WindowNode) -> i64 {
    let script = |a: &Aggregate| matches!(a.function, AggregateFunction::User(_));
    let overlap = match &node.window {
        Window::Sliding { .. } => true,
        Window::Hopping { size, hop, .. } => hop < size,
        Window::Tumbling { .. } | Window::Session { .. } | Window::Snapshot => false,
    };
    if overlap && node.aggregates.iter().any(script) {
        2
    } else {
        1
    }
}

/// The longest time between an event and the end of its window. A session lasts less than twice its limit, and then
/// waits for its timeout.
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

/// A step of a plan, for diagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    pub node: NodeId,
    pub kind: &'static str,
    /// As [`explain`] describes it.
    pub label: String,
    /// The steps that it reads.
    pub below: Vec<NodeId>,
    /// It runs on each partition separately.
    pub is_per_partition: bool,
}

/// The steps of a plan, in its order.
pub fn steps(plan: &Plan) -> Vec<PlanStep> {
    let explainer = Explainer::new(plan);
    let nodes = plan.nodes.iter().enumerate();
    let steps = nodes.map(|(index, node)| PlanStep {
        node: NodeId(index),
        kind: kind(node),
        label: explainer.describe(node),
        below: node.below(),
        is_per_partition: explainer.apart[index].0,
    });
    steps.collect()
}

fn kind(node: &Node) -> &'static str {
    match node {
        Node::Source { .. } => "source",
        Node::Filter { .. } => "filter",
        Node::Project { .. } => "select",
        Node::Window(_) => "window",
        Node::Join(_) => "join",
        Node::Lookup(_) => "lookup",
        Node::Apply { .. } => "apply",
        Node::Analytic(_) => "analytic",
        Node::Match(_) => "match",
        Node::Union { .. } => "union",
    }
}

pub fn explain(plan: &Plan) -> String {
    let explainer = Explainer::new(plan);
    let mut printed = vec![false; plan.nodes.len()];
    let mut out = String::new();
    for output in &plan.outputs {
        let _ = writeln!(out, "output {}", print::name(&output.name));
        // Deep plans are chains of steps: an explicit stack instead of recursion.
        let mut todo = vec![(output.from, 1)];
        while let Some((node, depth)) = todo.pop() {
            explainer.line(&mut out, node, depth, printed[node.0]);
            if !std::mem::replace(&mut printed[node.0], true) {
                let below = plan.nodes[node.0].below();
                todo.extend(below.into_iter().rev().map(|below| (below, depth + 1)));
            }
        }
    }
    if plan.ignore_case {
        let _ = writeln!(out, "text is compared without regard to case");
    }
    let lookback = lookback(plan);
    if lookback > Duration::ZERO {
        let _ = writeln!(
            out,
            "a start reads back {}",
            print::duration_in_words(lookback)
        );
    }
    out
}

struct Explainer<'p> {
    plan: &'p Plan,
    /// The names of each node's columns in expressions over it.
    columns: Vec<Vec<String>>,
    readers: Vec<usize>,
    /// Whether the node can run per partition, and why.
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
            let apart = explainer.partitioning_of(node);
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
            Node::Join(join) => {
                let side = |side: &Side| match side {
                    Side::Left => &self.columns[join.left.0],
                    Side::Right => &self.columns[join.right.0],
                };
                join.columns
                    .iter()
                    .map(|(at, column)| side(at)[*column].clone())
                    .collect()
            }
            Node::Lookup(lookup) => {
                let right = reference_columns(&self.plan.references[lookup.reference]);
                let name = |(side, column): &(Side, usize)| match side {
                    Side::Left => self.columns[lookup.from.0][*column].clone(),
                    Side::Right => right[*column].clone(),
                };
                lookup.columns.iter().map(name).collect()
            }
            Node::Apply { from, columns, .. } => {
                let name = |column: &ApplyColumn| match column {
                    ApplyColumn::Carried(below) => self.columns[from.0][*below].clone(),
                    ApplyColumn::Element => "element".to_string(),
                };
                columns.iter().map(name).collect()
            }
            Node::Analytic(analytic) => {
                let below = &self.columns[analytic.from.0];
                let name = |column: &AnalyticColumn| match column {
                    AnalyticColumn::Carried(column) => below[*column].clone(),
                    AnalyticColumn::Call(call) => print::analytic(&analytic.calls[*call], below),
                };
                analytic.columns.iter().map(name).collect()
            }
            Node::Match(node) => {
                let keys = node.partition.iter().map(|key| print::name(&key.name));
                keys.chain(print::measures(node, &self.columns[node.from.0]))
                    .collect()
            }
        }
    }

    fn partitioning_of(&self, node: &Node) -> (bool, &'static str) {
        if node.below().iter().any(|below| !self.apart[below.0].0) {
            return (false, "what it reads is merged already");
        }
        match node {
            Node::Source { .. } => (true, "partitions are read on their own"),
            Node::Filter { .. } | Node::Project { .. } => (true, "row by row"),
            Node::Union { .. } => (true, "partition by partition"),
            Node::Window(window) => self.partitioning_of_window(window),
            Node::Lookup(_) => (true, "row by row"),
            Node::Apply { .. } => (true, "row by row"),
            Node::Join(JoinNode { by_partition, .. })
            | Node::Analytic(AnalyticNode { by_partition, .. })
            | Node::Match(MatchNode { by_partition, .. }) => match by_partition {
                true => (true, "PARTITION BY PartitionId"),
                false => (false, "rows of all partitions are looked at in order"),
            },
        }
    }

    fn partitioning_of_window(&self, window: &WindowNode) -> (bool, &'static str) {
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

    /// Only a direct key: of the source itself, or passed on unchanged.
    fn is_partition(&self, node: NodeId, kind: &ExprKind) -> bool {
        let column = match kind {
            ExprKind::Coalesce(all) => {
                return all.iter().any(|one| self.is_partition(node, &one.kind));
            }
            ExprKind::Column(column) => *column,
            _ => return false,
        };
        let below = |node: NodeId, column| self.is_partition(node, &ExprKind::Column(column));
        match &self.plan.nodes[node.0] {
            Node::Source { input } => self.plan.inputs[*input].reads[column] == Read::Partition,
            Node::Filter { from, .. } => below(*from, column),
            Node::Project { from, items } => self.is_partition(*from, &items[column].expr.kind),
            Node::Apply { from, columns, .. } => match columns[column] {
                ApplyColumn::Carried(column) => below(*from, column),
                ApplyColumn::Element => false,
            },
            Node::Lookup(lookup) => match lookup.columns[column] {
                (Side::Left, column) => below(lookup.from, column),
                (Side::Right, _) => false,
            },
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
            let _ = writeln!(out, "{indent}  {}", reads(&self.plan.inputs[input].reads));
        }
        if let Node::Lookup(lookup) = &self.plan.nodes[node.0] {
            for (deeper, line) in reference_steps(&self.plan.references[lookup.reference])
                .iter()
                .enumerate()
            {
                let _ = writeln!(out, "{indent}  {}{line}", "  ".repeat(deeper));
            }
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
                let items = items.iter().map(|item| show_item(item, below));
                format!("select {}", print::join(items))
            }
            Node::Window(window) => self.window(window),
            Node::Union { names, .. } => {
                format!("union {}", print::join(names.iter().map(column_name)))
            }
            Node::Join(join) => self.join(join),
            Node::Lookup(lookup) => self.lookup(lookup),
            Node::Apply {
                from,
                of,
                each,
                outer,
                ..
            } => {
                let kind = if *outer { "outer" } else { "cross" };
                let function = match each {
                    Each::Element => "GetArrayElements",
                    Each::Property => "GetRecordProperties",
                };
                format!(
                    "{kind} apply {function}({})",
                    print::expr(of, &self.columns[from.0])
                )
            }
            Node::Analytic(analytic) => {
                let below = &self.columns[analytic.from.0];
                let calls = analytic.calls.iter();
                let calls = calls.map(|call| print::analytic(call, below));
                format!("compute {}", print::join(calls))
            }
            Node::Match(node) => print::matching(node, &self.columns[node.from.0]),
        }
    }

    fn join(&self, join: &JoinNode) -> String {
        let (left, right) = (&self.columns[join.left.0], &self.columns[join.right.0]);
        let mut text = String::from(if join.outer { "left join" } else { "join" });
        let _ = write!(
            text,
            " within [{} .. {}]",
            print::signed(join.low),
            print::signed(join.high)
        );
        for bound in &join.bounds {
            if let Some(column) = bound.left_column {
                let end = |end: Option<Duration>| end.map(print::signed).unwrap_or_default();
                let (low, high) = (end(bound.low), end(bound.high));
                let _ = write!(text, ", from {} [{low} .. {high}]", left[column]);
            }
        }
        text += &equalities(&join.keys, left, right);
        text += &self.residual(&join.residual, || Node::Join(join.clone()));
        text
    }

    fn lookup(&self, lookup: &LookupNode) -> String {
        let reference = &self.plan.references[lookup.reference];
        let (left, right) = (&self.columns[lookup.from.0], reference_columns(reference));
        let mut text = String::from(if lookup.outer { "left join" } else { "join" });
        let _ = write!(text, " reference {}", print::name(&reference.name));
        text += &equalities(&lookup.keys, left, &right);
        text += &self.residual(&lookup.residual, || Node::Lookup(lookup.clone()));
        text
    }

    /// The other conditions of a join, over the columns of the join.
    fn residual(&self, residual: &Option<Pred>, join: impl Fn() -> Node) -> String {
        let print = |pred| format!(", {}", print::pred(pred, &self.columns_of(&join())));
        residual.as_ref().map(print).unwrap_or_default()
    }

    fn source(&self, input: usize) -> String {
        let input = &self.plan.inputs[input];
        let columns: Vec<String> = input.reads.iter().map(print::read).collect();
        let mut text = format!("source {}", print::name(&input.name));
        if let Some(timestamp) = &input.timestamp {
            text += &format!(" timestamp by {}", print::expr(timestamp, &columns));
        }
        if !input.substream.is_empty() {
            text += &format!(" over {}", print::list(&input.substream, &columns));
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
        if !window.aggregates.is_empty() {
            let aggregates = window.aggregates.iter();
            let aggregates = aggregates.map(|aggregate| print::aggregate(aggregate, below));
            text += &format!(" computing {}", print::join(aggregates));
        }
        text
    }
}

/// The keys of a join.
fn equalities(keys: &[(Expr, Expr)], left: &[String], right: &[String]) -> String {
    let equality = |(a, b): &(Expr, Expr)| {
        let (a, b) = (print::expr(a, left), print::expr(b, right));
        format!(", {a} = {b}")
    };
    keys.iter().map(equality).collect()
}

/// The columns of a reference after its steps, with its name.
fn reference_columns(reference: &Reference) -> Vec<String> {
    let own = |name: String| format!("{}.{name}", print::name(&reference.name));
    let read = reference.reads.iter().map(print::read).map(own).collect();
    reference
        .steps
        .iter()
        .fold(read, |columns, step| match step {
            ReferenceStep::Filter(_) => columns,
            ReferenceStep::Project(items) => {
                let name = |item: &Item| match &item.name {
                    // Already named after the source.
                    Name::Hidden(name) if name.contains('.') => name.clone(),
                    name => own(column_name(name)),
                };
                items.iter().map(name).collect()
            }
        })
}

/// The steps of a reference before it is joined, the last one first.
fn reference_steps(reference: &Reference) -> Vec<String> {
    let mut columns: Vec<String> = reference.reads.iter().map(print::read).collect();
    let mut lines = vec![format!(
        "reference {}: {}",
        print::name(&reference.name),
        reads(&reference.reads)
    )];
    for step in &reference.steps {
        match step {
            ReferenceStep::Filter(keep) => {
                lines.push(format!("filter {}", print::pred(keep, &columns)));
            }
            ReferenceStep::Project(items) => {
                let shown = items.iter().map(|item| show_item(item, &columns));
                lines.push(format!("select {}", print::join(shown)));
                columns = items.iter().map(|item| column_name(&item.name)).collect();
            }
        }
    }
    lines.reverse();
    lines
}

fn reads(reads: &[Read]) -> String {
    let reads = reads.iter().map(|read| match read {
        Read::TimePath(_) => format!("{} as datetime", print::read(read)),
        Read::Whole => "the whole event".to_string(),
        _ => print::read(read),
    });
    match print::join(reads) {
        none if none.is_empty() => "reads no fields".to_string(),
        reads => format!("reads {reads}"),
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
        Name::Spread => print::spread(expr),
        Name::Field(name) if print::name(name) == expr => expr,
        Name::Field(name) => format!("{expr} AS {}", print::name(name)),
        Name::Hidden(_) => format!("{expr} (carried)"),
    }
}
