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

mod step;
mod work;

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::builder::{CONCURRENCY, service_of, split_url};
use super::reader::{Reader, Section};
use super::{Breaker, Definition, DefinitionError, Notify, Occasion, Retry, Service, Target};

/// All mistakes in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    pub file: String,
    pub mistakes: Vec<FileMistake>,
}

/// One mistake, with a hint if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMistake {
    pub line: usize,
    pub message: String,
    pub hint: String,
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mistake) in self.mistakes.iter().enumerate() {
            let newline = if number > 0 { "\n" } else { "" };
            let FileMistake {
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
    /// Reads the text of a file; `file` is its name in mistakes.
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

/// Defaults of a service for its calls.
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
    /// Names of all services, invalid ones included.
    names: Vec<String>,
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

    /// `circuit = false` disables it.
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
