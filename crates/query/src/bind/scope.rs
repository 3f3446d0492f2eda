//! Which names mean what inside one SELECT.

use crate::ast::{self, Expr, ExprKind, Ident, Quote, same_name};
use crate::plan::NodeId;

/// The source of a SELECT and what it is called there.
#[derive(Clone, Debug)]
pub struct Scope {
    pub node: NodeId,
    /// Alias, or the name of the input or step; none for a derived table without alias.
    pub qualifier: Option<String>,
    /// The name that an alias has taken the place of.
    pub hidden: Option<String>,
}

/// Where in a SELECT an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    Select,
    Where,
    GroupBy,
    Having,
    Timestamp,
    PartitionBy,
    /// Inside the argument of an aggregate.
    Aggregate,
}

impl Clause {
    pub fn name(self) -> &'static str {
        match self {
            Clause::Select => "SELECT",
            Clause::Where => "WHERE",
            Clause::GroupBy => "GROUP BY",
            Clause::Having => "HAVING",
            Clause::Timestamp => "TIMESTAMP BY",
            Clause::PartitionBy => "PARTITION BY",
            Clause::Aggregate => "an aggregate",
        }
    }
}

/// The names that the SELECT list gives, and what shows that such a name is a source column too.
#[derive(Clone, Debug, Default)]
pub struct Aliases<'q> {
    named: Vec<(&'q Ident, &'q Expr)>,
    /// Here names can only be columns of the source: the SELECT list and TIMESTAMP BY.
    over_source: Vec<&'q Expr>,
}

impl<'q> Aliases<'q> {
    pub fn of(select: &'q ast::Select) -> Aliases<'q> {
        let mut aliases = Aliases::default();
        for item in &select.items {
            let ast::SelectItem::Expr { expr, alias } = item else {
                continue;
            };
            aliases.over_source.push(expr);
            aliases
                .named
                .extend(alias.as_ref().map(|name| (name, expr)));
        }
        aliases
            .over_source
            .extend(select.from.first.timestamp.as_ref().map(|by| &by.expr));
        aliases
    }

    /// What the alias of this name stands for.
    pub fn get(&self, name: &str) -> Option<&'q Expr> {
        self.named
            .iter()
            .find(|(alias, _)| alias.is(name))
            .map(|(_, expr)| *expr)
    }

    /// `x + 1 AS x`: the name is also that of a column of the source.
    pub fn is_source_column(&self, scope: &Scope, name: &str) -> bool {
        self.over_source
            .iter()
            .any(|expr| mentions(scope, expr, |column| same_name(column, name)))
    }
}

/// Does the expression read a top-level source column of such a name?
pub fn mentions(scope: &Scope, expr: &Expr, wanted: impl Fn(&str) -> bool) -> bool {
    expr.any(|e| match &e.kind {
        ExprKind::Path(path) => scope
            .strip(path)
            .first()
            .is_some_and(|first| wanted(&first.name)),
        _ => false,
    })
}

impl Scope {
    /// The path inside the source: `s.a.b` and `a.b` are the same column.
    pub fn strip<'q>(&self, path: &'q [Ident]) -> &'q [Ident] {
        if self.is_source(path) {
            &path[1..]
        } else {
            path
        }
    }

    /// Does the path start with the name of the source? A name alone must be spelt exactly like it to mean the whole
    /// event: over a source `toll` with a field `Toll`, `SUM(Toll)` is about the field.
    pub fn is_source(&self, path: &[Ident]) -> bool {
        match (&self.qualifier, path) {
            (Some(qualifier), [only]) => only.name == *qualifier,
            (Some(qualifier), [first, ..]) => first.is(qualifier),
            _ => false,
        }
    }

    /// `source.*`
    pub fn is_star_of_source(&self, path: &[Ident]) -> bool {
        match (&self.qualifier, path) {
            (_, []) => true,
            (Some(qualifier), [only]) => only.is(qualifier),
            _ => false,
        }
    }
}

/// System.Timestamp, with or without parentheses.
pub fn is_timestamp(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Path(path) => {
            matches!(path.as_slice(), [system, name] if is_system(system) && name.is("Timestamp"))
        }
        ExprKind::Call(call) => {
            matches!(call.prefix.as_slice(), [system] if is_system(system))
                && call.name.is("Timestamp")
                && call.args.is_empty()
                && !call.star
                && call.over.is_none()
        }
        _ => false,
    }
}

fn is_system(ident: &Ident) -> bool {
    ident.quote == Quote::Bare && ident.is("System")
}

/// What an item without alias is called; `position` counts from 1.
pub fn default_name(expr: &Expr, position: usize) -> String {
    if is_timestamp(expr) {
        return "timestamp".to_string();
    }
    match &expr.kind {
        ExprKind::Path(path) => path
            .last()
            .map_or_else(String::new, |last| last.name.clone()),
        ExprKind::Field { name, .. } => name.name.clone(),
        ExprKind::Call(call) => call.name.name.to_lowercase(),
        _ => format!("expr{position}"),
    }
}
