//! Steps, statements and the outputs they write to.

use highwater_spelling::nearest;

use super::{BindResult, Binder, Relation, Step, list};
use crate::Span;
use crate::ast::{self, Ident, Query, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::plan::Output;

impl<'a> Binder<'a> {
    pub(super) fn script(&mut self, script: &ast::Script) {
        self.tables(&script.tables);
        self.step_names = script
            .steps
            .iter()
            .map(|step| step.name.name.clone())
            .collect();
        for step in &script.steps {
            self.step(step);
        }
        for query in &script.statements {
            // Each statement reports its own errors; the next one is still checked.
            let _ = self.statement(query);
        }
        self.check_substreams();
        self.warn_about_tables();
        self.warn_about_unused_steps();
    }

    fn step(&mut self, step: &ast::Step) {
        if let Some(first) = self.steps.iter().find(|s| s.name.is(&step.name.name)) {
            let message = format!("there are two steps called `{}`", first.name.name);
            let error = Diagnostic::error(code::DUPLICATE_STEP, step.name.span, message);
            self.report(
                error
                    .label("the second one")
                    .help("names of steps ignore case"),
            );
        }
        self.forbid_into(&step.query);
        let relation = self.query(&step.query);
        self.steps.push(Step {
            name: step.name.clone(),
            relation,
            used: false,
        });
    }

    fn statement(&mut self, query: &Query) -> BindResult<()> {
        let output = self.output(query);
        let relation = self.query(query)?;
        self.forbid_reference(&relation, "be written to an output", query_head(query))?;
        self.resolve_clock(&relation);
        self.plan.outputs.push(Output {
            name: output?,
            from: relation.node,
        });
        Ok(())
    }

    /// A SELECT or a UNION; INTO has been handled.
    pub(super) fn query(&mut self, query: &Query) -> BindResult<Relation> {
        match query {
            Query::Select(select) => self.select(select),
            Query::Union { branches, span } => self.union(branches, *span),
        }
    }

    /// INTO is on the first SELECT of a statement, or absent.
    fn output(&mut self, query: &Query) -> BindResult<String> {
        let mut intos = Vec::new();
        collect_into(query, &mut intos);
        let into = intos.first().copied().flatten();
        for other in intos.iter().skip(1).flatten() {
            let message = "INTO belongs to the first SELECT of a UNION";
            let error = Diagnostic::error(code::INTO, other.span, message);
            self.report(error.label("this output is named too late"));
        }
        let name = into.map_or("output", |into| &into.name);
        let Some(outputs) = &self.catalog.outputs else {
            return Ok(name.to_string());
        };
        if let Some(known) = outputs.iter().find(|known| same_name(known, name)) {
            return Ok(known.clone());
        }
        let span = into.map_or(query_head(query), |into| into.span);
        let message = match into {
            Some(_) => format!("there is no output `{name}`"),
            None => {
                "without INTO the result goes to `output`, and there is no such output".to_string()
            }
        };
        let near = into.and_then(|_| nearest(name, outputs.iter().map(String::as_str)));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "the outputs are {}",
                list(outputs.iter().map(String::as_str))
            ),
        };
        Err(self.report(Diagnostic::error(code::UNKNOWN_OUTPUT, span, message).help(help)))
    }

    pub(super) fn forbid_into(&mut self, query: &Query) {
        let mut intos = Vec::new();
        collect_into(query, &mut intos);
        for into in intos.into_iter().flatten() {
            let error =
                Diagnostic::error(code::INTO, into.span, "a step cannot write to an output");
            let help = "name the output in a SELECT after the WITH block that reads this step";
            self.report(error.label("INTO inside a step").help(help));
        }
    }

    fn warn_about_unused_steps(&mut self) {
        let unused: Vec<Ident> = self
            .steps
            .iter()
            .filter(|step| !step.used)
            .map(|step| step.name.clone())
            .collect();
        for name in unused {
            let message = format!("nothing reads the step `{}`", name.name);
            self.warn(Diagnostic::warning(code::UNUSED_STEP, name.span, message));
        }
    }
}

/// The INTO of every SELECT of a query, in the order of the text.
fn collect_into<'q>(query: &'q Query, found: &mut Vec<Option<&'q Ident>>) {
    match query {
        Query::Select(select) => found.push(select.into.as_ref()),
        Query::Union { branches, .. } => branches.iter().for_each(|b| collect_into(b, found)),
    }
}

fn query_head(query: &Query) -> Span {
    match query {
        Query::Select(select) => select.head,
        Query::Union { branches, span } => branches.first().map_or(*span, query_head),
    }
}
