//! Folders named after their rows, such as `{date}/{hour}/device={DeviceId}`.
//!
//! Values may come from anywhere, so characters that could leave the folder or mean something to a file system are
//! escaped as in a URL, which Spark and Hive read back. Different values never share a folder.

use std::fmt::Write;

use foldhash::fast::FixedState;
use highwater_engine::{Chunk, ValueRef, eval};
use highwater_time::{Instant, TICKS_PER_HOUR, TICKS_PER_MINUTE};

use crate::rows::RowNames;

/// Longer values are cut, and distinguished by a hash.
const VALUE_BYTES_MAX: usize = 100;

/// The folder name for NULL in Hive.
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// `2026-11-15`
    Date,
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Column(String),
}

impl Template {
    /// Parses a template. The error gives the reason.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(open);
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            let inside = after
                .strip_prefix('{')
                .and_then(|after| after.split_once('}'));
            let (name, behind) = inside.ok_or_else(|| {
                format!("`{text}`: unbalanced brace; write `{{date}}` or `{{Column}}`")
            })?;
            parts.push(Part::named(name).ok_or_else(|| {
                format!("`{text}`: `{{{name}}}` is neither a column nor a part of the time")
            })?);
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        let plain = |part: &Part| match part {
            Part::Text(text) => text.split('/').all(|piece| !matches!(piece, "." | "..")),
            _ => true,
        };
        match parts.iter().all(plain) {
            true => Ok(Template { parts }),
            false => Err(format!("`{text}`: `.` and `..` are not allowed in it")),
        }
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Column(name) => Some(&name[..]),
            _ => None,
        })
    }

    /// Whether all rows of a minute go to one folder.
    pub(super) fn is_of_time_alone(&self) -> bool {
        self.columns().next().is_none()
    }

    /// The folder of a row.
    pub(super) fn render(&self, names: &RowNames, chunk: &Chunk, row: usize, out: &mut String) {
        let time = chunk.time(row);
        let time = time.clamp(Instant::CALENDAR_START, Instant::CALENDAR_END);
        let (year, month, day) = time.civil();
        let of_day = time.time_of_day().ticks();
        for part in &self.parts {
            let written = match part {
                Part::Text(text) => out.write_str(text),
                Part::Date => write!(out, "{year:04}-{month:02}-{day:02}"),
                Part::Year => write!(out, "{year:04}"),
                Part::Month => write!(out, "{month:02}"),
                Part::Day => write!(out, "{day:02}"),
                Part::Hour => write!(out, "{:02}", of_day / TICKS_PER_HOUR),
                Part::Minute => write!(out, "{:02}", of_day % TICKS_PER_HOUR / TICKS_PER_MINUTE),
                Part::Column(name) => {
                    write_value(names.value(chunk, row, name), out);
                    Ok(())
                }
            };
            written.expect("a text takes whatever is written to it");
        }
    }
}

impl Part {
    fn named(name: &str) -> Option<Part> {
        Some(match name {
            "date" => Part::Date,
            "time" | "hour" | "datetime:HH" => Part::Hour,
            "datetime:yyyy" => Part::Year,
            "datetime:MM" => Part::Month,
            "datetime:dd" => Part::Day,
            "minute" | "datetime:mm" => Part::Minute,
            "" => return None,
            name if name.starts_with("datetime:") => return None,
            name => Part::Column(name.into()),
        })
    }
}

fn write_value(value: ValueRef<'_>, out: &mut String) {
    let mut text = String::new();
    eval::write_text(value, &mut text);
    if value.is_null() || text.is_empty() {
        return out.push_str(if value.is_null() { NO_VALUE } else { "%" });
    }
    let start = out.len();
    for (at, byte) in text.bytes().enumerate() {
        let plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b' ' | b':' | b'@');
        // A leading dot or underscore has a meaning: a parent folder, a hidden one, no value.
        match plain && !(at == 0 && byte == b'.') || byte == b'_' && at > 0 {
            true => out.push(byte.into()),
            false => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    if out.len() - start > VALUE_BYTES_MAX {
        let mut end = start + VALUE_BYTES_MAX;
        // Not inside an escape.
        while out[end - 2..end].contains('%') {
            end -= 1;
        }
        out.truncate(end);
        let hash = std::hash::BuildHasher::hash_one(&FixedState::with_seed(0), &text);
        let _ = write!(out, "%{hash:016x}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Row, names, rows};
    use super::*;

    fn rendered(template: &str, text: &str) -> String {
        let row = Row {
            seconds: 120 + 3600 * 9 + 60 * 7,
            device: None,
            text: text.into(),
        };
        let mut out = String::new();
        let template = Template::parse(template).unwrap();
        template.render(&RowNames::new(names()), &rows(0, &[row]).chunk, 0, &mut out);
        out
    }

    #[test]
    fn time_and_columns_name_folders() {
        assert_eq!(
            rendered("a/{date}/{hour}/{minute}/text={Text}", "KH-4711"),
            "a/2026-03-02/09/07/text=KH-4711"
        );
        assert_eq!(
            rendered(
                "{datetime:yyyy}/{datetime:MM}/{datetime:dd}/{datetime:HH}",
                ""
            ),
            "2026/03/02/09"
        );
        assert_eq!(
            rendered("{Device}/{time}", ""),
            "__HIVE_DEFAULT_PARTITION__/09"
        );
    }

    #[test]
    fn a_value_cannot_leave_its_folder_or_pass_for_another() {
        for (value, folder) in [
            ("../../etc", "%2E.%2F..%2Fetc"),
            (".", "%2E"),
            ("a/b\\c", "a%2Fb%5Cc"),
            ("ä%", "%C3%A4%25"),
            ("", "%"),
            ("__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__"),
            ("a\n", "a%0A"),
        ] {
            assert_eq!(rendered("{Text}", value), folder, "{value:?}");
        }
    }

    #[test]
    fn long_values_are_cut_and_stay_apart() {
        let long = |last: &str| rendered("{Text}", &("ä".repeat(200) + last));
        assert!(long("a").len() < 120 && !long("a").contains("%C3%%"));
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn a_template_that_cannot_be_meant_is_refused() {
        for wrong in ["{", "a}", "{}", "{datetime:ss}", "a/../{date}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
