//! Workflows: their definitions are read and checked before anything starts.

use highwater_env::disk;
use highwater_workflow::Template;
use highwater_workflow::{Definition, Supervision};

use super::{Build, Table};
use crate::workflows::Workflow;

impl Build<'_> {
    pub(super) fn workflow(&mut self, table: &Table<'_>) -> Option<Workflow> {
        let definition = self.definition(table)?;
        let id = match table.text("id").map(Template::parse) {
            Some(Err(error)) => {
                let hint = "write id = \"{{input.deliveryId}}\"";
                return self.refuse(&table.key("id"), error.to_string(), hint);
            }
            Some(Ok(id)) => Some(id),
            None => None,
        };
        Some(Workflow {
            definition,
            hub: table.owned("hub"),
            id,
            partitions: table.count("partitions"),
            running_max: table.count("running_max") as usize,
            input_bytes_max: table.bytes("input_bytes_max"),
            keep: table.duration("keep"),
            supervision: match table.text("supervisor") {
                Some("elsewhere") => Supervision::Elsewhere,
                _ => Supervision::Here,
            },
        })
    }

    fn definition(&mut self, table: &Table<'_>) -> Option<Definition> {
        let (name, key) = (&table.name, table.key("file"));
        let Some(path) = table.path("file") else {
            let message = format!("workflow `{name}` has no definition");
            let hint = format!("write file = \"{name}.toml\"");
            return self.refuse(&table.key(""), message, &hint);
        };
        let text = match disk::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot read the definition of workflow `{name}`: {error}");
                return self.refuse(&key, message, &format!("looked for {}", path.display()));
            }
        };
        match Definition::from_toml(&path.display().to_string(), &text) {
            Ok(definition) if definition.name == *name => Some(definition),
            Ok(definition) => {
                let message = format!("the workflow in that file is called `{}`", definition.name);
                let hint = format!("write [workflows.{}]", definition.name);
                self.refuse(&key, message, &hint)
            }
            Err(error) => self.refuse(&key, error.to_string(), "docs/workflows.md has the format"),
        }
    }
}
