//! Definitions in TOML files.
//!
//! ```toml
//! name = "delivery"
//! deadline = "5m"
//!
//! [services.drone]
//! url = "http://127.0.0.1:7004"
//!
//! [[steps]]
//! name = "drone"
//! service = "drone"
//! call = "PUT /api/dronedeliveries/{{input.deliveryId}}"
//! body = { deliveryId = "{{input.deliveryId}}", expedited = "{{input.expedited}}" }
//! undo = { call = "DELETE /api/dronedeliveries/{{input.deliveryId}}" }
//! ```

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::builder::{CONCURRENCY, TIMEOUT, UNDO_EXPECT, service_of, split_url};
use super::reader::{Reader, Section};
use super::{
    Action, Breaker, Call, Definition, DefinitionError, Notify, Occasion, Refusal, Retry, Service,
    Step, Target, Work,
};
use crate::expr::{Body, Condition, ExprError, Template};

/// Everything that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    pub file: String,
    pub mistakes: Vec<Mistake>,
}

/// One thing that is wrong, and what would be right, if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub line: usize,
    pub message: String,
    pub hint: String,
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mistake) in self.mistakes.iter().enumerate() {
            let newline = if number > 0 { "\n" } else { "" };
            let Mistake {
                line,
                message,
                hint,
            } = mistake;
            write!(f, "{newline}{}:{line}: {message}", self.file)?;
            if !hint.is_empty() {
                write!(f, "\n  {hint}")?;
            }
        }
        Ok(())
    }
}

impl Definition {
    /// Reads a file's text; `file` is what mistakes are reported under.
    pub fn from_toml(file: &str, source: &str) -> Result<Definition, FileError> {
        let parsed = DeTable::parse(source);
        let mut reader = Reader::new(source);
        let definition = match &parsed {
            Ok(table) => read(&mut reader, table),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                reader.mistake(at, format!("not valid TOML: {}", error.message()), "");
                None
            }
        };
        reader.mistakes.sort_by_key(|mistake| mistake.line);
        match definition {
            Some(definition) if reader.mistakes.is_empty() => Ok(definition),
            _ => Err(FileError {
                file: file.to_owned(),
                mistakes: reader.mistakes,
            }),
        }
    }
}

/// What a service says for all its calls.
#[derive(Clone)]
struct Defaults {
    timeout: Option<std::time::Duration>,
    retry: Option<Retry>,
}

fn read<'a>(reader: &mut Reader<'a>, table: &'a Spanned<DeTable<'a>>) -> Option<Definition> {
    let top = Section {
        table: table.get_ref(),
        name: "the file".into(),
        at: 0,
    };
    reader.known_keys(&top, &["name", "deadline", "services", "steps", "notify"]);
    let name = reader.text(&top, "name");
    if !top.has("name") {
        reader.mistake(0, "a workflow needs a name", "write name = \"delivery\"");
    }
    let mut file = File {
        definition: Definition {
            name: name.unwrap_or_default().0.to_owned(),
            deadline: reader.duration(&top, "deadline"),
            services: Vec::new(),
            steps: Vec::new(),
            notify: None,
        },
        defaults: Vec::new(),
        names: Vec::new(),
        reader,
    };
    if let Some(services) = file.reader.section(&top, "services", "[services]") {
        for (name, value) in services.table.iter() {
            file.service(name.get_ref(), value);
        }
    }
    let lines = file.steps(&top);
    file.notify(&top);
    let File {
        reader, definition, ..
    } = file;
    if !reader.mistakes.is_empty() {
        return None;
    }
    match definition.check() {
        Ok(()) => Some(definition),
        Err(DefinitionError::Step { number, reason }) => {
            let step = &definition.steps[number].name;
            let at = lines.get(number).copied().unwrap_or(0);
            reader.mistake(at, format!("step `{step}`: {reason}"), "");
            None
        }
        Err(other) => {
            reader.mistake(0, other.to_string(), "");
            None
        }
    }
}

struct File<'r, 'a> {
    reader: &'r mut Reader<'a>,
    definition: Definition,
    defaults: Vec<Defaults>,
    /// Of services, those that are wrong included.
    names: Vec<String>,
}

/// Which service a call is for.
#[derive(Clone, Copy)]
enum Named {
    Nothing,
    Service(usize),
    Wrong,
}

impl<'a> File<'_, 'a> {
    fn service(&mut self, name: &str, value: &'a Spanned<DeValue<'a>>) -> Option<()> {
        let title = format!("[services.{name}]");
        self.names.push(name.to_owned());
        let section = self.reader.as_section(value, name, &title)?;
        let known = ["url", "concurrency", "timeout", "retry", "circuit"];
        self.reader.known_keys(&section, &known);
        let concurrency = self.reader.count(&section, "concurrency", 100_000);
        let circuit = self.circuit(&section);
        let defaults = Defaults {
            timeout: self.reader.duration(&section, "timeout"),
            retry: self.retry(&section, Retry::STEP),
        };
        let Some((url, at)) = self.reader.text(&section, "url") else {
            if !section.has("url") {
                let message = format!("service `{name}` has no address");
                let hint = "write url = \"http://127.0.0.1:7001\"";
                self.reader.mistake(section.at, message, hint);
            }
            return None;
        };
        match Target::parse(url) {
            Ok(target) => {
                self.definition.services.push(Service {
                    name: name.to_owned(),
                    target,
                    concurrency: concurrency.unwrap_or(CONCURRENCY),
                    circuit,
                });
                self.defaults.push(defaults);
            }
            Err(error) => self.reader.mistake(at, error.to_string(), ""),
        }
        Some(())
    }

    /// `false` is none.
    fn circuit(&mut self, section: &Section<'a>) -> Option<Breaker> {
        let usual = Breaker::default();
        let value = section.value("circuit").map(|value| value.get_ref());
        match value {
            None | Some(DeValue::Boolean(true)) => return Some(usual),
            Some(DeValue::Boolean(false)) => return None,
            Some(_) => {}
        }
        let section = self.reader.section(section, "circuit", "circuit")?;
        let known = ["window", "failures", "percent", "open"];
        self.reader.known_keys(&section, &known);
        let percent = self.reader.count(&section, "percent", 100);
        Some(Breaker {
            window: (self.reader.duration(&section, "window")).unwrap_or(usual.window),
            failures: (self.reader.count(&section, "failures", u32::MAX)).unwrap_or(usual.failures),
            percent: percent.map_or(usual.percent, |percent| percent as u8),
            open: self.reader.duration(&section, "open").unwrap_or(usual.open),
        })
    }

    fn retry(&mut self, section: &Section<'a>, usual: Retry) -> Option<Retry> {
        let section = self.reader.section(section, "retry", "retry")?;
        let known = ["tries", "delay", "delay_max", "jitter"];
        self.reader.known_keys(&section, &known);
        let jitter = self.reader.count(&section, "jitter", 100);
        Some(Retry {
            tries: (self.reader.count(&section, "tries", 1_000_000)).unwrap_or(usual.tries),
            delay: (self.reader.duration(&section, "delay")).unwrap_or(usual.delay),
            delay_max: (self.reader.duration(&section, "delay_max")).unwrap_or(usual.delay_max),
            jitter: jitter.map_or(usual.jitter, |percent| percent as u8),
        })
    }

    /// The steps, and the byte where each begins.
    fn steps(&mut self, top: &Section<'a>) -> Vec<usize> {
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
                Named::Nothing => service,
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
        let refuse_when = self.condition(section, "refuse_when").map(|when| Refusal {
            reason: reason.map_or_else(|| when.source().to_owned(), |(text, _)| text.to_owned()),
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

    fn expr<T>(&mut self, parsed: Result<T, ExprError>, key: &str, at: usize) -> Option<T> {
        match parsed {
            Ok(expr) => Some(expr),
            Err(error) => {
                self.reader.mistake(at, format!("`{key}`: {error}"), "");
                None
            }
        }
    }

    /// The service that a section names; one that is wrong has been noted.
    fn service_named(&mut self, section: &Section<'a>) -> Named {
        let Some((name, at)) = self.reader.text(section, "service") else {
            return match section.has("service") {
                true => Named::Wrong,
                false => Named::Nothing,
            };
        };
        let mut services = self.definition.services.iter();
        if let Some(found) = services.position(|service| service.name == name) {
            return Named::Service(found);
        }
        if !self.names.iter().any(|known| known == name) {
            let hint = match highwater_query::nearest(name, self.names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add [services.{name}] with its url"),
            };
            self.reader
                .mistake(at, format!("there is no service `{name}`"), hint);
        }
        Named::Wrong
    }

    fn work(&mut self, section: &Section<'a>, service: Named, usual: Retry) -> Option<Work> {
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

    fn call(&mut self, section: &Section<'a>, named: Named) -> Option<Call> {
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
                Named::Service(service) => (service, url.to_owned()),
                Named::Wrong => return None,
                Named::Nothing => {
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

    fn notify(&mut self, top: &Section<'a>) -> Option<()> {
        let section = self.reader.section(top, "notify", "[notify]")?;
        self.reader.known_keys(&section, &["url", "on"]);
        let (url, at) = self.reader.text(&section, "url")?;
        let (target, path) = match split_url(url) {
            Ok(parts) => parts,
            Err(error) => {
                self.reader.mistake(at, error.to_string(), "");
                return None;
            }
        };
        let occasions = match section.value("on") {
            None => vec![Occasion::Parked],
            Some(value) => {
                let json = self.reader.json(value)?;
                match serde_json::from_value(json) {
                    Ok(occasions) => occasions,
                    Err(_) => {
                        let message = "`on` must be a list of `parked` and `failed`";
                        self.reader.mistake(value.span().start, message, "");
                        return None;
                    }
                }
            }
        };
        self.definition.notify = Some(Notify {
            service: service_of(&mut self.definition, target),
            path,
            on: occasions,
        });
        Some(())
    }
}

/// A body that is one hole is sent as JSON, whatever fills it.
fn whole_or_text(text: &str) -> Result<Body, ExprError> {
    let trimmed = text.trim();
    let is_one_hole =
        trimmed.starts_with("{{") && trimmed.ends_with("}}") && trimmed.matches("{{").count() == 1;
    match is_one_hole {
        true => Body::from_json(&trimmed.into()),
        false => Template::parse(text).map(Body::Text),
    }
}

const NOTHING: Defaults = Defaults {
    timeout: None,
    retry: None,
};

const WORK_KEYS: &[&str] = &[
    "service", "call", "function", "headers", "body", "expect", "refuse", "timeout", "retry",
];
