//! Operators without state: filter and project.

use highwater_query::plan::{Expr, Item as Column, Pred};

use super::{Context, Item, Operator};
use crate::chunk::Chunk;
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
    pub(crate) fn new(items: &[Column]) -> Project {
        Project {
            exprs: items.iter().map(|item| item.expr.clone()).collect(),
        }
    }

    fn apply(&self, chunk: Chunk, context: &mut Context<'_>) -> Chunk {
        let mut faults = Faults::new(chunk.rows());
        let columns = eval::evaluate_all(&self.exprs, &chunk, &mut faults);
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
