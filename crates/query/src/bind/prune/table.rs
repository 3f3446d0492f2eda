//! Removes columns of reference data that no lookup needs.

use super::{positions, retain};
use crate::plan::{Expr, ExprKind, Reference, ReferenceStep};

/// The number of columns of a table after its steps.
pub(super) fn width(reference: &Reference) -> usize {
    let projected = reference.steps.iter().rev().find_map(|step| match step {
        ReferenceStep::Project(items) => Some(items.len()),
        ReferenceStep::Filter(_) => None,
    });
    projected.unwrap_or(reference.reads.len())
}

/// The table with the needed columns, and their new positions.
pub(super) fn prune_columns(mut reference: Reference, wanted: &[bool]) -> (Reference, Vec<usize>) {
    let marks = marks(&reference, wanted);
    let mut columns = positions(marks[0].iter().copied());
    retain(&mut reference.reads, &marks[0]);
    for (step, wanted) in reference.steps.iter_mut().zip(&marks[1..]) {
        let renumber = |e: &mut Expr| {
            if let ExprKind::Column(column) = &mut e.kind {
                *column = columns[*column];
            }
        };
        match step {
            ReferenceStep::Filter(keep) => keep.visit_mut(renumber),
            ReferenceStep::Project(items) => {
                retain(items, wanted);
                for item in items {
                    item.expr.visit_mut(renumber);
                }
                columns = positions(wanted.iter().copied());
            }
        }
    }
    let is_empty =
        |step: &ReferenceStep| matches!(step, ReferenceStep::Project(items) if items.is_empty());
    reference.steps.retain(|step| !is_empty(step));
    (reference, columns)
}

/// The needed columns: of the table itself, then of each step.
fn marks(reference: &Reference, wanted: &[bool]) -> Vec<Vec<bool>> {
    let reads = reference.reads.len();
    let widths = reference.steps.iter().scan(reads, |width, step| {
        if let ReferenceStep::Project(items) = step {
            *width = items.len();
        }
        Some(*width)
    });
    let widths = std::iter::once(reads).chain(widths);
    let mut all: Vec<Vec<bool>> = widths.map(|width| vec![false; width]).collect();
    if let Some(last) = all.last_mut() {
        last.copy_from_slice(wanted);
    }
    for (index, step) in reference.steps.iter().enumerate().rev() {
        let above = all[index + 1].clone();
        let below = &mut all[index];
        let mut mark = |e: &Expr| {
            if let ExprKind::Column(column) = e.kind {
                below[column] = true;
            }
        };
        match step {
            ReferenceStep::Filter(keep) => {
                keep.visit(mark);
                let below = below.iter_mut().zip(above);
                below.for_each(|(mark, wanted)| *mark |= wanted);
            }
            ReferenceStep::Project(items) => {
                for (item, _) in items.iter().zip(above).filter(|(_, wanted)| *wanted) {
                    item.expr.visit(&mut mark);
                }
            }
        }
    }
    all
}
