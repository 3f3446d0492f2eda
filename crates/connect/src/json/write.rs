//! Writes columns as JSON lines.
//!
//! Each field is written with a comma before its name; the first comma of a row is then replaced by the opening brace.
//! So no field needs to know whether it is the first, which matters because a spread record may be empty.

use std::io::Write;
use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use highwater_engine::{Chunk, Column, Record, Value, ValueRef};
use highwater_query::plan::Name;

use super::nested;
use super::rewrite::Rewriter;
use super::scan::plain_len;

/// Writes each row of a chunk as one JSON object on one line.
#[derive(Debug)]
pub struct JsonWriter {
    items: Vec<Item>,
}

#[derive(Debug)]
enum Item {
    Field {
        name: String,
        /// `,"name":`
        encoded: Vec<u8>,
        /// Columns further left whose records may already contain the name; left wins.
        after: Vec<usize>,
    },
    Spread {
        /// Names of fields further left.
        named: HashSet<String, FixedState>,
        /// Records further left.
        after: Vec<usize>,
    },
    Hidden,
}

impl JsonWriter {
    /// For chunks whose columns have these names.
    pub fn new(names: Vec<Name>) -> JsonWriter {
        let mut named = HashSet::default();
        let mut after = Vec::new();
        let mut items = Vec::with_capacity(names.len());
        for (column, name) in names.into_iter().enumerate() {
            items.push(match name {
                Name::Field(name) => {
                    let mut encoded = Vec::new();
                    write_key(&name, &mut encoded);
                    named.insert(name.clone());
                    Item::Field {
                        name,
                        encoded,
                        after: after.clone(),
                    }
                }
                Name::Spread => {
                    let item = Item::Spread {
                        named: named.clone(),
                        after: after.clone(),
                    };
                    after.push(column);
                    item
                }
                Name::Hidden(_) => Item::Hidden,
            });
        }
        JsonWriter { items }
    }

    /// Appends the rows of a chunk to `out`.
    pub fn write(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        self.write_rows(chunk, 0..chunk.rows(), out);
    }

    /// Appends some rows of a chunk to `out`.
    pub fn write_rows(&self, chunk: &Chunk, rows: Range<usize>, out: &mut Vec<u8>) {
        debug_assert_eq!(
            chunk.columns.len(),
            self.items.len(),
            "a name for each column"
        );
        for row in rows {
            let start = out.len();
            for (item, column) in self.items.iter().zip(&chunk.columns) {
                item.write(chunk, column, row, out);
            }
            open_brace(start, out);
            out.extend_from_slice(b"}\n");
        }
    }
}

impl Item {
    #[inline]
    fn write(&self, chunk: &Chunk, column: &Column, row: usize, out: &mut Vec<u8>) {
        match self {
            Item::Field {
                name,
                encoded,
                after,
            } => {
                if !after.is_empty() && is_in(chunk, after, row, name) {
                    return;
                }
                out.extend_from_slice(encoded);
                if !rewriter(column, row, out).is_some_and(Rewriter::value) {
                    write_value(column.get(row), out);
                }
            }
            Item::Spread { named, after } => {
                if named.is_empty()
                    && after.is_empty()
                    && rewriter(column, row, out).is_some_and(Rewriter::fields)
                {
                    return;
                }
                let ValueRef::Record(record) = column.get(row) else {
                    return;
                };
                for (name, value) in record.iter() {
                    if !named.contains(&**name) && !is_in(chunk, after, row, name) {
                        write_key(name, out);
                        write_value(value.view(), out);
                    }
                }
            }
            Item::Hidden => {}
        }
    }
}

/// Writes a value that is still text.
#[inline]
fn rewriter<'a>(column: &'a Column, row: usize, out: &'a mut Vec<u8>) -> Option<Rewriter<'a>> {
    let Column::Lazy(lazy) = column else {
        return None;
    };
    let (text, reader) = lazy.text(row)?;
    let level = nested::level_of(reader)?;
    Some(Rewriter::new(level, text, out))
}

/// Whether a record in one of these columns has exactly this name.
fn is_in(chunk: &Chunk, columns: &[usize], row: usize, name: &str) -> bool {
    columns
        .iter()
        .any(|&column| match chunk.columns[column].get(row) {
            ValueRef::Record(record) => record.iter().any(|(known, _)| &**known == name),
            _ => false,
        })
}

/// Replaces the comma before the first field, if there is one, by the opening brace.
fn open_brace(start: usize, out: &mut Vec<u8>) {
    match out.get_mut(start) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
}

fn write_key(name: &str, out: &mut Vec<u8>) {
    out.push(b',');
    write_text(name, out);
    out.push(b':');
}

#[inline]
fn write_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => out.extend_from_slice(b"null"),
        ValueRef::Bit(true) => out.extend_from_slice(b"true"),
        ValueRef::Bit(false) => out.extend_from_slice(b"false"),
        ValueRef::Int(value) => {
            out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        }
        // JSON has no NaN or infinity, and SAQL has no such floats.
        ValueRef::Float(value) if !value.is_finite() => out.extend_from_slice(b"null"),
        ValueRef::Float(value) => write_float(value, out),
        ValueRef::Text(text) => write_text(text, out),
        ValueRef::Time(time) => {
            out.push(b'"');
            time.write_iso(out);
            out.push(b'"');
        }
        ValueRef::Record(record) => write_record(record, out),
        ValueRef::Array(values) => write_array(values, out),
    }
}

fn write_record(record: &Record, out: &mut Vec<u8>) {
    let start = out.len();
    for (name, value) in record.iter() {
        write_key(name, out);
        write_value(value.view(), out);
    }
    open_brace(start, out);
    out.push(b'}');
}

fn write_array(values: &[Value], out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_value(value.view(), out);
    }
    out.push(b']');
}

/// A float that is finite.
pub(super) fn write_float(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
}

#[inline]
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let plain = plain_len(bytes);
    out.extend_from_slice(&bytes[..plain]);
    if plain < bytes.len() {
        write_escaped(&bytes[plain..], out);
    }
    out.push(b'"');
}

/// The rest of a text, from the first byte that needs an escape.
#[cold]
fn write_escaped(mut rest: &[u8], out: &mut Vec<u8>) {
    while let [special, after @ ..] = rest {
        let short = match special {
            b'"' => Some(b'"'),
            b'\\' => Some(b'\\'),
            b'\n' => Some(b'n'),
            b'\r' => Some(b'r'),
            b'\t' => Some(b't'),
            0x08 => Some(b'b'),
            0x0c => Some(b'f'),
            _ => None,
        };
        match short {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            // Writing to a Vec cannot fail.
            None => drop(write!(out, "\\u{special:04x}")),
        }
        let plain = plain_len(after);
        out.extend_from_slice(&after[..plain]);
        rest = &after[plain..];
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use highwater_engine::ColumnBuilder;

    use super::*;

    fn record(fields: &[(&str, Value)]) -> Value {
        let mut record = Record::default();
        fields
            .iter()
            .for_each(|(name, value)| record.set((*name).into(), value.clone()));
        Value::Record(Arc::new(record))
    }

    /// One row, a value under each name.
    fn written(items: &[(Name, Value)]) -> String {
        let column = |value: &Value| {
            let mut builder = ColumnBuilder::default();
            builder.push_owned(value.clone());
            builder.finish()
        };
        let columns = items.iter().map(|(_, value)| column(value)).collect();
        let chunk = Chunk::new(vec![0].into(), columns);
        let mut out = Vec::new();
        JsonWriter::new(items.iter().map(|(name, _)| name.clone()).collect())
            .write(&chunk, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn field(name: &str) -> Name {
        Name::Field(name.into())
    }

    #[test]
    fn every_type_has_its_form() {
        let time = highwater_time::Instant::parse_iso(b"2026-01-01T00:00:00.5Z").unwrap();
        let nested = record(&[("x", Value::Array([Value::Int(1), Value::Null].into()))]);
        let row = written(&[
            (field("i"), Value::Int(-5)),
            (field("f"), Value::Float(1.0)),
            (field("b"), Value::Bit(true)),
            (field("t"), Value::Time(time)),
            (field("n"), Value::Null),
            (field("r"), nested),
            (field("e"), record(&[])),
        ]);
        assert_eq!(
            row,
            "{\"i\":-5,\"f\":1.0,\"b\":true,\"t\":\"2026-01-01T00:00:00.5000000Z\",\"n\":null,\
             \"r\":{\"x\":[1,null]},\"e\":{}}\n"
        );
    }

    #[test]
    fn quotes_and_control_characters_are_escaped_in_names_and_texts() {
        let row = written(&[(
            field("a\"b"),
            Value::text("\\ \n\r\t\u{8}\u{c}\u{1}\u{1f} ä😀 \u{7f}"),
        )]);
        assert_eq!(
            row,
            "{\"a\\\"b\":\"\\\\ \\n\\r\\t\\b\\f\\u0001\\u001f ä😀 \u{7f}\"}\n"
        );
    }

    #[test]
    fn floats_always_read_back_as_floats() {
        for (value, text) in [
            (1e300, "1e300"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e16, "1e16"),
        ] {
            assert_eq!(
                written(&[(field("f"), Value::Float(value))]),
                format!("{{\"f\":{text}}}\n")
            );
        }
        assert_eq!(
            written(&[(field("f"), Value::Float(f64::NAN))]),
            "{\"f\":null}\n"
        );
    }

    #[test]
    fn hidden_columns_are_not_written() {
        let hidden = Name::Hidden("h".into());
        assert_eq!(written(&[(hidden.clone(), Value::Int(1))]), "{}\n");
        let row = written(&[(hidden, Value::Int(1)), (field("a"), Value::Int(2))]);
        assert_eq!(row, "{\"a\":2}\n");
    }

    #[test]
    fn a_spread_gives_way_to_names_on_its_left() {
        let both = record(&[("x", Value::Int(1)), ("y", Value::Int(2))]);
        let row = written(&[(field("x"), Value::Int(9)), (Name::Spread, both)]);
        assert_eq!(row, "{\"x\":9,\"y\":2}\n");
    }

    #[test]
    fn a_name_on_the_right_gives_way_to_a_spread() {
        let both = record(&[("x", Value::Int(1)), ("y", Value::Int(2))]);
        let other = record(&[("y", Value::Int(7)), ("z", Value::Int(3))]);
        let row = written(&[
            (Name::Spread, both),
            (field("x"), Value::Int(9)),
            (Name::Spread, other),
        ]);
        assert_eq!(row, "{\"x\":1,\"y\":2,\"z\":3}\n");
    }

    #[test]
    fn a_spread_of_null_writes_nothing() {
        assert_eq!(written(&[(Name::Spread, Value::Null)]), "{}\n");
        let row = written(&[(Name::Spread, Value::Null), (field("x"), Value::Int(9))]);
        assert_eq!(row, "{\"x\":9}\n");
    }
}
