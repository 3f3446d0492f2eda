//! Window functions: their two argument forms and their limits.

use highwater_time::{Duration, TICKS_PER_DAY};

use super::units::constant;
use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{Call, Expr, ExprKind};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::{self, Kind, WindowKind};
use crate::parser::ErrorReported;
use crate::plan::Window;
use crate::print::duration_in_words;

const SIZE_MAX: i64 = 7 * TICKS_PER_DAY;
/// Larger sizes are treated as equal.
const SIZE_SHOWN: i64 = 10_000 * TICKS_PER_DAY;

/// Whether an item of GROUP BY is a window function.
pub(super) fn is_window(item: &Expr) -> bool {
    window_kind(item).is_some()
}

pub(super) fn window_kind(item: &Expr) -> Option<WindowKind> {
    let ExprKind::Call(call) = &item.kind else {
        return None;
    };
    match functions::find(&call.name.name)?.kind {
        Kind::Window(kind) if call.prefix.is_empty() => Some(kind),
        _ => None,
    }
}

/// An argument of a window: its role, size and span.
struct WindowArgument {
    name: &'static str,
    ticks: i64,
    span: Span,
}

/// The arguments of each window, in order, and how many are required.
struct WindowSignature {
    name: &'static str,
    parts: &'static [&'static str],
    needed: usize,
}

const TUMBLING: WindowSignature = WindowSignature {
    name: "TumblingWindow",
    parts: &["Duration", "Offset"],
    needed: 1,
};
const HOPPING: WindowSignature = WindowSignature {
    name: "HoppingWindow",
    parts: &["Duration", "Hop", "Offset"],
    needed: 2,
};
const SLIDING: WindowSignature = WindowSignature {
    name: "SlidingWindow",
    parts: &["Duration"],
    needed: 1,
};
const SESSION: WindowSignature = WindowSignature {
    name: "SessionWindow",
    parts: &["Timeout", "MaxDuration"],
    needed: 2,
};

impl<'a> Binder<'a> {
    pub(super) fn window(&mut self, item: &Expr) -> BindResult<Window> {
        let (Some(kind), ExprKind::Call(call)) = (window_kind(item), &item.kind) else {
            return Err(ErrorReported);
        };
        match kind {
            WindowKind::Tumbling => {
                let parts = self.parts(&TUMBLING, call, item.span)?;
                Ok(Window::Tumbling {
                    size: get(&parts, "Duration"),
                    offset: get(&parts, "Offset"),
                })
            }
            WindowKind::Hopping => self.hopping(call, item.span),
            WindowKind::Sliding => {
                let parts = self.parts(&SLIDING, call, item.span)?;
                Ok(Window::Sliding {
                    size: get(&parts, "Duration"),
                })
            }
            WindowKind::Session => {
                self.check_session_over(call)?;
                let parts = self.parts(&SESSION, call, item.span)?;
                let (timeout, max) = (get(&parts, "Timeout"), get(&parts, "MaxDuration"));
                Ok(Window::Session {
                    timeout,
                    max,
                    over: None,
                })
            }
            WindowKind::Windows | WindowKind::Window => {
                let message = "Window('id', ..) is allowed only inside Windows(..)";
                Err(self.report(Diagnostic::error(code::WINDOW, item.span, message)))
            }
        }
    }

    fn hopping(&mut self, call: &Call, span: Span) -> BindResult<Window> {
        let parts = self.parts(&HOPPING, call, span)?;
        let (size, hop) = (get(&parts, "Duration"), get(&parts, "Hop"));
        if hop > size {
            let message =
                "this hop is longer than the window, so events between windows are ignored";
            let warning = Diagnostic::warning(code::SIZE, span, message);
            self.warn(warning.help("the arguments are (unit, window size, hop size)"));
        }
        Ok(Window::Hopping {
            size,
            hop,
            offset: get(&parts, "Offset"),
        })
    }

    fn parts(
        &mut self,
        form: &WindowSignature,
        call: &Call,
        span: Span,
    ) -> BindResult<Vec<WindowArgument>> {
        if let Some(over) = call.over.as_ref().filter(|_| form.name != SESSION.name) {
            let message = format!("{} has no OVER", form.name);
            return Err(self.report(Diagnostic::error(code::WINDOW, over.span, message)));
        }
        let named = call
            .args
            .first()
            .is_some_and(|arg| matches!(arg.kind, ExprKind::Call(_)));
        let parts = if named {
            self.named_parts(form, call, span)?
        } else {
            self.positional_parts(form, call, span)?
        };
        for part in &parts {
            self.check_size(form, part)?;
        }
        Ok(parts)
    }

    /// `(unit, n, ..)`
    fn positional_parts(
        &mut self,
        form: &WindowSignature,
        call: &Call,
        span: Span,
    ) -> BindResult<Vec<WindowArgument>> {
        let sizes = call.args.get(1..).unwrap_or_default();
        if call.star || sizes.len() < form.needed || sizes.len() > form.parts.len() {
            return Err(self.wrong_arguments(form, span));
        }
        let unit = self.unit_of(&call.args[0])?;
        let mut parts = Vec::new();
        for (name, size) in form.parts.iter().copied().zip(sizes) {
            parts.push(WindowArgument {
                name,
                ticks: self.ticks(unit, size)?,
                span: size.span,
            });
        }
        Ok(parts)
    }

    /// `(Duration(unit, n), ..)`
    fn named_parts(
        &mut self,
        form: &WindowSignature,
        call: &Call,
        span: Span,
    ) -> BindResult<Vec<WindowArgument>> {
        let mut parts: Vec<WindowArgument> = Vec::new();
        for arg in &call.args {
            let ExprKind::Call(inner) = &arg.kind else {
                return Err(self.wrong_arguments(form, span));
            };
            let name = form.parts.iter().copied().find(|name| inner.name.is(name));
            let (Some(name), [unit, size]) = (name, inner.args.as_slice()) else {
                return Err(self.wrong_arguments(form, arg.span));
            };
            let unit = self.unit_of(unit)?;
            let part = WindowArgument {
                name,
                ticks: self.ticks(unit, size)?,
                span: arg.span,
            };
            if parts.iter().any(|known| known.name == name) {
                return Err(self.wrong_arguments(form, arg.span));
            }
            parts.push(part);
        }
        let complete = form.parts[..form.needed]
            .iter()
            .all(|n| parts.iter().any(|p| p.name == *n));
        if complete {
            Ok(parts)
        } else {
            Err(self.wrong_arguments(form, span))
        }
    }

    fn wrong_arguments(&mut self, form: &WindowSignature, span: Span) -> ErrorReported {
        let message = format!("these are not the arguments of {}", form.name);
        let error = Diagnostic::error(code::ARGUMENTS, span, message);
        let usage = functions::find(form.name).map_or("", |info| info.signature);
        self.report(error.help(format!("write {usage}")))
    }

    fn check_size(&mut self, form: &WindowSignature, part: &WindowArgument) -> BindResult<()> {
        let offset = part.name == "Offset";
        let problem = if offset && part.ticks.abs() > SIZE_MAX {
            "the offset of a window is at most 7 days either way"
        } else if !offset && part.ticks <= 0 {
            "the size of a window must be positive"
        } else if !offset && part.ticks > SIZE_MAX {
            "a window is at most 7 days long"
        } else {
            return Ok(());
        };
        let label = match part.ticks.abs() {
            0..SIZE_SHOWN => format!(
                "this is {}",
                duration_in_words(Duration::from_ticks(part.ticks))
            ),
            _ => String::new(),
        };
        let error = Diagnostic::error(code::SIZE, part.span, problem).label(label);
        let hint =
            (form.name == HOPPING.name).then(|| "the order is (unit, size, hop)".to_string());
        Err(self.report(error.help_if(hint.filter(|_| part.ticks <= 0))))
    }

    /// A constant number of units as ticks.
    fn ticks(&mut self, unit: i64, size: &Expr) -> BindResult<i64> {
        let Some(number) = constant(size) else {
            let message = "the size of a window must be a constant";
            let error = Diagnostic::error(code::SIZE, size.span, message);
            return Err(self.report(error.label("expected a number")));
        };
        let exact = number * unit as f64;
        let ticks = exact.round();
        if number != 0.0 && exact.abs() < 1.0 {
            let message = "this is shorter than a tick of 100 ns";
            return Err(self.report(Diagnostic::error(code::SIZE, size.span, message)));
        }
        // The caller only has to know that it is beyond every limit.
        Ok(ticks.clamp(-(SIZE_SHOWN as f64), SIZE_SHOWN as f64) as i64)
    }

    fn check_session_over(&mut self, call: &Call) -> BindResult<()> {
        let Some(over) = &call.over else {
            return Ok(());
        };
        let only_keys = over.order.is_empty() && over.limit.is_none() && over.when.is_none();
        if only_keys && !over.partition.is_empty() {
            return Ok(());
        }
        let message = "a session takes OVER (PARTITION BY ..) and nothing else";
        Err(self.report(Diagnostic::error(code::WINDOW, over.span, message)))
    }
}

/// A missing offset is zero.
fn get(parts: &[WindowArgument], name: &str) -> Duration {
    let part = parts.iter().find(|part| part.name == name);
    part.map_or(Duration::ZERO, |part| Duration::from_ticks(part.ticks))
}
