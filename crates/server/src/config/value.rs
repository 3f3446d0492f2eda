//! The kinds of settings, and their values.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The kind of a setting: which values it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Shown as asterisks.
    Secret,
    Path,
    /// `host:port`, or `off`.
    Address,
    Flag,
    Count(u64, u64),
    CountOrForever(u64, u64),
    /// Bytes, as a number or with a unit.
    Size,
    SizeOrUnlimited,
    Time,
    TimeOrForever,
    Choice(&'static [&'static str]),
    /// A list of texts.
    List,
    /// A list of some of these words.
    Words(&'static [&'static str]),
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Flag(bool),
    /// `None`: unlimited.
    Number(Option<u64>),
    /// `None`: forever.
    Time(Option<Duration>),
    /// `None`: off.
    Address(Option<SocketAddr>),
    List(Vec<String>),
}

/// An unchecked value: with a type from TOML, without one from a variable, a flag or the table of settings.
#[derive(Clone, Debug)]
pub enum Raw {
    Untyped(String),
    Text(String),
    Integer(i64),
    Flag(bool),
    List(Vec<String>),
    /// A number out of range, or a type that no setting has.
    Other,
}

impl Kind {
    /// Checks a value. The error names the expected value.
    pub fn read(self, raw: &Raw) -> Result<Value, String> {
        let wrong = || Err(format!("expected {}", self.expected()));
        match (self, raw) {
            (Kind::Flag, Raw::Flag(flag)) => Ok(Value::Flag(*flag)),
            (Kind::Flag, Raw::Untyped(text)) => match text.as_str() {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => wrong(),
            },
            (Kind::List | Kind::Words(_), Raw::List(items)) => self.read_list(items.clone()),
            (Kind::List | Kind::Words(_), Raw::Untyped(text)) => {
                self.read_list(text.split(',').map(|item| item.trim().into()).collect())
            }
            (
                Kind::Count(..) | Kind::CountOrForever(..) | Kind::Size | Kind::SizeOrUnlimited,
                Raw::Integer(number),
            ) => self.read_text(&number.to_string()),
            (Kind::Count(..), Raw::Text(_)) => wrong(),
            (Kind::Flag | Kind::List | Kind::Words(_), _) => wrong(),
            (_, Raw::Text(text) | Raw::Untyped(text)) => self.read_text(text),
            _ => wrong(),
        }
    }

    fn read_list(self, items: Vec<String>) -> Result<Value, String> {
        if let Kind::Words(words) = self
            && let Some(item) = items.iter().find(|item| !words.contains(&item.as_str()))
        {
            return Err(format!("`{item}` is none of {}", words.join(", ")));
        }
        match items.is_empty() {
            true => Err("the list is empty".into()),
            false => Ok(Value::List(items)),
        }
    }

    fn read_text(self, text: &str) -> Result<Value, String> {
        let read = match self {
            Kind::Address => address(text).map(Value::Address),
            Kind::CountOrForever(..) if text == "forever" => Some(Value::Number(None)),
            Kind::Count(low, high) | Kind::CountOrForever(low, high) => text
                .parse()
                .ok()
                .filter(|count| (low..=high).contains(count))
                .map(|count| Value::Number(Some(count))),
            Kind::SizeOrUnlimited if text == "unlimited" => Some(Value::Number(None)),
            Kind::Size | Kind::SizeOrUnlimited => size(text).map(|n| Value::Number(Some(n))),
            Kind::TimeOrForever if text == "forever" => Some(Value::Time(None)),
            Kind::Time | Kind::TimeOrForever => time(text).map(|time| Value::Time(Some(time))),
            Kind::Choice(words) => words.contains(&text).then(|| Value::Text(text.into())),
            _ => (!text.trim().is_empty()).then(|| Value::Text(text.into())),
        };
        read.ok_or_else(|| format!("expected {}", self.expected()))
    }

    /// Completes "expected ..".
    pub fn expected(self) -> String {
        match self {
            Kind::Text | Kind::Secret => "a text that is not empty".into(),
            Kind::Path => "a path".into(),
            Kind::Address => "an address such as \"127.0.0.1:8080\", or \"off\"".into(),
            Kind::Flag => "true or false".into(),
            Kind::Count(low, high) => format!("a number from {low} to {high}"),
            Kind::CountOrForever(low, high) => {
                format!("a number from {low} to {high}, or \"forever\"")
            }
            Kind::Size => "a size such as 65536, \"64KiB\" or \"1MiB\"".into(),
            Kind::SizeOrUnlimited => "a size such as \"10GiB\", or \"unlimited\"".into(),
            Kind::Time => "a time such as \"500ms\", \"30s\" or \"5m\"".into(),
            Kind::TimeOrForever => "a time such as \"12h\" or \"7d\", or \"forever\"".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::List => "a list of texts".into(),
            Kind::Words(words) => format!("a list of {}", words.join(", ")),
        }
    }
}

impl Value {
    /// The value as a variable would have it.
    pub fn show(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Flag(flag) => flag.to_string(),
            Value::Number(None) => "unlimited".into(),
            Value::Number(Some(number)) => number.to_string(),
            Value::Time(None) => "forever".into(),
            Value::Time(Some(time)) => {
                highwater_time::Duration::from_ticks((time.as_nanos() / 100) as i64).to_string()
            }
            Value::Address(None) => "off".into(),
            Value::Address(Some(address)) => address.to_string(),
            Value::List(items) => items.join(","),
        }
    }
}

fn address(text: &str) -> Option<Option<SocketAddr>> {
    if text == "off" {
        return Some(None);
    }
    let local = text.strip_prefix("localhost:").and_then(|port| {
        let port: u16 = port.parse().ok()?;
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    });
    local.or_else(|| text.parse().ok()).map(Some)
}

fn size(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// More than zero: a timeout of zero would refuse everything.
fn time(text: &str) -> Option<Duration> {
    let ticks = highwater_time::Duration::parse(text).ok()?.ticks();
    let ticks = u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)?;
    Some(Duration::from_nanos(ticks.checked_mul(100)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: Kind, text: &str) -> Option<Value> {
        kind.read(&Raw::Text(text.into())).ok()
    }

    #[test]
    fn sizes_have_units() {
        for (given, bytes) in [
            ("7", 7),
            ("64KiB", 65536),
            ("1MB", 1_000_000),
            ("2 GiB", 2 << 30),
        ] {
            assert_eq!(text(Kind::Size, given), Some(Value::Number(Some(bytes))));
        }
        for given in ["", "MiB", "-1", "1.5MiB", "1mib", "99999999TiB"] {
            assert_eq!(text(Kind::Size, given), None, "{given}");
        }
    }

    #[test]
    fn times_and_addresses_have_a_word_for_none() {
        let week = Duration::from_secs(7 * 24 * 3600);
        assert_eq!(
            text(Kind::TimeOrForever, "7d"),
            Some(Value::Time(Some(week)))
        );
        assert_eq!(
            text(Kind::TimeOrForever, "forever"),
            Some(Value::Time(None))
        );
        assert_eq!(text(Kind::Time, "forever"), None);
        assert_eq!(text(Kind::Time, "0s"), None);
        assert_eq!(text(Kind::Address, "off"), Some(Value::Address(None)));
        assert_eq!(
            text(Kind::Address, "localhost:1"),
            text(Kind::Address, "127.0.0.1:1")
        );
        assert_eq!(text(Kind::Address, "example.org:1"), None);
    }

    #[test]
    fn a_quoted_number_is_a_number_in_a_variable_only() {
        let kind = Kind::Count(1, 9);
        assert!(kind.read(&Raw::Text("4".into())).is_err());
        assert!(kind.read(&Raw::Untyped("4".into())).is_ok());
        assert!(kind.read(&Raw::Integer(10)).is_err());
    }
}
