//! PartitionId: the partition that events were read from travels with their rows, whether a step selects it or not.

use super::Binder;
use super::clock::carried;
use crate::Span;
use crate::ast::Ident;
use crate::plan::{Expr, ExprKind, Name, Node, NodeId, Read};

const PARTITION: &str = "PartitionId";

impl Binder<'_> {
    /// `PartitionId` over a step that has no column of that name.
    pub(super) fn traveling_partition(
        &mut self,
        node: NodeId,
        path: &[Ident],
        span: Span,
    ) -> Option<Expr> {
        match path {
            [only] if only.is(PARTITION) => self.partition_of(node, span),
            _ => None,
        }
    }

    /// The partition that the rows of a node were read from, over its columns; `None` if rows of several partitions
    /// were combined.
    fn partition_of(&mut self, node: NodeId, span: Span) -> Option<Expr> {
        let path = [PARTITION.to_string()];
        match self.plan.nodes[node.0].clone() {
            Node::Source { input } if self.inputs[input].reference => None,
            Node::Source { input } => Some(self.read_path(input, &path, span)),
            Node::Filter { from, .. } => self.partition_of(from, span),
            Node::Project { from, .. } => {
                let below = self.partition_of(from, span)?;
                Some(self.append(node, &path, below))
            }
            Node::Window(window) => {
                let mut keys = window.keys.iter();
                let key = keys.position(|key| self.is_partition(window.from, &key.expr))?;
                Some(Expr::column(key, span))
            }
            Node::Match(matches) => {
                let mut keys = matches.partition.iter();
                let key = keys.position(|key| self.is_partition(matches.from, &key.expr))?;
                Some(Expr::column(key, span))
            }
            Node::Join(join) if !join.by_partition => None,
            Node::Join(join) => self.partition_below(node, join.left, span),
            Node::Lookup(lookup) => self.partition_below(node, lookup.from, span),
            Node::Apply { from, .. } => self.partition_below(node, from, span),
            Node::Analytic(analytic) => self.partition_below(node, analytic.from, span),
            Node::Union { from, names } => self.partition_of_branches(node, &from, &names, span),
        }
    }

    /// The partition of the rows of `from`, passed on by `node`.
    fn partition_below(&mut self, node: NodeId, from: NodeId, span: Span) -> Option<Expr> {
        let below = self.partition_of(from, span)?;
        Some(self.rewrite_over_parent(node, from, &[PARTITION.to_string()], below))
    }

    fn partition_of_branches(
        &mut self,
        node: NodeId,
        branches: &[(NodeId, Vec<usize>)],
        names: &[Name],
        span: Span,
    ) -> Option<Expr> {
        let name = Name::Hidden(PARTITION.to_string());
        let known = (0..names.len()).map(|column| Expr::column(column, span));
        let mut known = known.zip(names).filter(|(_, known)| **known == name);
        if let Some((known, _)) = known.find(|(known, _)| self.is_partition(node, known)) {
            return Some(known);
        }
        let mut columns = Vec::new();
        for (branch, _) in branches {
            let found = self.partition_of(*branch, span)?;
            columns.push(self.as_column(*branch, &[PARTITION.to_string()], found));
        }
        let Node::Union { from, names } = &mut self.plan.nodes[node.0] else {
            return None;
        };
        for ((_, map), column) in from.iter_mut().zip(columns) {
            map.push(column);
        }
        names.push(name);
        Some(Expr::column(names.len() - 1, span))
    }

    /// Whether the expression is the partition that the events were read from.
    pub(super) fn is_partition(&self, node: NodeId, expr: &Expr) -> bool {
        let column = match &expr.kind {
            ExprKind::Column(column) => Some(*column),
            ExprKind::Coalesce(all) => return all.iter().any(|one| self.is_partition(node, one)),
            _ => None,
        };
        match (&self.plan.nodes[node.0], column) {
            (Node::Source { input }, Some(column)) => {
                self.plan.inputs[*input].reads[column] == Read::Partition
            }
            (Node::Filter { from, .. }, _) => self.is_partition(*from, expr),
            (Node::Project { from, items }, Some(column)) => {
                self.is_partition(*from, &items[column].expr)
            }
            (Node::Window(window), Some(column)) => window
                .keys
                .get(column)
                .is_some_and(|key| self.is_partition(window.from, &key.expr)),
            (Node::Match(matches), Some(column)) => matches
                .partition
                .get(column)
                .is_some_and(|key| self.is_partition(matches.from, &key.expr)),
            (Node::Union { from, .. }, Some(column)) => from.iter().all(|(branch, map)| {
                let expr = Expr::column(map[column], expr.span);
                self.is_partition(*branch, &expr)
            }),
            (other, Some(column)) => carried(other, column).is_some_and(|(below, column)| {
                self.is_partition(below, &Expr::column(column, expr.span))
            }),
            (_, None) => false,
        }
    }
}
