//! FROM: finds the source of a SELECT and sets its clock.

use highwater_spelling::nearest;

use super::clock::Clock;
use super::scope::{self, Scope, SourceKind};
use super::{BindResult, Binder, InputState, Relation, list};
use crate::ast::{self, Ident, Source, SourceExpr, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::NodeId;

/// The sources of a SELECT.
pub(super) struct FromClause<'q> {
    pub scope: Scope,
    pub partition: Option<&'q ast::PartitionBy>,
    /// Set if the source is an input, or passes one on, whose clock is not set yet.
    pub bare: Option<(usize, crate::Span)>,
    pub reference: bool,
}

/// Resolves a name in FROM.
pub(super) enum NamedSource {
    Input(usize),
    Step(Relation),
}

impl<'a> Binder<'a> {
    pub(super) fn from<'q>(
        &mut self,
        select: &ast::Select,
        mut from: &'q ast::From,
    ) -> BindResult<FromClause<'q>> {
        while let SourceExpr::Nested(inner) = &from.first.of {
            if !from.rest.is_empty() || from.pattern.is_some() {
                break;
            }
            from = inner;
        }
        match from.rest.is_empty() {
            true => self.source(&from.first),
            false => self.joins(select, from),
        }
    }

    pub(super) fn source<'q>(&mut self, source: &'q Source) -> BindResult<FromClause<'q>> {
        let (name, relation) = match &source.of {
            SourceExpr::Name(name) => match self.named(name)? {
                NamedSource::Input(input) => (Some(name), self.of_input(input, source)),
                NamedSource::Step(relation) => (Some(name), relation),
            },
            SourceExpr::Query(query) => {
                self.forbid_into(query);
                (None, self.query(query)?)
            }
            SourceExpr::Nested(_) => return Err(ErrorReported),
        };
        let mut scope = self.scope(relation.node, name, source.alias.as_ref());
        let partition = source.partition.as_ref();
        if let Some(partition) = partition {
            self.check_partition_count(partition)?;
        }
        if relation.reference {
            self.check_reference(source)?;
            scope
                .sources
                .iter_mut()
                .for_each(|source| source.time = None);
            return Ok(FromClause {
                scope,
                partition: None,
                bare: None,
                reference: true,
            });
        }
        let bare = self.clock_of(source, relation.bare, &scope)?;
        Ok(FromClause {
            scope: self.analytic_over(scope, partition)?,
            partition,
            bare,
            reference: false,
        })
    }

    /// The scope of one source.
    pub(super) fn scope(&self, node: NodeId, name: Option<&Ident>, alias: Option<&Ident>) -> Scope {
        let own = |ident: &Ident| ident.name.clone();
        let names = self.visible(node);
        let source = scope::Source {
            qualifier: alias.or(name).map(own),
            hidden: alias.and(name).map(own),
            of: SourceKind::Rows { node, names },
            above: Vec::new(),
            optional: false,
            time: Some(0),
        };
        Scope {
            node,
            sources: vec![source],
        }
    }

    fn of_input(&self, input: usize, source: &Source) -> Relation {
        let InputState {
            node, reference, ..
        } = self.inputs[input];
        Relation {
            node,
            bare: (!reference).then_some((input, source.span)),
            partition: None,
            reference,
        }
    }

    /// Sets the clock of the input below if the source has a TIMESTAMP BY; otherwise it stays open.
    fn clock_of(
        &mut self,
        source: &Source,
        bare: Option<(usize, crate::Span)>,
        scope: &Scope,
    ) -> BindResult<Option<(usize, crate::Span)>> {
        let Some(by) = &source.timestamp else {
            return Ok(bare.map(|(input, _)| (input, source.span)));
        };
        let Some((input, _)) = bare else {
            let message =
                "TIMESTAMP BY works on the fields of an input, not on the columns of a step";
            let error = Diagnostic::error(code::TIMESTAMP, by.span, message);
            let help =
                "put TIMESTAMP BY where the input is read; steps keep the time of their events";
            return Err(self.report(error.help(help)));
        };
        let clock = self.clock(input, by, scope)?;
        self.set_clock(input, clock)?;
        Ok(None)
    }

    /// A source without TIMESTAMP BY is in order of arrival, and so must every other use of it be.
    pub(super) fn resolve_clock(&mut self, relation: &Relation) {
        self.resolve_bare_input(relation.bare);
    }

    pub(super) fn resolve_bare_input(&mut self, bare: Option<(usize, crate::Span)>) {
        if let Some((input, span)) = bare {
            let clock = Clock {
                timestamp: None,
                substream: Vec::new(),
                span,
            };
            // A conflict has been reported; the plan is not used then.
            let _ = self.set_clock(input, clock);
        }
    }

    pub(super) fn named(&mut self, name: &Ident) -> BindResult<NamedSource> {
        if let Some(step) = self
            .steps
            .iter_mut()
            .rev()
            .find(|step| step.name.is(&name.name))
        {
            step.used = true;
            return step.relation.clone().map(NamedSource::Step);
        }
        match self.catalog.input(&name.name) {
            Some(mut input) => {
                let known = self
                    .plan
                    .inputs
                    .iter()
                    .find(|known| same_name(&known.name, &input.name));
                if let Some(known) = known {
                    input.name.clone_from(&known.name);
                }
                if !self.step_names.iter().any(|step| name.is(step)) || !self.catalog.any_input {
                    return Ok(NamedSource::Input(self.input(&input.name, name.span)));
                }
                Err(self.unknown_source(name))
            }
            None => Err(self.unknown_source(name)),
        }
    }

    fn unknown_source(&mut self, name: &Ident) -> ErrorReported {
        let error = |message: String| Diagnostic::error(code::UNKNOWN_INPUT, name.span, message);
        if self.step_names.iter().any(|step| name.is(step)) {
            let message = format!("the step `{}` is used before its definition", name.name);
            let help = "a step reads inputs and the steps before it, never itself";
            return self.report(error(message).help(help));
        }
        let inputs = self.catalog.inputs.iter().map(|input| input.name.as_str());
        let steps = self.step_names.iter().map(String::as_str);
        let known: Vec<&str> = inputs.chain(steps).collect();
        let near = nearest(&name.name, known.iter().copied())
            .map(|near| format!("did you mean `{near}`? "));
        let exist = match known.is_empty() {
            true => "the job declares no inputs".to_string(),
            false if known.len() == 1 => format!("there is only {}", list(known)),
            false => format!("there are {}", list(known)),
        };
        let help = format!("{}{exist}", near.unwrap_or_default());
        let message = format!("there is no input or step `{}`", name.name);
        self.report(error(message).help(help))
    }

    fn check_reference(&mut self, source: &Source) -> BindResult<()> {
        let Some(by) = &source.timestamp else {
            return Ok(());
        };
        let message = "reference data has no timestamps";
        Err(self.report(Diagnostic::error(code::REFERENCE, by.span, message)))
    }
}
