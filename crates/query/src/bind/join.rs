//! FROM with several sources: joins of streams, and of streams with reference data.
//!
//! A stream enters a join through a projection of its own, which computes the columns on the right side of a LEFT JOIN
//! that must be NULL without a match, separates two uses of one input, and has the row time for conditions further up.

use super::from::FromClause;
use super::join_condition::{Conditions, OnClause};
use super::join_time_bounds::{BoundsError, DistanceRange, TimeBounds, duration};
use super::scope::{Clause, Scope};
use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{
    self, ExprKind as Ast, FromPart, Ident, PartitionBy, SelectItem, Source, SourceExpr,
};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::{
    Expr, ExprKind, Item, JoinNode, LookupNode, Name, Node, NodeId, Pred, PredKind, TimeBound,
};

/// The most sources of one FROM clause.
const SOURCES_MAX: usize = 16;

/// The part of a FROM clause that is bound so far.
pub(super) struct JoinedSources<'q> {
    pub scope: Scope,
    /// The index of its row time; none for reference data.
    pub row: Option<usize>,
    /// The partition keys of the first source, if all streams are partitioned.
    pub partition: Option<&'q PartitionBy>,
}

impl JoinedSources<'_> {
    fn streams(&self) -> impl DoubleEndedIterator<Item = usize> {
        let timed = |index: &usize| self.scope.sources[*index].time.is_some();
        (0..self.scope.sources.len()).filter(timed)
    }
}

/// The keys of PARTITION BY, qualified with their source, so that they mean the same outside it.
pub(super) fn qualified(from: &ast::From) -> ast::From {
    let mut from = from.clone();
    qualify(&mut from);
    from
}

fn qualify(from: &mut ast::From) {
    let joined = from.rest.iter_mut().filter_map(|part| match part {
        FromPart::Join(join) => Some(&mut join.source),
        FromPart::Apply(_) => None,
    });
    for source in std::iter::once(&mut from.first).chain(joined) {
        let name = match &mut source.of {
            SourceExpr::Nested(inner) => {
                qualify(inner);
                continue;
            }
            SourceExpr::Name(name) => Some(&*name),
            SourceExpr::Query(_) => None,
        };
        let name = source.alias.as_ref().or(name);
        let keys = source.partition.iter_mut().flat_map(|by| &mut by.keys);
        for (key, name) in keys.zip(name.into_iter().cycle()) {
            let span = key.span;
            if let Ast::Path(path) = &mut key.kind
                && !(path.len() > 1 && path[0].is(&name.name))
            {
                path.insert(
                    0,
                    Ident {
                        span,
                        ..name.clone()
                    },
                );
            }
        }
    }
}

/// Gives every CROSS JOIN the equalities of WHERE between its columns and those of sources before it, so that rows are
/// looked up instead of tried one by one. WHERE still tests them.
pub(super) fn add_cross_conditions(from: &mut ast::From, filter: Option<&ast::Expr>) {
    let mut conjuncts = Vec::new();
    let mut todo: Vec<&ast::Expr> = filter.into_iter().collect();
    while let Some(next) = todo.pop() {
        match &next.kind {
            Ast::And(all) => todo.extend(all),
            _ => conjuncts.push(next),
        }
    }
    let mut before: Vec<Ident> = source_name(&from.first).into_iter().cloned().collect();
    for part in &mut from.rest {
        let FromPart::Join(join) = part else { continue };
        let Some(name) = source_name(&join.source).cloned() else {
            continue;
        };
        if join.cross {
            let looks_up = |of: &&&ast::Expr| equates(of, &name, &before);
            let keys: Vec<ast::Expr> = conjuncts
                .iter()
                .filter(looks_up)
                .copied()
                .cloned()
                .collect();
            join.on = match keys.len() {
                0 => None,
                _ => Some(ast::Expr::new(Ast::And(keys), join.span)),
            };
        }
        before.push(name);
    }
}

fn source_name(source: &Source) -> Option<&Ident> {
    match &source.of {
        SourceExpr::Name(name) => Some(source.alias.as_ref().unwrap_or(name)),
        _ => source.alias.as_ref(),
    }
}

/// Whether a condition is `name.column = other.column`, where the other source is one of `before`.
fn equates(condition: &ast::Expr, name: &Ident, before: &[Ident]) -> bool {
    let Ast::Compare { op, left, right } = &condition.kind else {
        return false;
    };
    let source = |side: &ast::Expr| match &side.kind {
        Ast::Path(path) if path.len() > 1 => path.first().cloned(),
        _ => None,
    };
    let is_before = |source: &Ident| before.iter().any(|known| known.is(&source.name));
    let is_name = |source: &Ident| name.is(&source.name);
    *op == ast::CompareOp::Eq
        && source(left)
            .zip(source(right))
            .is_some_and(|(left, right)| {
                (is_name(&left) && is_before(&right)) || (is_before(&left) && is_name(&right))
            })
}

impl<'a> Binder<'a> {
    pub(super) fn joins<'q>(
        &mut self,
        select: &ast::Select,
        from: &'q ast::From,
    ) -> BindResult<FromClause<'q>> {
        let is_join = |part: &FromPart| matches!(part, FromPart::Join(_));
        let star = select.items.iter().find_map(|item| match item {
            SelectItem::Star { path, span } if path.is_empty() => Some(*span),
            _ => None,
        });
        if let (true, Some(span)) = (from.rest.iter().any(is_join), star) {
            let error = Diagnostic::error(code::STAR, span, "SELECT * cannot be used with JOIN");
            return Err(self.report(error.help("name the columns, or take one side: a.*")));
        }
        let joined = self.joined(from, &mut TimeBounds::default())?;
        Ok(FromClause {
            scope: joined.scope,
            partition: joined.partition,
            bare: None,
            reference: false,
        })
    }

    fn joined<'q>(
        &mut self,
        from: &'q ast::From,
        times: &mut TimeBounds,
    ) -> BindResult<JoinedSources<'q>> {
        self.check_clock_of_elements(from)?;
        let mut left = self.joined_source(&from.first, times)?;
        if left.row.is_none() {
            let message = match from.rest.first() {
                Some(FromPart::Apply(_)) => "reference data takes no APPLY",
                _ => "reference data must be on the right of a JOIN",
            };
            let error = Diagnostic::error(code::REFERENCE, from.first.span, message);
            return Err(self.report(error.help("put the stream first")));
        }
        for part in &from.rest {
            left = match part {
                FromPart::Join(join) => {
                    let right = self.joined_source(&join.source, times)?;
                    self.check_source_count(&left, &right, join)?;
                    match right.row {
                        Some(_) if join.cross => return Err(self.cross_join(join)),
                        Some(_) => self.join(left, right, join, times)?,
                        None => self.lookup(left, right, join)?,
                    }
                }
                FromPart::Apply(apply) => self.apply(left, apply)?,
            };
        }
        if let Some(pattern) = &from.pattern {
            let message = "MATCH_RECOGNIZE reads one source";
            let error = Diagnostic::error(code::STAR, pattern.span, message);
            return Err(self.report(error.help("join in an earlier step")));
        }
        Ok(left)
    }

    /// CROSS JOIN pairs every event with every row of a table; two streams would wait for each other for ever.
    fn cross_join(&mut self, join: &ast::Join) -> ErrorReported {
        let message = "CROSS JOIN takes reference data, and this is a stream";
        let error = Diagnostic::error(code::JOIN, join.span.to(join.source.span), message);
        let help = "use JOIN .. ON DATEDIFF(second, a, b) BETWEEN 0 AND 10";
        self.report(error.help(help))
    }

    fn joined_source<'q>(
        &mut self,
        source: &'q Source,
        times: &mut TimeBounds,
    ) -> BindResult<JoinedSources<'q>> {
        if let SourceExpr::Nested(inner) = &source.of {
            return self.joined(inner, times);
        }
        let FromClause {
            mut scope,
            partition,
            bare,
            reference,
        } = self.source(source)?;
        self.resolve_bare_input(bare);
        let row = (!reference).then(|| times.add());
        scope
            .sources
            .iter_mut()
            .for_each(|source| source.time = row);
        Ok(JoinedSources {
            scope,
            row,
            partition,
        })
    }

    /// TIMESTAMP BY applies to the source, not to the result of APPLY.
    fn check_clock_of_elements(&mut self, from: &ast::From) -> BindResult<()> {
        let aliases = from.rest.iter().filter_map(|part| match part {
            FromPart::Apply(apply) => Some(&apply.alias),
            FromPart::Join(_) => None,
        });
        let aliases: Vec<&Ident> = aliases.collect();
        let Some(by) = &from.first.timestamp else {
            return Ok(());
        };
        let element =
            |path: &[Ident]| path.len() > 1 && aliases.iter().any(|a| a.is(&path[0].name));
        if !by
            .expr
            .any(|e| matches!(&e.kind, Ast::Path(path) if element(path)))
        {
            return Ok(());
        }
        let message = "TIMESTAMP BY cannot use the result of APPLY";
        let error = Diagnostic::error(code::TIMESTAMP, by.span, message);
        Err(self.report(error.help("events get their time before APPLY splits them")))
    }

    pub(super) fn check_source_name(&mut self, scope: &Scope, name: &Ident) -> BindResult<()> {
        if scope.named(name).is_none() {
            return Ok(());
        }
        let message = format!("two sources are called `{}`", name.name);
        let error = Diagnostic::error(code::JOIN, name.span, message).label("the second one");
        Err(self.report(error.help("give one of them an alias")))
    }

    fn check_source_count(
        &mut self,
        left: &JoinedSources,
        right: &JoinedSources,
        join: &ast::Join,
    ) -> BindResult<()> {
        for source in &right.scope.sources {
            if let Some(name) = &source.qualifier {
                let name = Ident {
                    name: name.clone(),
                    quote: ast::Quote::Bare,
                    span: join.source.span,
                };
                self.check_source_name(&left.scope, &name)?;
            }
        }
        if left.scope.sources.len() + right.scope.sources.len() > SOURCES_MAX {
            let message = format!("a FROM clause has at most {SOURCES_MAX} sources");
            return Err(self.report(Diagnostic::error(code::LIMIT, join.source.span, message)));
        }
        Ok(())
    }

    /// A stream goes through a projection that also has the time of its rows.
    fn wrap<'q>(&mut self, joined: JoinedSources<'q>, span: Span) -> JoinedSources<'q> {
        let streams: Vec<usize> = joined.streams().collect();
        let [only] = streams[..] else {
            return joined;
        };
        let name = joined.scope.sources[only].qualifier.as_deref();
        let time = Item {
            name: Name::Hidden(format!("time of {}", name.unwrap_or("the step"))),
            expr: Expr::new(ExprKind::Timestamp, span),
        };
        let node = self.push(Node::Project {
            from: joined.scope.node,
            items: vec![time],
        });
        JoinedSources {
            scope: joined.scope.under(node),
            ..joined
        }
    }

    fn join<'q>(
        &mut self,
        left: JoinedSources<'q>,
        right: JoinedSources<'q>,
        join: &ast::Join,
        times: &mut TimeBounds,
    ) -> BindResult<JoinedSources<'q>> {
        let (left, right) = (self.wrap(left, join.span), self.wrap(right, join.span));
        let node = self.push(Node::Join(JoinNode {
            left: left.scope.node,
            right: right.scope.node,
            columns: Vec::new(),
            outer: join.outer,
            low: duration(0.0),
            high: duration(0.0),
            bounds: Vec::new(),
            keys: Vec::new(),
            residual: None,
            by_partition: false,
            span: join.span,
        }));
        let both = combined(&left.scope, &right.scope, node, join.outer);
        let conditions = self.conditions(join.on.as_ref(), &both)?;
        let (range, row) = self.bounded(&left, &right, &both, &conditions, join, times)?;
        // The engine knows the time of one right source; those of several are compared like columns.
        let lefts = left.scope.sources.len();
        let single = right.streams().count() == 1;
        let direct = |a: usize, b: usize| single && (a < lefts) != (b < lefts);
        let on = self.on(&conditions, &left.scope, &right.scope, &both, direct)?;
        let bounds = self.time_bounds(&left, &on, range);
        let by_partition = self.check_partitions(&left, &right, &on.keys, join)?;
        let partition = left.partition.filter(|_| right.partition.is_some());
        if let Node::Join(join) = &mut self.plan.nodes[node.0] {
            (join.low, join.high) = (duration(range.0), duration(range.1));
            join.bounds = bounds;
            join.keys = on.keys;
            join.residual = all(on.residual);
            join.by_partition = by_partition;
        }
        Ok(JoinedSources {
            scope: both,
            row: Some(row),
            partition,
        })
    }

    /// The time bounds between left and right rows, and the time of the joined rows.
    fn bounded(
        &mut self,
        left: &JoinedSources,
        right: &JoinedSources,
        both: &Scope,
        conditions: &Conditions,
        join: &ast::Join,
        times: &mut TimeBounds,
    ) -> BindResult<((f64, f64), usize)> {
        let lefts = left.scope.sources.len();
        let time = |source: usize| both.sources[source].time;
        // A condition of ON on the left side alone does not hold for an unmatched left row.
        let mut here = times.clone();
        for (from, to, range) in conditions.bounds() {
            let Some((a, b)) = time(from).zip(time(to)) else {
                continue;
            };
            here.limit(a, b, range);
            if !join.outer || from >= lefts || to >= lefts {
                times.limit(a, b, range);
            }
        }
        here.close();
        times.close();
        let first = left.streams().next();
        let last = right.streams().next_back().map(|index| index + lefts);
        let ends = first.and_then(time).zip(last.and_then(time));
        let problem = match ends {
            Some((from, to)) => here.check(from, to).err(),
            None => Some(BoundsError::Neither),
        };
        let rows = left.row.zip(right.row);
        let range = rows.and_then(|(from, to)| here.between(from, to));
        if let (None, Some(range), Some((from, to))) = (problem, range, rows) {
            return Ok((range, times.joined(from, to, range.0, range.1)));
        }
        let name = |index: Option<usize>| {
            let name = index.and_then(|index| both.sources[index].qualifier.as_deref());
            name.unwrap_or("b")
        };
        let help = format!(
            "add to ON: DATEDIFF(second, {}, {}) BETWEEN 0 AND 10",
            name(first),
            name(last)
        );
        let problem = problem.unwrap_or(BoundsError::Neither);
        let error = Diagnostic::error(code::JOIN, join.source.span, unbounded(problem));
        let error = match problem {
            BoundsError::Never => error,
            _ => error
                .label("this would keep its events for ever")
                .help(help),
        };
        Err(self.report(error))
    }

    /// The time bounds that the engine checks. For a right side of several sources they are only implied bounds of its
    /// rows.
    fn time_bounds(
        &mut self,
        left: &JoinedSources,
        on: &OnClause,
        range: (f64, f64),
    ) -> Vec<TimeBound> {
        let lefts = left.scope.sources.len();
        let mut ranges: Vec<(usize, DistanceRange)> = Vec::new();
        for (from, to, range) in &on.bounds {
            let (source, range) = match *from < lefts {
                true => (*from, *range),
                false => (*to, range.reversed()),
            };
            match ranges.iter_mut().find(|(known, _)| *known == source) {
                Some((_, known)) => *known = known.and(range),
                None => ranges.push((source, range)),
            }
        }
        if ranges.is_empty() {
            return vec![TimeBound {
                left_column: None,
                low: Some(duration(range.0)),
                high: Some(duration(range.1)),
            }];
        }
        let alone = left.streams().count() == 1;
        let mut bound = |(source, range): (usize, DistanceRange)| {
            let time = match alone {
                true => None,
                false => Some(self.time_over(&left.scope, source, Span::default())),
            };
            let column = time.and_then(|time| match time.kind {
                ExprKind::Column(column) => Some(column),
                _ => None,
            });
            TimeBound {
                left_column: column,
                low: range.low.map(duration),
                high: range.high.map(duration),
            }
        };
        ranges.into_iter().map(&mut bound).collect()
    }

    fn lookup<'q>(
        &mut self,
        left: JoinedSources<'q>,
        right: JoinedSources<'q>,
        join: &ast::Join,
    ) -> BindResult<JoinedSources<'q>> {
        let table = self.push(Node::Project {
            from: right.scope.node,
            items: Vec::new(),
        });
        let right = right.scope.under(table);
        let node = self.push(Node::Lookup(LookupNode {
            from: left.scope.node,
            reference: table.0,
            columns: Vec::new(),
            outer: join.outer,
            keys: Vec::new(),
            residual: None,
            span: join.span,
        }));
        let both = combined(&left.scope, &right, node, join.outer);
        let conditions = self.conditions(join.on.as_ref(), &both)?;
        let on = self.on(&conditions, &left.scope, &right, &both, |_, _| false)?;
        if let Node::Lookup(lookup) = &mut self.plan.nodes[node.0] {
            lookup.keys = on.keys;
            lookup.residual = all(on.residual);
        }
        Ok(JoinedSources {
            scope: both,
            ..left
        })
    }

    /// Partitions are joined one by one, so ON must equate the partition keys. Whether these are the partitions of the
    /// inputs.
    fn check_partitions(
        &mut self,
        left: &JoinedSources,
        right: &JoinedSources,
        keys: &[(Expr, Expr)],
        join: &ast::Join,
    ) -> BindResult<bool> {
        let (Some(a), Some(b)) = (left.partition, right.partition) else {
            return Ok(false);
        };
        let counts = a.count.zip(b.count).is_none_or(|(a, b)| a == b);
        if a.keys.len() != b.keys.len() || !counts {
            let message = "the sources of this JOIN are partitioned differently";
            return Err(self.report(Diagnostic::error(code::PARTITION, b.span, message)));
        }
        let mut by_partition = false;
        for (a, b) in a.keys.iter().zip(&b.keys) {
            let first = self.value_over(&left.scope, Clause::PartitionBy, a)?;
            let second = self.value_over(&right.scope, Clause::PartitionBy, b)?;
            let equated = |(l, r): &(Expr, Expr)| *l == first && *r == second;
            if !keys.iter().any(equated) {
                let message = "the partition keys of a JOIN must be equated in ON";
                let error = Diagnostic::error(code::PARTITION, join.span, message);
                let help = format!("add to ON: {} = {}", path_text(a), path_text(b));
                return Err(self.report(error.help(help)));
            }
            by_partition |= self.is_partition(left.scope.node, &first)
                && self.is_partition(right.scope.node, &second);
        }
        Ok(by_partition)
    }
}

/// The sources of both sides, as seen from the join node.
fn combined(left: &Scope, right: &Scope, node: NodeId, outer: bool) -> Scope {
    let mut both = left.clone().under(node);
    let mut right = right.clone().under(node);
    right.sources.iter_mut().for_each(|s| s.optional |= outer);
    both.sources.append(&mut right.sources);
    both
}

fn all(conditions: Vec<Pred>) -> Option<Pred> {
    super::pred::balanced(conditions, PredKind::And)
}

fn path_text(key: &ast::Expr) -> String {
    match &key.kind {
        Ast::Path(path) => {
            let names: Vec<&str> = path.iter().map(|ident| ident.name.as_str()).collect();
            names.join(".")
        }
        _ => "key".to_string(),
    }
}

fn unbounded(problem: BoundsError) -> &'static str {
    match problem {
        BoundsError::TooFar => "the sources of this JOIN can be more than 7 days apart",
        BoundsError::Neither => "a JOIN of streams needs a bound in time",
        BoundsError::NotEarly => "this JOIN bounds how late events may be, but not how early",
        BoundsError::NotLate => "this JOIN bounds how early events may be, but not how late",
        BoundsError::Never => "no two events can be as far apart as this JOIN asks",
    }
}
