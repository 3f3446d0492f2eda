//! Function calls: which function it is, and whether it may stand where it stands.

use super::Bound;
use super::expr::Exprs;
use super::functions::{self, Kind};
use super::scope::Clause;
use crate::Span;
use crate::ast::Call;
use crate::diagnostic::{Diagnostic, code};
use crate::nearest::nearest;
use crate::parser::Reported;
use crate::plan::Expr;

impl Exprs<'_, '_> {
    pub fn call(&mut self, call: &Call, span: Span) -> Bound<Expr> {
        let found = functions::find(&call.name.name);
        if !call.prefix.is_empty() {
            return Err(self.prefixed(call, found.is_some(), span));
        }
        let Some((name, kind)) = found else {
            return Err(self.unknown_function(call));
        };
        match kind {
            Kind::Aggregate(function) => self.aggregate(function, name, call, span),
            Kind::OtherAggregate => {
                self.check_aggregate(name, call, span)?;
                Err(self.binder.unsupported(name, call.name.span))
            }
            Kind::Analytic => {
                self.check_analytic(name, call, span)?;
                Err(self.binder.unsupported(name, call.name.span))
            }
            Kind::Scalar => Err(self.binder.unsupported(name, call.name.span)),
            Kind::Window => Err(self.misplaced_window(name, span)),
            Kind::WindowPart => {
                let message = format!("{name}(..) stands only inside a window function");
                Err(self
                    .binder
                    .report(Diagnostic::error(code::WINDOW, span, message)))
            }
            Kind::Apply => {
                let message = format!("{name} makes rows, so it stands only behind APPLY");
                let help = format!("write FROM source CROSS APPLY {name}(..) AS e");
                Err(self
                    .binder
                    .report(Diagnostic::error(code::ARGUMENTS, span, message).help(help)))
            }
        }
    }

    fn misplaced_window(&mut self, name: &str, span: Span) -> Reported {
        let (message, help) = if self.clause == Clause::GroupBy {
            (
                format!("{name} cannot be part of an expression"),
                "make it an item of GROUP BY",
            )
        } else {
            (
                format!("{name} stands only in GROUP BY"),
                "the end of the window is System.Timestamp()",
            )
        };
        self.binder
            .report(Diagnostic::error(code::WINDOW, span, message).help(help))
    }

    /// `System.x()`, `udf.x()`, `uda.x()`, and what is no such thing.
    fn prefixed(&mut self, call: &Call, built_in: bool, span: Span) -> Reported {
        let prefix = &call.prefix[0];
        let name = &call.name.name;
        if prefix.is("System") && call.name.is("Window") {
            return self.system_window(span);
        }
        if prefix.is("System") && call.name.is("Timestamp") {
            let error = Diagnostic::error(
                code::ARGUMENTS,
                span,
                "System.Timestamp() takes no arguments",
            );
            return self.binder.report(error);
        }
        if (prefix.is("udf") || prefix.is("uda")) && call.prefix.len() == 1 {
            let what = format!("the user-defined function {}.{name}", prefix.name);
            return self.binder.unsupported(&what, span);
        }
        if built_in {
            let message = format!("the built-in function {name} takes no prefix");
            let error = Diagnostic::error(code::UNKNOWN_FUNCTION, prefix.span, message);
            return self.binder.report(error.help(format!("write {name}(..)")));
        }
        let message = format!("there is no function `{}.{name}`", prefix.name);
        let help = match prefix.is("System") {
            true => {
                format!("System has Timestamp() and Window(); your own function is udf.{name}(..)")
            }
            false => format!("call your own functions as udf.{name}(..)"),
        };
        self.binder
            .report(Diagnostic::error(code::UNKNOWN_FUNCTION, span, message).help(help))
    }

    fn system_window(&mut self, span: Span) -> Reported {
        if self.clause == Clause::Select && self.grouping.is_some() {
            return self.binder.unsupported("System.Window()", span);
        }
        let message = "System.Window() stands only in the SELECT list of a grouped query";
        self.binder
            .report(Diagnostic::error(code::WINDOW, span, message))
    }

    fn unknown_function(&mut self, call: &Call) -> Reported {
        let name = &call.name.name;
        let help = match nearest(name, functions::names()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("if it is your own function, call it udf.{name}(..)"),
        };
        let message = format!("unknown function `{name}`");
        let error = Diagnostic::error(code::UNKNOWN_FUNCTION, call.name.span, message);
        self.binder.report(error.help(help))
    }

    fn check_analytic(&mut self, name: &str, call: &Call, span: Span) -> Bound<()> {
        let limit = call.over.as_ref().is_some_and(|over| over.limit.is_some());
        if name != "ISFIRST" && !limit {
            return Err(self.missing_limit(name, span));
        }
        let nested = call.args.iter().find(|arg| {
            arg.any(|e| match &e.kind {
                crate::ast::ExprKind::Call(inner) => {
                    matches!(functions::find(&inner.name.name), Some((_, Kind::Analytic)))
                        || inner.prefix.first().is_some_and(|prefix| prefix.is("udf"))
                }
                _ => false,
            })
        });
        if let Some(arg) = nested {
            let message = format!("{name} cannot take another analytic or user-defined function");
            let error = Diagnostic::error(code::ANALYTIC, arg.span, message);
            return Err(self
                .binder
                .report(error.help("compute it in an earlier step")));
        }
        match call.args.get(1).map(|offset| (&offset.kind, offset.span)) {
            Some((crate::ast::ExprKind::Int(..1), at)) if name == "LAG" => {
                let error =
                    Diagnostic::error(code::ANALYTIC, at, "LAG looks back at least one event");
                Err(self
                    .binder
                    .report(error.help("LAST includes the current event")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn missing_limit(&mut self, name: &str, span: Span) -> Reported {
        let message = format!("{name} needs OVER (.. LIMIT DURATION(unit, n))");
        let error = Diagnostic::error(code::ANALYTIC, span, message);
        let label = "how far back may it look?";
        self.binder.report(
            error
                .label(label)
                .help("for example OVER (LIMIT DURATION(minute, 5))"),
        )
    }
}
