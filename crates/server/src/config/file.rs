//! The file: TOML flattened into full keys, each with the line it stands on.

use highwater_settings::{Position, did_you_mean};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::Problem;
use super::gather::{Given, Origin};
use super::settings::{children, setting_of};
use super::value::Raw;

/// Everything the file says, in its order, and everything that is wrong with it.
pub(super) fn read(source: &str) -> (Vec<Given>, Vec<Problem>) {
    let mut walk = Walk {
        source,
        given: Vec::new(),
        problems: Vec::new(),
    };
    match DeTable::parse(source) {
        Ok(table) => walk.table("", table.get_ref()),
        Err(error) => {
            let origin = walk.origin(error.span().map_or(0, |span| span.start));
            let message = format!("not valid TOML: {}", error.message());
            walk.problems.push(Problem::new(origin, message));
        }
    }
    walk.given.sort_by_key(|given| given.origin.position());
    walk.problems
        .sort_by_key(|problem| problem.origin.position());
    (walk.given, walk.problems)
}

struct Walk<'a> {
    source: &'a str,
    given: Vec<Given>,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table.iter() {
            let key = join(prefix, name.get_ref());
            if let Some(setting) = setting_of(&key) {
                let origin = self.origin(value.span().start);
                match setting.kind.read(&raw(value.get_ref())) {
                    Ok(value) => self.given.push(Given { key, value, origin }),
                    Err(why) => {
                        let message = format!("`{key}` cannot be that: {why}");
                        self.problems.push(Problem::new(origin, message));
                    }
                }
            } else if children(&key).is_empty() {
                self.unknown(prefix, name);
            } else {
                self.below(&key, value);
            }
        }
    }

    /// What stands below a key that is no setting itself.
    fn below(&mut self, key: &str, value: &Spanned<DeValue<'_>>) {
        let listed = children(key) == ["*"];
        match value.get_ref() {
            DeValue::Table(table) => {
                self.declare(key, value);
                self.table(key, table);
            }
            DeValue::Array(items) if listed => {
                for (place, item) in items.iter().enumerate() {
                    let DeValue::Table(table) = item.get_ref() else {
                        self.not_a_table(key, item);
                        continue;
                    };
                    let key = join(key, &element_name(table, place));
                    self.declare(&key, item);
                    self.table(&key, table);
                }
            }
            _ => self.not_a_table(key, value),
        }
    }

    /// An empty `[hubs.x]` says that there is such a hub, so the table itself counts as given.
    fn declare(&mut self, key: &str, value: &Spanned<DeValue<'_>>) {
        let origin = self.origin(value.span().start);
        self.given.push(Given::table(key, origin));
    }

    fn not_a_table(&mut self, key: &str, value: &Spanned<DeValue<'_>>) {
        let origin = self.origin(value.span().start);
        let message = format!("`{key}` must be a table");
        self.problems.push(Problem::new(origin, message));
    }

    fn unknown(&mut self, prefix: &str, name: &Spanned<DeString<'_>>) {
        let known = children(prefix);
        let place = match prefix {
            "" => String::new(),
            _ => format!(" in [{prefix}]"),
        };
        let hint = did_you_mean(name.get_ref(), &known)
            .unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
        let message = format!("unknown key `{}`{place}", name.get_ref());
        let origin = self.origin(name.span().start);
        self.problems.push(Problem::new(origin, message).hint(hint));
    }

    fn origin(&self, at: usize) -> Origin {
        Origin::File(Position::of(self.source, at))
    }
}

/// An element of a list of tables goes by its name where it has one, else by its place.
fn element_name(table: &DeTable<'_>, place: usize) -> String {
    match table.get("name").map(|name| name.get_ref()) {
        Some(DeValue::String(name)) if !name.is_empty() => name.to_string(),
        _ => place.to_string(),
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
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Raw::Other("a number out of range"), Raw::Integer),
        DeValue::Array(items) => items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map_or(Raw::Other("a list"), Raw::List),
        other => Raw::Other(other.type_str()),
    }
}
