//! Builds records and arrays, for columns that hold them.
//!
//! Recursion is bounded by [`DEPTH_MAX`]. Field names are interned, because they repeat from event to event.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use highwater_engine::{Record, Value};

use super::DEPTH_MAX;
use super::fault::{Fault, FaultKind};
use super::number::{Number, number};
use super::scan::{byte, key, skip_blanks, text, word};
use super::text::unescape;
use crate::declared::date_text;
use crate::source::Level;

/// How many names are interned; an object used as a map would otherwise fill the memory.
const NAMES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub level: Level,
    names: HashSet<Arc<str>, FixedState>,
    unescaped: String,
}

impl Builder {
    pub(super) fn new(level: Level) -> Builder {
        Builder {
            level,
            ..Builder::default()
        }
    }

    /// The value at `at` and the position after it, inside `open` objects and arrays.
    pub(super) fn value(
        &mut self,
        line: &str,
        at: usize,
        open: u32,
    ) -> Result<(Value, usize), Fault> {
        let bytes = line.as_bytes();
        let at = skip_blanks(bytes, at);
        match byte(bytes, at) {
            b'"' => {
                let text = text(bytes, at + 1)?;
                let value = self.text(&line[at + 1..text.end], text.escaped);
                let time = (self.level == Level::V1_0).then(|| date_text(&value));
                let value = time.flatten().map_or(Value::Text(value), Value::Time);
                Ok((value, text.end + 1))
            }
            b'-'..=b'9' => Ok(match number(bytes, at)? {
                (Number::Int(value), end) => (Value::Int(value), end),
                (Number::Float(value), end) => (Value::Float(value), end),
            }),
            b'{' | b'[' if open >= DEPTH_MAX => Err(Fault::new(at, FaultKind::TooDeep)),
            b'{' => {
                let (record, end) = self.record(line, at, open + 1)?;
                Ok((Value::Record(Arc::new(record)), end))
            }
            b'[' => self.array(line, at, open + 1),
            _ => {
                let word = word(bytes, at)?;
                let value = match word {
                    "null" => Value::Null,
                    word if self.level < Level::V1_2 => Value::Int((word == "true").into()),
                    word => Value::Bit(word == "true"),
                };
                Ok((value, at + word.len()))
            }
        }
    }

    fn record(&mut self, line: &str, at: usize, open: u32) -> Result<(Record, usize), Fault> {
        let bytes = line.as_bytes();
        let mut fields = Vec::new();
        let mut at = skip_blanks(bytes, at + 1);
        if byte(bytes, at) == b'}' {
            return Ok((Record::from_fields(fields), at + 1));
        }
        let mut missing = FaultKind::FirstKey;
        loop {
            let key = key(bytes, at, missing)?;
            let mut name = self.name(&line[key.start..key.end], key.escaped);
            if self.level == Level::V1_0 && name.chars().any(char::is_uppercase) {
                name = name.to_lowercase().into();
            }
            let (value, end) = self.value(line, key.value, open)?;
            fields.push((name, value));
            at = skip_blanks(bytes, end);
            match byte(bytes, at) {
                b',' => at = skip_blanks(bytes, at + 1),
                b'}' if self.level == Level::V1_0 && has_same_names(&fields) => {
                    return Err(Fault::new(at, FaultKind::SameNames));
                }
                b'}' => return Ok((Record::from_fields(fields), at + 1)),
                _ => return Err(Fault::new(at, FaultKind::CommaOrBrace)),
            }
            missing = FaultKind::Key;
        }
    }

    fn array(&mut self, line: &str, at: usize, open: u32) -> Result<(Value, usize), Fault> {
        let bytes = line.as_bytes();
        let mut values = Vec::new();
        let mut at = skip_blanks(bytes, at + 1);
        if byte(bytes, at) == b']' {
            return Ok((Value::Array(values.into()), at + 1));
        }
        loop {
            let (value, end) = self.value(line, at, open)?;
            values.push(value);
            at = skip_blanks(bytes, end);
            match byte(bytes, at) {
                b',' => at += 1,
                b']' => return Ok((Value::Array(values.into()), at + 1)),
                _ => return Err(Fault::new(at, FaultKind::CommaOrBracket)),
            }
        }
    }

    fn text(&mut self, raw: &str, escaped: bool) -> Arc<str> {
        if !escaped {
            return raw.into();
        }
        self.unescaped.clear();
        unescape(raw, &mut self.unescaped);
        self.unescaped.as_str().into()
    }

    fn name(&mut self, raw: &str, escaped: bool) -> Arc<str> {
        if escaped {
            return self.text(raw, true);
        }
        if let Some(known) = self.names.get(raw) {
            return known.clone();
        }
        let name: Arc<str> = raw.into();
        if self.names.len() < NAMES_MAX {
            self.names.insert(name.clone());
        }
        name
    }
}

/// Names are already lower case, so equal ignoring case means equal.
fn has_same_names(fields: &[(Arc<str>, Value)]) -> bool {
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}
