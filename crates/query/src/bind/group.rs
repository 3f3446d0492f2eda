//! GROUP BY: a window, its keys, and the aggregates of SELECT and HAVING.

use super::from::FromClause;
use super::scope::{Aliases, Clause, default_name, is_timestamp};
use super::window::{is_window, window_kind};
use super::windows::Definition;
use super::{BindResult, Binder};
use crate::Span;
use crate::ast;
use crate::diagnostic::{Diagnostic, code};
use crate::functions::WindowKind;
use crate::parser::ErrorReported;
use crate::plan::{
    Aggregate, Expr, ExprKind, Item, Key, Literal, Name, Node, NodeId, Window, WindowNode,
};

/// A window node under construction, or several that differ only in their window.
pub(super) struct Grouping {
    branches: Vec<WindowBranch>,
    /// Windows(..): the results of several windows, with the window's id in a column after the keys.
    several: bool,
    keys: Vec<Key>,
    /// The keys as written, to recognise them in SELECT and HAVING.
    pub written: Vec<ast::Expr>,
    aggregates: Vec<Aggregate>,
    by_partition: bool,
    span: Span,
}

/// One of the windows.
struct WindowBranch {
    window: Window,
    id: Option<String>,
    /// Keys of this window only: those that its sessions have and GROUP BY does not name.
    more: Vec<Key>,
}

impl Grouping {
    /// The column with the ids of the windows, if they have any.
    pub(super) fn id(&self) -> Option<usize> {
        self.several.then_some(self.keys.len())
    }

    /// The column of this aggregate. Repeated aggregates share one column.
    pub(super) fn aggregate(&mut self, new: Aggregate) -> usize {
        let known = self.aggregates.iter().position(|known| *known == new);
        let index = known.unwrap_or_else(|| {
            self.aggregates.push(new);
            self.aggregates.len() - 1
        });
        self.keys.len() + usize::from(self.several) + index
    }

    /// The index of the key, which is added if it is new.
    fn key(&mut self, written: &ast::Expr, expr: Expr) -> usize {
        self.keys
            .iter()
            .position(|key| key.expr == expr)
            .unwrap_or_else(|| {
                let name = default_name(written, self.keys.len() + 1);
                self.keys.push(Key { name, expr });
                self.written.push(written.clone());
                self.keys.len() - 1
            })
    }
}

impl Grouping {
    /// The index in `more` of a key of one window only, unless all windows have it.
    fn session_key(&self, more: &mut Vec<Key>, written: &ast::Expr, expr: Expr) -> usize {
        let shared = self.keys.len();
        let mut all = self.keys.iter().chain(more.iter());
        let known = all.position(|key| key.expr == expr);
        known.unwrap_or_else(|| {
            let name = default_name(written, shared + more.len() + 1);
            more.push(Key { name, expr });
            shared + more.len() - 1
        })
    }
}

impl<'a> Binder<'a> {
    pub(super) fn group(
        &mut self,
        group: &ast::Group,
        from: &FromClause,
        aliases: &Aliases,
    ) -> BindResult<Grouping> {
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
        let (definitions, several) = self.definitions(group, &windows)?;
        let mut grouping = Grouping {
            branches: Vec::new(),
            several,
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
        for definition in definitions {
            self.branch(&mut grouping, from, definition, aliases)?;
        }
        Ok(grouping)
    }

    /// The node of the groups: a window, or a union of several.
    pub(super) fn groups(&mut self, mut grouping: Grouping, from: NodeId) -> NodeId {
        let mut branches = Vec::new();
        let mut names = Vec::new();
        for branch in std::mem::take(&mut grouping.branches) {
            let mut keys = grouping.keys.clone();
            keys.extend(branch.more);
            let node = self.push(Node::Window(WindowNode {
                from,
                window: branch.window,
                keys,
                aggregates: grouping.aggregates.clone(),
                by_partition: grouping.by_partition,
                span: grouping.span,
            }));
            if !grouping.several {
                return node;
            }
            let id = branch.id.map_or(Literal::Null, Literal::Text);
            let items = self.branch_items(&grouping, node, id);
            names = items.iter().map(|item| item.name.clone()).collect();
            branches.push((node, items));
        }
        let columns: Vec<usize> = (0..names.len()).collect();
        let from = branches
            .into_iter()
            .map(|(from, items)| (self.push(Node::Project { from, items }), columns.clone()))
            .collect();
        self.push(Node::Union { from, names })
    }

    /// The keys that all windows have, the id of this one, and the aggregates.
    fn branch_items(&self, grouping: &Grouping, node: NodeId, id: Literal) -> Vec<Item> {
        let keys = match &self.plan.nodes[node.0] {
            Node::Window(window) => window.keys.len(),
            _ => 0,
        };
        let columns = (0..grouping.keys.len()).map(ExprKind::Column);
        let values = (keys..keys + grouping.aggregates.len()).map(ExprKind::Column);
        let kinds = columns.chain([ExprKind::Literal(id)]).chain(values);
        let names = grouping.keys.iter().map(|key| key.name.clone());
        let names = names.chain(["System.Window().Id".to_string()]);
        let names = names.chain(grouping.aggregates.iter().map(|of| self.text(of.span)));
        let span = grouping.span;
        let item = |(name, kind)| Item {
            name: Name::Hidden(name),
            expr: Expr { kind, span },
        };
        names.zip(kinds).map(item).collect()
    }

    fn branch(
        &mut self,
        grouping: &mut Grouping,
        from: &FromClause,
        definition: Definition,
        aliases: &Aliases,
    ) -> BindResult<()> {
        let mut branch = WindowBranch {
            window: definition.window,
            id: definition.id,
            more: Vec::new(),
        };
        if let Window::Session { timeout, max, .. } = branch.window {
            let over =
                self.session_keys(grouping, &mut branch.more, from, definition.of, aliases)?;
            branch.window = Window::Session { timeout, max, over };
        }
        grouping.branches.push(branch);
        Ok(())
    }

    fn key(
        &mut self,
        key: &ast::Expr,
        from: &FromClause,
        clause: Clause,
        aliases: &Aliases,
    ) -> BindResult<Expr> {
        self.exprs(&from.scope, clause, aliases).value(key)
    }

    /// The windows of a GROUP BY, and whether they are in Windows(..).
    fn definitions<'q>(
        &mut self,
        group: &'q ast::Group,
        windows: &[&'q ast::Expr],
    ) -> BindResult<(Vec<Definition<'q>>, bool)> {
        let one = |window, of| Definition {
            window,
            id: None,
            of,
        };
        match windows {
            [only] => match (window_kind(only), &only.kind) {
                (Some(WindowKind::Windows), ast::ExprKind::Call(call)) => {
                    Ok((self.windows(call, only.span)?, true))
                }
                _ => Ok((vec![one(self.window(only)?, only)], false)),
            },
            [_, second, ..] => {
                let message = "GROUP BY takes one window";
                let error =
                    Diagnostic::error(code::WINDOW, second.span, message).label("the second one");
                Err(self.report(error.help("Windows(..) holds several windows")))
            }
            [] => {
                if let Some(of) = group.items.iter().find(|item| is_timestamp(item)) {
                    return Ok((vec![one(Window::Snapshot, of)], false));
                }
                let message = "a window must be specified in GROUP BY";
                let error = Diagnostic::error(code::WINDOW, group.span, message);
                let label = "groups never end without a window";
                let help = "add for example TumblingWindow(second, 10), or System.Timestamp()";
                Err(self.report(error.label(label).help(help)))
            }
        }
    }

    /// Partitions are aggregated separately, so the partition key is a group key.
    fn partition_keys(&mut self, grouping: &mut Grouping, from: &FromClause) -> BindResult<()> {
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

    /// SessionWindow(..) OVER (PARTITION BY k): keys of the sessions are also group keys, but not of other
    /// windows beside it.
    fn session_keys(
        &mut self,
        grouping: &mut Grouping,
        more: &mut Vec<Key>,
        from: &FromClause,
        call: &ast::Expr,
        aliases: &Aliases,
    ) -> BindResult<Option<Vec<usize>>> {
        let ast::ExprKind::Call(call) = &call.kind else {
            return Err(ErrorReported);
        };
        // PARTITION BY on the source keeps its groups separate, their sessions included.
        let partition = from.partition.map(|by| &by.keys);
        let Some(keys) = call.over.as_ref().map(|over| &over.partition).or(partition) else {
            return Ok(None);
        };
        let mut indexes = Vec::new();
        for key in keys {
            let expr = self.key(key, from, Clause::GroupBy, aliases)?;
            let index = match grouping.several {
                true => grouping.session_key(more, key, expr),
                false => grouping.key(key, expr),
            };
            if !indexes.contains(&index) {
                indexes.push(index);
            }
        }
        Ok(Some(indexes))
    }
}
