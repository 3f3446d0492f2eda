//! Workflows: their definitions are read and checked before anything starts.

use highwater_env::disk;
use highwater_workflow::Template;
use highwater_workflow::{Definition, Supervision};

use super::Build;
use crate::workflows::Workflow;

impl Build<'_> {
    pub(super) fn workflow(&mut self, name: &str) -> Option<Workflow> {
        let at = |part: &str| format!("workflows.{name}.{part}");
        let definition = self.definition(name, &at("file"))?;
        let hub = self.settings.text(&at("hub")).map(str::to_owned);
        let id = match self.settings.text(&at("id")).map(Template::parse) {
            Some(Err(error)) => {
                let hint = "write id = \"{{input.deliveryId}}\"";
                self.problem(&at("id"), error.to_string(), hint);
                return None;
            }
            Some(Ok(id)) => Some(id),
            None => None,
        };
        Some(Workflow {
            definition,
            hub,
            id,
            partitions: self.count(&at("partitions")),
            running_max: self.count(&at("running_max")) as usize,
            input_bytes_max: self.bytes(&at("input_bytes_max")),
            keep: self.time(&at("keep")),
            supervision: match self.settings.text(&at("supervisor")) {
                Some("elsewhere") => Supervision::Elsewhere,
                _ => Supervision::Here,
            },
        })
    }

    fn definition(&mut self, name: &str, key: &str) -> Option<Definition> {
        let Some(path) = self.path(key) else {
            let message = format!("workflow `{name}` has no definition");
            let hint = format!("write file = \"{name}.toml\"");
            self.problem(&format!("workflows.{name}."), message, &hint);
            return None;
        };
        let text = match disk::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot read the definition of workflow `{name}`: {error}");
                self.problem(key, message, &format!("looked for {}", path.display()));
                return None;
            }
        };
        match Definition::from_toml(&path.display().to_string(), &text) {
            Ok(definition) if definition.name == name => Some(definition),
            Ok(definition) => {
                let message = format!("the workflow in that file is called `{}`", definition.name);
                let hint = format!("write [workflows.{}]", definition.name);
                self.problem(key, message, &hint);
                None
            }
            Err(error) => {
                self.problem(key, error.to_string(), "docs/workflows.md has the format");
                None
            }
        }
    }
}
