//! GROUP BY: one window, its keys, and the aggregates that SELECT and HAVING ask for.

use super::expr::Exprs;
use super::from::From;
use super::scope::{Aliases, Clause, default_name, is_timestamp};
use super::window::is_window;
use super::{Binder, Bound};
use crate::Span;
use crate::ast;
use crate::diagnostic::{Diagnostic, code};
use crate::parser::Reported;
use crate::plan::{Aggregate, Expr, ExprKind, Key, Node, NodeId, Read, Window, WindowNode};
use crate::visit::same_expr;

/// A window node in the making.
pub(super) struct Grouping {
    window: Window,
    keys: Vec<Key>,
    /// The keys as the query wrote them, to recognise them in SELECT and HAVING.
    pub written: Vec<ast::Expr>,
    aggregates: Vec<Aggregate>,
    by_partition: bool,
    span: Span,
}

impl Grouping {
    /// The column of this aggregate, which is computed once however often it is written.
    pub fn aggregate(&mut self, new: Aggregate) -> usize {
        let same = |known: &Aggregate| {
            let arguments = match (&known.argument, &new.argument) {
                (Some(a), Some(b)) => same_expr(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            known.function == new.function && known.as_text == new.as_text && arguments
        };
        let index = self.aggregates.iter().position(same).unwrap_or_else(|| {
            self.aggregates.push(new);
            self.aggregates.len() - 1
        });
        self.keys.len() + index
    }

    pub fn into_node(self, from: NodeId) -> WindowNode {
        let Grouping {
            window,
            keys,
            aggregates,
            by_partition,
            span,
            ..
        } = self;
        WindowNode {
            from,
            window,
            keys,
            aggregates,
            by_partition,
            span,
        }
    }

    /// The index of the key, which is added unless it is there.
    fn key(&mut self, written: &ast::Expr, expr: Expr) -> usize {
        self.keys
            .iter()
            .position(|key| same_expr(&key.expr, &expr))
            .unwrap_or_else(|| {
                let name = default_name(written, self.keys.len() + 1);
                self.keys.push(Key { name, expr });
                self.written.push(written.clone());
                self.keys.len() - 1
            })
    }
}

impl<'a> Binder<'a> {
    pub(super) fn group(
        &mut self,
        group: &ast::Group,
        from: &From,
        aliases: &Aliases,
    ) -> Bound<Grouping> {
        let (windows, keys): (Vec<_>, Vec<_>) =
            group.items.iter().partition(|item| is_window(item));
        let keys: Vec<_> = keys
            .into_iter()
            .filter(|key| !windows.is_empty() || !is_timestamp(key))
            .map(|key| {
                self.key(key, from, Clause::GroupBy, aliases)
                    .map(|bound| (key, bound))
            })
            .collect();
        let window = self.only_window(group, &windows)?;
        let mut grouping = Grouping {
            window: window.clone(),
            keys: Vec::new(),
            written: Vec::new(),
            aggregates: Vec::new(),
            by_partition: false,
            span: group.span,
        };
        for key in keys {
            let (written, expr) = key?;
            grouping.key(written, expr);
        }
        self.partition_keys(&mut grouping, from)?;
        if let (Window::Session { timeout, max, .. }, Some(call)) = (window, windows.first()) {
            let over = self.session_keys(&mut grouping, from, call, aliases)?;
            grouping.window = Window::Session { timeout, max, over };
        }
        Ok(grouping)
    }

    fn key(
        &mut self,
        key: &ast::Expr,
        from: &From,
        clause: Clause,
        aliases: &Aliases,
    ) -> Bound<Expr> {
        let scope = &from.scope;
        Exprs {
            binder: self,
            scope,
            clause,
            aliases,
            grouping: None,
        }
        .value(key)
    }

    fn only_window(&mut self, group: &ast::Group, windows: &[&ast::Expr]) -> Bound<Window> {
        match windows {
            [only] => self.window(only),
            [_, second, ..] => {
                let message = "GROUP BY takes one window";
                let error =
                    Diagnostic::error(code::WINDOW, second.span, message).label("the second one");
                Err(self.report(error.help("Windows(..) holds several windows")))
            }
            [] if group.items.iter().any(is_timestamp) => Ok(Window::Snapshot),
            [] => {
                let message = "a window must be specified in GROUP BY";
                let error = Diagnostic::error(code::WINDOW, group.span, message);
                let label = "groups never end without a window";
                let help = "add for example TumblingWindow(second, 10), or System.Timestamp()";
                Err(self.report(error.label(label).help(help)))
            }
        }
    }

    /// Partitions aggregate apart, so what they are partitioned by is a key.
    fn partition_keys(&mut self, grouping: &mut Grouping, from: &From) -> Bound<()> {
        let Some(by) = from.partition else {
            return Ok(());
        };
        for key in &by.keys {
            let expr = self.key(key, from, Clause::PartitionBy, &Aliases::default())?;
            grouping.by_partition |= self.is_partition(from.scope.node, &expr);
            let known = grouping.keys.len();
            grouping.key(key, expr);
            if grouping.keys.len() > known {
                let name = self.text(key.span);
                let message = format!("`{name}` partitions the events, so it is a group key too");
                let warning = Diagnostic::warning(code::PARTITION, key.span, message);
                self.warn(warning.help(format!("add {name} to GROUP BY to make that visible")));
            }
        }
        Ok(())
    }

    /// Is this the partition that the events below were read from?
    fn is_partition(&self, node: NodeId, expr: &Expr) -> bool {
        let reads_partition = |input: usize| match &expr.kind {
            ExprKind::Coalesce(all) => all.iter().any(|one| match one.kind {
                ExprKind::Column(column) => {
                    self.plan.inputs[input].reads[column] == Read::Partition
                }
                _ => false,
            }),
            _ => false,
        };
        let column = match expr.kind {
            ExprKind::Column(column) => Some(column),
            _ => None,
        };
        match (&self.plan.nodes[node.0], column) {
            (Node::Source { input }, _) => reads_partition(*input),
            (Node::Filter { from, .. }, _) => self.is_partition(*from, expr),
            (Node::Project { from, items }, Some(column)) => {
                self.is_partition(*from, &items[column].expr)
            }
            (Node::Window(window), Some(column)) => window
                .keys
                .get(column)
                .is_some_and(|key| self.is_partition(window.from, &key.expr)),
            (Node::Union { from, .. }, Some(column)) => from.iter().all(|(branch, map)| {
                let expr = Expr {
                    kind: ExprKind::Column(map[column]),
                    span: expr.span,
                };
                self.is_partition(*branch, &expr)
            }),
            _ => false,
        }
    }

    /// SessionWindow(..) OVER (PARTITION BY k): keys of the sessions are group keys too.
    fn session_keys(
        &mut self,
        grouping: &mut Grouping,
        from: &From,
        call: &ast::Expr,
        aliases: &Aliases,
    ) -> Bound<Option<Vec<usize>>> {
        let ast::ExprKind::Call(call) = &call.kind else {
            return Err(Reported);
        };
        let Some(over) = &call.over else {
            return Ok(None);
        };
        let mut indexes = Vec::new();
        for key in &over.partition {
            let expr = self.key(key, from, Clause::GroupBy, aliases)?;
            let index = grouping.key(key, expr);
            if !indexes.contains(&index) {
                indexes.push(index);
            }
        }
        Ok(Some(indexes))
    }
}
