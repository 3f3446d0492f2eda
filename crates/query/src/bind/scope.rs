//! The names inside one SELECT.

use super::columns::{field_name, find};
use crate::ast::{self, Expr, ExprKind, Ident, Quote, same_name};
use crate::plan::{Name, NodeId};

/// The sources of a SELECT, in the order of FROM.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// The node that expressions are over: the source itself, or the result of its JOINs and APPLYs.
    pub node: NodeId,
    pub sources: Vec<Source>,
}

/// A source and its name.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The alias, or the name of the input or step; none for a derived table without alias.
    pub qualifier: Option<String>,
    /// The original name of a source with an alias.
    pub hidden: Option<String>,
    pub of: SourceKind,
    /// The nodes from the source up to the node of the expressions; each passes on columns of the previous one.
    pub above: Vec<NodeId>,
    /// The source may be missing in a row: the right side of a LEFT JOIN.
    pub optional: bool,
    /// The index of its time in the FROM clause; reference data and elements have no time.
    pub time: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum SourceKind {
    /// An input or step, and its known columns; a [`Name::Spread`] stands for any.
    Rows { node: NodeId, names: Vec<Name> },
    /// The record that APPLY makes: a column of its node.
    Element { node: NodeId, column: usize },
}

/// A resolved path.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResolvedPath<'q> {
    pub source: usize,
    /// The path inside the source.
    pub rest: &'q [Ident],
    /// Whether the path started with the name of the source.
    pub qualified: bool,
}

/// Why a path cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResolveError {
    /// Several sources have such a column.
    Ambiguous,
    /// No source is known to have it, but one without known columns might.
    Unqualified,
    /// No source has it.
    Unknown,
}

/// The clause of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clause {
    Select,
    Where,
    GroupBy,
    Having,
    Timestamp,
    PartitionBy,
    /// ON, and the arguments of APPLY.
    On,
    /// Inside the argument of an aggregate.
    Aggregate,
    /// Inside an analytic function.
    Analytic,
    /// Inside MATCH_RECOGNIZE.
    Define,
    Measures,
}

impl Clause {
    pub(super) fn name(self) -> &'static str {
        match self {
            Clause::Select => "SELECT",
            Clause::Where => "WHERE",
            Clause::GroupBy => "GROUP BY",
            Clause::Having => "HAVING",
            Clause::Timestamp => "TIMESTAMP BY",
            Clause::PartitionBy => "PARTITION BY",
            Clause::On => "ON",
            Clause::Aggregate => "an aggregate",
            Clause::Analytic => "an analytic function",
            Clause::Define => "DEFINE",
            Clause::Measures => "MEASURES",
        }
    }
}

/// The names of the SELECT list, and whether such a name is also a source column.
#[derive(Clone, Debug, Default)]
pub(super) struct Aliases<'q> {
    named: Vec<(&'q Ident, &'q Expr)>,
    /// Names here can only be columns of the source: the SELECT list and TIMESTAMP BY.
    over_source: Vec<&'q Expr>,
}

impl<'q> Aliases<'q> {
    pub(super) fn of(select: &'q ast::Select) -> Aliases<'q> {
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
        let timestamp = select.from.first.timestamp.as_ref();
        aliases.over_source.extend(timestamp.map(|by| &by.expr));
        aliases
    }

    /// The expression of the alias.
    pub(super) fn get(&self, name: &str) -> Option<&'q Expr> {
        self.named
            .iter()
            .find(|(alias, _)| alias.is(name))
            .map(|(_, expr)| *expr)
    }

    /// `x + 1 AS x`: the name is also a column of the source.
    pub(super) fn is_source_column(&self, scope: &Scope, name: &str) -> bool {
        self.over_source
            .iter()
            .any(|expr| mentions(scope, expr, |column| same_name(column, name)))
    }
}

/// Whether the expression reads a top-level source column of such a name.
pub(super) fn mentions(scope: &Scope, expr: &Expr, wanted: impl Fn(&str) -> bool) -> bool {
    expr.any(|e| match &e.kind {
        ExprKind::Path(path) => scope
            .strip(path)
            .first()
            .is_some_and(|first| wanted(&first.name)),
        _ => false,
    })
}

impl Source {
    fn is(&self, name: &Ident) -> bool {
        self.qualifier
            .as_ref()
            .is_some_and(|qualifier| name.is(qualifier))
    }

    /// A bare name must equal the source's name exactly to mean the whole event: over a source `toll` with a field
    /// `Toll`, `SUM(Toll)` means the field. Elements are never mistaken.
    fn is_whole(&self, name: &Ident) -> bool {
        match self.of {
            SourceKind::Rows { .. } => self.qualifier.as_ref() == Some(&name.name),
            SourceKind::Element { .. } => self.is(name),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names()
            .is_some_and(|names| find(names, name).is_some())
    }

    fn is_open(&self) -> bool {
        self.names()
            .is_some_and(|names| names.contains(&Name::Spread))
    }

    /// The columns that may be named without a qualifier.
    fn names(&self) -> Option<&[Name]> {
        match &self.of {
            SourceKind::Rows { names, .. } => Some(names),
            SourceKind::Element { .. } => None,
        }
    }
}

impl Scope {
    /// The source of a path.
    pub(super) fn locate<'q>(&self, path: &'q [Ident]) -> Result<ResolvedPath<'q>, ResolveError> {
        let named = match path {
            [] => None,
            [only] => self.sources.iter().position(|source| source.is_whole(only)),
            [first, ..] => self.sources.iter().position(|source| source.is(first)),
        };
        if let Some(source) = named {
            return Ok(ResolvedPath {
                source,
                rest: &path[1..],
                qualified: true,
            });
        }
        let first = path.first().map_or("", |first| &first.name);
        self.holder(first).map(|source| ResolvedPath {
            source,
            rest: path,
            qualified: false,
        })
    }

    /// The only source that can have a column of this name. Among several, only those count that are known to have it
    ///
    fn holder(&self, name: &str) -> Result<usize, ResolveError> {
        let rows =
            || (0..self.sources.len()).filter(|index| self.sources[*index].names().is_some());
        if let (Some(only), None) = (rows().next(), rows().nth(1)) {
            return Ok(only);
        }
        let mut known = rows().filter(|index| self.sources[*index].has(name));
        match (known.next(), known.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(ResolveError::Ambiguous),
            (None, _) if self.sources.iter().any(Source::is_open) => Err(ResolveError::Unqualified),
            (None, _) => Err(ResolveError::Unknown),
        }
    }

    /// The path inside the source: `s.a.b` and `a.b` are the same column.
    pub(super) fn strip<'q>(&self, path: &'q [Ident]) -> &'q [Ident] {
        self.locate(path).map_or(path, |located| located.rest)
    }

    /// Whether a source of this name is present in every row.
    pub(super) fn is_row(&self, path: &[Ident]) -> bool {
        self.locate(path).is_ok_and(|at| {
            let source = &self.sources[at.source];
            at.rest.is_empty() && !source.optional && source.names().is_some()
        })
    }

    /// `source.*`
    pub(super) fn star_of(&self, path: &[Ident]) -> Option<usize> {
        let [only] = path else { return None };
        let rows = |source: &Source| source.names().is_some() && source.is(only);
        self.sources.iter().position(rows)
    }

    /// Whether a source is known to have a column of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.has(name))
    }

    /// The columns of all sources that are known by name.
    pub(super) fn fields(&self) -> Vec<&str> {
        let names = self.sources.iter().filter_map(Source::names).flatten();
        names.filter_map(field_name).collect()
    }

    /// The source of this name.
    pub(super) fn named(&self, name: &Ident) -> Option<usize> {
        self.sources.iter().position(|source| source.is(name))
    }

    /// Whether there are several sources with columns.
    pub(super) fn is_joined(&self) -> bool {
        self.sources.iter().filter_map(Source::names).count() > 1
    }

    /// This scope above `node`, which reads its node.
    pub(super) fn under(mut self, node: NodeId) -> Scope {
        self.node = node;
        self.sources
            .iter_mut()
            .for_each(|source| source.above.push(node));
        self
    }
}

/// System.Timestamp, with or without parentheses.
pub(super) fn is_timestamp(expr: &Expr) -> bool {
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

/// Whether the expression is a property of the event's metadata.
pub(super) fn is_metadata(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Call(call) if call.name.is("GetMetadataPropertyValue"))
}

/// The name of an item without alias; `position` counts from 1.
pub(super) fn default_name(expr: &Expr, position: usize) -> String {
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
