//! Operators without state: filter and project.

use highwater_query::plan::{self, Expr, Pred};

use super::{Context, Item, Operator};
use crate::chunk::Chunk;
use crate::column::Column;
use crate::eval::{self, Faults};

pub(crate) struct Filter {
    pub keep: Pred,
}

impl Filter {
    fn apply(&self, chunk: Chunk, context: &mut Context<'_>) -> Chunk {
        let mut faults = Faults::new(chunk.rows());
        let mask = eval::test(&self.keep, &chunk, &mut faults);
        if !faults.is_silent() {
            context.errors.drop_failed_rows(chunk.clone(), &faults);
        }
        chunk.filter(&mask)
    }
}

pub(crate) struct Project {
    exprs: Vec<Expr>,
}

impl Project {
    pub(crate) fn new(items: &[plan::Item]) -> Project {
        Project {
            exprs: items.iter().map(|item| item.expr.clone()).collect(),
        }
    }

    fn apply(&self, chunk: Chunk, context: &mut Context<'_>) -> Chunk {
        let mut faults = Faults::new(chunk.rows());
        let columns = match context.budget.work_limit() {
            None => eval::evaluate_all(&self.exprs, &chunk, &mut faults),
            Some(limit) => {
                let columns = self.exprs.iter().map(|expr| match limit.is_reached() {
                    true => Column::Null(chunk.rows()),
                    false => {
                        let column = eval::evaluate(expr, &chunk, &mut faults);
                        limit.charge(column.approximate_bytes() as u64);
                        column
                    }
                });
                columns.collect()
            }
        };
        context
            .errors
            .drop_failed_rows(chunk.with_columns(columns), &faults)
    }
}

impl Operator for Filter {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        let item = item.map_rows(|chunk| self.apply(chunk, context));
        context.out.push(item);
    }
}

impl Operator for Project {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        let item = item.map_rows(|chunk| self.apply(chunk, context));
        context.out.push(item);
    }
}
