//! Reference data: tables without time, on the right of a JOIN.
//!
//! While binding, a table is a node like any other, so that names resolve in the same way: a source, and steps that
//! select rows and columns of it. The lookup refers to that node instead of the table. Once all columns are known,
//! [`resolve_tables`] turns these nodes into [`Plan::references`].

use super::{BindResult, Binder, Relation};
use crate::Span;
use crate::diagnostic::{Diagnostic, code};
use crate::plan::{ExprKind, Item, LookupNode, Node, NodeId, Plan, Reference, ReferenceStep, Side};

/// The node of a lookup's table, until [`resolve_tables`].
pub(super) fn table_of(lookup: &LookupNode) -> NodeId {
    NodeId(lookup.reference)
}

impl Binder<'_> {
    /// Reference data never advances time, so a query over it alone has no output.
    pub(super) fn forbid_reference(
        &mut self,
        relation: &Relation,
        what: &str,
        span: Span,
    ) -> BindResult<()> {
        if !relation.reference {
            return Ok(());
        }
        let message = format!("reference data cannot {what} on its own");
        let error = Diagnostic::error(code::REFERENCE, span, message);
        Err(self.report(error.help("join it to a stream: FROM stream JOIN reference ON ..")))
    }

    /// A step over reference data is reference data as long as it only selects from it.
    pub(super) fn check_reference_step(&mut self, node: NodeId, span: Span) -> BindResult<()> {
        let mut below = node;
        loop {
            below = match &self.plan.nodes[below.0] {
                Node::Source { .. } => return Ok(()),
                Node::Filter { from, .. } | Node::Project { from, .. } => *from,
                _ => break,
            };
        }
        let message = "a step over reference data can only select rows and columns";
        let error = Diagnostic::error(code::REFERENCE, span, message);
        Err(self.report(error.help("join it to a stream first")))
    }
}

/// Resolves the table of every lookup. Lookups of the same table share it.
pub(super) fn resolve_tables(mut plan: Plan) -> Plan {
    let mut tables: Vec<NodeId> = Vec::new();
    for index in 0..plan.nodes.len() {
        let Node::Lookup(mut lookup) = plan.nodes[index].clone() else {
            continue;
        };
        let (table, columns) = without_passing(&plan, table_of(&lookup));
        let known = tables.iter().position(|known| *known == table);
        lookup.reference = known.unwrap_or_else(|| {
            tables.push(table);
            let reference = reference(&plan, table);
            plan.references.push(reference);
            tables.len() - 1
        });
        if let Some(columns) = columns {
            renumber(&mut lookup, &columns);
        }
        plan.nodes[index] = Node::Lookup(lookup);
    }
    plan
}

/// The input of a projection that only passes columns on, and the positions of the columns there.
fn without_passing(plan: &Plan, node: NodeId) -> (NodeId, Option<Vec<usize>>) {
    let column = |item: &Item| match item.expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    };
    match &plan.nodes[node.0] {
        Node::Project { from, items } => match items.iter().map(column).collect() {
            Some(columns) => (*from, Some(columns)),
            None => (node, None),
        },
        _ => (node, None),
    }
}

fn renumber(lookup: &mut LookupNode, columns: &[usize]) {
    for (side, column) in &mut lookup.columns {
        if *side == Side::Right {
            *column = columns[*column];
        }
    }
    for (_, right) in &mut lookup.keys {
        right.visit_mut(|e| {
            if let ExprKind::Column(column) = &mut e.kind {
                *column = columns[*column];
            }
        });
    }
}

fn reference(plan: &Plan, table: NodeId) -> Reference {
    let mut steps = Vec::new();
    let mut node = table;
    loop {
        node = match &plan.nodes[node.0] {
            Node::Filter { from, keep } => {
                steps.push(ReferenceStep::Filter(keep.clone()));
                *from
            }
            Node::Project { from, items } => {
                steps.push(ReferenceStep::Project(items.clone()));
                *from
            }
            Node::Source { input } => {
                let input = &plan.inputs[*input];
                steps.reverse();
                return Reference {
                    name: input.name.clone(),
                    reads: input.reads.clone(),
                    schema: input.schema.clone(),
                    steps,
                    span: input.span,
                };
            }
            other => unreachable!("check_reference_step has refused {other:?}"),
        };
    }
}
