//! Windows(..): several windows in one GROUP BY. Each groups the events separately, and their results are merged; a
//! column of constants identifies the window of a row.

use super::scope::is_timestamp;
use super::window::window_kind;
use super::{BindResult, Binder};
use crate::Span;
use crate::ast::{Call, Expr, ExprKind};
use crate::diagnostic::{Diagnostic, code};
use crate::functions::WindowKind;
use crate::parser::ErrorReported;
use crate::plan::Window;

/// One of the windows of a GROUP BY.
pub(super) struct Definition<'q> {
    pub window: Window,
    pub id: Option<String>,
    /// As written.
    pub of: &'q Expr,
}

impl<'a> Binder<'a> {
    pub(super) fn windows<'q>(
        &mut self,
        call: &'q Call,
        span: Span,
    ) -> BindResult<Vec<Definition<'q>>> {
        if let Some(over) = &call.over {
            let error = Diagnostic::error(code::WINDOW, over.span, "Windows(..) has no OVER");
            return Err(self.report(error.help("a session inside it may have one")));
        }
        if call.args.is_empty() || call.star {
            let error = Diagnostic::error(code::WINDOW, span, "Windows(..) needs windows");
            let help = "write Windows(TumblingWindow(second, 10), TumblingWindow(minute, 1))";
            return Err(self.report(error.help(help)));
        }
        let mut definitions: Vec<Definition> = Vec::new();
        for arg in &call.args {
            let (id, of) = self.window_id(arg)?;
            let known = |id: &str| {
                definitions
                    .iter()
                    .filter_map(|known| known.id.as_deref())
                    .any(|known| crate::ast::same_name(known, id))
            };
            if id.as_deref().is_some_and(known) {
                let message = "two windows have this id; ids ignore case";
                return Err(self.report(Diagnostic::error(code::WINDOW, arg.span, message)));
            }
            definitions.push(Definition {
                window: self.defined(of)?,
                id,
                of,
            });
        }
        let named = definitions.iter().filter(|one| one.id.is_some()).count();
        if named > 0 && named < definitions.len() {
            let message = "either all windows have an id or none has";
            return Err(self.report(Diagnostic::error(code::WINDOW, span, message)));
        }
        Ok(definitions)
    }

    /// `Window('id', definition)` or just the definition.
    fn window_id<'q>(&mut self, arg: &'q Expr) -> BindResult<(Option<String>, &'q Expr)> {
        let (Some(WindowKind::Window), ExprKind::Call(call)) = (window_kind(arg), &arg.kind) else {
            return Ok((None, arg));
        };
        let [id, definition] = call.args.as_slice() else {
            let error = Diagnostic::error(code::ARGUMENTS, arg.span, "Window takes 2 arguments");
            return Err(self.report(error.help("write Window('id', TumblingWindow(minute, 1))")));
        };
        match &id.kind {
            ExprKind::Text(id) => Ok((Some(id.clone()), definition)),
            _ => {
                let message = "the id of a window is a text, as in Window('1 minute', ..)";
                Err(self.report(Diagnostic::error(code::WINDOW, id.span, message)))
            }
        }
    }

    fn defined(&mut self, of: &Expr) -> BindResult<Window> {
        if is_timestamp(of) {
            return Ok(Window::Snapshot);
        }
        match window_kind(of) {
            Some(WindowKind::Windows) => {
                Err(self.no_window(of, "Windows(..) cannot be inside Windows(..)"))
            }
            Some(WindowKind::Window) => {
                Err(self.no_window(of, "Window(..) cannot be inside Window(..)"))
            }
            Some(_) => self.window(of),
            None => Err(self.no_window(of, "expected a window function")),
        }
    }

    fn no_window(&mut self, of: &Expr, message: &str) -> ErrorReported {
        self.report(Diagnostic::error(code::WINDOW, of.span, message))
    }
}
