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

mod json;
mod step;
mod work;

use std::time::Duration;

use highwater_settings::{FileError, FileReader, Section, read_file};
use toml::de::DeValue;

use self::json::read_json;
use super::builder::{CONCURRENCY, service_of, split_url};
use super::{Breaker, Definition, DefinitionError, Notify, NotifyEvent, Retry, Service, Target};

impl Definition {
    /// Reads the text of a file; `file` is its name in mistakes.
    pub fn from_toml(file: &str, source: &str) -> Result<Definition, FileError> {
        read_file(source, file, read)
    }
}

/// Defaults of a service for its calls.
#[derive(Clone)]
struct Defaults {
    timeout: Option<Duration>,
    retry: Option<Retry>,
}

fn read<'a>(reader: &mut FileReader<'a>, top: &Section<'a>) -> Option<Definition> {
    reader.known_keys(top, &["name", "deadline", "services", "steps", "notify"]);
    if !top.has("name") {
        reader.missing(top, "name", "name = \"delivery\"");
    }
    let mut file = File {
        definition: Definition {
            name: reader.text(top, "name", "delivery").unwrap_or_default(),
            deadline: read_duration(reader, top, "deadline"),
            services: Vec::new(),
            steps: Vec::new(),
            notify: None,
        },
        defaults: Vec::new(),
        names: Vec::new(),
        reader,
    };
    if let Some(services) = file.reader.section(top, "services") {
        for entry in services.entries() {
            file.names.push(entry.name().to_owned());
            if let Some(section) = file.reader.table(&services, &entry) {
                file.service(&section);
            }
        }
    }
    let steps = file.steps(top);
    file.notify(top);
    let File {
        reader, definition, ..
    } = file;
    if !reader.is_clean() {
        return None;
    }
    match definition.check() {
        Ok(()) => Some(definition),
        Err(DefinitionError::Step { number, reason }) => {
            let step = &definition.steps[number].name;
            let span = steps.get(number).map_or(0..0, Section::span);
            reader.mistake(span, &format!("step \"{step}\": {reason}"), "steps", "");
            None
        }
        Err(other) => {
            reader.mistake(0..0, &other.to_string(), "", "");
            None
        }
    }
}

fn read_duration(
    reader: &mut FileReader<'_>,
    section: &Section<'_>,
    key: &str,
) -> Option<Duration> {
    let ticks = reader.duration(section, key)?.ticks();
    Some(Duration::from_micros(ticks as u64 / 10))
}

struct File<'r, 'a> {
    reader: &'r mut FileReader<'a>,
    definition: Definition,
    defaults: Vec<Defaults>,
    /// Names of all services, invalid ones included.
    names: Vec<String>,
}

impl<'a> File<'_, 'a> {
    fn service(&mut self, section: &Section<'a>) -> Option<()> {
        let known = ["url", "concurrency", "timeout", "retry", "circuit"];
        self.reader.known_keys(section, &known);
        let concurrency = self.reader.count(section, "concurrency", 100_000);
        let circuit = self.circuit(section);
        let defaults = Defaults {
            timeout: read_duration(self.reader, section, "timeout"),
            retry: self.retry(section, Retry::STEP),
        };
        let example = "http://127.0.0.1:7001";
        if !section.has("url") {
            let example = format!("url = \"{example}\"");
            self.reader.missing(section, "url", &example);
        }
        let (url, entry) = self.reader.text_entry(section, "url", example)?;
        match Target::parse(url) {
            Ok(target) => {
                self.definition.services.push(Service {
                    name: section.leaf().to_owned(),
                    target,
                    concurrency: concurrency.unwrap_or(CONCURRENCY),
                    circuit,
                });
                self.defaults.push(defaults);
            }
            Err(error) => self.reader.wrong_value(&entry, &error.to_string(), ""),
        }
        Some(())
    }

    /// `circuit = false` disables it.
    fn circuit(&mut self, section: &Section<'a>) -> Option<Breaker> {
        let usual = Breaker::default();
        let entry = section.entry("circuit");
        match entry.map(|entry| entry.value()) {
            None | Some(DeValue::Boolean(true)) => return Some(usual),
            Some(DeValue::Boolean(false)) => return None,
            Some(_) => {}
        }
        let section = self.reader.section(section, "circuit")?;
        let known = ["window", "failures", "percent", "open"];
        self.reader.known_keys(&section, &known);
        let percent = self.reader.count(&section, "percent", 100);
        Some(Breaker {
            window: read_duration(self.reader, &section, "window").unwrap_or(usual.window),
            failures: (self.reader.count(&section, "failures", u32::MAX)).unwrap_or(usual.failures),
            percent: percent.map_or(usual.percent, |percent| percent as u8),
            open: read_duration(self.reader, &section, "open").unwrap_or(usual.open),
        })
    }

    fn retry(&mut self, section: &Section<'a>, usual: Retry) -> Option<Retry> {
        let section = self.reader.section(section, "retry")?;
        let known = ["tries", "delay", "delay_max", "jitter"];
        self.reader.known_keys(&section, &known);
        let jitter = self.reader.count(&section, "jitter", 100);
        Some(Retry {
            tries: (self.reader.count(&section, "tries", 1_000_000)).unwrap_or(usual.tries),
            delay: read_duration(self.reader, &section, "delay").unwrap_or(usual.delay),
            delay_max: read_duration(self.reader, &section, "delay_max").unwrap_or(usual.delay_max),
            jitter: jitter.map_or(usual.jitter, |percent| percent as u8),
        })
    }

    fn notify(&mut self, top: &Section<'a>) -> Option<()> {
        let section = self.reader.section(top, "notify")?;
        self.reader.known_keys(&section, &["url", "on"]);
        let (url, entry) = self
            .reader
            .text_entry(&section, "url", "http://127.0.0.1:7100/desk")?;
        let (target, path) = match split_url(url) {
            Ok(parts) => parts,
            Err(error) => {
                self.reader.wrong_value(&entry, &error.to_string(), "");
                return None;
            }
        };
        let occasions = match section.entry("on") {
            None => vec![NotifyEvent::Parked],
            Some(entry) => {
                let json = read_json(self.reader, &entry)?;
                let Ok(occasions) = serde_json::from_value(json) else {
                    let message = "\"on\" must be a list of \"parked\" and \"failed\"";
                    let label = "for example: on = [\"parked\"]";
                    self.reader.wrong_value(&entry, message, label);
                    return None;
                };
                occasions
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
