//! Reads the steps of a file and their conditions.

use toml::de::DeValue;

use super::File;
use super::work::{ServiceRef, WORK_KEYS};
use crate::definition::builder::UNDO_EXPECT;
use crate::definition::reader::Section;
use crate::definition::{Action, RefusalRule, Retry, Step};
use crate::expr::{Condition, ExprError};

impl<'a> File<'_, 'a> {
    /// Reads all steps. Returns the byte offset of each.
    pub(super) fn steps(&mut self, top: &Section<'a>) -> Vec<usize> {
        let mut lines = Vec::new();
        let Some(value) = top.value("steps") else {
            let hint = "add a [[steps]] table for each step";
            self.reader.mistake(0, "a workflow needs steps", hint);
            return lines;
        };
        let DeValue::Array(items) = value.get_ref() else {
            let at = value.span().start;
            let hint = "write [[steps]] with two brackets";
            self.reader.mistake(at, "`steps` must be a list", hint);
            return lines;
        };
        for item in items.iter() {
            lines.push(item.span().start);
            if let Some(section) = self.reader.as_section(item, "steps", "[[steps]]") {
                self.step(&section);
            }
        }
        lines
    }

    fn step(&mut self, section: &Section<'a>) -> Option<()> {
        let own = [
            "name",
            "undo",
            "when",
            "refuse_when",
            "reason",
            "finish_when",
            "group",
            "after",
        ];
        let known: Vec<&str> = own.iter().chain(WORK_KEYS).copied().collect();
        self.reader.known_keys(section, &known);
        if !section.has("name") {
            let hint = "write name = \"drone\"";
            self.reader.mistake(section.at, "a step needs a name", hint);
        }
        let name = self.reader.text(section, "name").map(|(name, _)| name);
        let service = self.service_named(section);
        let work = self.work(section, service, Retry::STEP);
        let undo = self.reader.section(section, "undo", "undo").map(|undo| {
            self.reader.known_keys(&undo, WORK_KEYS);
            let service = match self.service_named(&undo) {
                ServiceRef::Nothing => service,
                own => own,
            };
            let mut work = self.work(&undo, service, Retry::UNDO);
            if let (Some(Action::Call(call)), false) = (
                work.as_mut().map(|work| &mut work.action),
                undo.has("expect"),
            ) {
                call.expect = UNDO_EXPECT.to_vec();
            }
            work
        });
        let reason = self.reader.text(section, "reason");
        let refuse_when = self
            .condition(section, "refuse_when")
            .map(|when| RefusalRule {
                reason: reason
                    .map_or_else(|| when.source().to_owned(), |(text, _)| text.to_owned()),
                when,
            });
        let step = Step {
            name: name?.to_owned(),
            when: self.condition(section, "when"),
            finish_when: self.condition(section, "finish_when"),
            group: (self.reader.text(section, "group")).map(|(text, _)| text.to_owned()),
            after: self.reader.duration(section, "after"),
            work: work?,
            undo: undo.flatten(),
            refuse_when,
        };
        self.definition.steps.push(step);
        Some(())
    }

    fn condition(&mut self, section: &Section<'a>, key: &str) -> Option<Condition> {
        let (text, at) = self.reader.text(section, key)?;
        let parsed = Condition::parse(text);
        self.expr(parsed, key, at)
    }

    pub(super) fn expr<T>(
        &mut self,
        parsed: Result<T, ExprError>,
        key: &str,
        at: usize,
    ) -> Option<T> {
        match parsed {
            Ok(expr) => Some(expr),
            Err(error) => {
                self.reader.mistake(at, format!("`{key}`: {error}"), "");
                None
            }
        }
    }

    /// The service a section names. An unknown one is reported.
    fn service_named(&mut self, section: &Section<'a>) -> ServiceRef {
        let Some((name, at)) = self.reader.text(section, "service") else {
            return match section.has("service") {
                true => ServiceRef::Wrong,
                false => ServiceRef::Nothing,
            };
        };
        let mut services = self.definition.services.iter();
        if let Some(found) = services.position(|service| service.name == name) {
            return ServiceRef::Service(found);
        }
        if !self.names.iter().any(|known| known == name) {
            let hint = match highwater_query::nearest(name, self.names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add [services.{name}] with its url"),
            };
            self.reader
                .mistake(at, format!("there is no service `{name}`"), hint);
        }
        ServiceRef::Wrong
    }
}
