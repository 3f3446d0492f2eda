//! The configuration file: TOML flattened into full keys, each with its position.

use highwater_settings::{LineIndex, did_you_mean};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::effective_settings::{Origin, Settings};
use super::error::Problem;
use super::settings::{children, setting_of};
use super::value::Raw;

/// The settings of the file, and its problems in the order of its lines.
pub(super) fn read(source: &str) -> (Settings, Vec<Problem>) {
    let mut reader = FileReader {
        lines: LineIndex::new(source),
        settings: Settings::default(),
        problems: Vec::new(),
    };
    match DeTable::parse(source) {
        Ok(table) => reader.table("", table.get_ref()),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            reader.problem(at, format!("not valid TOML: {}", error.message()));
        }
    }
    let mut problems = reader.problems;
    problems.sort_by_key(|problem| problem.origin.position());
    (reader.settings, problems)
}

struct FileReader<'a> {
    lines: LineIndex<'a>,
    settings: Settings,
    problems: Vec<Problem>,
}

impl FileReader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table.iter() {
            let key = join(prefix, name.get_ref());
            let at = value.span().start;
            if let Some(setting) = setting_of(&key) {
                match setting.kind.read(&raw(value.get_ref())) {
                    Ok(value) => self.settings.set(key, value, self.origin(at)),
                    Err(why) => self.problem(at, format!("`{key}` has a wrong value: {why}")),
                }
            } else if children(&key).is_empty() {
                self.unknown(prefix, name);
            } else {
                self.tables(&key, value);
            }
        }
    }

    /// The table or the list of tables at a key.
    fn tables(&mut self, key: &str, value: &Spanned<DeValue<'_>>) {
        let listed = children(key) == ["*"];
        match value.get_ref() {
            DeValue::Table(table) => {
                self.settings.declare(key, self.origin(value.span().start));
                self.table(key, table);
            }
            DeValue::Array(items) if listed => {
                for (index, item) in items.iter().enumerate() {
                    let at = item.span().start;
                    let DeValue::Table(table) = item.get_ref() else {
                        self.problem(at, format!("`{key}` must be a table"));
                        continue;
                    };
                    let key = join(key, &element_name(table, index));
                    self.settings.declare(&key, self.origin(at));
                    self.table(&key, table);
                }
            }
            _ => self.problem(value.span().start, format!("`{key}` must be a table")),
        }
    }

    fn unknown(&mut self, prefix: &str, name: &Spanned<DeString<'_>>) {
        let known = children(prefix);
        let section = match prefix {
            "" => String::new(),
            _ => format!(" in [{prefix}]"),
        };
        let hint = did_you_mean(name.get_ref(), &known)
            .unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
        let message = format!("unknown key `{}`{section}", name.get_ref());
        let origin = self.origin(name.span().start);
        self.problems.push(Problem::new(origin, message).hint(hint));
    }

    fn problem(&mut self, at: usize, message: String) {
        self.problems.push(Problem::new(self.origin(at), message));
    }

    fn origin(&self, at: usize) -> Origin {
        Origin::File(self.lines.position(at))
    }
}

/// The name of a table in a list, else its index.
fn element_name(table: &DeTable<'_>, index: usize) -> String {
    match table.get("name").map(|name| name.get_ref()) {
        Some(DeValue::String(name)) if !name.is_empty() => name.to_string(),
        _ => index.to_string(),
    }
}

fn join(prefix: &str, name: &str) -> String {
    let dot = if prefix.is_empty() { "" } else { "." };
    match name.contains('.') {
        true => format!("{prefix}{dot}\"{name}\""),
        false => format!("{prefix}{dot}{name}"),
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Raw::Other, Raw::Integer)
        }
        DeValue::Array(items) => items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map_or(Raw::Other, Raw::List),
        _ => Raw::Other,
    }
}
