//! CREATE TABLE: the declared columns of an input (A-28: and no others).

use super::Binder;
use crate::Span;
use crate::ast::{CreateTable, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::plan::Type;

/// The declared columns of an input.
pub(super) struct Table {
    name: String,
    columns: Vec<(String, Type)>,
    span: Span,
}

impl Binder<'_> {
    pub(super) fn tables(&mut self, tables: &[CreateTable]) {
        for table in tables {
            self.table(table);
        }
    }

    fn table(&mut self, table: &CreateTable) {
        let name = &table.name.name;
        if self.tables.iter().any(|known| table.name.is(&known.name)) {
            let message = format!("`{name}` is declared twice");
            let error = Diagnostic::error(code::TABLE, table.name.span, message);
            self.report(error.label("the second one"));
            return;
        }
        let mut columns: Vec<(String, Type)> = Vec::new();
        for (column, of) in &table.columns {
            if columns.iter().any(|(known, _)| *known == column.name) {
                let message = format!("there are two columns called `{}`", column.name);
                let error = Diagnostic::error(code::DUPLICATE_COLUMN, column.span, message);
                self.report(error.label("the second one"));
                continue;
            }
            columns.push((column.name.clone(), *of));
        }
        self.tables.push(Table {
            name: name.clone(),
            columns,
            span: table.name.span,
        });
    }

    /// The columns that the query declares for an input, if any.
    pub(super) fn schema(&self, input: &str) -> Option<Vec<(String, Type)>> {
        let table = self.tables.iter().find(|t| same_name(&t.name, input))?;
        Some(table.columns.clone())
    }

    /// A declaration of an unused name is most likely a misspelling.
    pub(super) fn warn_about_tables(&mut self) {
        let read = |name: &str| self.plan.inputs.iter().any(|i| same_name(&i.name, name));
        let declared = |name: &str| self.catalog.inputs.iter().any(|i| same_name(&i.name, name));
        let lost: Vec<Diagnostic> = self
            .tables
            .iter()
            .filter(|table| !read(&table.name) && !declared(&table.name))
            .map(|table| {
                let message = format!("there is no input `{}`, so this has no effect", table.name);
                let help = "CREATE TABLE declares the columns of the input of the same name";
                Diagnostic::warning(code::TABLE, table.span, message).help(help)
            })
            .collect();
        lost.into_iter().for_each(|warning| self.warn(warning));
    }
}
