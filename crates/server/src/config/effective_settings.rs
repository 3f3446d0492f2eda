//! The value of each setting: from a flag, else a variable, else the file, else the default.

use std::collections::BTreeMap;
use std::ops::Bound;

use highwater_settings::{Position, did_you_mean, redact_url};

use super::error::Problem;
use super::settings::{SETTINGS, Setting, parts, setting_of};
use super::value::{Kind, Raw, Value};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(Position),
    Variable(String),
    Flag,
}

impl Origin {
    pub(super) fn position(&self) -> Option<Position> {
        match self {
            Origin::File(position) => Some(*position),
            _ => None,
        }
    }

    pub fn show(&self, file: &str) -> String {
        match self {
            Origin::Default => "default".into(),
            Origin::File(Position { line, .. }) => format!("{file}:{line}"),
            Origin::Variable(name) => name.clone(),
            Origin::Flag => "flag".into(),
        }
    }
}

/// The effective value of each setting, with its origin, by full key.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The key of a table ends in a dot; its value is `true`.
    values: BTreeMap<String, (Value, Origin)>,
}

impl Settings {
    pub(super) fn set(&mut self, key: String, value: Value, origin: Origin) {
        self.values.insert(key, (value, origin));
    }

    /// Adds a table, so that `[hubs.x]` declares a hub even if it is empty.
    pub(super) fn declare(&mut self, table: &str, origin: Origin) {
        let entry = self.values.entry(format!("{table}."));
        entry.or_insert((Value::Flag(true), origin));
    }

    /// An unknown flag is a problem. An unknown variable is not: a cluster may set `HIGHWATER_PORT` for its own
    /// purposes.
    pub(super) fn override_by(
        &mut self,
        variables: &[(String, String)],
        flags: &[(String, String)],
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (key, text) in flags {
            self.declare_table_of(key);
            match read(key, text) {
                Ok(value) => self.set(key.clone(), value, Origin::Flag),
                Err(problem) => problems.push(problem),
            }
        }
        let keys = self.keys();
        let variables: BTreeMap<&str, &str> = (variables.iter())
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        for (key, setting) in keys.iter().filter(|_| !variables.is_empty()) {
            let name = variable_of(key);
            let Some(text) = variables.get(name.as_str()) else {
                continue;
            };
            let origin = Origin::Variable(name);
            match setting.kind.read(&Raw::Untyped((*text).to_owned())) {
                Ok(value) if self.origin(key) != Origin::Flag => {
                    self.set(key.clone(), value, origin);
                }
                Err(why) => problems.push(Problem::new(origin, why)),
                Ok(_) => {}
            }
        }
        self.set_defaults(keys);
        problems
    }

    /// A flag for `hubs.x.partitions` declares the hub `x`.
    fn declare_table_of(&mut self, key: &str) {
        let Some(setting) = setting_of(key) else {
            return;
        };
        let (pattern, names) = (parts(setting.key), parts(key));
        // A star at the end stands for a value, not for a table.
        for star in (0..pattern.len() - 1).filter(|at| pattern[*at] == "*") {
            self.declare(&names[..=star].join("."), Origin::Flag);
        }
    }

    /// The full keys of all settings, for the tables declared so far.
    fn keys(&self) -> Vec<(String, &'static Setting)> {
        let of = |setting: &'static Setting| {
            let keys = self.expand(setting.key).into_iter();
            keys.map(move |key| (key, setting))
        };
        SETTINGS.iter().flat_map(of).collect()
    }

    /// The full keys of a key with stars. Values with free names are those that are set.
    fn expand(&self, key: &str) -> Vec<String> {
        match key.split_once(".*.") {
            None if key.ends_with(".*") => Vec::new(),
            None => vec![key.to_owned()],
            Some((table, rest)) => {
                let names = self.tables(table).into_iter();
                names
                    .flat_map(|name| self.expand(&format!("{table}.{name}.{rest}")))
                    .collect()
            }
        }
    }

    /// The texts of a table whose names are free.
    pub(super) fn texts(&self, table: &str) -> Vec<(String, String)> {
        let prefix = format!("{table}.");
        let text = |(name, (value, _)): (&str, &(Value, Origin))| match value {
            Value::Text(text) => Some((name.trim_matches('"').to_owned(), text.clone())),
            _ => None,
        };
        self.below(&prefix).filter_map(text).collect()
    }

    fn set_defaults(&mut self, keys: Vec<(String, &'static Setting)>) {
        for (key, setting) in keys {
            if setting.default.is_empty() {
                continue;
            }
            let value = setting.kind.read(&Raw::Untyped(setting.default.into()));
            if let Ok(value) = value {
                self.values.entry(key).or_insert((value, Origin::Default));
            }
        }
    }

    /// The names of the tables below `table`, such as the hubs.
    pub fn tables(&self, table: &str) -> Vec<String> {
        let prefix = format!("{table}.");
        self.below(&prefix)
            .filter_map(|(key, _)| key.strip_suffix('.'))
            .filter(|name| parts(name).len() == 1)
            .map(str::to_owned)
            .collect()
    }

    /// The values whose keys begin with `prefix`, by the rest of their keys.
    fn below<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a (Value, Origin))> {
        let from = self
            .values
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.map_while(move |(key, value)| Some((key.strip_prefix(prefix)?, value)))
    }

    /// Every value with its origin, by key; secrets, also those in URLs, as asterisks.
    pub fn shown(&self) -> impl Iterator<Item = (&str, String, &Origin)> {
        let plain = self.values.iter().filter(|(key, _)| !key.ends_with('.'));
        plain.map(|(key, (value, origin))| {
            let secret = setting_of(key).is_some_and(|setting| setting.kind == Kind::Secret);
            let value = match secret {
                true => "********".to_owned(),
                false => redact_url(&value.show()),
            };
            (key.as_str(), value, origin)
        })
    }

    pub(super) fn origin(&self, key: &str) -> Origin {
        let value = self.values.get(key);
        value.map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key).map(|(value, _)| value)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        matches!(self.value(key), Some(Value::Flag(true)))
    }

    /// `None`: unlimited, or unset.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(Value::Number(number)) => *number,
            _ => None,
        }
    }

    pub(super) fn time(&self, key: &str) -> Option<std::time::Duration> {
        match self.value(key) {
            Some(Value::Time(time)) => *time,
            _ => None,
        }
    }

    pub(super) fn address(&self, key: &str) -> Option<std::net::SocketAddr> {
        match self.value(key) {
            Some(Value::Address(address)) => *address,
            _ => None,
        }
    }

    pub(super) fn list(&self, key: &str) -> Option<&[String]> {
        match self.value(key) {
            Some(Value::List(items)) => Some(items),
            _ => None,
        }
    }
}

fn read(key: &str, text: &str) -> Result<Value, Problem> {
    let Some(setting) = setting_of(key) else {
        let known = SETTINGS.iter().map(|setting| setting.key);
        let near = did_you_mean(key, &known.collect::<Vec<_>>());
        let hint = near.unwrap_or("highwater config show lists them".to_owned());
        let message = format!("there is no setting `{key}`");
        return Err(Problem::new(Origin::Flag, message).hint(hint));
    };
    let read = setting.kind.read(&Raw::Untyped(text.into()));
    let shown = match setting.kind {
        Kind::Secret => "********".to_owned(),
        _ => redact_url(text),
    };
    read.map_err(|why| Problem::new(Origin::Flag, format!("`{key}` cannot be `{shown}`: {why}")))
}

const VARIABLE_PREFIX: &str = "HIGHWATER_";

/// `http.listen` is `HIGHWATER_HTTP_LISTEN`.
pub(super) fn variable_of(key: &str) -> String {
    if key == "log" {
        // `HIGHWATER_LOG` is the level of the messages that the program writes.
        return "HIGHWATER_CLUSTER".to_owned();
    }
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let key = key.chars().filter(|c| *c != '"');
    format!("{VARIABLE_PREFIX}{}", key.map(plain).collect::<String>())
}
