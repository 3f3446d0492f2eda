//! MATCH_RECOGNIZE: a pattern of variables, their conditions, and the measures of a match.
//!
//! DEFINE and MEASURES refer to events by variables: `Up.v` is a field of the event that `Up` is tested on or has
//! matched last, `First(Up.v)` that of the first one. Each reference is collected as a [`MatchRef`] and becomes a
//! column of the expressions around it.

use super::expr::ExprBinder;
use super::from::FromClause;
use super::scope::{Aliases, Clause, default_name};
use super::{BindResult, Binder, Relation, list};
use crate::Span;
use crate::ast::{
    self, Call, ExprKind as Ast, Ident, MatchRecognize, Repeat, SelectItem, SourceExpr, same_name,
};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::{self, Kind};
use crate::parser::ErrorReported;
use crate::plan::{
    Expr, ExprKind, Item, Key, MatchNode, MatchRef, Name, Node, NodeId, Pattern, Pick, Pred,
};

/// The most different variables of one pattern.
const VARIABLES_MAX: usize = 100;

/// The most events that the parts of a pattern match when its counts are written out: `(A B{3}){10}` has 40.
const PARTS_MAX: usize = 256;

/// The pattern whose expressions are being bound.
pub(super) struct PatternScope {
    /// The scope of the events.
    node: NodeId,
    variables: Vec<String>,
    /// The variables that may be referred to: in DEFINE, those before this one.
    known: Vec<bool>,
    /// The variable of the current DEFINE.
    current: Option<usize>,
    refs: Vec<MatchRef>,
}

/// The pattern of a FROM, inside any parentheses.
pub(super) fn pattern_of(from: &ast::From) -> Option<(&ast::From, &MatchRecognize)> {
    match (&from.pattern, &from.first.of) {
        (Some(pattern), _) => Some((from, pattern)),
        (None, SourceExpr::Nested(inner)) if from.rest.is_empty() => pattern_of(inner),
        _ => None,
    }
}

impl<'a> Binder<'a> {
    pub(super) fn match_recognize(
        &mut self,
        select: &ast::Select,
        from: &ast::From,
        clause: &MatchRecognize,
    ) -> BindResult<Relation> {
        let star =
            matches!(select.items.as_slice(), [SelectItem::Star { path, .. }] if path.is_empty());
        let plain = select.filter.is_none() && select.group.is_none() && select.having.is_none();
        if !star || !plain || !from.rest.is_empty() {
            return Err(self.pattern_with_more(clause.span));
        }
        let source = self.source(&from.first)?;
        if source.reference {
            let message = "reference data has no events in time order to match";
            return Err(self.report(Diagnostic::error(code::PATTERN, clause.span, message)));
        }
        self.resolve_bare_input(source.bare);
        let limit = self.limit(&clause.limit);
        let variables = self.variables(clause)?;
        let (partition, shown, by_partition) = self.pattern_keys(&source, clause)?;
        self.matching = Some(PatternScope {
            node: source.scope.node,
            known: vec![true; variables.len()],
            current: None,
            refs: Vec::new(),
            variables: variables.clone(),
        });
        let defines = self.defines(&source, clause);
        let measures = self.measures(&source, clause);
        let refs = self.matching.take().map(|matching| matching.refs);
        let (defines, measures, limit) = (defines?, measures?, limit?);
        let items = columns_of(&partition, shown, &measures, clause.span);
        let node = self.push(Node::Match(MatchNode {
            from: source.scope.node,
            limit,
            partition,
            pattern: pattern(&clause.pattern, &variables),
            variables,
            defines,
            measures,
            refs: refs.unwrap_or_default(),
            by_partition,
            span: clause.span,
        }));
        Ok(Relation {
            node: self.push(Node::Project { from: node, items }),
            bare: None,
            partition: source
                .partition
                .map(|by| self.partitioning(by, &source.scope)),
            reference: false,
        })
    }

    pub(super) fn pattern_with_more(&mut self, span: Span) -> ErrorReported {
        let message =
            "MATCH_RECOGNIZE is allowed only in SELECT * FROM source MATCH_RECOGNIZE (..)";
        let error = Diagnostic::error(code::PATTERN, span, message);
        self.report(error.help("filter, group, join and select columns in other steps"))
    }

    /// The variables of the pattern in the order of the text; DEFINE must use these.
    fn variables(&mut self, clause: &MatchRecognize) -> BindResult<Vec<String>> {
        let mut variables: Vec<String> = Vec::new();
        collect(&clause.pattern, &mut variables);
        if variables.len() > VARIABLES_MAX {
            let message = format!("a pattern has at most {VARIABLES_MAX} variables");
            return Err(self.report(Diagnostic::error(code::LIMIT, clause.span, message)));
        }
        if parts(&clause.pattern) > PARTS_MAX {
            let message = format!("a pattern has at most {PARTS_MAX} parts, repeated ones counted");
            let error = Diagnostic::error(code::LIMIT, clause.span, message);
            return Err(self.report(error.help("repeat with + or *, and count in an earlier step")));
        }
        for (index, (name, _)) in clause.defines.iter().enumerate() {
            let twice = clause.defines[..index]
                .iter()
                .any(|(other, _)| other.is(&name.name));
            let message = if !variables.iter().any(|known| name.is(known)) {
                format!("the pattern has no variable `{}`", name.name)
            } else if twice {
                format!("`{}` is defined twice", name.name)
            } else {
                continue;
            };
            let help = format!(
                "the pattern has {}",
                list(variables.iter().map(String::as_str))
            );
            let error = Diagnostic::error(code::PATTERN, name.span, message);
            return Err(self.report(error.help_if((!twice).then_some(help))));
        }
        Ok(variables)
    }

    /// The partition keys of the matches: those that are shown, then those of the source.
    fn pattern_keys(
        &mut self,
        source: &FromClause,
        clause: &MatchRecognize,
    ) -> BindResult<(Vec<Key>, usize, bool)> {
        let mut keys: Vec<Key> = Vec::new();
        for key in &clause.partition {
            if !matches!(key.kind, Ast::Path(_)) {
                let message = "PARTITION BY of MATCH_RECOGNIZE takes columns";
                let error = Diagnostic::error(code::PATTERN, key.span, message);
                return Err(self.report(error.help("compute the key in an earlier step")));
            }
            let expr = self.pattern_key(source, key)?;
            let name = default_name(key, keys.len() + 1);
            if keys.iter().any(|known| known.name == name) {
                return Err(self.same_name_twice(&name, key.span));
            }
            keys.push(Key { name, expr });
        }
        let shown = keys.len();
        let mut by_partition = false;
        for key in source.partition.iter().flat_map(|by| &by.keys) {
            let expr = self.pattern_key(source, key)?;
            by_partition |= self.is_partition(source.scope.node, &expr);
            if !keys.iter().any(|known| known.expr == expr) {
                let name = default_name(key, keys.len() + 1);
                keys.push(Key { name, expr });
            }
        }
        Ok((keys, shown, by_partition))
    }

    fn pattern_key(&mut self, source: &FromClause, key: &ast::Expr) -> BindResult<Expr> {
        self.value_over(&source.scope, Clause::PartitionBy, key)
    }

    fn same_name_twice(&mut self, name: &str, span: Span) -> ErrorReported {
        let message = format!("there are two columns called `{name}`");
        let error = Diagnostic::error(code::DUPLICATE_COLUMN, span, message);
        self.report(error.label("the second one"))
    }

    /// The condition of each variable. A variable sees itself and those defined before it.
    fn defines(
        &mut self,
        source: &FromClause,
        clause: &MatchRecognize,
    ) -> BindResult<Vec<Option<Pred>>> {
        let variables = match &mut self.matching {
            Some(matching) => {
                // Variables without a definition have no position in the list of definitions.
                let defined = |name: &String| clause.defines.iter().any(|(v, _)| v.is(name));
                matching.known = matching.variables.iter().map(|v| !defined(v)).collect();
                matching.variables.clone()
            }
            None => return Err(ErrorReported),
        };
        let mut defines = vec![None; variables.len()];
        let mut failed = false;
        for (name, condition) in &clause.defines {
            let Some(index) = variables.iter().position(|known| name.is(known)) else {
                return Err(ErrorReported);
            };
            if let Some(matching) = &mut self.matching {
                matching.current = Some(index);
                matching.known[index] = true;
            }
            let bound =
                self.pattern_exprs(source, Clause::Define, |exprs| exprs.condition(condition));
            failed |= bound.is_err();
            defines[index] = bound.ok();
        }
        if failed {
            Err(ErrorReported)
        } else {
            Ok(defines)
        }
    }

    fn measures(&mut self, source: &FromClause, clause: &MatchRecognize) -> BindResult<Vec<Item>> {
        if let Some(matching) = &mut self.matching {
            matching.current = None;
            matching.known.fill(true);
        }
        let mut measures: Vec<Item> = Vec::new();
        let mut failed = false;
        for (measure, name) in &clause.measures {
            let known = measures
                .iter()
                .any(|item| item.name == Name::Field(name.name.clone()));
            if known {
                return Err(self.same_name_twice(&name.name, name.span));
            }
            let bound = self.pattern_exprs(source, Clause::Measures, |exprs| exprs.value(measure));
            failed |= bound.is_err();
            measures.extend(bound.ok().map(|expr| Item {
                name: Name::Field(name.name.clone()),
                expr,
            }));
        }
        if failed {
            Err(ErrorReported)
        } else {
            Ok(measures)
        }
    }

    fn pattern_exprs<T>(
        &mut self,
        source: &FromClause,
        clause: Clause,
        bind: impl FnOnce(&mut ExprBinder) -> BindResult<T>,
    ) -> BindResult<T> {
        bind(&mut self.exprs(&source.scope, clause, &Aliases::default()))
    }
}

impl ExprBinder<'_, '_> {
    /// `variable.field`: of the event under test, or of the last event that another variable has matched.
    pub(super) fn pattern_path(&mut self, path: &[Ident], span: Span) -> BindResult<Expr> {
        let (variable, rest) = self.pattern_variable(path, span)?;
        let current = self.binder.matching.as_ref().and_then(|m| m.current);
        let pick = match current == Some(variable) {
            true => Pick::Current,
            false => Pick::Last,
        };
        self.picked(variable, pick, rest, span)
    }

    /// System.Timestamp() of the event under test.
    pub(super) fn pattern_time(&mut self, span: Span) -> BindResult<Expr> {
        let time = Expr::new(ExprKind::Timestamp, span);
        let current = self.binder.matching.as_ref().and_then(|m| m.current);
        Ok(match current {
            Some(variable) => self.reference(
                MatchRef::Picked {
                    variable,
                    pick: Pick::Current,
                    of: time,
                    as_text: false,
                },
                span,
            ),
            None => time,
        })
    }

    /// Functions of patterns only; `None` for functions that are the same everywhere.
    pub(super) fn pattern_call(&mut self, call: &Call, span: Span) -> Option<BindResult<Expr>> {
        if !call.prefix.is_empty() {
            return None;
        }
        let picks = [
            ("First", Pick::First),
            ("Last", Pick::Last),
            ("Min", Pick::Min),
            ("Max", Pick::Max),
        ];
        if let Some((name, pick)) = picks.into_iter().find(|(name, _)| call.name.is(name)) {
            return Some(self.pick(name, pick, call, span));
        }
        if call.name.is("Classifier") {
            return Some(self.classifier(call, span));
        }
        let name = &call.name.name;
        let help = match functions::find(name).map(|info| info.kind) {
            Some(Kind::Aggregate(_)) => "patterns have First, Last, Min and Max",
            Some(Kind::Analytic(_)) => "compute it in an earlier step",
            None if call.name.is("PREV") || call.name.is("NEXT") => {
                "compute LAG(..) in an earlier step"
            }
            _ => return None,
        };
        let message = format!("MATCH_RECOGNIZE cannot use {name}");
        let error = Diagnostic::error(code::PATTERN, span, message);
        Some(Err(self.report(error.help(help))))
    }

    /// First(variable.field), Last, and so on.
    fn pick(&mut self, name: &str, pick: Pick, call: &Call, span: Span) -> BindResult<Expr> {
        let plain = call.distinct.is_none() && call.over.is_none() && !call.star;
        if let ([only], true) = (call.args.as_slice(), plain)
            && let Ast::Path(path) = &only.kind
        {
            let (variable, rest) = self.pattern_variable(path, only.span)?;
            return self.picked(variable, pick, rest, span);
        }
        let message = format!("{name} takes one field of one variable");
        let error = Diagnostic::error(code::PATTERN, span, message);
        let help =
            format!("write {name}(variable.field), and compute around it or in an earlier step");
        Err(self.report(error.help(help)))
    }

    fn classifier(&mut self, call: &Call, span: Span) -> BindResult<Expr> {
        let plain = call.args.is_empty() && !call.star && call.over.is_none();
        let message = match self.clause {
            Clause::Measures if plain => return Ok(self.reference(MatchRef::Classifier, span)),
            Clause::Measures => "Classifier takes no arguments",
            _ => "Classifier() is allowed only in MEASURES",
        };
        Err(self.report(Diagnostic::error(code::PATTERN, span, message)))
    }

    fn pattern_variable<'q>(
        &mut self,
        path: &'q [Ident],
        span: Span,
    ) -> BindResult<(usize, &'q [Ident])> {
        let (Some(matching), Some((first, rest))) = (&self.binder.matching, path.split_first())
        else {
            return Err(ErrorReported);
        };
        let names = matching.variables.iter();
        let index = names.clone().position(|known| first.is(known));
        let error = |message: String, help: String| {
            Diagnostic::error(code::PATTERN, span, message).help(help)
        };
        let error = match index {
            Some(index) if !matching.known[index] => error(
                format!("`{}` is defined only later", first.name),
                "a variable sees itself and those before it in DEFINE; change their order"
                    .to_string(),
            ),
            Some(_) if rest.is_empty() => error(
                format!("`{}` is a variable; name a field of it", first.name),
                format!("for example {}.value", first.name),
            ),
            Some(index) => return Ok((index, rest)),
            None => {
                let known = list(names.map(String::as_str));
                let variable = matching.variables.first().map_or("", String::as_str);
                let field = path.last().map_or("", |last| &last.name);
                error(
                    format!("`{}` is not a variable of the pattern", first.name),
                    format!("the variables are {known}; a field is written {variable}.{field}"),
                )
            }
        };
        Err(self.report(error))
    }

    fn picked(
        &mut self,
        variable: usize,
        pick: Pick,
        path: &[Ident],
        span: Span,
    ) -> BindResult<Expr> {
        let Some(node) = self.binder.matching.as_ref().map(|matching| matching.node) else {
            return Err(ErrorReported);
        };
        let of = self.binder.column(node, path, span)?;
        let new = MatchRef::Picked {
            variable,
            pick,
            as_text: self.binder.is_text(node, &of),
            of,
        };
        Ok(self.reference(new, span))
    }

    /// The column of a reference. Repeated references share one column.
    fn reference(&mut self, new: MatchRef, span: Span) -> Expr {
        let mut column = 0;
        if let Some(matching) = &mut self.binder.matching {
            let known = matching.refs.iter().position(|known| *known == new);
            column = known.unwrap_or_else(|| {
                matching.refs.push(new);
                matching.refs.len() - 1
            });
        }
        Expr::column(column, span)
    }
}

/// The columns of the result: the first `shown` keys, then the measures. A measure takes the place of the key
/// that has its name.
fn columns_of(keys: &[Key], shown: usize, measures: &[Item], span: Span) -> Vec<Item> {
    let keys_shown = keys[..shown].iter().enumerate();
    let keys_shown = keys_shown.map(|(column, key)| (Name::Field(key.name.clone()), column));
    let is_measure = |name: &Name| measures.iter().any(|measure| measure.name == *name);
    let keys_shown = keys_shown.filter(|(name, _)| !is_measure(name));
    let measured = (keys.len()..).zip(measures);
    let measured = measured.map(|(column, measure)| (measure.name.clone(), column));
    let item = |(name, column)| Item {
        name,
        expr: Expr::column(column, span),
    };
    keys_shown.chain(measured).map(item).collect()
}

fn collect(pattern: &ast::Pattern, found: &mut Vec<String>) {
    match pattern {
        ast::Pattern::Variable(name) => {
            if !found.iter().any(|known| name.is(known)) {
                found.push(name.name.clone());
            }
        }
        ast::Pattern::Any => {}
        ast::Pattern::Sequence(all) | ast::Pattern::Either(all) => {
            all.iter().for_each(|one| collect(one, found));
        }
        ast::Pattern::Repeat(of, _) => collect(of, found),
    }
}

fn pattern(of: &ast::Pattern, variables: &[String]) -> Pattern {
    let all = |all: &[ast::Pattern]| all.iter().map(|one| pattern(one, variables)).collect();
    match of {
        ast::Pattern::Variable(name) => {
            let index = variables
                .iter()
                .position(|known| same_name(known, &name.name));
            Pattern::Variable(index.unwrap_or(0))
        }
        ast::Pattern::Any => Pattern::Any,
        ast::Pattern::Sequence(parts) => Pattern::Sequence(all(parts)),
        ast::Pattern::Either(parts) => Pattern::Either(all(parts)),
        ast::Pattern::Repeat(of, times) => {
            let of = pattern(of, variables);
            match *times {
                Repeat::Any => repeat(of, false, false),
                Repeat::AtLeastOnce => repeat(of, true, false),
                Repeat::AtMostOnce => repeat(of, false, true),
                Repeat::Counted { least, most } => counted(of, least, most),
            }
        }
    }
}

fn repeat(of: Pattern, at_least_one: bool, at_most_one: bool) -> Pattern {
    Pattern::Repeat {
        of: Box::new(of),
        at_least_one,
        at_most_one,
    }
}

/// A counted repetition, written out: `A{2,4}` is `A A (A (A)?)?` and `A{2,}` is `A A+`, so as many as possible are
/// preferred.
fn counted(of: Pattern, least: usize, most: Option<usize>) -> Pattern {
    let Some(most) = most else {
        let mut all = vec![of.clone(); least.saturating_sub(1)];
        all.push(repeat(of, least > 0, false));
        return in_sequence(all);
    };
    let mut tail = None;
    for _ in least..most {
        let inner = std::iter::once(of.clone()).chain(tail).collect();
        tail = Some(repeat(in_sequence(inner), false, true));
    }
    in_sequence(std::iter::repeat_n(of, least).chain(tail).collect())
}

fn in_sequence(mut all: Vec<Pattern>) -> Pattern {
    match all.len() {
        1 => all.remove(0),
        _ => Pattern::Sequence(all),
    }
}

/// How many events the parts of a pattern match, each counted as often as it is written out.
fn parts(of: &ast::Pattern) -> usize {
    match of {
        ast::Pattern::Variable(_) | ast::Pattern::Any => 1,
        ast::Pattern::Sequence(all) | ast::Pattern::Either(all) => {
            all.iter().map(parts).fold(0, usize::saturating_add)
        }
        ast::Pattern::Repeat(of, Repeat::Counted { least, most }) => {
            parts(of).saturating_mul(most.unwrap_or(*least).max(1))
        }
        ast::Pattern::Repeat(of, _) => parts(of),
    }
}
