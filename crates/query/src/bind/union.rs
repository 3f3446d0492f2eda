//! UNION: branches with the same columns, merged in time order.

use super::columns::field_name;
use super::{BindResult, Binder, Partitioning, Relation};
use crate::Span;
use crate::ast::{Query, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::{Name, Node};

/// The visible columns of a branch, with their positions.
type VisibleColumns = Vec<(usize, Name)>;

impl<'a> Binder<'a> {
    pub(super) fn union(&mut self, branches: &[Query], span: Span) -> BindResult<Relation> {
        let bound: Vec<_> = branches
            .iter()
            .map(|branch| (branch.span(), self.query(branch)))
            .collect();
        let mut shapes: Vec<(Relation, VisibleColumns)> = Vec::new();
        for (span, relation) in bound {
            let relation = relation?;
            self.forbid_reference(&relation, "be part of a UNION", span)?;
            self.resolve_clock(&relation);
            let shape = self.shape(&relation);
            if let Some((first, expected)) = shapes.first() {
                let partition = first.partition.clone();
                self.check_shape(expected, &shape, span)?;
                self.check_partitioning(partition.as_ref(), relation.partition.as_ref(), span)?;
            }
            shapes.push((relation, shape));
        }
        let Some((first, shape)) = shapes.first() else {
            return Err(self.report(Diagnostic::error(code::UNION, span, "an empty UNION")));
        };
        let partition = first.partition.clone();
        let names = shape.iter().map(|(_, name)| name.clone()).collect();
        let columns = |shape: &VisibleColumns| shape.iter().map(|(index, _)| *index).collect();
        let from = shapes
            .iter()
            .map(|(relation, shape)| (relation.node, columns(shape)))
            .collect();
        Ok(Relation {
            node: self.push(Node::Union { from, names }),
            bare: None,
            partition,
            reference: false,
        })
    }

    fn shape(&self, relation: &Relation) -> VisibleColumns {
        let names = self
            .plan
            .column_names(relation.node)
            .into_iter()
            .enumerate();
        names
            .filter(|(_, name)| !matches!(name, Name::Hidden(_)))
            .collect()
    }

    fn check_shape(
        &mut self,
        expected: &VisibleColumns,
        found: &VisibleColumns,
        span: Span,
    ) -> BindResult<()> {
        let error = |message: String| Diagnostic::error(code::UNION, span, message);
        let open = |shape: &VisibleColumns| shape.iter().any(|(_, name)| *name == Name::Spread);
        if open(expected) != open(found) {
            let message =
                "one branch of this UNION has a `*`, another lists its columns".to_string();
            let help = "list the same columns in every branch, or use `*` in all of them";
            return Err(self.report(error(message).help(help)));
        }
        if expected.len() != found.len() {
            let message = format!(
                "the branches of this UNION have {} and {} columns",
                expected.len(),
                found.len()
            );
            return Err(self.report(error(message).help("the same columns, in the same order")));
        }
        for (position, ((_, expected), (_, found))) in expected.iter().zip(found).enumerate() {
            if !same_column(expected, found) {
                return Err(self.different(position + 1, expected, found, span));
            }
        }
        Ok(())
    }

    fn different(
        &mut self,
        position: usize,
        expected: &Name,
        found: &Name,
        span: Span,
    ) -> ErrorReported {
        let show = |name: &Name| field_name(name).unwrap_or("*").to_string();
        let (expected, found) = (show(expected), show(found));
        let message =
            format!("column {position} of this UNION is `{expected}` above and `{found}` here");
        let error = Diagnostic::error(code::UNION, span, message);
        let help = match found.as_str() {
            "*" => "the same columns, in the same order".to_string(),
            _ => format!("write {found} AS {expected}, or put the columns in the same order"),
        };
        self.report(error.help(help))
    }

    fn check_partitioning(
        &mut self,
        first: Option<&Partitioning>,
        here: Option<&Partitioning>,
        span: Span,
    ) -> BindResult<()> {
        let (Some(first), Some(here)) = (first, here) else {
            return Ok(());
        };
        let counts = first.count.zip(here.count).is_none_or(|(a, b)| a == b);
        if first.keys == here.keys && counts {
            return Ok(());
        }
        let show = |by: &Partitioning| match by.count {
            Some(count) => format!("{} INTO {count}", by.keys.join(", ")),
            None => by.keys.join(", "),
        };
        let message = "the branches of this UNION are partitioned differently";
        let label = format!("by {}, above by {}", show(here), show(first));
        Err(self.report(Diagnostic::error(code::UNION, span, message).label(label)))
    }
}

fn same_column(a: &Name, b: &Name) -> bool {
    match (field_name(a), field_name(b)) {
        (Some(a), Some(b)) => same_name(a, b),
        _ => a == b,
    }
}
