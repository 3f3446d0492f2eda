//! Removes nodes and columns that no output needs: steps that nothing reads, columns that nothing uses, and above all
//! whole events that only `SELECT *` in a first step reads.
//!
//! Binding cannot know this, because columns are requested until the last statement is bound. [`Usage`] walks down from
//! the outputs and drops expressions of unneeded columns; [`Renumber`] walks up again and moves the references to the
//! remaining columns.

use crate::plan::{
    AnalyticCall, AnalyticColumn, AnalyticNode, ApplyColumn, Expr, ExprKind, Input, MatchRef, Name,
    Node, NodeId, Output, Plan, Pred, Side,
};

mod table;

pub(super) fn prune(mut plan: Plan) -> Plan {
    let used = Usage::of(&mut plan);
    Renumber::default().run(plan, &used)
}

/// The owner of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Node(NodeId),
    Reference(usize),
}

impl From<NodeId> for Owner {
    fn from(node: NodeId) -> Owner {
        Owner::Node(node)
    }
}

/// Visits the columns that a node refers to.
struct ColumnRefs<'v>(&'v mut dyn FnMut(Owner, &mut usize));

impl ColumnRefs<'_> {
    fn of(
        node: &mut Node,
        own: NodeId,
        inputs: &mut [Input],
        visit: impl FnMut(Owner, &mut usize),
    ) {
        let mut visit = visit;
        ColumnRefs(&mut visit).node(node, own, inputs);
    }

    fn node(&mut self, node: &mut Node, own: NodeId, inputs: &mut [Input]) {
        match node {
            Node::Source { input } => {
                let input = &mut inputs[*input];
                self.exprs(own, input.timestamp.iter_mut().chain(&mut input.substream));
            }
            Node::Filter { from, keep } => self.conditions(*from, [keep]),
            Node::Project { from, items } => {
                self.exprs(*from, items.iter_mut().map(|item| &mut item.expr));
            }
            Node::Window(window) => {
                self.exprs(window.from, window.keys.iter_mut().map(|key| &mut key.expr));
                for aggregate in &mut window.aggregates {
                    self.exprs(window.from, aggregate.exprs_mut());
                }
            }
            Node::Join(join) => {
                self.joined(&mut join.columns, join.left, join.right);
                self.keys(&mut join.keys, join.left, join.right);
                let bounds = join.bounds.iter_mut();
                self.columns(
                    join.left,
                    bounds.filter_map(|bound| bound.left_column.as_mut()),
                );
                self.conditions(own, &mut join.residual);
            }
            Node::Lookup(lookup) => {
                let table = Owner::Reference(lookup.reference);
                self.joined(&mut lookup.columns, lookup.from, table);
                self.keys(&mut lookup.keys, lookup.from, table);
                self.conditions(own, &mut lookup.residual);
            }
            Node::Apply {
                from, of, columns, ..
            } => {
                self.exprs(*from, [of]);
                let carried = columns.iter_mut().filter_map(|column| match column {
                    ApplyColumn::Carried(column) => Some(column),
                    ApplyColumn::Element => None,
                });
                self.columns(*from, carried);
            }
            Node::Analytic(analytic) => self.analytic(analytic),
            Node::Match(node) => {
                self.exprs(
                    node.from,
                    node.partition.iter_mut().map(|key| &mut key.expr),
                );
                // Its conditions and measures are over these.
                let refs = node.refs.iter_mut().filter_map(|of| match of {
                    MatchRef::Picked { of, .. } | MatchRef::Collected { of } => Some(of),
                    MatchRef::Classifier => None,
                });
                self.exprs(node.from, refs);
            }
            Node::Union { from, .. } => {
                for (branch, map) in from {
                    self.columns(*branch, map);
                }
            }
        }
    }

    fn analytic(&mut self, analytic: &mut AnalyticNode) {
        let from = analytic.from;
        let carried = analytic
            .columns
            .iter_mut()
            .filter_map(|column| match column {
                AnalyticColumn::Carried(column) => Some(column),
                AnalyticColumn::Call(_) => None,
            });
        self.columns(from, carried);
        for call in &mut analytic.calls {
            self.exprs(from, call.function.exprs_mut());
            self.exprs(from, &mut call.partition);
            self.conditions(from, &mut call.when);
        }
    }

    /// The columns of a join.
    fn joined(&mut self, columns: &mut [(Side, usize)], left: NodeId, right: impl Into<Owner>) {
        let right = right.into();
        for (side, column) in columns {
            match side {
                Side::Left => self.columns(left, [column]),
                Side::Right => self.columns(right, [column]),
            }
        }
    }

    fn keys(&mut self, keys: &mut [(Expr, Expr)], left: NodeId, right: impl Into<Owner>) {
        let right = right.into();
        for (a, b) in keys {
            self.exprs(left, [a]);
            self.exprs(right, [b]);
        }
    }

    fn exprs<'e>(
        &mut self,
        owner: impl Into<Owner>,
        exprs: impl IntoIterator<Item = &'e mut Expr>,
    ) {
        let owner = owner.into();
        exprs
            .into_iter()
            .for_each(|expr| expr.visit_mut(|e| self.expr(owner, e)));
    }

    fn conditions<'e>(&mut self, owner: NodeId, all: impl IntoIterator<Item = &'e mut Pred>) {
        let owner = owner.into();
        all.into_iter()
            .for_each(|pred| pred.visit_mut(|e| self.expr(owner, e)));
    }

    fn expr(&mut self, owner: Owner, expr: &mut Expr) {
        if let ExprKind::Column(column) = &mut expr.kind {
            (self.0)(owner, column);
        }
    }

    fn columns<'c>(
        &mut self,
        owner: impl Into<Owner>,
        columns: impl IntoIterator<Item = &'c mut usize>,
    ) {
        let owner = owner.into();
        columns
            .into_iter()
            .for_each(|column| (self.0)(owner, column));
    }
}

/// The needed nodes, and their needed columns.
struct Usage {
    node: Vec<bool>,
    columns: Vec<Vec<bool>>,
    reference: Vec<bool>,
    references: Vec<Vec<bool>>,
}

impl Usage {
    /// Drops the expressions of unneeded columns. References still use the old positions.
    fn of(plan: &mut Plan) -> Usage {
        let columns = plan
            .nodes
            .iter()
            .scan(Vec::new(), |widths: &mut Vec<usize>, node| {
                widths.push(width(&plan.inputs, widths, node));
                widths.last().map(|width| vec![false; *width])
            });
        let columns: Vec<Vec<bool>> = columns.collect();
        let references = plan.references.iter();
        let references = references.map(|of| vec![false; table::width(of)]);
        let mut used = Usage {
            node: vec![false; plan.nodes.len()],
            columns,
            reference: vec![false; plan.references.len()],
            references: references.collect(),
        };
        for output in &plan.outputs {
            used.output(&plan.nodes, output.from);
        }
        for index in (0..plan.nodes.len()).rev() {
            if used.node[index] {
                used.node(&mut plan.nodes[index], NodeId(index), &mut plan.inputs);
            }
        }
        used
    }

    fn output(&mut self, nodes: &[Node], from: NodeId) {
        self.node[from.0] = true;
        let visible = |name: &Name| !matches!(name, Name::Hidden(_));
        let columns = &mut self.columns[from.0];
        match &nodes[from.0] {
            Node::Project { items, .. } => {
                for (column, item) in columns.iter_mut().zip(items) {
                    *column |= visible(&item.name);
                }
            }
            Node::Union { names, .. } => {
                for (column, name) in columns.iter_mut().zip(names) {
                    *column |= visible(name);
                }
            }
            _ => columns.fill(true),
        }
    }

    /// Drops unneeded expressions of the node, and marks the columns that it reads.
    fn node(&mut self, node: &mut Node, id: NodeId, inputs: &mut [Input]) {
        for below in node.below() {
            self.node[below.0] = true;
        }
        let shown = self.columns[id.0].clone();
        match node {
            Node::Source { input } => inputs[*input].carried = shown,
            Node::Filter { from, .. } => {
                let below = self.columns[from.0].iter_mut().zip(shown);
                below.for_each(|(mark, wanted)| *mark |= wanted);
            }
            Node::Lookup(lookup) => self.reference[lookup.reference] = true,
            _ => {}
        }
        // The clock of a source and the residual condition of a join read columns of the node itself.
        let own = &mut self.columns[id.0];
        ColumnRefs::of(node, id, inputs, |owner, column| {
            if owner == Owner::Node(id) {
                own[*column] = true;
            }
        });
        drop_unneeded(node, inputs, &self.columns[id.0]);
        ColumnRefs::of(node, id, inputs, |owner, column| match owner {
            Owner::Node(node) => self.columns[node.0][*column] = true,
            Owner::Reference(table) => self.references[table][*column] = true,
        });
        if let Node::Join(join) = node {
            // An unneeded projection is removed, and then two uses of one input merge.
            for side in [join.left, join.right] {
                let columns = &mut self.columns[side.0];
                if !columns.contains(&true)
                    && let Some(first) = columns.first_mut()
                {
                    *first = true;
                }
            }
        }
    }
}

fn drop_unneeded(node: &mut Node, inputs: &mut [Input], wanted: &[bool]) {
    match node {
        Node::Source { input } => {
            retain(&mut inputs[*input].reads, wanted);
            retain(&mut inputs[*input].carried, wanted);
        }
        Node::Filter { .. } | Node::Match(_) => {}
        Node::Project { items, .. } => retain(items, wanted),
        // Groups depend on all of their keys, shown or not.
        Node::Window(window) => retain(&mut window.aggregates, &wanted[window.keys.len()..]),
        Node::Join(join) => retain(&mut join.columns, wanted),
        Node::Lookup(lookup) => retain(&mut lookup.columns, wanted),
        Node::Apply { columns, .. } => retain(columns, wanted),
        Node::Analytic(analytic) => {
            retain(&mut analytic.columns, wanted);
            let calls = std::mem::take(&mut analytic.calls);
            let mut calls: Vec<Option<AnalyticCall>> = calls.into_iter().map(Some).collect();
            for column in &mut analytic.columns {
                if let AnalyticColumn::Call(call) = column {
                    analytic.calls.extend(calls[*call].take());
                    *call = analytic.calls.len() - 1;
                }
            }
        }
        Node::Union { from, names } => {
            retain(names, wanted);
            from.iter_mut().for_each(|(_, map)| retain(map, wanted));
        }
    }
}

fn width(inputs: &[Input], widths: &[usize], node: &Node) -> usize {
    match node {
        Node::Source { input } => inputs[*input].reads.len(),
        Node::Filter { from, .. } => widths[from.0],
        Node::Project { items, .. } => items.len(),
        Node::Window(window) => window.keys.len() + window.aggregates.len(),
        Node::Union { names, .. } => names.len(),
        Node::Join(join) => join.columns.len(),
        Node::Lookup(lookup) => lookup.columns.len(),
        Node::Apply { columns, .. } => columns.len(),
        Node::Analytic(analytic) => analytic.columns.len(),
        Node::Match(node) => node.partition.len() + node.measures.len(),
    }
}

/// The plan without unused parts.
#[derive(Default)]
struct Renumber {
    plan: Plan,
    /// New indexes of old nodes; undefined for removed nodes.
    nodes: Vec<NodeId>,
    /// New positions of old columns, by old node.
    columns: Vec<Vec<usize>>,
    /// New indexes of old references, and of their columns.
    references: Vec<(usize, Vec<usize>)>,
}

impl Renumber {
    fn run(mut self, plan: Plan, used: &Usage) -> Plan {
        let mut inputs = plan.inputs;
        for (index, reference) in plan.references.into_iter().enumerate() {
            let (reference, columns) = table::prune_columns(reference, &used.references[index]);
            self.references.push((self.plan.references.len(), columns));
            if used.reference[index] {
                self.plan.references.push(reference);
            }
        }
        for (index, node) in plan.nodes.into_iter().enumerate() {
            let columns = self.positions(&node, &used.columns[index]);
            self.columns.push(columns);
            let new = match used.node[index] {
                true => self.node(node, NodeId(index), &mut inputs),
                false => NodeId(0),
            };
            self.nodes.push(new);
        }
        for Output { name, from } in plan.outputs {
            let from = self.nodes[from.0];
            self.plan.outputs.push(Output { name, from });
        }
        self.plan
    }

    /// The new positions of a node's columns.
    fn positions(&self, node: &Node, wanted: &[bool]) -> Vec<usize> {
        match node {
            Node::Filter { from, .. } => self.columns[from.0].clone(),
            Node::Window(window) => {
                let keys = window.keys.len();
                let kept = wanted.iter().enumerate();
                positions(kept.map(|(column, wanted)| *wanted || column < keys))
            }
            Node::Analytic(analytic) if !computes(analytic) => {
                let below = &self.columns[analytic.from.0];
                let carried = |column| match analytic.columns.get(column) {
                    Some(AnalyticColumn::Carried(column)) => below[*column],
                    _ => 0,
                };
                let kept = positions(wanted.iter().copied());
                kept.into_iter().map(carried).collect()
            }
            Node::Match(_) => (0..wanted.len()).collect(),
            _ => positions(wanted.iter().copied()),
        }
    }

    /// Adds a node, unless it passes on the rows of the node below unchanged; returns its new index.
    fn node(&mut self, mut node: Node, id: NodeId, inputs: &mut [Input]) -> NodeId {
        match &node {
            Node::Project { from, items } if items.is_empty() => return self.nodes[from.0],
            Node::Analytic(analytic) if !computes(analytic) => return self.nodes[analytic.from.0],
            _ => {}
        }
        ColumnRefs::of(&mut node, id, inputs, |owner, column| {
            *column = match owner {
                Owner::Node(node) => self.columns[node.0][*column],
                Owner::Reference(table) => self.references[table].1[*column],
            };
        });
        match &mut node {
            Node::Source { input } => {
                self.plan.inputs.push(inputs[*input].clone());
                *input = self.plan.inputs.len() - 1;
            }
            Node::Lookup(lookup) => lookup.reference = self.references[lookup.reference].0,
            _ => {}
        }
        for below in node.below_mut() {
            *below = self.nodes[below.0];
        }
        self.plan.nodes.push(node);
        NodeId(self.plan.nodes.len() - 1)
    }
}

/// Whether it computes a needed value.
fn computes(analytic: &AnalyticNode) -> bool {
    let call = |column: &AnalyticColumn| matches!(column, AnalyticColumn::Call(_));
    analytic.columns.iter().any(call)
}

fn positions(wanted: impl Iterator<Item = bool>) -> Vec<usize> {
    let position = |next: &mut usize, wanted| {
        let here = *next;
        *next += usize::from(wanted);
        Some(here)
    };
    wanted.scan(0, position).collect()
}

fn retain<T>(all: &mut Vec<T>, wanted: &[bool]) {
    let mut wanted = wanted.iter();
    all.retain(|_| wanted.next() == Some(&true));
}
