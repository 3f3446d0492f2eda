//! Reads the work of a step or of its undo: a call of a service, or a function.

use toml::de::DeValue;

use super::{Defaults, File};
use crate::definition::builder::{TIMEOUT, service_of, split_url};
use crate::definition::reader::Section;
use crate::definition::{Action, Call, Retry, Work};
use crate::expr::{Body, ExprError, Template};

pub(super) const WORK_KEYS: &[&str] = &[
    "service", "call", "function", "headers", "body", "expect", "refuse", "timeout", "retry",
];

const NOTHING: Defaults = Defaults {
    timeout: None,
    retry: None,
};

/// The service of a call.
#[derive(Clone, Copy)]
pub(super) enum ServiceRef {
    Nothing,
    Service(usize),
    Wrong,
}

impl<'a> File<'_, 'a> {
    pub(super) fn work(
        &mut self,
        section: &Section<'a>,
        service: ServiceRef,
        usual: Retry,
    ) -> Option<Work> {
        let is_undo = usual == Retry::UNDO;
        let timeout = self.reader.duration(section, "timeout");
        let retry = self.retry(section, usual.clone());
        let action = match (section.has("call"), section.has("function")) {
            (true, false) => Action::Call(self.call(section, service)?),
            (false, true) => Action::Function(self.reader.text(section, "function")?.0.to_owned()),
            _ => {
                let message = format!("{} needs either `call` or `function`", section.name);
                let hint = "write call = \"PUT /api/packages/{{input.id}}\"";
                self.reader.mistake(section.at, message, hint);
                return None;
            }
        };
        let defaults = match &action {
            Action::Call(call) => self.defaults.get(call.service).cloned(),
            Action::Function(_) => None,
        };
        let service_retry = (defaults.as_ref())
            .and_then(|defaults| defaults.retry.clone())
            .filter(|_| !is_undo);
        Some(Work {
            action,
            timeout: timeout
                .or(defaults.and_then(|defaults| defaults.timeout))
                .unwrap_or(TIMEOUT),
            retry: retry.or(service_retry).unwrap_or(usual),
        })
    }

    fn call(&mut self, section: &Section<'a>, named: ServiceRef) -> Option<Call> {
        let (text, at) = self.reader.text(section, "call")?;
        let Some((method, url)) = text.split_once(' ') else {
            let hint = "write a method and a path: call = \"GET /api/accounts/{{input.ownerId}}\"";
            self.reader
                .mistake(at, format!("`{text}` is no call"), hint);
            return None;
        };
        let url = url.trim();
        let (service, path) = match url.contains("://") {
            true => match split_url(url) {
                Ok((target, path)) => {
                    let service = service_of(&mut self.definition, target);
                    self.defaults
                        .resize(self.definition.services.len(), NOTHING);
                    (service, path)
                }
                Err(error) => {
                    let hint = "the host cannot have holes";
                    self.reader.mistake(at, error.to_string(), hint);
                    return None;
                }
            },
            false => match named {
                ServiceRef::Service(service) => (service, url.to_owned()),
                ServiceRef::Wrong => return None,
                ServiceRef::Nothing => {
                    let hint = "add service = \"NAME\", or write http://host:port/path";
                    let message = format!("`{url}` belongs to no service");
                    self.reader.mistake(at, message, hint);
                    return None;
                }
            },
        };
        let path = Template::parse(&path);
        Some(Call {
            service,
            method: method.to_ascii_uppercase(),
            path: self.expr(path, "call", at)?,
            headers: self.headers(section),
            body: self.body(section),
            expect: self.reader.statuses(section, "expect").unwrap_or_default(),
            refuse: self.reader.statuses(section, "refuse").unwrap_or_default(),
        })
    }

    fn headers(&mut self, section: &Section<'a>) -> Vec<(String, Template)> {
        let Some(headers) = self.reader.section(section, "headers", "headers") else {
            return Vec::new();
        };
        let mut templates = Vec::new();
        for (name, value) in headers.table.iter() {
            let DeValue::String(text) = value.get_ref() else {
                let message = format!("the header `{}` must be a text", name.get_ref());
                self.reader.mistake(value.span().start, message, "");
                continue;
            };
            let template = Template::parse(text);
            if let Some(template) = self.expr(template, "headers", value.span().start) {
                templates.push((name.get_ref().to_string(), template));
            }
        }
        templates
    }

    fn body(&mut self, section: &Section<'a>) -> Option<Body> {
        let value = section.value("body")?;
        let at = value.span().start;
        let body = match value.get_ref() {
            DeValue::String(text) => whole_or_text(text),
            _ => Body::from_json(&self.reader.json(value)?),
        };
        self.expr(body, "body", at)
    }
}

/// A body that is a single template variable is sent as JSON.
fn whole_or_text(text: &str) -> Result<Body, ExprError> {
    let trimmed = text.trim();
    let is_one_hole =
        trimmed.starts_with("{{") && trimmed.ends_with("}}") && trimmed.matches("{{").count() == 1;
    match is_one_hole {
        true => Body::from_json(&trimmed.into()),
        false => Template::parse(text).map(Body::Text),
    }
}
