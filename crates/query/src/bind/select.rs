//! One SELECT: source, filter, groups, list of columns.

use super::analytic::uses_analytic;
use super::expr::ExprBinder;
use super::from::FromClause;
use super::group::Grouping;
use super::join::{add_cross_conditions, qualified};
use super::pattern::pattern_of;
use super::scope::{Aliases, Clause, Scope, default_name, is_metadata, mentions};
use super::{BindResult, Binder, Partitioning, Relation};
use crate::Span;
use crate::ast::{self, Ident, PartitionBy, SelectItem};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::{Expr, ExprKind, Item, Name, Node, NodeId, Pred};

impl<'a> Binder<'a> {
    pub(super) fn select(&mut self, select: &ast::Select) -> BindResult<Relation> {
        if let Some((from, clause)) = pattern_of(&select.from) {
            return self.match_recognize(select, from, clause);
        }
        let outer = std::mem::replace(&mut self.analytic, uses_analytic(select));
        let mut clause = qualified(&select.from);
        add_cross_conditions(&mut clause, select.filter.as_ref());
        let from = self.from(select, &clause);
        self.analytic = outer;
        let from = from?;
        if let (true, Some(group)) = (from.reference, &select.group) {
            let message = "reference data cannot be windowed on its own";
            let error = Diagnostic::error(code::REFERENCE, group.span, message);
            return Err(self.report(error.help("join it to a stream")));
        }
        let bare = from.bare.filter(|_| is_bare(select, &from.scope));
        if bare.is_none() {
            self.resolve_bare_input(from.bare);
        }
        let aliases = Aliases::of(select);
        let filter = select.filter.as_ref();
        let keep = filter
            .map(|f| {
                self.exprs(&from.scope, Clause::Where, &aliases)
                    .condition(f)
            })
            .transpose();
        let node = match &select.group {
            Some(group) => {
                let grouping = self.group(group, &from, &aliases)?;
                self.grouped(select, &from, keep, grouping, &aliases)?
            }
            None => {
                self.check_partition_keys(&from)?;
                self.ungrouped(select, &from, keep, &aliases)?
            }
        };
        let partition = from.partition.map(|by| self.partitioning(by, &from.scope));
        if from.reference {
            self.check_reference_step(node, select.head)?;
        }
        Ok(Relation {
            node,
            bare,
            partition,
            reference: from.reference,
        })
    }

    // An error in one clause does not keep the others from being checked.

    /// SELECT over rows. HAVING is a second WHERE here.
    fn ungrouped(
        &mut self,
        select: &ast::Select,
        from: &FromClause,
        keep: BindResult<Option<Pred>>,
        aliases: &Aliases,
    ) -> BindResult<NodeId> {
        let scope = &from.scope;
        let mut list = ListBuilder::default();
        self.items(select, scope, aliases, None, &mut list);
        let having = select.having.as_ref();
        let having = having
            .map(|h| self.exprs(scope, Clause::Having, aliases).condition(h))
            .transpose();
        let (keep, items, having) = (keep?, list.finish()?, having?);
        let mut node = scope.node;
        for keep in keep.into_iter().chain(having) {
            node = self.push(Node::Filter { from: node, keep });
        }
        Ok(self.push(Node::Project { from: node, items }))
    }

    /// SELECT over groups: the window node has keys and aggregates, HAVING and the list read those.
    fn grouped(
        &mut self,
        select: &ast::Select,
        from: &FromClause,
        keep: BindResult<Option<Pred>>,
        mut grouping: Grouping,
        aliases: &Aliases,
    ) -> BindResult<NodeId> {
        let scope = &from.scope;
        let mut list = ListBuilder::default();
        self.items(select, scope, aliases, Some(&mut grouping), &mut list);
        let having = select.having.as_ref().map(|having| {
            let mut exprs = self.exprs(scope, Clause::Having, aliases);
            exprs.grouping = Some(&mut grouping);
            exprs.condition(having)
        });
        let (keep, items, having) = (keep?, list.finish()?, having.transpose()?);
        let mut node = scope.node;
        if let Some(keep) = keep {
            node = self.push(Node::Filter { from: node, keep });
        }
        node = self.groups(grouping, node);
        if let Some(keep) = having {
            node = self.push(Node::Filter { from: node, keep });
        }
        Ok(self.push(Node::Project { from: node, items }))
    }

    fn items(
        &mut self,
        select: &ast::Select,
        scope: &Scope,
        aliases: &Aliases,
        mut grouping: Option<&mut Grouping>,
        list: &mut ListBuilder,
    ) {
        for (index, item) in select.items.iter().enumerate() {
            let mut exprs = self.exprs(scope, Clause::Select, aliases);
            exprs.grouping = grouping.as_deref_mut();
            let result = match item {
                SelectItem::Star { path, span } => exprs.star(path, *span).map(|stars| {
                    stars.into_iter().for_each(|star| list.star(star));
                }),
                SelectItem::Expr { expr, alias } => exprs.value(expr).and_then(|bound| {
                    let name = match alias {
                        // Below level 1.2 metadata columns have lower-case names.
                        Some(alias)
                            if exprs.binder.catalog.older_level.is_some() && is_metadata(expr) =>
                        {
                            alias.name.to_lowercase()
                        }
                        Some(alias) => alias.name.clone(),
                        None => default_name(expr, index + 1),
                    };
                    let span = alias.as_ref().map_or(expr.span, |alias| alias.span);
                    let hidden = list.has_whole(exprs.binder, scope)
                        && mentions(scope, expr, |column| column == name);
                    list.named(exprs.binder, name, bound, span, hidden)
                }),
            };
            list.failed |= result.is_err();
        }
    }

    /// PARTITION BY without GROUP BY changes nothing, but a wrong name in it is still an error.
    fn check_partition_keys(&mut self, from: &FromClause) -> BindResult<()> {
        let Some(by) = from.partition else {
            return Ok(());
        };
        if matches!(self.plan.nodes[from.scope.node.0], Node::Source { .. }) {
            return Ok(());
        }
        for key in &by.keys {
            self.value_over(&from.scope, Clause::PartitionBy, key)?;
        }
        Ok(())
    }

    pub(super) fn check_partition_count(&mut self, by: &PartitionBy) -> BindResult<()> {
        match by.count {
            Some(count) if count <= 1 => {
                let message = "PARTITION BY .. INTO needs at least 2 partitions";
                let error = Diagnostic::error(code::PARTITION, by.span, message);
                Err(self.report(error.help("leave INTO out to keep the partitions as they are")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn partitioning(&self, by: &PartitionBy, scope: &Scope) -> Partitioning {
        let key = |key: &ast::Expr| match &key.kind {
            ast::ExprKind::Path(path) => {
                let names: Vec<&str> = scope.strip(path).iter().map(|i| i.name.as_str()).collect();
                names.join(".").to_lowercase()
            }
            _ => self.text(key.span).to_lowercase(),
        };
        Partitioning {
            keys: by.keys.iter().map(key).collect(),
            count: by.count,
        }
    }
}

impl ExprBinder<'_, '_> {
    /// `*`, `source.*` or `record.*`
    fn star(&mut self, path: &[Ident], span: Span) -> BindResult<Vec<Item>> {
        let source = self.scope.star_of(path);
        let whole = path.is_empty() || source.is_some();
        if whole && self.grouping.is_some() {
            let error = Diagnostic::error(code::UNGROUPED, span, "a group has no `*`");
            let help = "name the keys and aggregates that you want";
            return Err(self.report(error.label("a group has many events").help(help)));
        }
        if whole {
            let sources = match source {
                Some(source) => source..source + 1,
                None => 0..self.scope.sources.len(),
            };
            let stars =
                sources.flat_map(|source| self.binder.source_star(self.scope, source, span));
            return Ok(stars.collect());
        }
        let kind = ast::ExprKind::Path(path.to_vec());
        let expr = self.value(&ast::Expr::new(kind, span))?;
        Ok(vec![Item {
            name: Name::Spread,
            expr,
        }])
    }
}

/// The columns of a SELECT so far. The leftmost of equal names wins.
#[derive(Default)]
struct ListBuilder {
    items: Vec<Item>,
    /// One per item: whether the query names it, rather than a star.
    named: Vec<bool>,
    failed: bool,
}

impl ListBuilder {
    fn finish(self) -> BindResult<Vec<Item>> {
        if self.failed {
            Err(ErrorReported)
        } else {
            Ok(self.items)
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.items
            .iter()
            .position(|item| matches!(&item.name, Name::Field(field) if field == name))
    }

    /// Whether there is a `*` over a whole event already.
    fn has_whole(&self, binder: &Binder, scope: &Scope) -> bool {
        self.items.iter().any(|item| match item.expr.kind {
            ExprKind::Column(column) => {
                item.name == Name::Spread && binder.is_whole_event(scope.node, column)
            }
            _ => false,
        })
    }

    fn star(&mut self, item: Item) {
        let known = matches!(&item.name, Name::Field(field) if self.position(field).is_some());
        if !known {
            self.items.push(item);
            self.named.push(false);
        }
    }

    /// `hidden` if a star to the left has this column, as far as known.
    fn named(
        &mut self,
        binder: &mut Binder,
        name: String,
        expr: Expr,
        span: Span,
        hidden: bool,
    ) -> BindResult<()> {
        let first = self.position(&name);
        if first.is_some_and(|first| self.named[first]) {
            let message = format!("there are two columns called `{name}`");
            let error = Diagnostic::error(code::DUPLICATE_COLUMN, span, message);
            return Err(binder.report(
                error
                    .label("the second one")
                    .help("give it another name with AS"),
            ));
        }
        if first.is_some() || hidden {
            let message =
                format!("this `{name}` is ignored: the `*` to its left has a column of that name");
            let help = "the leftmost column wins; put this one before the `*`";
            binder.warn(Diagnostic::warning(code::DUPLICATE_COLUMN, span, message).help(help));
            return Ok(());
        }
        self.items.push(Item {
            name: Name::Field(name),
            expr,
        });
        self.named.push(true);
        Ok(())
    }
}

/// `SELECT * FROM source` and nothing else.
fn is_bare(select: &ast::Select, scope: &Scope) -> bool {
    let star = match select.items.as_slice() {
        [SelectItem::Star { path, .. }] => path.is_empty() || scope.star_of(path).is_some(),
        _ => false,
    };
    star && select.filter.is_none() && select.group.is_none() && select.having.is_none()
}
