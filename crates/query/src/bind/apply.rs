//! APPLY: one row per element of an array or property of a record.

use super::join::JoinedSources;
use super::scope::{Clause, Source, SourceKind};
use super::{BindResult, Binder};
use crate::ast::{self, ExprKind as Ast};
use crate::diagnostic::{Diagnostic, code};
use crate::plan::{ApplyColumn, Node};

impl Binder<'_> {
    /// `left` with one more source: the record of the element.
    pub(super) fn apply<'q>(
        &mut self,
        left: JoinedSources<'q>,
        apply: &ast::Apply,
    ) -> BindResult<JoinedSources<'q>> {
        let Ast::Path(_) = &apply.of.kind else {
            let message = "APPLY works on a column, not on an expression";
            let error = Diagnostic::error(code::ARGUMENTS, apply.of.span, message);
            let help = "compute the value in an earlier step, and apply to its column";
            return Err(self.report(error.help(help)));
        };
        self.check_source_name(&left.scope, &apply.alias)?;
        let of = self.value_over(&left.scope, Clause::On, &apply.of)?;
        let node = self.push(Node::Apply {
            from: left.scope.node,
            of,
            each: apply.each,
            outer: apply.outer,
            columns: vec![ApplyColumn::Element],
        });
        let mut scope = left.scope.under(node);
        scope.sources.push(Source {
            qualifier: Some(apply.alias.name.clone()),
            hidden: None,
            of: SourceKind::Element { node, column: 0 },
            above: Vec::new(),
            optional: false,
            time: None,
        });
        Ok(JoinedSources { scope, ..left })
    }
}
