//! Takes out what no output needs: steps that nothing reads, columns carried for nobody, and above
//! all whole events that only `SELECT *` in a first step asked for.
//!
//! Binding cannot know this, because a column may be asked for until the last statement is bound.

use crate::plan::{Expr, ExprKind, Input, Name, Node, NodeId, Output, Plan};
use crate::visit::{Visit, expr_mut, pred_mut};

pub(super) fn prune(mut plan: Plan) -> Plan {
    let used = Used::of(&mut plan);
    Renumber::default().run(plan, &used)
}

/// Which nodes matter, and which of their columns.
struct Used {
    node: Vec<bool>,
    columns: Vec<Vec<bool>>,
}

impl Used {
    /// Looking for columns does not change a plan; the visitor just wants to be able to.
    fn of(plan: &mut Plan) -> Used {
        let columns = plan
            .nodes
            .iter()
            .scan(Vec::new(), |widths: &mut Vec<usize>, node| {
                widths.push(width(&plan.inputs, widths, node));
                widths.last().map(|width| vec![false; *width])
            });
        let columns: Vec<Vec<bool>> = columns.collect();
        let mut used = Used {
            node: vec![false; plan.nodes.len()],
            columns,
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

    /// What node `index` needs of the nodes that it reads.
    fn below(&mut self, node: &mut Node, inputs: &mut [Input], index: usize) {
        node.below()
            .into_iter()
            .for_each(|below| self.node[below.0] = true);
        let mine = self.columns[index].clone();
        match node {
            Node::Source { input } => {
                let input = &mut inputs[*input];
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
            // Rare nodes keep whatever they and their expressions might look at.
            Node::Join(_)
            | Node::Lookup(_)
            | Node::Apply { .. }
            | Node::Analytic(_)
            | Node::Match(_) => {
                node.below()
                    .into_iter()
                    .for_each(|below| self.columns[below.0].fill(true));
            }
            Node::Union { from, .. } => {
                for (branch, map) in from {
                    let wanted = map.iter().zip(&mine).filter(|(_, wanted)| **wanted);
                    wanted.for_each(|(column, _)| self.columns[branch.0][*column] = true);
                }
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
    /// New places of old nodes; of those left out, whatever.
    nodes: Vec<NodeId>,
    /// New positions of old columns, by old node.
    columns: Vec<Vec<usize>>,
}

impl Renumber {
    fn run(mut self, plan: Plan, used: &Used) -> Plan {
        let mut inputs: Vec<Option<Input>> = plan.inputs.into_iter().map(Some).collect();
        self.plan.references = plan.references;
        for (index, node) in plan.nodes.into_iter().enumerate() {
            let wanted = &used.columns[index];
            let columns = match &node {
                Node::Filter { from, .. } => self.columns[from.0].clone(),
                Node::Window(window) => positions(&keep_keys(wanted, window.keys.len())),
                Node::Join(_)
                | Node::Lookup(_)
                | Node::Apply { .. }
                | Node::Analytic(_)
                | Node::Match(_) => (0..wanted.len()).collect(),
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
            // No column of it matters, so neither does it.
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
            Node::Window(mut window) => {
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
                Node::Window(window)
            }
            Node::Join(mut join) => {
                join.left = self.nodes[join.left.0];
                join.right = self.nodes[join.right.0];
                Node::Join(join)
            }
            Node::Lookup(mut lookup) => {
                lookup.from = self.nodes[lookup.from.0];
                Node::Lookup(lookup)
            }
            Node::Apply {
                from,
                of,
                each,
                outer,
                columns,
            } => {
                let from = self.nodes[from.0];
                Node::Apply {
                    from,
                    of,
                    each,
                    outer,
                    columns,
                }
            }
            Node::Analytic(mut analytic) => {
                analytic.from = self.nodes[analytic.from.0];
                Node::Analytic(analytic)
            }
            Node::Match(mut node) => {
                node.from = self.nodes[node.from.0];
                Node::Match(node)
            }
            Node::Union { from, names } => {
                let branch = |(branch, map): (NodeId, Vec<usize>)| {
                    let map = pick(map, wanted)
                        .into_iter()
                        .map(|c| self.columns[branch.0][c])
                        .collect();
                    (self.nodes[branch.0], map)
                };
                Node::Union {
                    from: from.into_iter().map(branch).collect(),
                    names: pick(names, wanted),
                }
            }
        };
        self.plan.nodes.push(node);
        Some(NodeId(self.plan.nodes.len() - 1))
    }

    fn input(&mut self, mut input: Input, wanted: &[bool], node: usize) -> usize {
        input.reads = pick(input.reads, wanted);
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

fn renumber(columns: &[usize], expr: &mut Expr) {
    if let ExprKind::Column(column) = &mut expr.kind {
        *column = columns[*column];
    }
}

/// Groups are made of their keys, shown or not.
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
