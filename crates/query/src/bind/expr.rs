//! Values: names, operators, CASE and CAST.

use super::columns::{fields, find, unknown_column};
use super::equality::{same, same_path};
use super::group::Grouping;
use super::scope::{Aliases, Clause, ResolveError, Scope, Source, is_timestamp};
use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{self, Ident, Quote};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::{CompareOp, Expr, ExprKind, Literal, Name, Node, Pred, PredKind, Type, UnaryOp};
use crate::visit;

/// A simple CASE repeats its operand in every branch; nested ones must not explode.
const CASE_SIZE_MAX: usize = 20_000;

/// Binds the expressions of one clause of a SELECT.
pub(super) struct ExprBinder<'b, 'a> {
    pub binder: &'b mut Binder<'a>,
    pub scope: &'b Scope,
    pub clause: Clause,
    pub aliases: &'b Aliases<'b>,
    /// Set where only keys and aggregates exist: SELECT and HAVING of a grouped query.
    pub grouping: Option<&'b mut Grouping>,
}

impl<'a> Binder<'a> {
    /// Binds expressions outside of groups.
    pub(super) fn exprs<'b>(
        &'b mut self,
        scope: &'b Scope,
        clause: Clause,
        aliases: &'b Aliases<'b>,
    ) -> ExprBinder<'b, 'a> {
        ExprBinder {
            binder: self,
            scope,
            clause,
            aliases,
            grouping: None,
        }
    }
}

impl<'b> ExprBinder<'b, '_> {
    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> ErrorReported {
        self.binder.report(diagnostic)
    }

    pub(super) fn value(&mut self, expr: &ast::Expr) -> BindResult<Expr> {
        if let Some(key) = self.group_key(expr) {
            return Ok(Expr::column(key, expr.span));
        }
        if is_timestamp(expr) {
            return self.timestamp(expr.span);
        }
        let kind = match &expr.kind {
            ast::ExprKind::Null => ExprKind::Literal(Literal::Null),
            ast::ExprKind::Int(value) => ExprKind::Literal(Literal::Int(*value)),
            ast::ExprKind::Float(value) => ExprKind::Literal(Literal::Float(*value)),
            ast::ExprKind::Text(text) => ExprKind::Literal(Literal::Text(text.clone())),
            ast::ExprKind::Path(path) => return self.path(path, expr.span),
            ast::ExprKind::Field { of, name } => {
                return Ok(field(self.value(of)?, &name.name, expr.span));
            }
            ast::ExprKind::Unary { op, of } => self.unary(*op, of)?,
            ast::ExprKind::Binary { op, left, right } => {
                let (left, right) = self.pair(left, right)?;
                ExprKind::Binary {
                    op: *op,
                    left: Box::new(left),
                    right: Box::new(right),
                }
            }
            ast::ExprKind::Case {
                operand,
                branches,
                otherwise,
            } => self.case(operand.as_deref(), branches, otherwise)?,
            ast::ExprKind::Cast { of, to, lenient } => ExprKind::Cast {
                of: Box::new(self.cast_operand(of, *to)?),
                to: *to,
                lenient: *lenient,
            },
            ast::ExprKind::Call(call) => {
                self.forbid_distance(expr)?;
                return self.call(call, expr.span);
            }
            _ => return Err(self.not_a_value(expr)),
        };
        Ok(Expr {
            kind,
            span: expr.span,
        })
    }

    /// Binds both sides before it fails, so that the errors of both are reported.
    pub(super) fn pair(&mut self, left: &ast::Expr, right: &ast::Expr) -> BindResult<(Expr, Expr)> {
        let (left, right) = (self.value(left), self.value(right));
        Ok((left?, right?))
    }

    fn unary(&mut self, op: UnaryOp, of: &ast::Expr) -> BindResult<ExprKind> {
        Ok(ExprKind::Unary {
            op,
            of: Box::new(self.value(of)?),
        })
    }

    /// A field in place of a time is decoded as one, without converting text later.
    fn cast_operand(&mut self, of: &ast::Expr, to: Type) -> BindResult<Expr> {
        let mut bound = self.value(of)?;
        // Elsewhere a column need not belong to the source.
        let over_source = matches!(
            self.clause,
            Clause::Select | Clause::Where | Clause::GroupBy | Clause::Aggregate
        );
        if to == Type::Datetime
            && over_source
            && self.grouping.is_none()
            && let ExprKind::Column(column) = &mut bound.kind
            && let Some(time) = self.binder.read_as_time(self.scope.node, *column)
        {
            *column = time;
        }
        Ok(bound)
    }

    fn not_a_value(&mut self, expr: &ast::Expr) -> ErrorReported {
        let text = self.binder.text(expr.span);
        let help = if text.len() < 60 {
            format!("write CASE WHEN {text} THEN 1 ELSE 0 END")
        } else {
            "write CASE WHEN .. THEN 1 ELSE 0 END".to_string()
        };
        let error = Diagnostic::error(code::BOOLEAN, expr.span, "a condition is not a value");
        self.report(error.label("this is true or false").help(help))
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        branches: &[(ast::Expr, ast::Expr)],
        otherwise: &ast::Expr,
    ) -> BindResult<ExprKind> {
        let operand = operand
            .map(|operand| self.case_operand(operand, branches.len()))
            .transpose()?;
        let mut bound = Vec::new();
        for (when, then) in branches {
            let when = match &operand {
                Some(operand) => self.case_equal(operand, when),
                None => self.condition(when),
            };
            let then = self.value(then);
            bound.push((when?, then?));
        }
        Ok(ExprKind::Case {
            branches: bound,
            otherwise: Box::new(self.value(otherwise)?),
        })
    }

    pub(super) fn case_operand(
        &mut self,
        operand: &ast::Expr,
        branches: usize,
    ) -> BindResult<Expr> {
        let bound = self.value(operand)?;
        if visit::size(&bound).saturating_mul(branches) <= CASE_SIZE_MAX {
            return Ok(bound);
        }
        let error = Diagnostic::error(code::LIMIT, operand.span, "this CASE is too large");
        Err(self.report(error.help("compute its operand in an earlier step")))
    }

    fn case_equal(&mut self, operand: &Expr, when: &ast::Expr) -> BindResult<Pred> {
        let right = self.value(when)?;
        let kind = PredKind::Compare {
            op: CompareOp::Eq,
            left: operand.clone(),
            right,
        };
        Ok(Pred {
            kind,
            span: when.span,
        })
    }

    pub(super) fn timestamp(&mut self, span: Span) -> BindResult<Expr> {
        if self.clause == Clause::Define {
            return self.pattern_time(span);
        }
        let timed = self
            .scope
            .sources
            .iter()
            .any(|source| source.time.is_some());
        if self.clause != Clause::Timestamp && !timed {
            let message = "reference data has no time";
            return Err(self.report(Diagnostic::error(code::REFERENCE, span, message)));
        }
        if self.clause != Clause::Timestamp {
            return Ok(Expr::new(ExprKind::Timestamp, span));
        }
        let message = "TIMESTAMP BY cannot use System.Timestamp()";
        let error = Diagnostic::error(code::TIMESTAMP, span, message);
        let help = "leave TIMESTAMP BY out to order events by their arrival";
        Err(self.report(error.label("this is what TIMESTAMP BY defines").help(help)))
    }

    /// The equal group key; System.Timestamp() is always the end of the window.
    fn group_key(&self, expr: &ast::Expr) -> Option<usize> {
        let grouping = self.grouping.as_ref()?;
        let find = |exact| {
            grouping
                .written
                .iter()
                .position(|key| same(self.scope, exact, key, expr))
        };
        if is_timestamp(expr) {
            None
        } else {
            find(true).or_else(|| find(false))
        }
    }

    fn path(&mut self, path: &[Ident], span: Span) -> BindResult<Expr> {
        if matches!(self.clause, Clause::Define | Clause::Measures) {
            return self.pattern_path(path, span);
        }
        let located = self.scope.locate(path);
        let qualified = located.is_ok_and(|at| at.qualified);
        if let Some(text) = self.quoted_text(located.err(), path) {
            return Ok(text);
        }
        self.warn_about_path(path, qualified);
        if self.grouping.is_some() {
            return self.grouped_path(path, qualified, span);
        }
        if let ([only], false) = (path, qualified)
            && let Some(alias) = self.alias(only)
        {
            return self.use_alias(alias, span);
        }
        let at = located.map_err(|lost| self.report_unresolved(lost, path))?;
        self.binder.source_column(self.scope, at, span)
    }

    /// A name in double quotes that no single source can have, and that is implausible as a column name, is a text
    ///
    fn quoted_text(&mut self, lost: Option<ResolveError>, path: &[Ident]) -> Option<Expr> {
        let [only] = path else { return None };
        let lost = matches!(
            lost,
            Some(ResolveError::Ambiguous | ResolveError::Unqualified)
        );
        if !lost || only.quote != Quote::Double || is_plain(&only.name) {
            return None;
        }
        let message = format!("\"{}\" is taken for a text", only.name);
        let warning = Diagnostic::warning(code::ALIAS, only.span, message);
        let help = format!("write '{}' for the text", only.name);
        self.binder.warn(warning.help(help));
        let text = Literal::Text(only.name.clone());
        Some(Expr::new(ExprKind::Literal(text), only.span))
    }

    /// The expression of a select alias, if the name cannot be a column of the source.
    fn alias(&self, name: &Ident) -> Option<&'b ast::Expr> {
        if !matches!(
            self.clause,
            Clause::Where | Clause::GroupBy | Clause::Having
        ) {
            return None;
        }
        let alias = self.aliases.get(&name.name)?;
        let column =
            self.scope.has(&name.name) || self.aliases.is_source_column(self.scope, &name.name);
        (!column).then_some(alias)
    }

    /// HAVING may use an alias; WHERE and GROUP BY are evaluated before there are any.
    fn use_alias(&mut self, expr: &ast::Expr, span: Span) -> BindResult<Expr> {
        if self.clause == Clause::Having {
            self.clause = Clause::Select;
            let bound = self.value(expr);
            self.clause = Clause::Having;
            return bound;
        }
        let name = self.binder.text(span);
        let clause = self.clause.name();
        let message = format!("{clause} cannot use the alias `{name}`");
        let source = self
            .scope
            .sources
            .first()
            .filter(|_| !self.scope.is_joined());
        let help = match source.and_then(|source| source.qualifier.as_ref()) {
            Some(source) => {
                format!("repeat the expression, or write {source}.{name} for a field of the event")
            }
            None => "repeat the expression, or name it in an earlier step".to_string(),
        };
        let error = Diagnostic::error(code::ALIAS, span, message);
        let label = format!("{clause} runs before the SELECT list");
        Err(self.report(error.label(label).help(help)))
    }

    /// A name in a join that no source, or more than one, can have.
    pub(super) fn report_unresolved(
        &mut self,
        lost: ResolveError,
        path: &[Ident],
    ) -> ErrorReported {
        let Some(first) = path.first() else {
            return ErrorReported;
        };
        let rest: Vec<&str> = path.iter().map(|ident| ident.name.as_str()).collect();
        let text = rest.join(".");
        let hidden = |source: &&Source| {
            path.len() > 1 && source.hidden.as_deref().is_some_and(|h| first.is(h))
        };
        let source = self.scope.sources.iter().find(hidden);
        if let Some(alias) = source.and_then(|source| source.qualifier.as_ref()) {
            let message = format!("`{}` has the alias `{alias}` here", first.name);
            let help = format!("write {alias}.{}", rest[1..].join("."));
            let error = Diagnostic::error(code::UNKNOWN_COLUMN, first.span, message);
            return self.report(error.help(help));
        }
        if lost == ResolveError::Unknown {
            let known = self.scope.fields();
            let error = unknown_column(first, &known);
            return self.report(error);
        }
        let message = match lost {
            ResolveError::Ambiguous => format!("several sources have a column `{}`", first.name),
            _ => format!(
                "`{}` does not say which source it is a column of",
                first.name
            ),
        };
        let names = self
            .scope
            .sources
            .iter()
            .filter_map(|source| source.qualifier.as_ref());
        let ways: Vec<String> = names.map(|name| format!("{name}.{text}")).collect();
        let error = Diagnostic::error(code::UNKNOWN_COLUMN, first.span, message);
        self.report(error.help(format!("write {}", ways.join(" or "))))
    }

    /// Only keys, and fields of keys, survive grouping.
    fn grouped_path(&mut self, path: &[Ident], qualified: bool, span: Span) -> BindResult<Expr> {
        let Some(grouping) = &self.grouping else {
            return Err(ErrorReported);
        };
        let located = self.scope.locate(path);
        let rest = located.map_or(path, |at| at.rest);
        for length in (0..rest.len()).rev() {
            let is_key = |key: &ast::Expr| match (&key.kind, located) {
                (ast::ExprKind::Path(key), Ok(at)) => self.scope.locate(key).is_ok_and(|key| {
                    key.source == at.source && same_path(false, key.rest, &rest[..length])
                }),
                _ => false,
            };
            if let Some(key) = grouping.written.iter().position(is_key) {
                let column = Expr::column(key, span);
                let names: Vec<String> = rest[length..].iter().map(|i| i.name.clone()).collect();
                return Ok(fields(column, &names));
            }
        }
        let alias = path.first().and_then(|name| self.aliases.get(&name.name));
        if self.clause == Clause::Having
            && !qualified
            && path.len() == 1
            && let Some(alias) = alias
        {
            return self.use_alias(alias, span);
        }
        match located {
            Ok(_) => Err(self.ungrouped(rest, span)),
            Err(lost) => Err(self.report_unresolved(lost, path)),
        }
    }

    fn ungrouped(&mut self, path: &[Ident], span: Span) -> ErrorReported {
        let name = self.binder.text(span);
        let message = match path {
            [] => format!("`{name}` is the whole event, and a group has many"),
            _ => format!("`{name}` is neither grouped nor aggregated"),
        };
        let help = match path {
            [] => "name the keys, or aggregate: COUNT(*)".to_string(),
            _ => format!("add {name} to GROUP BY, or aggregate it: MAX({name})"),
        };
        let error = Diagnostic::error(code::UNGROUPED, span, message);
        self.report(error.label("a group has many values of this").help(help))
    }

    fn warn_about_path(&mut self, path: &[Ident], qualified: bool) {
        let Some(first) = path.first() else { return };
        let hides = |source: &&Source| source.hidden.as_deref().is_some_and(|h| first.is(h));
        let source = self.scope.sources.iter().find(hides);
        let alias = source.and_then(|source| source.qualifier.as_ref());
        if let (Some(alias), false, true) = (alias, qualified, path.len() > 1) {
            let hidden = &first.name;
            let message = format!(
                "`{hidden}` has the alias `{alias}` here, so this is a field named `{hidden}`"
            );
            let help = format!("write {alias}.{}", path[1].name);
            self.binder
                .warn(Diagnostic::warning(code::ALIAS, first.span, message).help(help));
        }
        let source = matches!(
            self.binder.plan.nodes[self.scope.node.0],
            Node::Source { .. }
        );
        let known = self.scope.has(&first.name);
        if !known && path.len() == 1 && first.quote == Quote::Bare && first.is("CURRENT_TIMESTAMP")
        {
            let message = "`CURRENT_TIMESTAMP` is read as a column of that name";
            let help = "the time of an event or result is System.Timestamp()";
            self.binder
                .warn(Diagnostic::warning(code::ALIAS, first.span, message).help(help));
        }
        if source
            && !known
            && path.len() == 1
            && first.quote == Quote::Double
            && !first.name.contains('[')
        {
            let message = format!("\"{}\" is the name of a column, not a text", first.name);
            let help = format!("write '{0}' for the text, [{0}] for the column", first.name);
            self.binder
                .warn(Diagnostic::warning(code::ALIAS, first.span, message).help(help));
        }
    }
}

/// Whether a name needs no quotes.
fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c == '_' || c.is_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_alphanumeric())
}

/// `of.name`, resolved at once if the record consists of named values.
fn field(of: Expr, name: &str, span: Span) -> Expr {
    if let ExprKind::Record(items) = &of.kind {
        let names: Vec<Name> = items.iter().map(|item| item.name.clone()).collect();
        if !names.contains(&Name::Spread) {
            let kind = match find(&names, name) {
                Some(index) => items[index].expr.kind.clone(),
                None => ExprKind::Literal(Literal::Null),
            };
            return Expr { kind, span };
        }
    }
    let kind = ExprKind::Field {
        of: Box::new(of),
        name: name.to_string(),
    };
    Expr { kind, span }
}
