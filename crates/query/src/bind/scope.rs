//! Which names mean what inside one SELECT.

use super::columns::{field_name, find};
use crate::ast::{self, Expr, ExprKind, Ident, Quote, same_name};
use crate::plan::{Name, NodeId};

/// The sources of a SELECT, in the order of FROM.
#[derive(Clone, Debug)]
pub struct Scope {
    /// What expressions are over: the source itself, or what its JOINs and APPLYs have made of it.
    pub node: NodeId,
    pub sources: Vec<Source>,
}

/// A source and what it is called.
#[derive(Clone, Debug)]
pub struct Source {
    /// Alias, or the name of the input or step; none for a derived table without alias.
    pub qualifier: Option<String>,
    /// The name that an alias has taken the place of.
    pub hidden: Option<String>,
    pub of: Of,
    /// The nodes from the source up to what expressions are over; each carries columns of the one
    /// before it.
    pub above: Vec<NodeId>,
    /// It is not there in every row: the right side of a LEFT JOIN.
    pub optional: bool,
    /// Its place among the times of the FROM clause; reference data and elements have no time.
    pub time: Option<usize>,
}

#[derive(Clone, Debug)]
pub enum Of {
    /// An input or step, and what is known of its columns; a [`Name::Spread`] stands for any.
    Rows { node: NodeId, names: Vec<Name> },
    /// The record that APPLY makes: a column of its node.
    Element { node: NodeId, column: usize },
}

/// What a path means.
#[derive(Clone, Copy, Debug)]
pub struct Located<'q> {
    pub source: usize,
    /// Inside the source.
    pub rest: &'q [Ident],
    /// Did the path start with the name of the source?
    pub qualified: bool,
}

/// Why a path means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Several sources have such a column.
    Ambiguous,
    /// No source is known to have it, but one without known columns might.
    Unqualified,
    /// No source has it.
    Unknown,
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
    pub fn name(self) -> &'static str {
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
        let timestamp = select.from.first.timestamp.as_ref();
        aliases.over_source.extend(timestamp.map(|by| &by.expr));
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

impl Source {
    fn is(&self, name: &Ident) -> bool {
        self.qualifier
            .as_ref()
            .is_some_and(|qualifier| name.is(qualifier))
    }

    /// A name alone must be spelt exactly like the source to mean the whole event: over a source
    /// `toll` with a field `Toll`, `SUM(Toll)` is about the field. Elements are never mistaken.
    fn is_whole(&self, name: &Ident) -> bool {
        match self.of {
            Of::Rows { .. } => self.qualifier.as_ref() == Some(&name.name),
            Of::Element { .. } => self.is(name),
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

    /// The columns that may be named without saying whose they are.
    fn names(&self) -> Option<&[Name]> {
        match &self.of {
            Of::Rows { names, .. } => Some(names),
            Of::Element { .. } => None,
        }
    }
}

impl Scope {
    /// The source that a path is about.
    pub fn locate<'q>(&self, path: &'q [Ident]) -> Result<Located<'q>, Lost> {
        let named = match path {
            [] => None,
            [only] => self.sources.iter().position(|source| source.is_whole(only)),
            [first, ..] => self.sources.iter().position(|source| source.is(first)),
        };
        if let Some(source) = named {
            return Ok(Located {
                source,
                rest: &path[1..],
                qualified: true,
            });
        }
        let first = path.first().map_or("", |first| &first.name);
        self.holder(first).map(|source| Located {
            source,
            rest: path,
            qualified: false,
        })
    }

    /// The only source that can have a column of this name. Among several, only those count that
    /// are known to have it.
    fn holder(&self, name: &str) -> Result<usize, Lost> {
        let rows =
            || (0..self.sources.len()).filter(|index| self.sources[*index].names().is_some());
        if let (Some(only), None) = (rows().next(), rows().nth(1)) {
            return Ok(only);
        }
        let mut known = rows().filter(|index| self.sources[*index].has(name));
        match (known.next(), known.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(Lost::Ambiguous),
            (None, _) if self.sources.iter().any(Source::is_open) => Err(Lost::Unqualified),
            (None, _) => Err(Lost::Unknown),
        }
    }

    /// The path inside the source: `s.a.b` and `a.b` are the same column.
    pub fn strip<'q>(&self, path: &'q [Ident]) -> &'q [Ident] {
        self.locate(path).map_or(path, |located| located.rest)
    }

    /// Is this the name of a source that every row has?
    pub fn is_row(&self, path: &[Ident]) -> bool {
        self.locate(path).is_ok_and(|at| {
            let source = &self.sources[at.source];
            at.rest.is_empty() && !source.optional && source.names().is_some()
        })
    }

    /// `source.*`
    pub fn star_of(&self, path: &[Ident]) -> Option<usize> {
        let [only] = path else { return None };
        let rows = |source: &Source| source.names().is_some() && source.is(only);
        self.sources.iter().position(rows)
    }

    /// Is a source known to have a column of this name?
    pub fn has(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.has(name))
    }

    /// The columns that are known by name, of all sources.
    pub fn fields(&self) -> Vec<&str> {
        let names = self.sources.iter().filter_map(Source::names).flatten();
        names.filter_map(field_name).collect()
    }

    /// The source of this name.
    pub fn named(&self, name: &Ident) -> Option<usize> {
        self.sources.iter().position(|source| source.is(name))
    }

    /// Are there several sources with columns?
    pub fn is_joined(&self) -> bool {
        self.sources.iter().filter_map(Source::names).count() > 1
    }

    /// This scope as it looks above `node`, which reads its node.
    pub fn under(mut self, node: NodeId) -> Scope {
        self.node = node;
        self.sources
            .iter_mut()
            .for_each(|source| source.above.push(node));
        self
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

/// Whether the expression is a property of the event's metadata.
pub fn is_metadata(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Call(call) if call.name.is("GetMetadataPropertyValue"))
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
