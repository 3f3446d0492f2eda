//! FROM: finds the source of a SELECT and gives it its clock.

use super::clock::Clock;
use super::scope::Scope;
use super::{Binder, Bound, Relation, list};
use crate::ast::{self, Ident, Source, SourceOf, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::nearest::nearest;
use crate::parser::Reported;
use crate::plan::NodeId;

/// The one source of a SELECT, as long as there are no joins.
pub(super) struct From<'q> {
    pub scope: Scope,
    pub partition: Option<&'q ast::PartitionBy>,
    /// Set if the source is an input, or passes one on, whose clock nobody has named yet.
    pub bare: Option<(usize, crate::Span)>,
}

/// What a name in FROM stands for.
pub(super) enum Named {
    Input(usize),
    Reference(String),
    Step(Relation),
}

impl<'a> Binder<'a> {
    pub(super) fn from<'q>(&mut self, select: &'q ast::Select) -> Bound<From<'q>> {
        let mut from = &select.from;
        while let SourceOf::Nested(inner) = &from.first.of {
            if !from.rest.is_empty() || from.pattern.is_some() {
                break;
            }
            from = inner;
        }
        if !from.rest.is_empty() {
            return Err(self.joins(select, from));
        }
        if let Some(span) = from.pattern {
            return Err(self.pattern(select, span));
        }
        self.source(&from.first, select)
    }

    fn source<'q>(&mut self, source: &'q Source, select: &ast::Select) -> Bound<From<'q>> {
        let (name, relation) = match &source.of {
            SourceOf::Name(name) => match self.named(name)? {
                Named::Input(input) => (Some(name), self.of_input(input, source)),
                Named::Reference(input) => return Err(self.lone_reference(&input, source, select)),
                Named::Step(relation) => (Some(name), relation),
            },
            SourceOf::Query(query) => {
                self.forbid_into(query);
                (None, self.query(query)?)
            }
            SourceOf::Nested(_) => return Err(Reported),
        };
        let scope = scope(relation.node, name, source.alias.as_ref());
        let bare = self.clock_of(source, relation.bare, &scope)?;
        if let Some(partition) = &source.partition {
            self.check_partition_count(partition)?;
        }
        Ok(From {
            scope,
            partition: source.partition.as_ref(),
            bare,
        })
    }

    fn of_input(&self, input: usize, source: &Source) -> Relation {
        let node = self.inputs[input].node;
        Relation {
            node,
            bare: Some((input, source.span)),
            partition: None,
        }
    }

    /// Gives the input below its clock if the source says one; otherwise that stays open.
    fn clock_of(
        &mut self,
        source: &Source,
        bare: Option<(usize, crate::Span)>,
        scope: &Scope,
    ) -> Bound<Option<(usize, crate::Span)>> {
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
    pub(super) fn settle_clock(&mut self, relation: &Relation) {
        self.settle_bare(relation.bare);
    }

    pub(super) fn settle_bare(&mut self, bare: Option<(usize, crate::Span)>) {
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

    pub(super) fn named(&mut self, name: &Ident) -> Bound<Named> {
        if let Some(step) = self
            .steps
            .iter_mut()
            .rev()
            .find(|step| step.name.is(&name.name))
        {
            step.used = true;
            return step.relation.clone().map(Named::Step);
        }
        match self.catalog.input(&name.name) {
            Some(input) if input.reference => Ok(Named::Reference(input.name)),
            Some(mut input) => {
                let known = self
                    .plan
                    .inputs
                    .iter()
                    .find(|known| same_name(&known.name, &input.name));
                if let Some(known) = known {
                    input.name.clone_from(&known.name);
                }
                if !self.step_names.iter().any(|step| name.is(step)) || !self.catalog.is_open() {
                    return Ok(Named::Input(self.input(&input.name, name.span)));
                }
                Err(self.unknown_source(name))
            }
            None => Err(self.unknown_source(name)),
        }
    }

    fn unknown_source(&mut self, name: &Ident) -> Reported {
        let error = |message: String| Diagnostic::error(code::UNKNOWN_INPUT, name.span, message);
        if self.step_names.iter().any(|step| name.is(step)) {
            let message = format!("the step `{}` is not there yet", name.name);
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

    fn lone_reference(&mut self, name: &str, source: &Source, select: &ast::Select) -> Reported {
        let error = |message: String| Diagnostic::error(code::REFERENCE, source.span, message);
        if let Some(by) = &source.timestamp {
            let message = format!("`{name}` is reference data and has no timestamps");
            return self.report(Diagnostic::error(code::REFERENCE, by.span, message));
        }
        if select.group.is_some() {
            let message = format!("`{name}` is reference data and cannot be windowed on its own");
            return self.report(error(message).help("join it to a stream"));
        }
        self.unsupported(
            &format!("reading the reference input `{name}`"),
            source.span,
        )
    }

    fn pattern(&mut self, select: &ast::Select, span: crate::Span) -> Reported {
        let star = matches!(select.items.as_slice(), [ast::SelectItem::Star { path, .. }] if path.is_empty());
        if !star || select.filter.is_some() || select.group.is_some() || select.having.is_some() {
            let message =
                "MATCH_RECOGNIZE stands alone in SELECT * FROM source MATCH_RECOGNIZE (..)";
            let error = Diagnostic::error(code::STAR, span, message);
            return self.report(error.help("filter, group and pick columns in other steps"));
        }
        self.unsupported("MATCH_RECOGNIZE", span)
    }
}

fn scope(node: NodeId, name: Option<&Ident>, alias: Option<&Ident>) -> Scope {
    let own = |ident: &Ident| ident.name.clone();
    Scope {
        node,
        qualifier: alias.or(name).map(own),
        hidden: alias.and(name).map(own),
    }
}
