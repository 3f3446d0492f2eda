//! Reads the work of a step or of its undo: a call of a service, or a function.

use highwater_settings::Section;
use toml::Spanned;
use toml::de::DeValue;

use super::json::read_json;
use super::{Defaults, File, read_duration};
use crate::definition::builder::{TIMEOUT, service_of, split_url};
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
        let timeout = read_duration(self.reader, section, "timeout");
        let retry = self.retry(section, usual.clone());
        let action = match (section.has("call"), section.has("function")) {
            (true, false) => Action::Call(self.call(section, service)?),
            (false, true) => Action::Function(self.reader.text(section, "function", "audit")?),
            _ => {
                let message = format!("{} needs either \"call\" or \"function\"", section.title());
                let label = "add call = \"PUT /api/packages/{{input.id}}\"";
                self.reader
                    .mistake(section.span(), &message, &section.path("call"), label);
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
        let example = "GET /api/accounts/{{input.ownerId}}";
        let (text, entry) = self.reader.text_entry(section, "call", example)?;
        let Some((method, url)) = text.split_once(' ') else {
            let label = format!("write a method and a path: \"{example}\"");
            let message = format!("\"{text}\" is no call");
            self.reader.wrong_value(&entry, &message, &label);
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
                    let label = "the host cannot have holes";
                    self.reader.wrong_value(&entry, &error.to_string(), label);
                    return None;
                }
            },
            false => match named {
                ServiceRef::Service(service) => (service, url.to_owned()),
                ServiceRef::Wrong => return None,
                ServiceRef::Nothing => {
                    let label = "add service = \"NAME\", or write http://host:port/path";
                    let message = format!("\"{url}\" belongs to no service");
                    self.reader.wrong_value(&entry, &message, label);
                    return None;
                }
            },
        };
        let path = Template::parse(&path);
        Some(Call {
            service,
            method: method.to_ascii_uppercase(),
            path: self.expr(path, &entry)?,
            headers: self.headers(section),
            body: self.body(section),
            expect: self.statuses(section, "expect").unwrap_or_default(),
            refuse: self.statuses(section, "refuse").unwrap_or_default(),
        })
    }

    fn headers(&mut self, section: &Section<'a>) -> Vec<(String, Template)> {
        let Some(headers) = self.reader.section(section, "headers") else {
            return Vec::new();
        };
        let mut templates = Vec::new();
        for entry in headers.entries() {
            let DeValue::String(text) = entry.value() else {
                let example = format!("headers = {{ {} = \"text\" }}", entry.name());
                self.reader.wrong_type(&entry, "a string", &example);
                continue;
            };
            let template = Template::parse(text);
            if let Some(template) = self.expr(template, &entry) {
                templates.push((entry.name().to_owned(), template));
            }
        }
        templates
    }

    fn body(&mut self, section: &Section<'a>) -> Option<Body> {
        let entry = section.entry("body")?;
        let body = match entry.value() {
            DeValue::String(text) => whole_or_text(text),
            _ => Body::from_json(&read_json(self.reader, &entry)?),
        };
        self.expr(body, &entry)
    }

    fn statuses(&mut self, section: &Section<'a>, key: &str) -> Option<Vec<u16>> {
        let entry = section.entry(key)?;
        let status = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let statuses: Option<Vec<u16>> = match entry.value() {
            DeValue::Array(items) => items.iter().map(status).collect(),
            _ => None,
        };
        let statuses = statuses.filter(|list| list.iter().all(|one| (100..600).contains(one)));
        if statuses.is_none() {
            let message = format!("\"{key}\" must be a list of statuses");
            let label = format!("for example: {key} = [200, 204]");
            self.reader.wrong_value(&entry, &message, &label);
        }
        statuses
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
