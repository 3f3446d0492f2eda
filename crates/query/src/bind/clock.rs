//! TIMESTAMP BY: one input, one timeline, and the rules for substreams.

use super::scope::{Clause, Scope, SourceKind};
use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{self, ExprKind as Ast, TimestampBy, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::plan::{
    AnalyticColumn, ApplyColumn, Expr, ExprKind, JoinNode, Node, NodeId, Read, Side,
};

/// The TIMESTAMP BY of an input, with its position.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub timestamp: Option<Expr>,
    pub substream: Vec<Expr>,
    pub span: Span,
}

impl<'a> Binder<'a> {
    pub(super) fn clock(
        &mut self,
        input: usize,
        by: &TimestampBy,
        scope: &Scope,
    ) -> BindResult<Clock> {
        let mut scope = scope.clone();
        scope.node = self.inputs[input].node;
        let names = self.visible(scope.node);
        for source in &mut scope.sources {
            source.of = SourceKind::Rows {
                node: scope.node,
                names: names.clone(),
            };
        }
        let timestamp = match self.time_path(input, &by.expr, &scope)? {
            Some(path) => path,
            None => self.clock_expr(&by.expr, &scope)?,
        };
        let keys: Vec<_> = by
            .over
            .iter()
            .map(|key| self.clock_expr(key, &scope))
            .collect();
        let substream = keys.into_iter().collect::<BindResult<Vec<_>>>()?;
        Ok(Clock {
            timestamp: Some(timestamp),
            substream,
            span: by.span,
        })
    }

    fn clock_expr(&mut self, expr: &ast::Expr, scope: &Scope) -> BindResult<Expr> {
        self.value_over(scope, Clause::Timestamp, expr)
    }

    /// Reads a plain field as a time directly, without converting text later.
    fn time_path(
        &mut self,
        input: usize,
        expr: &ast::Expr,
        scope: &Scope,
    ) -> BindResult<Option<Expr>> {
        let Ast::Path(path) = &expr.kind else {
            return Ok(None);
        };
        if super::scope::is_timestamp(expr) {
            return Ok(None);
        }
        let names = self.event_path(input, scope.strip(path))?;
        if names.is_empty() || super::columns::is_metadata(&names) {
            return Ok(None);
        }
        let column = self.read(input, Read::TimePath(names));
        Ok(Some(Expr::column(column, expr.span)))
    }

    pub(super) fn set_clock(&mut self, input: usize, clock: Clock) -> BindResult<()> {
        let Some(first) = &self.inputs[input].clock else {
            self.plan.inputs[input]
                .timestamp
                .clone_from(&clock.timestamp);
            self.plan.inputs[input]
                .substream
                .clone_from(&clock.substream);
            self.inputs[input].clock = Some(clock);
            return Ok(());
        };
        if self.same_clock(input, first, &clock) {
            return Ok(());
        }
        let name = self.plan.inputs[input].name.clone();
        let (message, label) = match (&first.timestamp, &clock.timestamp) {
            (Some(_), None) => (
                format!("`{name}` is read here without the TIMESTAMP BY it has elsewhere"),
                "in order of arrival",
            ),
            (None, _) => (
                format!(
                    "`{name}` is read here with a TIMESTAMP BY that it does not have elsewhere"
                ),
                "not in order of arrival",
            ),
            _ => (
                format!("`{name}` is read with two different TIMESTAMP BY"),
                "the second one",
            ),
        };
        let other = match first.timestamp {
            Some(_) => self.text(first.span),
            None => "no TIMESTAMP BY".to_string(),
        };
        let help = format!("one input has one timeline; elsewhere it is read with {other}");
        let error = Diagnostic::error(code::TIMESTAMP, clock.span, message);
        Err(self.report(error.label(label).help(help)))
    }

    fn same_clock(&self, input: usize, a: &Clock, b: &Clock) -> bool {
        let of = |clock: &Clock| -> Vec<Expr> {
            let all = clock.timestamp.iter().chain(&clock.substream);
            all.map(|expr| self.in_any_case(input, expr)).collect()
        };
        a.timestamp.is_some() == b.timestamp.is_some() && of(a) == of(b)
    }

    /// An expression over the source of an input, with columns whose names differ only in case made one.
    fn in_any_case(&self, input: usize, expr: &Expr) -> Expr {
        let reads = &self.plan.inputs[input].reads;
        let mut expr = expr.clone();
        expr.visit_mut(|e| {
            if let ExprKind::Column(column) = &mut e.kind {
                let first = reads
                    .iter()
                    .position(|read| same_read(read, &reads[*column]));
                *column = first.unwrap_or(*column);
            }
        });
        expr
    }

    /// The compile-time restrictions of substreams, once all inputs are known.
    pub(super) fn check_substreams(&mut self) {
        let clocks: Vec<(String, bool, Span)> = self
            .plan
            .inputs
            .iter()
            .zip(&self.inputs)
            .filter_map(|(input, state)| state.clock.as_ref().map(|clock| (input, clock)))
            .map(|(input, clock)| (input.name.clone(), !clock.substream.is_empty(), clock.span))
            .collect();
        if !clocks.iter().any(|(_, over, _)| *over) {
            return;
        }
        for (name, _, span) in clocks.iter().filter(|(_, over, _)| !over) {
            let message = format!("`{name}` has one timeline, other inputs have one per OVER key");
            let error = Diagnostic::error(code::TIMESTAMP, *span, message);
            self.report(error.help("give every input a TIMESTAMP BY .. OVER, or none"));
        }
        for node in 0..self.plan.nodes.len() {
            self.check_substream_keys(node);
        }
    }

    /// The OVER columns of every input below a window must be among its keys.
    fn check_substream_keys(&mut self, node: usize) {
        if let Node::Join(join) = &self.plan.nodes[node] {
            let join = join.clone();
            return self.check_substream_join(&join);
        }
        let Node::Window(window) = &self.plan.nodes[node] else {
            return;
        };
        let (from, span) = (window.from, window.span);
        let mut origins = Vec::new();
        self.sources(from, &mut origins);
        let keys: Vec<Expr> = window.keys.iter().map(|key| key.expr.clone()).collect();
        let mut missing = Vec::new();
        for input in origins {
            for over in &self.plan.inputs[input].substream {
                if !keys
                    .iter()
                    .any(|key| self.comes_from(from, key, input, over))
                {
                    missing.push((self.text(over.span), self.plan.inputs[input].name.clone()));
                }
            }
        }
        for (key, input) in missing {
            let message =
                format!("`{key}` must be a key here, because `{input}` has a timeline per `{key}`");
            let error = Diagnostic::error(code::TIMESTAMP, span, message);
            self.report(error.help(format!("add {key} to GROUP BY")));
        }
    }

    /// The OVER columns of the inputs on both sides of a join must be equated in order, because the joined rows have
    /// one clock.
    fn check_substream_join(&mut self, join: &JoinNode) {
        let (mut lefts, mut rights) = (Vec::new(), Vec::new());
        self.sources(join.left, &mut lefts);
        self.sources(join.right, &mut rights);
        for (left, right) in lefts
            .iter()
            .flat_map(|&left| rights.iter().map(move |&right| (left, right)))
        {
            let Some((key, other)) = self.not_equated(join, left, right) else {
                continue;
            };
            let name = |input: usize| self.plan.inputs[input].name.clone();
            let error = match (key, other) {
                (Some(key), Some(other)) => {
                    let message = format!(
                        "`{key}` must be equated in ON, because `{}` has a timeline per `{key}`",
                        name(left)
                    );
                    let error = Diagnostic::error(code::TIMESTAMP, join.span, message);
                    error.help(format!("add to ON: a.{key} = b.{other}"))
                }
                _ => {
                    let message = format!(
                        "`{}` and `{}` are joined, but not OVER the same number of columns",
                        name(left),
                        name(right)
                    );
                    let error = Diagnostic::error(code::TIMESTAMP, join.span, message);
                    error.help("joined streams have one timeline per key: give both the same keys")
                }
            };
            self.report(error);
            return;
        }
    }

    /// The first OVER columns of two inputs that a join does not equate, as written.
    fn not_equated(
        &self,
        join: &JoinNode,
        left: usize,
        right: usize,
    ) -> Option<(Option<String>, Option<String>)> {
        let over = |input: usize, at: usize| self.plan.inputs[input].substream.get(at);
        let count = |input: usize| self.plan.inputs[input].substream.len();
        (0..count(left).max(count(right))).find_map(|at| {
            let equated = over(left, at).zip(over(right, at)).is_some_and(|(l, r)| {
                join.keys.iter().any(|(a, b)| {
                    self.comes_from(join.left, a, left, l)
                        && self.comes_from(join.right, b, right, r)
                })
            });
            let text = |input| over(input, at).map(|over| self.text(over.span));
            (!equated).then(|| (text(left), text(right)))
        })
    }

    /// The inputs below a node.
    fn sources(&self, node: NodeId, found: &mut Vec<usize>) {
        let mut wanted = vec![node];
        let mut seen = vec![false; self.plan.nodes.len()];
        while let Some(NodeId(node)) = wanted.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            match &self.plan.nodes[node] {
                Node::Source { input } => found.push(*input),
                other => wanted.extend(other.below()),
            }
        }
    }

    /// Whether `expr`, over `node`, is the unchanged value of `origin` over the source of `input`. Branches of a union
    /// that do not read the input are ignored.
    pub(super) fn comes_from(
        &self,
        node: NodeId,
        expr: &Expr,
        input: usize,
        origin: &Expr,
    ) -> bool {
        let column = match expr.kind {
            ExprKind::Column(column) => Some(column),
            _ => None,
        };
        match (&self.plan.nodes[node.0], column) {
            (Node::Source { input: here }, _) => {
                *here != input || self.in_any_case(input, expr) == self.in_any_case(input, origin)
            }
            (Node::Filter { from, .. }, _) => self.comes_from(*from, expr, input, origin),
            (Node::Project { from, items }, Some(column)) => {
                self.comes_from(*from, &items[column].expr, input, origin)
            }
            (Node::Window(window), Some(column)) => window
                .keys
                .get(column)
                .is_some_and(|key| self.comes_from(window.from, &key.expr, input, origin)),
            (Node::Union { from, .. }, Some(column)) => from.iter().all(|(branch, map)| {
                let expr = Expr::column(map[column], expr.span);
                self.comes_from(*branch, &expr, input, origin)
            }),
            (Node::Join(join), Some(column)) => {
                let (side, column) = join.columns[column];
                self.comes_from_side(join, side, column, input, origin)
            }
            (other, _) => uncarried(other, expr)
                .is_some_and(|(below, expr)| self.comes_from(below, &expr, input, origin)),
        }
    }
}

impl Binder<'_> {
    /// The same for a column of one side of a join; a column of the other side is taken for the column it is equated
    /// with.
    fn comes_from_side(
        &self,
        join: &JoinNode,
        side: Side,
        column: usize,
        input: usize,
        origin: &Expr,
    ) -> bool {
        let (here, there) = match side {
            Side::Left => (join.left, join.right),
            Side::Right => (join.right, join.left),
        };
        let mut inputs = Vec::new();
        self.sources(here, &mut inputs);
        let column = Expr::column(column, origin.span);
        if inputs.contains(&input) {
            return self.comes_from(here, &column, input, origin);
        }
        if join.outer && side == Side::Right {
            // An unmatched row has NULL here.
            return false;
        }
        join.keys.iter().any(|(left, right)| {
            let (mine, other) = match side {
                Side::Left => (left, right),
                Side::Right => (right, left),
            };
            *mine == column && self.comes_from(there, other, input, origin)
        })
    }
}

/// Whether two columns of a source are the same, names that differ in case included.
fn same_read(a: &Read, b: &Read) -> bool {
    match (a, b) {
        (Read::Path(a), Read::Path(b)) | (Read::TimePath(a), Read::TimePath(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_name(a, b))
        }
        _ => a == b,
    }
}

/// Rewrites an expression over columns that a node only passes on, as one over the node below.
fn uncarried(node: &Node, expr: &Expr) -> Option<(NodeId, Expr)> {
    let mut expr = expr.clone();
    let mut below = None;
    let mut made_here = false;
    expr.visit_mut(|e| {
        let ExprKind::Column(column) = &mut e.kind else {
            return;
        };
        match carried(node, *column) {
            Some((node, inner)) if below.is_none_or(|below| below == node) => {
                below = Some(node);
                *column = inner;
            }
            _ => made_here = true,
        }
    });
    below.filter(|_| !made_here).map(|below| (below, expr))
}

/// The source of a column that a node only passes on.
pub(super) fn carried(node: &Node, column: usize) -> Option<(NodeId, usize)> {
    match node {
        Node::Join(join) => Some(match join.columns[column] {
            (Side::Left, below) => (join.left, below),
            (Side::Right, below) => (join.right, below),
        }),
        Node::Lookup(lookup) => match lookup.columns[column] {
            (Side::Left, below) => Some((lookup.from, below)),
            (Side::Right, _) => None,
        },
        Node::Apply { from, columns, .. } => match columns[column] {
            ApplyColumn::Carried(below) => Some((*from, below)),
            ApplyColumn::Element => None,
        },
        Node::Analytic(analytic) => match analytic.columns[column] {
            AnalyticColumn::Carried(below) => Some((analytic.from, below)),
            AnalyticColumn::Call(_) => None,
        },
        _ => None,
    }
}
