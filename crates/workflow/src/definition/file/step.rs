//! Reads the steps of a file and their conditions.

use highwater_settings::{Entry, Section};
use highwater_spelling::nearest;

use super::work::{ServiceRef, WORK_KEYS};
use super::{File, read_duration};
use crate::definition::builder::UNDO_EXPECT;
use crate::definition::{Action, RefusalRule, Retry, Step};
use crate::expr::{Condition, ExprError};

impl<'a> File<'_, 'a> {
    /// Returns the tables of the steps, for mistakes that are found later.
    pub(super) fn steps(&mut self, top: &Section<'a>) -> Vec<Section<'a>> {
        if !top.has("steps") {
            self.reader
                .missing(top, "steps", "a [[steps]] table for each step");
        }
        let steps = self.reader.elements(top, "steps");
        for section in &steps {
            self.step(section);
        }
        steps
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
            self.reader.missing(section, "name", "name = \"drone\"");
        }
        let name = self.reader.text(section, "name", "drone");
        let service = self.service_named(section);
        let work = self.work(section, service, Retry::STEP);
        let undo = self.reader.section(section, "undo").map(|undo| {
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
        let reason = self
            .reader
            .text(section, "reason", "the account is suspended");
        let refuse_when = self
            .condition(section, "refuse_when")
            .map(|when| RefusalRule {
                reason: reason.unwrap_or_else(|| when.source().to_owned()),
                when,
            });
        let step = Step {
            name: name?,
            when: self.condition(section, "when"),
            finish_when: self.condition(section, "finish_when"),
            group: self.reader.text(section, "group", "booking"),
            after: read_duration(self.reader, section, "after"),
            work: work?,
            undo: undo.flatten(),
            refuse_when,
        };
        self.definition.steps.push(step);
        Some(())
    }

    fn condition(&mut self, section: &Section<'a>, key: &str) -> Option<Condition> {
        let (text, entry) = self
            .reader
            .text_entry(section, key, "input.expedited == true")?;
        let parsed = Condition::parse(text);
        self.expr(parsed, &entry)
    }

    pub(super) fn expr<T>(&mut self, parsed: Result<T, ExprError>, entry: &Entry<'_>) -> Option<T> {
        match parsed {
            Ok(expr) => Some(expr),
            Err(error) => {
                let message = format!("\"{}\": {error}", entry.name());
                self.reader.wrong_value(entry, &message, "");
                None
            }
        }
    }

    /// The service that a section names; one that is wrong has been noted.
    fn service_named(&mut self, section: &Section<'a>) -> ServiceRef {
        let Some((name, entry)) = self.reader.text_entry(section, "service", "drone") else {
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
            let label = match nearest(name, self.names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("add [services.{name}] with its url"),
            };
            let message = format!("there is no service \"{name}\"");
            self.reader.wrong_value(&entry, &message, &label);
        }
        ServiceRef::Wrong
    }
}
