//! Binds a syntax tree to a plan: resolves every name to a column and checks every rule of the language.
//!
//! Inputs have no schema unless CREATE TABLE declares one, so the binder requests columns instead of looking them up: a
//! name used over an input becomes a column that the source must deliver, and a name used over `SELECT *` is fetched
//! through the star from below. Binding only ever appends columns, so positions stay valid; unneeded columns are
//! removed at the end ([`prune`]).
//!
//! A failed clause reports itself once and returns [`ErrorReported`]; clauses that depend on it stay silent.

mod aggregate;
mod analytic;
mod apply;
mod call;
mod clock;
mod columns;
mod equality;
mod expr;
mod from;
mod group;
mod join;
mod join_condition;
mod join_time_bounds;
mod metadata;
mod partition;
mod pattern;
mod polygon_rings;
mod pred;
mod prune;
mod reference;
mod scope;
mod script;
mod select;
mod table;
#[cfg(test)]
mod tests;
mod union;
mod units;
mod window;
mod windows;

use std::collections::HashMap;

use crate::Span;
use crate::ast::{Ident, same_name};
use crate::diagnostic::Diagnostic;
use crate::fold;
use crate::parser::{ErrorReported, parse};
use crate::plan::{Expr, NodeId, Plan};

/// Further diagnostics do not help.
const DIAGNOSTICS_MAX: usize = 100;

type BindResult<T> = Result<T, ErrorReported>;

/// The declarations of the job around the query. Without any, see [`Catalog::open`].
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub inputs: Vec<CatalogInput>,
    /// `None` allows any output name.
    pub outputs: Option<Vec<String>>,
    /// Every name in FROM that is not a step is an input.
    pub any_input: bool,
    /// The job's own functions; `None` allows any name.
    pub functions: Option<Vec<String>>,
    /// Text comparisons ignore case.
    pub ignore_case: bool,
    /// MIN, MAX and order keys reject text that is no number, as the reference of the language has it.
    pub strict_types: bool,
    /// The compatibility level of the job, if it is below 1.2.
    pub older_level: Option<&'static str>,
    /// The engine was built without the geospatial functions.
    pub without_geo: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogInput {
    pub name: String,
    pub reference: bool,
}

impl Catalog {
    /// For checking a query without its job: every name in FROM that is not a step is an input, and any output name is
    /// allowed.
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
pub struct CompiledQuery {
    pub plan: Plan,
    pub warnings: Vec<Diagnostic>,
}

/// Compiles query text to a plan, or to all of its errors, in the order of the text.
pub fn compile(source: &str, catalog: &Catalog) -> Result<CompiledQuery, Vec<Diagnostic>> {
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
        let mut plan = prune::prune(reference::resolve_tables(binder.plan));
        if catalog.ignore_case {
            fold::ignore_case(&mut plan);
        }
        Ok(CompiledQuery { plan, warnings })
    } else {
        Err(errors)
    }
}

struct Binder<'a> {
    source: &'a str,
    catalog: &'a Catalog,
    plan: Plan,
    /// One per entry of `plan.inputs`.
    inputs: Vec<InputState>,
    steps: Vec<Step>,
    /// All step names of the script, including those not bound yet.
    step_names: Vec<String>,
    tables: Vec<table::Table>,
    diagnostics: Vec<Diagnostic>,
    /// A cache for [`Binder::through`]: without it, unions of unions would take exponential time.
    through: HashMap<(NodeId, usize, Vec<String>), Expr>,
    /// The SELECT whose FROM is being bound, if it uses analytic functions.
    analytic: Option<Span>,
    /// The partition keys of the source below an analytic node.
    partitions: HashMap<NodeId, Vec<Expr>>,
    /// The MATCH_RECOGNIZE that is being bound.
    matching: Option<pattern::PatternScope>,
}

struct InputState {
    node: NodeId,
    clock: Option<clock::Clock>,
    reference: bool,
}

/// A step of WITH, which later FROMs can name.
struct Step {
    name: Ident,
    /// `Err` if it did not bind.
    relation: BindResult<Relation>,
    used: bool,
}

/// The result of binding a query.
#[derive(Clone, Debug)]
struct Relation {
    node: NodeId,
    /// The input of a bare `SELECT * FROM input`, to which a later TIMESTAMP BY is pushed down, and its position
    /// in the text.
    bare: Option<(usize, Span)>,
    partition: Option<Partitioning>,
    /// It is reference data, or a selection from it.
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

    fn report(&mut self, diagnostic: Diagnostic) -> ErrorReported {
        self.warn(diagnostic);
        ErrorReported
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

/// `a, b and c`, for lists in messages.
fn list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "none".to_string(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
