//! Removes what no output needs: steps that nothing reads, columns that nobody uses, and above all whole events that
//! only `SELECT *` in a first step reads.
//!
//! Binding cannot know this, because columns are requested until the last statement is bound.

use crate::plan::{
    Analytic, AnalyticCall, AnalyticColumn, AnalyticNode, ApplyColumn, Expr, ExprKind, Input,
    JoinNode, LookupNode, MatchNode, MatchRef, Name, Node, NodeId, Output, Plan, Pred, Side,
    WindowNode,
};
use crate::visit::{Visit, expr_mut, pred_mut};

mod table;

pub(super) fn prune(mut plan: Plan) -> Plan {
    let used = Usage::of(&mut plan);
    Renumber::default().run(plan, &used)
}

/// The needed nodes, and their needed columns.
struct Usage {
    node: Vec<bool>,
    columns: Vec<Vec<bool>>,
    reference: Vec<bool>,
    references: Vec<Vec<bool>>,
}

impl Usage {
    /// Collecting columns does not change a plan; only the visitor needs a mutable one.
    fn of(plan: &mut Plan) -> Usage {
        let columns = plan
            .nodes
            .iter()
            .scan(Vec::new(), |widths: &mut Vec<usize>, node| {
                widths.push(width(&plan.inputs, widths, node));
                widths.last().map(|width| vec![false; *width])
            });
        let columns: Vec<Vec<bool>> = columns.collect();
        let mut used = Usage {
            node: vec![false; plan.nodes.len()],
            columns,
            reference: vec![false; plan.references.len()],
            references: plan
                .references
                .iter()
                .map(|of| vec![false; table::width(of)])
                .collect(),
        };
        for output in &plan.outputs {
            used.output(&plan.nodes, output.from);
        }
        for index in (0..plan.nodes.len()).rev() {
            if used.node[index] {
                used.below(&mut plan.nodes[index], &mut plan.inputs, index);
            }
        }
        used
    }

    fn output(&mut self, nodes: &[Node], from: NodeId) {
        self.node[from.0] = true;
        let visible = |name: &Name| !matches!(name, Name::Hidden(_));
        match &nodes[from.0] {
            Node::Project { items, .. } => {
                for (column, item) in items.iter().enumerate() {
                    self.columns[from.0][column] |= visible(&item.name);
                }
            }
            Node::Union { names, .. } => {
                for (column, name) in names.iter().enumerate() {
                    self.columns[from.0][column] |= visible(name);
                }
            }
            _ => self.columns[from.0].fill(true),
        }
    }

    /// Marks the columns that node `index` needs of its inputs.
    fn below(&mut self, node: &mut Node, inputs: &mut [Input], index: usize) {
        node.below()
            .into_iter()
            .for_each(|below| self.node[below.0] = true);
        let mine = self.columns[index].clone();
        match node {
            Node::Source { input } => {
                let input = &mut inputs[*input];
                input.carried = mine;
                for expr in input.timestamp.iter_mut().chain(&mut input.substream) {
                    self.mark(index, expr);
                }
            }
            Node::Filter { from, keep } => {
                let marks = &mut self.columns[from.0];
                marks
                    .iter_mut()
                    .zip(&mine)
                    .for_each(|(mark, wanted)| *mark |= wanted);
                pred_mut(
                    keep,
                    &mut Visit {
                        expr: &mut |e| mark(marks, e),
                        span: None,
                    },
                );
            }
            Node::Project { from, items } => {
                let wanted = items.iter_mut().zip(&mine).filter(|(_, wanted)| **wanted);
                wanted.for_each(|(item, _)| self.mark(from.0, &mut item.expr));
            }
            Node::Window(window) => {
                let from = window.from.0;
                window
                    .keys
                    .iter_mut()
                    .for_each(|key| self.mark(from, &mut key.expr));
                let wanted = window.aggregates.iter_mut().zip(&mine[window.keys.len()..]);
                let wanted = wanted.filter(|(_, wanted)| **wanted);
                for (aggregate, _) in wanted {
                    let order = aggregate.order.iter_mut().map(|key| &mut key.expr);
                    aggregate
                        .argument
                        .iter_mut()
                        .chain(order)
                        .for_each(|e| self.mark(from, e));
                }
            }
            Node::Analytic(analytic) => self.analytic(analytic, &mine),
            Node::Match(node) => {
                let from = node.from.0;
                exprs_of_match(node).for_each(|expr| self.mark(from, expr));
            }
            Node::Join(join) => self.join(join, index),
            Node::Lookup(lookup) => self.lookup(lookup, index),
            Node::Apply {
                from, of, columns, ..
            } => {
                self.mark(from.0, of);
                for (column, _) in columns.iter().zip(&mine).filter(|(_, wanted)| **wanted) {
                    if let ApplyColumn::Carried(below) = column {
                        self.columns[from.0][*below] = true;
                    }
                }
            }
            Node::Union { from, .. } => {
                for (branch, map) in from {
                    let wanted = map.iter().zip(&mine).filter(|(_, wanted)| **wanted);
                    wanted.for_each(|(column, _)| self.columns[branch.0][*column] = true);
                }
            }
        }
    }

    fn join(&mut self, join: &mut JoinNode, index: usize) {
        let (left, right) = (join.left.0, join.right.0);
        self.residual(&mut join.residual, index);
        for (a, b) in &mut join.keys {
            self.mark(left, a);
            self.mark(right, b);
        }
        for bound in &join.bounds {
            bound
                .left_column
                .into_iter()
                .for_each(|column| self.columns[left][column] = true);
        }
        for (side, column) in wanted_of(&join.columns, &self.columns[index]) {
            let side = if side == Side::Left { left } else { right };
            self.columns[side][column] = true;
        }
        // An unneeded projection is removed, and then two uses of one input merge.
        for side in [left, right] {
            let columns = &mut self.columns[side];
            if !columns.contains(&true)
                && let Some(first) = columns.first_mut()
            {
                *first = true;
            }
        }
    }

    fn lookup(&mut self, lookup: &mut LookupNode, index: usize) {
        let (left, table) = (lookup.from.0, lookup.reference);
        self.residual(&mut lookup.residual, index);
        for (a, b) in &mut lookup.keys {
            self.mark(left, a);
            visit_columns(b, &mut |column| self.references[table][column] = true);
        }
        for (side, column) in wanted_of(&lookup.columns, &self.columns[index]) {
            match side {
                Side::Left => self.columns[left][column] = true,
                Side::Right => self.references[table][column] = true,
            }
        }
        self.reference[table] = true;
    }

    /// A condition over the columns of the node itself.
    fn residual(&mut self, residual: &mut Option<Pred>, index: usize) {
        let marks = &mut self.columns[index];
        if let Some(pred) = residual {
            pred_mut(
                pred,
                &mut Visit {
                    expr: &mut |e| mark(marks, e),
                    span: None,
                },
            );
        }
    }

    fn analytic(&mut self, analytic: &mut AnalyticNode, mine: &[bool]) {
        let marks = &mut self.columns[analytic.from.0];
        for (column, wanted) in analytic.columns.iter().zip(mine) {
            match column {
                AnalyticColumn::Carried(below) => marks[*below] |= wanted,
                AnalyticColumn::Call(call) if *wanted => {
                    visit_call(&mut analytic.calls[*call], &mut |e| mark(marks, e));
                }
                AnalyticColumn::Call(_) => {}
            }
        }
    }

    fn mark(&mut self, node: usize, expr: &mut Expr) {
        let marks = &mut self.columns[node];
        expr_mut(
            expr,
            &mut Visit {
                expr: &mut |e| mark(marks, e),
                span: None,
            },
        );
    }
}

fn mark(marks: &mut [bool], expr: &Expr) {
    if let ExprKind::Column(column) = expr.kind {
        marks[column] = true;
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

/// The plan without what is not used.
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
        let mut inputs: Vec<Option<Input>> = plan.inputs.into_iter().map(Some).collect();
        for (index, reference) in plan.references.into_iter().enumerate() {
            let (reference, columns) = table::slim(reference, &used.references[index]);
            self.references.push((self.plan.references.len(), columns));
            if used.reference[index] {
                self.plan.references.push(reference);
            }
        }
        for (index, node) in plan.nodes.into_iter().enumerate() {
            let wanted = &used.columns[index];
            let columns = match &node {
                Node::Filter { from, .. } => self.columns[from.0].clone(),
                Node::Window(window) => positions(&keep_keys(wanted, window.keys.len())),
                Node::Analytic(analytic) if !computes(analytic, wanted) => {
                    let below = &self.columns[analytic.from.0];
                    let place = |column: &AnalyticColumn| match column {
                        AnalyticColumn::Carried(column) => below[*column],
                        AnalyticColumn::Call(_) => 0,
                    };
                    analytic.columns.iter().map(place).collect()
                }
                Node::Match(_) => (0..wanted.len()).collect(),
                _ => positions(wanted),
            };
            self.columns.push(columns);
            let place = if used.node[index] {
                self.node(node, wanted, index, &mut inputs)
            } else {
                None
            };
            self.nodes.push(place.unwrap_or(NodeId(0)));
        }
        for Output { name, from } in plan.outputs {
            self.plan.outputs.push(Output {
                name,
                from: self.nodes[from.0],
            });
        }
        self.plan
    }

    fn node(
        &mut self,
        node: Node,
        wanted: &[bool],
        index: usize,
        inputs: &mut [Option<Input>],
    ) -> Option<NodeId> {
        let node = match node {
            Node::Source { input } => Node::Source {
                input: self.input(inputs[input].take()?, wanted, index),
            },
            Node::Filter { from, mut keep } => {
                let columns = &self.columns[from.0];
                pred_mut(
                    &mut keep,
                    &mut Visit {
                        expr: &mut |e| renumber(columns, e),
                        span: None,
                    },
                );
                Node::Filter {
                    from: self.nodes[from.0],
                    keep,
                }
            }
            // None of its columns is needed, so neither is the node.
            Node::Project { from, .. } if !wanted.contains(&true) => {
                return Some(self.nodes[from.0]);
            }
            Node::Project { from, items } => {
                let mut items = pick(items, wanted);
                items
                    .iter_mut()
                    .for_each(|item| self.renumber(from, &mut item.expr));
                Node::Project {
                    from: self.nodes[from.0],
                    items,
                }
            }
            Node::Window(window) => Node::Window(self.window(window, wanted)),
            Node::Join(join) => Node::Join(self.join(join, wanted, index)),
            Node::Lookup(lookup) => Node::Lookup(self.lookup(lookup, wanted, index)),
            Node::Apply {
                from,
                mut of,
                each,
                outer,
                columns,
            } => {
                self.renumber(from, &mut of);
                let place = |column| match column {
                    ApplyColumn::Carried(below) => {
                        ApplyColumn::Carried(self.columns[from.0][below])
                    }
                    ApplyColumn::Element => ApplyColumn::Element,
                };
                Node::Apply {
                    from: self.nodes[from.0],
                    of,
                    each,
                    outer,
                    columns: pick(columns, wanted).into_iter().map(place).collect(),
                }
            }
            // It computes nothing that is needed.
            Node::Analytic(analytic) if !computes(&analytic, wanted) => {
                return Some(self.nodes[analytic.from.0]);
            }
            Node::Analytic(analytic) => Node::Analytic(self.analytic(analytic, wanted)),
            Node::Match(mut node) => {
                let from = node.from;
                exprs_of_match(&mut node).for_each(|expr| self.renumber(from, expr));
                node.from = self.nodes[node.from.0];
                Node::Match(node)
            }
            Node::Union { from, names } => Node::Union {
                from: self.branches(from, wanted),
                names: pick(names, wanted),
            },
        };
        self.plan.nodes.push(node);
        Some(NodeId(self.plan.nodes.len() - 1))
    }

    fn window(&self, mut window: WindowNode, wanted: &[bool]) -> WindowNode {
        let wanted = keep_keys(wanted, window.keys.len());
        window.aggregates = pick(window.aggregates, &wanted[window.keys.len()..]);
        window
            .keys
            .iter_mut()
            .for_each(|key| self.renumber(window.from, &mut key.expr));
        for aggregate in &mut window.aggregates {
            let order = aggregate.order.iter_mut().map(|key| &mut key.expr);
            let exprs = aggregate.argument.iter_mut().chain(order);
            exprs.for_each(|expr| self.renumber(window.from, expr));
        }
        window.from = self.nodes[window.from.0];
        window
    }

    fn branches(
        &self,
        from: Vec<(NodeId, Vec<usize>)>,
        wanted: &[bool],
    ) -> Vec<(NodeId, Vec<usize>)> {
        let branch = |(branch, map): (NodeId, Vec<usize>)| {
            let columns = &self.columns[branch.0];
            let map = pick(map, wanted).into_iter().map(|c| columns[c]);
            (self.nodes[branch.0], map.collect())
        };
        from.into_iter().map(branch).collect()
    }

    fn join(&self, mut join: JoinNode, wanted: &[bool], index: usize) -> JoinNode {
        let (left, right) = (&self.columns[join.left.0], &self.columns[join.right.0]);
        join.columns = pick(join.columns, wanted);
        for (side, column) in &mut join.columns {
            let columns = if *side == Side::Left { left } else { right };
            *column = columns[*column];
        }
        for bound in &mut join.bounds {
            bound.left_column = bound.left_column.map(|column| left[column]);
        }
        for (a, b) in &mut join.keys {
            self.renumber(join.left, a);
            self.renumber(join.right, b);
        }
        self.renumber_pred(index, &mut join.residual);
        join.left = self.nodes[join.left.0];
        join.right = self.nodes[join.right.0];
        join
    }

    fn lookup(&self, mut lookup: LookupNode, wanted: &[bool], index: usize) -> LookupNode {
        let (place, table) = &self.references[lookup.reference];
        lookup.columns = pick(lookup.columns, wanted);
        for (side, column) in &mut lookup.columns {
            *column = match side {
                Side::Left => self.columns[lookup.from.0][*column],
                Side::Right => table[*column],
            };
        }
        for (a, b) in &mut lookup.keys {
            self.renumber(lookup.from, a);
            expr_mut(
                b,
                &mut Visit {
                    expr: &mut |e| renumber(table, e),
                    span: None,
                },
            );
        }
        self.renumber_pred(index, &mut lookup.residual);
        lookup.reference = *place;
        lookup.from = self.nodes[lookup.from.0];
        lookup
    }

    fn renumber_pred(&self, node: usize, pred: &mut Option<Pred>) {
        let columns = &self.columns[node];
        if let Some(pred) = pred {
            pred_mut(
                pred,
                &mut Visit {
                    expr: &mut |e| renumber(columns, e),
                    span: None,
                },
            );
        }
    }

    fn analytic(&self, mut analytic: AnalyticNode, wanted: &[bool]) -> AnalyticNode {
        let columns = &self.columns[analytic.from.0];
        let mut calls: Vec<Option<AnalyticCall>> = analytic.calls.into_iter().map(Some).collect();
        analytic.calls = Vec::new();
        analytic.columns = pick(analytic.columns, wanted);
        for column in &mut analytic.columns {
            match column {
                AnalyticColumn::Carried(below) => *below = columns[*below],
                AnalyticColumn::Call(call) => {
                    if let Some(mut wanted) = calls[*call].take() {
                        visit_call(&mut wanted, &mut |e| renumber(columns, e));
                        analytic.calls.push(wanted);
                    }
                    *call = analytic.calls.len() - 1;
                }
            }
        }
        analytic.from = self.nodes[analytic.from.0];
        analytic
    }

    fn input(&mut self, mut input: Input, wanted: &[bool], node: usize) -> usize {
        input.reads = pick(input.reads, wanted);
        input.carried = pick(input.carried, wanted);
        for expr in input.timestamp.iter_mut().chain(&mut input.substream) {
            self.renumber(NodeId(node), expr);
        }
        self.plan.inputs.push(input);
        self.plan.inputs.len() - 1
    }

    fn renumber(&self, node: NodeId, expr: &mut Expr) {
        let columns = &self.columns[node.0];
        expr_mut(
            expr,
            &mut Visit {
                expr: &mut |e| renumber(columns, e),
                span: None,
            },
        );
    }
}

/// Whether the value of one of its calls is needed.
fn computes(analytic: &AnalyticNode, wanted: &[bool]) -> bool {
    let call = |column: &AnalyticColumn| matches!(column, AnalyticColumn::Call(_));
    let mut columns = analytic.columns.iter().zip(wanted);
    columns.any(|(column, wanted)| *wanted && call(column))
}

fn visit_call(call: &mut AnalyticCall, visit: &mut dyn FnMut(&mut Expr)) {
    let exprs: Vec<&mut Expr> = match &mut call.function {
        Analytic::Lag { of, default, .. } | Analytic::Last { of, default } => {
            std::iter::once(of).chain(default).collect()
        }
        Analytic::IsFirst => Vec::new(),
        Analytic::Aggregate(aggregate) => {
            let order = aggregate.order.iter_mut().map(|key| &mut key.expr);
            aggregate.argument.iter_mut().chain(order).collect()
        }
        Analytic::SpikeAndDip {
            of,
            confidence,
            mode,
            ..
        } => vec![of, confidence, mode],
        Analytic::ChangePoint { of, confidence, .. } => vec![of, confidence],
    };
    let mut visit = Visit {
        expr: visit,
        span: None,
    };
    for expr in exprs.into_iter().chain(&mut call.partition) {
        expr_mut(expr, &mut visit);
    }
    if let Some(when) = &mut call.when {
        pred_mut(when, &mut visit);
    }
}

/// The references of a match to the events below it; its conditions and measures are over them.
fn exprs_of_match(node: &mut MatchNode) -> impl Iterator<Item = &mut Expr> {
    let keys = node.partition.iter_mut().map(|key| &mut key.expr);
    let refs = node.refs.iter_mut().filter_map(|of| match of {
        MatchRef::Picked { of, .. } => Some(of),
        MatchRef::Classifier => None,
    });
    keys.chain(refs)
}

/// The needed columns of a node, with the side they come from.
fn wanted_of(columns: &[(Side, usize)], wanted: &[bool]) -> Vec<(Side, usize)> {
    pick(columns.to_vec(), wanted)
}

fn visit_columns(expr: &mut Expr, visit: &mut dyn FnMut(usize)) {
    expr_mut(
        expr,
        &mut Visit {
            expr: &mut |e| {
                if let ExprKind::Column(column) = e.kind {
                    visit(column);
                }
            },
            span: None,
        },
    );
}

fn renumber(columns: &[usize], expr: &mut Expr) {
    if let ExprKind::Column(column) = &mut expr.kind {
        *column = columns[*column];
    }
}

/// Groups depend on all of their keys, shown or not.
fn keep_keys(wanted: &[bool], keys: usize) -> Vec<bool> {
    wanted
        .iter()
        .enumerate()
        .map(|(column, wanted)| *wanted || column < keys)
        .collect()
}

fn positions(wanted: &[bool]) -> Vec<usize> {
    wanted
        .iter()
        .scan(0, |next, wanted| {
            let here = *next;
            *next += usize::from(*wanted);
            Some(here)
        })
        .collect()
}

fn pick<T>(all: Vec<T>, wanted: &[bool]) -> Vec<T> {
    all.into_iter()
        .zip(wanted)
        .filter(|(_, wanted)| **wanted)
        .map(|(one, _)| one)
        .collect()
}
