//! Syntax tree to plan: every name finds its column, every rule of the language is checked.
//!
//! Inputs have no schema unless CREATE TABLE gives them one, so the binder asks instead of looking
//! up: a name used over an input becomes a column that the source must deliver, and a name used over `SELECT *` is fetched
//! through the star from below. Columns are only ever appended while binding, so positions handed
//! out stay valid; what turned out not to be needed is taken out at the end ([`prune`]).
//!
//! A failed clause reports itself once and yields [`Reported`]; whoever depends on it stays silent.

mod aggregate;
mod analytic;
mod apply;
mod call;
mod clock;
mod columns;
mod expr;
mod from;
mod group;
mod join;
mod metadata;
mod on;
mod pattern;
mod pred;
mod prune;
mod reference;
mod rings;
mod same;
mod scope;
mod script;
mod select;
mod table;
#[cfg(test)]
mod tests;
mod times;
mod union;
mod units;
mod window;
mod windows;

use std::collections::HashMap;

use crate::Span;
use crate::ast::{Ident, same_name};
use crate::diagnostic::Diagnostic;
use crate::fold;
use crate::parser::{Reported, parse};
use crate::plan::{Expr, NodeId, Plan};

/// More than this many complaints help nobody.
const DIAGNOSTICS_MAX: usize = 100;

type Bound<T> = Result<T, Reported>;

/// What the job around the query has declared. With nothing declared at all, see [`Catalog::open`].
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub inputs: Vec<CatalogInput>,
    /// `None`: any output name is fine.
    pub outputs: Option<Vec<String>>,
    /// Every name in FROM that is no step is an input.
    pub any_input: bool,
    /// The job's own functions; `None`: any name is fine.
    pub functions: Option<Vec<String>>,
    /// Text is compared without regard to case.
    pub ignore_case: bool,
    /// The compatibility level of the job, where it is below 1.2.
    pub older_level: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogInput {
    pub name: String,
    pub reference: bool,
}

impl Catalog {
    /// For checking a query without its job: every name in FROM that is no step is an input, and
    /// any output name is fine.
    pub fn open() -> Catalog {
        Catalog {
            any_input: true,
            ..Catalog::default()
        }
    }

    /// These stream inputs and any output.
    pub fn streams<'n>(names: impl IntoIterator<Item = &'n str>) -> Catalog {
        let stream = |name: &str| CatalogInput {
            name: name.to_string(),
            reference: false,
        };
        Catalog {
            inputs: names.into_iter().map(stream).collect(),
            ..Catalog::default()
        }
    }

    fn input(&self, name: &str) -> Option<CatalogInput> {
        let known = self
            .inputs
            .iter()
            .find(|input| same_name(&input.name, name))
            .cloned();
        let open = || CatalogInput {
            name: name.to_string(),
            reference: false,
        };
        known.or_else(|| self.any_input.then(open))
    }
}

#[derive(Clone, Debug)]
pub struct Compiled {
    pub plan: Plan,
    pub warnings: Vec<Diagnostic>,
}

/// Query text to plan, or everything that is wrong with it, in the order of the text.
pub fn compile(source: &str, catalog: &Catalog) -> Result<Compiled, Vec<Diagnostic>> {
    let (script, diagnostics) = parse(source);
    let failed = diagnostics.iter().any(Diagnostic::is_error);
    let mut binder = Binder::new(source, catalog, diagnostics);
    if !failed {
        binder.script(&script);
    }
    let (mut errors, mut warnings): (Vec<_>, Vec<_>) = binder
        .diagnostics
        .into_iter()
        .partition(Diagnostic::is_error);
    errors.sort_by_key(|error| error.span.start);
    warnings.sort_by_key(|warning| warning.span.start);
    errors.truncate(DIAGNOSTICS_MAX);
    warnings.truncate(DIAGNOSTICS_MAX);
    if errors.is_empty() {
        let mut plan = prune::prune(reference::settle(binder.plan));
        if catalog.ignore_case {
            fold::ignore_case(&mut plan);
        }
        Ok(Compiled { plan, warnings })
    } else {
        Err(errors)
    }
}

struct Binder<'a> {
    source: &'a str,
    catalog: &'a Catalog,
    plan: Plan,
    /// Beside each of `plan.inputs`.
    inputs: Vec<InputState>,
    steps: Vec<Step>,
    /// All step names of the script, also those not bound yet.
    step_names: Vec<String>,
    tables: Vec<table::Table>,
    diagnostics: Vec<Diagnostic>,
    /// What [`Binder::through`] answered: without it, unions of unions would ask exponentially
    /// often.
    through: HashMap<(NodeId, usize, Vec<String>), Expr>,
    /// The SELECT whose FROM is being bound, if it uses analytic functions.
    analytic: Option<Span>,
    /// What the source below an analytic node is partitioned by.
    partitions: HashMap<NodeId, Vec<Expr>>,
    /// The MATCH_RECOGNIZE that is being bound.
    matching: Option<pattern::Matching>,
}

struct InputState {
    node: NodeId,
    clock: Option<clock::Clock>,
    reference: bool,
}

/// A step of WITH that later FROMs can name.
struct Step {
    name: Ident,
    /// `Err` if it did not bind.
    relation: Bound<Relation>,
    used: bool,
}

/// What a query amounts to.
#[derive(Clone, Debug)]
struct Relation {
    node: NodeId,
    /// The input of a bare `SELECT * FROM input`, where a later TIMESTAMP BY may be pushed down to
    /// and the place that reads it.
    bare: Option<(usize, Span)>,
    partition: Option<Partitioning>,
    /// It is reference data, or only picks from it.
    reference: bool,
}

/// The explicit PARTITION BY of a source: keys without qualifiers, and INTO.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Partitioning {
    keys: Vec<String>,
    count: Option<u64>,
}

impl<'a> Binder<'a> {
    fn new(source: &'a str, catalog: &'a Catalog, diagnostics: Vec<Diagnostic>) -> Binder<'a> {
        Binder {
            source,
            catalog,
            plan: Plan::default(),
            inputs: Vec::new(),
            steps: Vec::new(),
            step_names: Vec::new(),
            tables: Vec::new(),
            diagnostics,
            through: HashMap::new(),
            analytic: None,
            partitions: HashMap::new(),
            matching: None,
        }
    }

    fn report(&mut self, diagnostic: Diagnostic) -> Reported {
        self.warn(diagnostic);
        Reported
    }

    fn warn(&mut self, diagnostic: Diagnostic) {
        if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    fn push(&mut self, node: crate::plan::Node) -> NodeId {
        self.plan.nodes.push(node);
        NodeId(self.plan.nodes.len() - 1)
    }

    fn text(&self, span: Span) -> String {
        span.text(self.source)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// `a, b and c`, for messages that list what exists.
fn list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "none".to_string(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
