//! Removes columns of reference data that no lookup needs.

use super::{mark, pick, positions, renumber, visit_columns};
use crate::plan::{Reference, ReferenceStep};
use crate::visit::{Visit, pred_mut};

/// The number of columns of a table after its steps.
pub(super) fn width(reference: &Reference) -> usize {
    let projected = reference.steps.iter().rev().find_map(|step| match step {
        ReferenceStep::Project(items) => Some(items.len()),
        ReferenceStep::Filter(_) => None,
    });
    projected.unwrap_or(reference.reads.len())
}

/// The table with the needed columns, and their new positions.
pub(super) fn slim(mut reference: Reference, wanted: &[bool]) -> (Reference, Vec<usize>) {
    let marks = marks(&mut reference, wanted);
    let mut columns = positions(&marks[0]);
    reference.reads = pick(reference.reads, &marks[0]);
    let mut steps = Vec::new();
    for (step, wanted) in reference.steps.into_iter().zip(&marks[1..]) {
        match step {
            ReferenceStep::Filter(mut keep) => {
                pred_mut(
                    &mut keep,
                    &mut Visit {
                        expr: &mut |e| renumber(&columns, e),
                        span: None,
                    },
                );
                steps.push(ReferenceStep::Filter(keep));
            }
            ReferenceStep::Project(items) => {
                let mut items = pick(items, wanted);
                for item in &mut items {
                    crate::visit::expr_mut(
                        &mut item.expr,
                        &mut Visit {
                            expr: &mut |e| renumber(&columns, e),
                            span: None,
                        },
                    );
                }
                columns = positions(wanted);
                if !items.is_empty() {
                    steps.push(ReferenceStep::Project(items));
                }
            }
        }
    }
    reference.steps = steps;
    (reference, columns)
}

/// The needed columns: of the table itself, then of each step.
fn marks(reference: &mut Reference, wanted: &[bool]) -> Vec<Vec<bool>> {
    let reads = reference.reads.len();
    let widths: Vec<usize> = std::iter::once(reads)
        .chain(reference.steps.iter().scan(reads, |width, step| {
            if let ReferenceStep::Project(items) = step {
                *width = items.len();
            }
            Some(*width)
        }))
        .collect();
    let mut all: Vec<Vec<bool>> = widths.iter().map(|width| vec![false; *width]).collect();
    if let Some(last) = all.last_mut() {
        last.copy_from_slice(wanted);
    }
    for (index, step) in reference.steps.iter_mut().enumerate().rev() {
        let above = all[index + 1].clone();
        let below = &mut all[index];
        match step {
            ReferenceStep::Filter(keep) => {
                below.copy_from_slice(&above);
                pred_mut(
                    keep,
                    &mut Visit {
                        expr: &mut |e| mark(below, e),
                        span: None,
                    },
                );
            }
            ReferenceStep::Project(items) => {
                for (item, _) in items.iter_mut().zip(above).filter(|(_, wanted)| *wanted) {
                    visit_columns(&mut item.expr, &mut |column| below[column] = true);
                }
            }
        }
    }
    all
}
