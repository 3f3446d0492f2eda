//! Analytic functions: LAG, LAST, ISFIRST, anomaly detection, and aggregates with LIMIT DURATION.
//!
//! They see every event of a source, before JOIN, WHERE and GROUP BY. So a SELECT that uses any has an analytic node
//! directly above each of its sources, and calls are added to it as they are bound; a node without calls is removed at
//! the end.

use highwater_time::Duration;

use super::expr::ExprBinder;
use super::scope::{Clause, ResolvedPath, Scope, Source, SourceKind};
use super::units::{bare_word, constant, whole_number};
use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{self, Call, ExprKind as Ast, FromPart, SourceExpr};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::{self, AggregateKind, AnalyticKind, FunctionInfo, Kind};
use crate::parser::ErrorReported;
use crate::plan::{
    Analytic, AnalyticCall, AnalyticColumn, AnalyticNode, Expr, ExprKind, Literal, Node, NodeId,
    Pred, Type,
};

const MODES: [&str; 3] = ["spikes", "dips", "spikesanddips"];

impl<'a> Binder<'a> {
    /// The scope of a stream, with a node above it for the analytic functions of the SELECT whose FROM is being bound,
    /// if it uses any.
    pub(super) fn analytic_over(
        &mut self,
        scope: Scope,
        partition: Option<&ast::PartitionBy>,
    ) -> BindResult<Scope> {
        let Some(span) = self.analytic else {
            return Ok(scope);
        };
        let mut keys = Vec::new();
        let mut by_partition = false;
        for key in partition.iter().flat_map(|by| &by.keys) {
            let key = self.value_over(&scope, Clause::PartitionBy, key)?;
            by_partition |= self.is_partition(scope.node, &key);
            keys.push(key);
        }
        let node = self.push(Node::Analytic(AnalyticNode {
            from: scope.node,
            calls: Vec::new(),
            columns: Vec::new(),
            by_partition,
            span,
        }));
        self.partitions.insert(node, keys);
        Ok(scope.under(node))
    }

    /// The node that computes analytic functions over a source; reference data has none.
    fn analytic_node(&self, source: &Source) -> Option<NodeId> {
        let first = source.above.first().copied();
        first.filter(|node| matches!(self.plan.nodes[node.0], Node::Analytic(_)))
    }

    /// The column of a call. Repeated calls share one column.
    fn analytic_column(&mut self, node: NodeId, new: AnalyticCall) -> BindResult<usize> {
        let Node::Analytic(analytic) = &mut self.plan.nodes[node.0] else {
            return Err(ErrorReported);
        };
        let known = analytic.calls.iter().position(|call| *call == new);
        let call = known.unwrap_or_else(|| {
            analytic.calls.push(new);
            analytic.calls.len() - 1
        });
        let column = AnalyticColumn::Call(call);
        let known = analytic.columns.iter().position(|known| *known == column);
        Ok(known.unwrap_or_else(|| {
            analytic.columns.push(column);
            analytic.columns.len() - 1
        }))
    }
}

impl ExprBinder<'_, '_> {
    pub(super) fn analytic(
        &mut self,
        kind: AnalyticKind,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<Expr> {
        self.check_no_distinct(call)?;
        self.check_count(info, call, span)?;
        if call.star && !matches!(kind, AnalyticKind::Lag | AnalyticKind::Last) {
            return Err(self.wrong_count(info, call, span));
        }
        self.check_analytic_over(kind, info, call, span)?;
        self.over_events(info.name, call, span, |exprs| match kind {
            AnalyticKind::Lag | AnalyticKind::Last => exprs.lag(kind, info, call, span),
            AnalyticKind::IsFirst => Ok(Analytic::IsFirst),
            AnalyticKind::SpikeAndDip | AnalyticKind::ChangePoint => {
                exprs.anomaly(kind, info, call)
            }
        })
    }

    /// `SUM(x) OVER (.. LIMIT DURATION(..) ..)`
    pub(super) fn aggregate_over(
        &mut self,
        kind: AggregateKind,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<Expr> {
        let ranks = matches!(kind, AggregateKind::CollectTop | AggregateKind::TopOne);
        self.check_order(info, call, ranks)?;
        if ranks && call.over.as_ref().is_none_or(|over| over.order.is_empty()) {
            let message = format!("{} needs an ORDER BY in its OVER", info.name);
            let error = Diagnostic::error(code::ANALYTIC, span, message);
            let help = "write OVER ([PARTITION BY k] ORDER BY x LIMIT DURATION(unit, n))";
            return Err(self.report(error.help(help)));
        }
        self.over_events(info.name, call, span, |exprs| {
            exprs
                .aggregate_of(kind, info, call, span)
                .map(Analytic::Aggregate)
        })
    }

    /// Adds a call to the analytic node above its source, and returns its column.
    fn over_events(
        &mut self,
        name: &str,
        call: &Call,
        span: Span,
        bind: impl FnOnce(&mut ExprBinder) -> BindResult<Analytic>,
    ) -> BindResult<Expr> {
        self.check_analytic_place(name, span)?;
        self.check_nested(name, call)?;
        let limit = self.look_back(call, span)?;
        let at = self.source_of_call(name, call, span)?;
        let source = self.scope.sources[at].clone();
        let Some(node) = self.binder.analytic_node(&source) else {
            let message = format!("{name} needs events in time order, and reference data has none");
            let error = Diagnostic::error(code::ANALYTIC, span, message);
            return Err(self.report(error.help("use it over a stream")));
        };
        let (function, partition, when) = self.over_source(&source, node, call, bind)?;
        let column = self.binder.analytic_column(
            node,
            AnalyticCall {
                function,
                partition,
                limit,
                when,
                span,
            },
        )?;
        let mut value = Expr::column(column, span);
        let label = [self.binder.text(span)];
        for pair in source.above.windows(2) {
            value = self
                .binder
                .rewrite_over_parent(pair[1], pair[0], &label, value);
        }
        Ok(value)
    }

    /// The parts of a call, over the events of its source alone.
    fn over_source(
        &mut self,
        source: &Source,
        node: NodeId,
        call: &Call,
        bind: impl FnOnce(&mut ExprBinder) -> BindResult<Analytic>,
    ) -> BindResult<(Analytic, Vec<Expr>, Option<Pred>)> {
        let (SourceKind::Rows { node: below, .. } | SourceKind::Element { node: below, .. }) =
            source.of;
        let scope = Scope {
            node: below,
            sources: vec![Source {
                above: Vec::new(),
                optional: false,
                ..source.clone()
            }],
        };
        let mut exprs = self.binder.exprs(&scope, Clause::Analytic, self.aliases);
        let function = bind(&mut exprs);
        let over = call.over.as_ref();
        let partition = exprs.values(over.map_or(&[][..], |over| &over.partition));
        let when = over.and_then(|over| over.when.as_deref());
        let when = when.map(|when| exprs.condition(when)).transpose();
        let (function, mut partition, when) = (function?, partition?, when?);
        // The partitioning of the source applies here too.
        for key in self.binder.partitions.get(&node).into_iter().flatten() {
            if !partition.contains(key) {
                partition.push(key.clone());
            }
        }
        Ok((function, partition, when))
    }

    /// LIMIT DURATION, or the arguments of ISFIRST.
    fn look_back(&mut self, call: &Call, span: Span) -> BindResult<Duration> {
        if let Some(limit) = call.over.as_ref().and_then(|over| over.limit.as_ref()) {
            return self.binder.limit(limit);
        }
        match call.args.as_slice() {
            [unit, size] => match bare_word(unit) {
                Some(name) => self.binder.length(name, unit.span, size),
                None => self.binder.unit_of(unit).and(Err(ErrorReported)),
            },
            _ => Err(self.missing_limit(&call.name.name, span)),
        }
    }

    // Restrictions of the language.

    fn check_analytic_place(&mut self, name: &str, span: Span) -> BindResult<()> {
        if self.grouping.is_some() {
            let text = self.binder.text(span);
            let shown = if text.len() < 60 { &text } else { name };
            let message = format!("`{shown}` is neither grouped nor aggregated");
            let error = Diagnostic::error(code::UNGROUPED, span, message);
            let help = "it is computed for every event: add it to GROUP BY, or aggregate it";
            return Err(self.report(error.label("a group has many values of this").help(help)));
        }
        let message = match self.clause {
            Clause::Analytic => format!("{name} cannot be inside another analytic function"),
            Clause::Timestamp | Clause::PartitionBy | Clause::Define | Clause::Measures => {
                format!("{} cannot use {name}", self.clause.name())
            }
            _ => return Ok(()),
        };
        let error = Diagnostic::error(code::ANALYTIC, span, message);
        Err(self.report(error.help("compute it in an earlier step")))
    }

    fn check_nested(&mut self, name: &str, call: &Call) -> BindResult<()> {
        let forbidden = |e: &ast::Expr| match &e.kind {
            Ast::Call(inner) => {
                is_analytic(inner) || inner.prefix.first().is_some_and(|prefix| prefix.is("udf"))
            }
            _ => false,
        };
        let Some(arg) = call.args.iter().find(|arg| arg.any(forbidden)) else {
            return Ok(());
        };
        let message = format!("{name} cannot take another analytic or user-defined function");
        let error = Diagnostic::error(code::ANALYTIC, arg.span, message);
        Err(self.report(error.help("compute it in an earlier step")))
    }

    fn check_analytic_over(
        &mut self,
        kind: AnalyticKind,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<()> {
        let limit = call.over.as_ref().is_some_and(|over| over.limit.is_some());
        if kind == AnalyticKind::IsFirst && limit {
            let message = "ISFIRST takes no LIMIT DURATION";
            let at = call.over.as_ref().map_or(span, |over| over.span);
            let error = Diagnostic::error(code::ANALYTIC, at, message);
            let help = "its length is its argument: ISFIRST(minute, 10)";
            return Err(self.report(error.help(help)));
        }
        if kind != AnalyticKind::IsFirst && !limit {
            return Err(self.missing_limit(info.name, span));
        }
        self.check_order(info, call, false)
    }

    fn check_order(&mut self, info: &FunctionInfo, call: &Call, ranks: bool) -> BindResult<()> {
        let order = call.over.as_ref().and_then(|over| over.order.first());
        let Some(order) = order.filter(|_| !ranks) else {
            return Ok(());
        };
        let message = format!("{} takes no ORDER BY", info.name);
        let error = Diagnostic::error(code::ANALYTIC, order.of.span, message);
        Err(self.report(error.help("events are processed in time order")))
    }

    pub(super) fn missing_limit(&mut self, name: &str, span: Span) -> ErrorReported {
        let message = format!("{name} needs OVER (.. LIMIT DURATION(unit, n))");
        let error = Diagnostic::error(code::ANALYTIC, span, message);
        let label = "how far back may it look?";
        self.report(
            error
                .label(label)
                .help("for example OVER (LIMIT DURATION(minute, 5))"),
        )
    }

    /// The one source of all columns of a call.
    fn source_of_call(&mut self, name: &str, call: &Call, span: Span) -> BindResult<usize> {
        let mut paths = Vec::new();
        call_paths(call, &mut paths);
        let mut found = None;
        for path in paths {
            let at = match self.scope.locate(path) {
                Ok(at) => at.source,
                Err(_) if !self.scope.is_joined() => continue,
                Err(lost) => return Err(self.report_unresolved(lost, path)),
            };
            if matches!(self.scope.sources[at].of, SourceKind::Element { .. }) {
                let message = format!("{name} is computed before APPLY, so it sees no elements");
                return Err(self.not_one_source(span, &message));
            }
            if found.is_some_and(|found| found != at) {
                let message = format!("{name} looks at the events of one source, before the JOIN");
                return Err(self.not_one_source(span, &message));
            }
            found = Some(at);
        }
        let rows = |at: &usize| matches!(self.scope.sources[*at].of, SourceKind::Rows { .. });
        let only = (0..self.scope.sources.len()).find(rows);
        match found.or(only.filter(|_| !self.scope.is_joined())) {
            Some(at) => Ok(at),
            None => {
                let message = format!("{name} names no column, so it could be about any source");
                Err(self.not_one_source(span, &message))
            }
        }
    }

    fn not_one_source(&mut self, span: Span, message: &str) -> ErrorReported {
        let error = Diagnostic::error(code::ANALYTIC, span, message);
        self.report(error.help("compute it in a step of its own"))
    }

    // The functions; the clause is that of their arguments.

    fn lag(
        &mut self,
        kind: AnalyticKind,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<Analytic> {
        let (of, rest) = match call.args.split_first() {
            Some((of, rest)) if !call.star => (self.value(of), rest),
            _ => (self.row(info.name, span), call.args.as_slice()),
        };
        if kind == AnalyticKind::Last {
            let default = self.default(info, rest.first(), &of);
            return Ok(Analytic::Last {
                of: of?,
                default: default?,
            });
        }
        let offset = match rest.first() {
            Some(offset) => self.offset(offset),
            None => Ok(1),
        };
        let default = self.default(info, rest.get(1), &of);
        Ok(Analytic::Lag {
            of: of?,
            offset: offset?,
            default: default?,
        })
    }

    fn offset(&mut self, offset: &ast::Expr) -> BindResult<usize> {
        let (message, help) = match whole_number(offset).map(usize::try_from) {
            Some(Ok(offset @ 1..)) => return Ok(offset),
            Some(_) => (
                "LAG looks back at least one event",
                "LAST includes the current event",
            ),
            None => (
                "the offset of LAG is a constant whole number",
                "write LAG(x, 2) for the event before the last one",
            ),
        };
        Err(self.report(Diagnostic::error(code::ANALYTIC, offset.span, message).help(help)))
    }

    /// The default must have the type of the value, as far as it is known.
    fn default(
        &mut self,
        info: &FunctionInfo,
        default: Option<&ast::Expr>,
        of: &BindResult<Expr>,
    ) -> BindResult<Option<Expr>> {
        let Some(written) = default else {
            return Ok(None);
        };
        let default = self.value(written)?;
        let types = of.as_ref().ok().and_then(static_type);
        if let (Some(of), Some(is)) = (types, static_type(&default))
            && of != is
        {
            let (of, is) = (of.name(), is.name());
            let message = format!(
                "the default of {} has another type than its value",
                info.name
            );
            let error = Diagnostic::error(code::ANALYTIC, written.span, message);
            let label = format!("this is {is}, the value is {of}");
            return Err(self.report(
                error
                    .label(label)
                    .help(format!("cast it: CAST(.. AS {of})")),
            ));
        }
        Ok(Some(default))
    }

    fn anomaly(
        &mut self,
        kind: AnalyticKind,
        info: &FunctionInfo,
        call: &Call,
    ) -> BindResult<Analytic> {
        let [of, confidence, history, mode @ ..] = call.args.as_slice() else {
            return Err(ErrorReported);
        };
        let of = self.value(of);
        let confidence = self.confidence(info, confidence);
        let history = self.history(info, history);
        let mode = mode.first().map(|mode| self.mode(mode)).transpose();
        let (of, confidence, history, mode) = (of?, confidence?, history?, mode?);
        match (kind, mode) {
            (AnalyticKind::SpikeAndDip, Some(mode)) => Ok(Analytic::SpikeAndDip {
                of,
                confidence,
                history,
                mode,
            }),
            _ => Ok(Analytic::ChangePoint {
                of,
                confidence,
                history,
            }),
        }
    }

    fn confidence(&mut self, info: &FunctionInfo, confidence: &ast::Expr) -> BindResult<Expr> {
        if constant(confidence).is_some_and(|value| !(1.0..=100.0).contains(&value)) {
            let message = format!("the confidence of {} is from 1 to 100", info.name);
            let error = Diagnostic::error(code::ARGUMENTS, confidence.span, message);
            return Err(self.report(error.help("a lower confidence finds more")));
        }
        self.value(confidence)
    }

    fn history(&mut self, info: &FunctionInfo, history: &ast::Expr) -> BindResult<usize> {
        match whole_number(history).and_then(|count| usize::try_from(count).ok()) {
            Some(count @ 1..) => Ok(count),
            _ => {
                let message = format!("{} learns from a constant number of events", info.name);
                let error = Diagnostic::error(code::ARGUMENTS, history.span, message);
                Err(self.report(error.label("expected a whole number")))
            }
        }
    }

    fn mode(&mut self, mode: &ast::Expr) -> BindResult<Expr> {
        let known = match &mode.kind {
            Ast::Text(text) => MODES.iter().any(|known| known.eq_ignore_ascii_case(text)),
            Ast::Null | Ast::Int(_) | Ast::Float(_) => false,
            _ => true,
        };
        if known {
            return self.value(mode);
        }
        let message = "the mode is 'spikes', 'dips' or 'spikesanddips'";
        Err(self.report(Diagnostic::error(code::ARGUMENTS, mode.span, message)))
    }

    /// The whole event, for an aggregate or analytic function without argument.
    pub(super) fn row(&mut self, name: &str, span: Span) -> BindResult<Expr> {
        let sources = &self.scope.sources;
        let rows = |at: &usize| matches!(sources[*at].of, SourceKind::Rows { .. });
        let only = (0..sources.len()).find(rows);
        let Some(source) = only.filter(|_| !self.scope.is_joined()) else {
            let message = format!("{name} over a JOIN needs an argument");
            let error = Diagnostic::error(code::ARGUMENTS, span, message);
            let help = "name a column, or a source for its whole event";
            return Err(self.report(error.help(help)));
        };
        let at = ResolvedPath {
            source,
            rest: &[],
            qualified: true,
        };
        self.binder.source_column(self.scope, at, span)
    }
}

/// Whether the call is computed over the events of a source.
pub(super) fn is_analytic(call: &Call) -> bool {
    let limit = call.over.as_ref().is_some_and(|over| over.limit.is_some());
    let info = functions::find(&call.name.name).filter(|_| call.prefix.is_empty());
    match info.map(|info| info.kind) {
        Some(Kind::Analytic(_)) => true,
        Some(Kind::Aggregate(_)) => limit,
        _ => false,
    }
}

/// The span of a SELECT that uses analytic functions.
pub(super) fn uses_analytic(select: &ast::Select) -> Option<Span> {
    let uses =
        |expr: &ast::Expr| expr.any(|e| matches!(&e.kind, Ast::Call(call) if is_analytic(call)));
    let items = select.items.iter().any(|item| match item {
        ast::SelectItem::Expr { expr, .. } => uses(expr),
        ast::SelectItem::Star { .. } => false,
    });
    let groups = select.group.iter().flat_map(|group| &group.items);
    let clauses = select.filter.iter().chain(&select.having).chain(groups);
    let found = items || clauses.into_iter().any(uses) || joins_use(&select.from, &uses);
    found.then_some(select.head)
}

fn joins_use(from: &ast::From, uses: &impl Fn(&ast::Expr) -> bool) -> bool {
    let nested = |source: &ast::Source| match &source.of {
        SourceExpr::Nested(from) => joins_use(from, uses),
        _ => false,
    };
    nested(&from.first)
        || from.rest.iter().any(|part| match part {
            FromPart::Join(join) => join.on.as_ref().is_some_and(&uses) || nested(&join.source),
            FromPart::Apply(_) => false,
        })
}

/// The columns that a call reads, without the words that are units of time.
fn call_paths<'q>(call: &'q Call, found: &mut Vec<&'q [ast::Ident]>) {
    let info = functions::find(&call.name.name).filter(|_| call.prefix.is_empty());
    let unit = info.is_some_and(|info| {
        info.takes_part() || info.kind == Kind::Analytic(AnalyticKind::IsFirst)
    });
    for arg in call.args.iter().skip(usize::from(unit)) {
        paths(arg, found);
    }
    if let Some(over) = &call.over {
        let order = over.order.iter().map(|order| &order.of);
        let exprs = over.partition.iter().chain(order);
        for expr in exprs.chain(over.when.as_deref()) {
            paths(expr, found);
        }
    }
}

fn paths<'q>(expr: &'q ast::Expr, found: &mut Vec<&'q [ast::Ident]>) {
    match &expr.kind {
        Ast::Path(_) if super::scope::is_timestamp(expr) => {}
        Ast::Path(path) => found.push(path),
        Ast::Call(call) => call_paths(call, found),
        _ => expr.each_child(&mut |child| paths(child, found)),
    }
}

/// The type of a literal or a cast.
fn static_type(expr: &Expr) -> Option<Type> {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(_)) => Some(Type::Bigint),
        ExprKind::Literal(Literal::Float(_)) => Some(Type::Float),
        ExprKind::Literal(Literal::Text(_)) => Some(Type::Text),
        ExprKind::Unary { of, .. } => static_type(of),
        ExprKind::Cast { to, .. } => Some(*to),
        ExprKind::Timestamp => Some(Type::Datetime),
        _ => None,
    }
}
