//! Function calls: finds the function, and checks where it is called and its arguments.

use highwater_spelling::nearest;

use super::BindResult;
use super::expr::ExprBinder;
use super::scope::{Clause, is_timestamp};
use crate::Span;
use crate::ast::{self, Call, ExprKind as Ast, Quote};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::{self, Category, Function, FunctionInfo, Kind};
use crate::parser::ErrorReported;
use crate::plan::{CompareOp, Expr, ExprKind, Item, Literal, Name, Pred, PredKind};

impl ExprBinder<'_, '_> {
    pub(super) fn call(&mut self, call: &Call, span: Span) -> BindResult<Expr> {
        if matches!(self.clause, Clause::Define | Clause::Measures)
            && let Some(bound) = self.pattern_call(call, span)
        {
            return bound;
        }
        let found = functions::find(&call.name.name).filter(|info| info.kind != Kind::System);
        if !call.prefix.is_empty() {
            return self.prefixed(call, found.is_some(), span);
        }
        let Some(info) = found else {
            return Err(self.unknown_function(call));
        };
        match info.kind {
            Kind::Scalar(function) => self.scalar(function, info, call, span),
            Kind::Coalesce => {
                let args = self.plain_arguments(info, call, span)?;
                Ok(Expr::new(ExprKind::Coalesce(args), span))
            }
            Kind::NullIf => self.null_if(info, call, span),
            Kind::Metadata => {
                self.check_plain(info, call, span)?;
                self.metadata_call(call, span)
            }
            Kind::Aggregate(kind) => self.aggregate(kind, info, call, span),
            Kind::Analytic(kind) => self.analytic(kind, info, call, span),
            Kind::Window(_) => Err(self.misplaced_window(&call.name.name, span)),
            Kind::Cast | Kind::WindowPart | Kind::Apply | Kind::Pattern | Kind::System => {
                Err(self.misplaced(info, span))
            }
        }
    }

    fn misplaced(&mut self, info: &FunctionInfo, span: Span) -> ErrorReported {
        let name = info.name;
        let (code, message) = match info.kind {
            Kind::Cast => (code::ARGUMENTS, format!("{name} takes a value and a type")),
            Kind::WindowPart => (
                code::WINDOW,
                format!("{name}(..) is allowed only inside a window function"),
            ),
            Kind::Apply => (
                code::ARGUMENTS,
                format!("{name} returns rows, so it is allowed only after APPLY"),
            ),
            _ => (
                code::PATTERN,
                format!("{name} is allowed only inside MATCH_RECOGNIZE"),
            ),
        };
        let help = match info.kind {
            Kind::Cast => Some(format!("write {}", info.signature)),
            Kind::Apply => Some(format!("write FROM source CROSS APPLY {name}(..) AS e")),
            _ => None,
        };
        self.report(Diagnostic::error(code, span, message).help_if(help))
    }

    fn misplaced_window(&mut self, name: &str, span: Span) -> ErrorReported {
        let (message, help) = if self.clause == Clause::GroupBy {
            (
                format!("{name} cannot be part of an expression"),
                "make it an item of GROUP BY",
            )
        } else {
            (
                format!("{name} is allowed only in GROUP BY"),
                "the end of the window is System.Timestamp()",
            )
        };
        self.report(Diagnostic::error(code::WINDOW, span, message).help(help))
    }

    fn unknown_function(&mut self, call: &Call) -> ErrorReported {
        let name = &call.name.name;
        if self.clause == Clause::GroupBy && (call.name.is("ROLLUP") || call.name.is("CUBE")) {
            let message = format!("there is no GROUP BY {}", name.to_uppercase());
            let error = Diagnostic::error(code::FOREIGN, call.name.span, message);
            let help = "write a SELECT for each level of grouping and combine them with UNION";
            return self.report(error.help(help));
        }
        let help = match (
            functions::replacement(name),
            nearest(name, functions::names()),
        ) {
            (Some(replacement), _) => replacement.to_string(),
            (None, Some(near)) => format!("did you mean {near}?"),
            (None, None) => format!("if it is your own function, call it udf.{name}(..)"),
        };
        let message = format!("unknown function `{name}`");
        let error = Diagnostic::error(code::UNKNOWN_FUNCTION, call.name.span, message);
        self.report(error.help(help))
    }

    // Scalar functions.

    fn scalar(
        &mut self,
        function: Function,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<Expr> {
        self.check_built_in(info, span)?;
        self.check_plain(info, call, span)?;
        let (part, args) = match call.args.split_first() {
            Some((part, args)) if function.takes_part() => {
                (Some(self.binder.date_part(part)), args)
            }
            _ => (None, call.args.as_slice()),
        };
        let args = match (function, args) {
            // The name of a property may be written like a column name.
            (Function::GetRecordPropertyValue, [of, name]) => {
                let text = quoted_text(name);
                let (of, name) = (self.value(of), text.map_or_else(|| self.value(name), Ok));
                Ok(vec![of?, name?])
            }
            _ => self.values(args),
        }?;
        self.warn_about_open_rings(function, &args, span);
        let kind = ExprKind::Call {
            function: match self.binder.catalog.older_level {
                Some(_) => function.on_globe(),
                None => function,
            },
            part: part.transpose()?,
            args,
        };
        Ok(Expr { kind, span })
    }

    fn check_built_in(&mut self, info: &FunctionInfo, span: Span) -> BindResult<()> {
        if !self.binder.catalog.without_geo || info.category != Category::Geospatial {
            return Ok(());
        }
        let message = format!(
            "{}: this program was built without the feature `geo`",
            info.name
        );
        let error = Diagnostic::error(code::UNKNOWN_FUNCTION, span, message);
        let help = "build highwater-cli with `--features geo`";
        Err(self.report(error.help(help)))
    }

    /// NULLIF(a, b) is CASE WHEN a = b THEN NULL ELSE a END.
    fn null_if(&mut self, info: &FunctionInfo, call: &Call, span: Span) -> BindResult<Expr> {
        self.check_plain(info, call, span)?;
        let [left, right] = call.args.as_slice() else {
            return Err(ErrorReported);
        };
        let (value, right) = (self.case_operand(left, 2), self.value(right));
        let (value, right) = (value?, right?);
        let equal = PredKind::Compare {
            op: CompareOp::Eq,
            left: value.clone(),
            right,
        };
        let null = Expr::new(ExprKind::Literal(Literal::Null), span);
        let kind = ExprKind::Case {
            branches: vec![(Pred { kind: equal, span }, null)],
            otherwise: Box::new(value),
        };
        Ok(Expr { kind, span })
    }

    fn plain_arguments(
        &mut self,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<Vec<Expr>> {
        self.check_plain(info, call, span)?;
        self.values(&call.args)
    }

    /// A function of values only: no OVER, no DISTINCT, no `*`, the right number of arguments.
    fn check_plain(&mut self, info: &FunctionInfo, call: &Call, span: Span) -> BindResult<()> {
        self.check_no_distinct(call)?;
        if let Some(over) = &call.over {
            let message = format!("{} has no OVER", info.name);
            let error = Diagnostic::error(code::ARGUMENTS, over.span, message);
            return Err(self.report(error.help("aggregates and analytic functions have one")));
        }
        self.check_count(info, call, span)?;
        match call.star {
            true => Err(self.wrong_count(info, call, span)),
            false => Ok(()),
        }
    }

    pub(super) fn check_no_distinct(&mut self, call: &Call) -> BindResult<()> {
        let Some(distinct) = call.distinct else {
            return Ok(());
        };
        let error = Diagnostic::error(code::AGGREGATE, distinct, "DISTINCT exists for COUNT only");
        Err(self.report(error))
    }

    pub(super) fn check_count(
        &mut self,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> BindResult<()> {
        let (least, most) = info.arguments;
        let count = call.args.len() + usize::from(call.star);
        if count >= least && most.is_none_or(|most| count <= most) {
            return Ok(());
        }
        Err(self.wrong_count(info, call, span))
    }

    pub(super) fn wrong_count(
        &mut self,
        info: &FunctionInfo,
        call: &Call,
        span: Span,
    ) -> ErrorReported {
        let message = format!("{} takes {}", info.name, info.takes());
        let label = match (call.star, call.args.len()) {
            (true, _) => "`*` is not one".to_string(),
            (false, 0) => "here are none".to_string(),
            (false, 1) => "here is one".to_string(),
            (false, count) => format!("here are {count}"),
        };
        let error = Diagnostic::error(code::ARGUMENTS, span, message).label(label);
        self.report(error.help(format!("write {}", info.signature)))
    }

    // Prefixes.

    /// `System.x()`, `udf.x()`, `uda.x()`, and unknown prefixes.
    fn prefixed(&mut self, call: &Call, built_in: bool, span: Span) -> BindResult<Expr> {
        let prefix = &call.prefix[0];
        let name = &call.name.name;
        if call.prefix.len() == 1 && prefix.is("udf") {
            return self.user_function(call, span);
        }
        if call.prefix.len() == 1 && prefix.is("uda") {
            return self.user_aggregate(call, span);
        }
        if prefix.is("System") && call.name.is("Window") {
            return self.system_window(call, span);
        }
        if prefix.is("System") && call.name.is("Timestamp") {
            let message = "System.Timestamp() takes no arguments";
            return Err(self.report(Diagnostic::error(code::ARGUMENTS, span, message)));
        }
        if self.binder.catalog.older_level.is_some() && (built_in || prefix.is("System")) {
            return self.loosely_prefixed(call, built_in, span);
        }
        if built_in {
            let message = format!("the built-in function {name} takes no prefix");
            let error = Diagnostic::error(code::UNKNOWN_FUNCTION, prefix.span, message);
            return Err(self.report(error.help(format!("write {name}(..)"))));
        }
        let message = format!("there is no function `{}.{name}`", prefix.name);
        let help = match prefix.is("System") {
            true => {
                format!("System has Timestamp() and Window(); your own function is udf.{name}(..)")
            }
            false => format!("call your own functions as udf.{name}(..)"),
        };
        Err(self.report(Diagnostic::error(code::UNKNOWN_FUNCTION, span, message).help(help)))
    }

    /// Below level 1.2 a prefix of a built-in function is ignored, and `system.` may replace `udf.`.
    fn loosely_prefixed(&mut self, call: &Call, built_in: bool, span: Span) -> BindResult<Expr> {
        let mut call = call.clone();
        match built_in {
            true => call.prefix.clear(),
            false => return self.user_function(&call, span),
        }
        self.call(&call, span)
    }

    /// udf.name(..), with any arguments.
    fn user_function(&mut self, call: &Call, span: Span) -> BindResult<Expr> {
        self.check_no_distinct(call)?;
        self.check_own_function(call, "udf")?;
        let name = &call.name.name;
        let problem = match (&call.over, call.star) {
            (Some(_), _) => format!("udf.{name} is a function of values, so it has no OVER"),
            (_, true) => format!("udf.{name} takes no `*`"),
            _ => {
                let args = self.values(&call.args)?;
                let name = name.clone();
                return Ok(Expr::new(ExprKind::User { name, args }, span));
            }
        };
        let error = Diagnostic::error(code::ARGUMENTS, span, problem);
        let help = "pass the name of the source for the whole event";
        let help = (call.star && call.over.is_none()).then(|| help.to_string());
        Err(self.report(error.help_if(help)))
    }

    /// Whether the job declares the function.
    pub(super) fn check_own_function(&mut self, call: &Call, prefix: &str) -> BindResult<()> {
        let Some(known) = &self.binder.catalog.functions else {
            return Ok(());
        };
        let name = &call.name.name;
        if known.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        let help = match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {prefix}.{near}?"),
            None => format!(
                "declare it in the job file: [functions.{name}] with the path of its JavaScript; \
                 .NET and machine-learning functions do not run here"
            ),
        };
        let message = format!("the job has no function `{name}`");
        let error = Diagnostic::error(code::UNKNOWN_FUNCTION, call.name.span, message);
        Err(self.report(error.help(help)))
    }

    /// System.Window(): the window of a row, if there are several.
    fn system_window(&mut self, call: &Call, span: Span) -> BindResult<Expr> {
        let plain = call.args.is_empty() && !call.star && call.over.is_none();
        let message = match (&self.grouping, self.clause) {
            (Some(grouping), Clause::Select) if plain => {
                let id = match grouping.id() {
                    Some(column) => ExprKind::Column(column),
                    None => ExprKind::Literal(Literal::Null),
                };
                let id = Expr { kind: id, span };
                return Ok(Expr {
                    kind: ExprKind::Record(vec![Item {
                        name: Name::Field("Id".to_string()),
                        expr: id,
                    }]),
                    span,
                });
            }
            (Some(_), Clause::Select) => "System.Window() takes no arguments",
            _ => "System.Window() is allowed only in the SELECT list of a grouped query",
        };
        Err(self.report(Diagnostic::error(code::WINDOW, span, message)))
    }
}

/// `"text"` in place of a text literal.
fn quoted_text(expr: &ast::Expr) -> Option<Expr> {
    match &expr.kind {
        Ast::Path(path) if !is_timestamp(expr) => match path.as_slice() {
            [only] if only.quote == Quote::Double => Some(Expr::new(
                ExprKind::Literal(Literal::Text(only.name.clone())),
                expr.span,
            )),
            _ => None,
        },
        _ => None,
    }
}
