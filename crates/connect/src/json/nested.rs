//! Records and arrays that stay text until a step of the query looks at them.
//!
//! The decoder has checked the text, so nothing here fails; what could not be read would be NULL.

use std::cell::RefCell;

use highwater_engine::{Column, ColumnBuilder, NestedPieces, NestedTexts, ReadNested, Value};

use super::Field;
use super::build::Builder;
use super::decoder::Decoder;
use super::scan::{byte, skip_blanks, skip_validated};
use crate::source::Level;

/// JSON text, read by the rules of a compatibility level.
#[derive(Debug)]
pub(super) struct JsonText {
    level: Level,
}

static V1_1: JsonText = JsonText { level: Level::V1_1 };
static V1_2: JsonText = JsonText { level: Level::V1_2 };

/// What reads the text of a level; `None` if reading must be part of decoding, because it may fail.
pub(super) fn reader(level: Level) -> Option<&'static dyn ReadNested> {
    match level {
        Level::V1_0 => None,
        Level::V1_1 => Some(&V1_1),
        Level::V1_2 => Some(&V1_2),
    }
}

/// The level of a reader, if it is one of these.
pub(super) fn level_of(reader: &'static dyn ReadNested) -> Option<Level> {
    let known = [&V1_1, &V1_2].into_iter();
    let mut known = known.filter(|known| std::ptr::addr_eq(*known, reader));
    known.next().map(|known| known.level)
}

/// Sets of paths of a thread whose layout is remembered.
const PATHS_MAX: usize = 64;

thread_local! {
    static BUILDERS: RefCell<[Builder; 2]> =
        RefCell::new([Builder::new(Level::V1_1), Builder::new(Level::V1_2)]);
    static PATHS: RefCell<Vec<PathDecoder>> = const { RefCell::new(Vec::new()) };
}

/// Reads the values at some paths.
struct PathDecoder {
    level: Level,
    fields: Vec<Field>,
    decoder: Decoder,
}

impl JsonText {
    fn with_builder<T>(&self, read: impl FnOnce(&mut Builder) -> T) -> T {
        let index = usize::from(self.level == Level::V1_2);
        BUILDERS.with_borrow_mut(|builders| read(&mut builders[index]))
    }

    fn with_paths<T>(&self, paths: &[&[&str]], read: impl FnOnce(&mut Decoder) -> T) -> T {
        PATHS.with_borrow_mut(|known| {
            let same = |(field, path): (&Field, &&[&str])| field.path() == *path;
            let is_it = |one: &PathDecoder| {
                one.level == self.level
                    && one.fields.len() == paths.len()
                    && one.fields.iter().zip(paths).all(same)
            };
            let at = known.iter().position(is_it).unwrap_or_else(|| {
                if known.len() == PATHS_MAX {
                    known.remove(0);
                }
                let field = |path: &&[&str]| {
                    Field::Path(path.iter().map(|name| (*name).to_owned()).collect())
                };
                let fields: Vec<Field> = paths.iter().map(field).collect();
                known.push(PathDecoder {
                    level: self.level,
                    decoder: Decoder::with_rules(fields.clone(), self.level, &[]),
                    fields,
                });
                known.len() - 1
            });
            read(&mut known[at].decoder)
        })
    }
}

/// Calls `read` at each element of an array, for where it ends, and returns their number; `None` if the text is no array, or
/// if `read` returns it.
#[inline(always)]
fn each_element(bytes: &[u8], mut read: impl FnMut(usize) -> Option<usize>) -> Option<usize> {
    if byte(bytes, 0) != b'[' {
        return None;
    }
    let mut at = skip_blanks(bytes, 1);
    let mut elements = 0;
    while byte(bytes, at) != b']' {
        let end = read(at)?;
        elements += 1;
        at = skip_blanks(bytes, end);
        if byte(bytes, at) != b',' {
            break;
        }
        at = skip_blanks(bytes, at + 1);
    }
    Some(elements)
}

impl ReadNested for JsonText {
    fn read_one(&self, text: &str) -> Value {
        let read = self.with_builder(|builder| builder.value(text, 0, 0));
        read.map_or(Value::Null, |(value, _)| value)
    }

    fn is_record(&self, text: &str) -> bool {
        text.starts_with('{')
    }

    fn follow(&self, texts: NestedTexts<'_>, paths: &[&[&str]]) -> Vec<Column> {
        self.with_paths(paths, |decoder| {
            let column = || ColumnBuilder::with_capacity(texts.rows());
            let mut columns: Vec<ColumnBuilder> = paths.iter().map(|_| column()).collect();
            for row in 0..texts.rows() {
                match texts.start(row) {
                    Some(start) => decoder.read_object(texts.all(), start, &mut columns),
                    None => columns.iter_mut().for_each(ColumnBuilder::push_null),
                }
            }
            columns.into_iter().map(ColumnBuilder::finish).collect()
        })
    }

    fn pieces(&self, text: &str, out: &mut NestedPieces) -> Option<usize> {
        let bytes = text.as_bytes();
        let mut pushed = 0;
        let elements = each_element(bytes, |at| {
            if !matches!(byte(bytes, at), b'{' | b'[') {
                return None;
            }
            let end = skip_validated(bytes, at);
            out.push(at, end);
            pushed += 1;
            Some(end)
        });
        if elements.is_none() {
            out.remove_last(pushed);
        }
        elements
    }

    fn elements(&self, text: &str, out: &mut ColumnBuilder) -> Option<usize> {
        let bytes = text.as_bytes();
        each_element(bytes, |at| {
            if matches!(byte(bytes, at), b'{' | b'[') {
                let end = skip_validated(bytes, at);
                out.push_nested(&text[at..end], self.shared());
                return Some(end);
            }
            let read = self.with_builder(|builder| builder.value(text, at, 0));
            let (value, end) = read.unwrap_or((Value::Null, bytes.len()));
            out.push_owned(value);
            Some(end)
        })
    }

    fn ranked(&self, values: &mut dyn Iterator<Item = &str>) -> String {
        let mut text = String::from("[");
        for (rank, value) in (1..).zip(values) {
            if rank > 1 {
                text.push(',');
            }
            text.push_str("{\"rank\":");
            text.push_str(itoa::Buffer::new().format(rank));
            text.push_str(",\"value\":");
            text.push_str(value);
            text.push('}');
        }
        text.push(']');
        text
    }
}

impl JsonText {
    fn shared(&self) -> &'static dyn ReadNested {
        match self.level {
            Level::V1_2 => &V1_2,
            _ => &V1_1,
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_engine::ValueRef;
    use proptest::prelude::*;

    use super::*;

    fn shown(value: &Value) -> String {
        format!("{value:?}")
    }

    #[test]
    fn a_path_is_followed_as_in_the_record() {
        let all = [
            r#"{"a":{"b":1}}"#,
            r#"{ "a" : { "B" : "x\n" } , "c":2}"#,
            r#"{"a":{"b":1,"B":2,"b":3}}"#,
            r#"{"a":{"B":1,"bb":2}, "A": 5}"#,
            r#"{"a":[{"b":1}]}"#,
            r#"{"a":null}"#,
            r#"[{"a":{"b":1}}]"#,
            r#"{"a":{"b":{"c":[1,2,{"d":null}]}}}"#,
            r#"{"a":{"b":1},"a":{"c":1}}"#,
            r#"{"A":{"b":7}}"#,
            r#"{"A":{"b":7},"a":true}"#,
        ];
        let block = all.concat();
        let mut columns = ColumnBuilder::of_width(2);
        V1_2.with_paths(&[&["a", "b"], &["c"]], |decoder| {
            all.iter().fold(0, |at, text| {
                decoder.read_object(&block, at, &mut columns);
                at + text.len()
            });
        });
        let columns: Vec<Column> = columns.into_iter().map(ColumnBuilder::finish).collect();
        for (row, text) in all.iter().enumerate() {
            let step = |value: Value, name: &str| match value.view() {
                ValueRef::Record(record) => record.get(name).cloned().unwrap_or_default(),
                _ => Value::Null,
            };
            let whole = V1_2.read_one(text);
            let expected = [step(step(whole.clone(), "a"), "b"), step(whole, "c")];
            for (column, expected) in columns.iter().zip(&expected) {
                assert_eq!(
                    shown(&column.get(row).to_value()),
                    shown(expected),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn elements_are_those_of_the_array() {
        for text in [
            "[]",
            "[ ]",
            "[1]",
            r#"[ {"a":[1,2]} , [] , "x,]" , -1.5e3 , null , true ]"#,
            r#"[{"a":"]"},{"b":"\"}"}]"#,
        ] {
            let mut column = ColumnBuilder::default();
            let count = V1_2.elements(text, &mut column);
            let column = column.finish();
            let Value::Array(expected) = V1_2.read_one(text) else {
                panic!("{text}")
            };
            assert_eq!(count, Some(expected.len()), "{text}");
            let is_nested = |value: &Value| matches!(value, Value::Record(_) | Value::Array(_));
            let pieces = V1_2.pieces(text, &mut NestedPieces::with_capacity(0));
            let cut = expected.iter().all(is_nested).then_some(expected.len());
            assert_eq!(pieces, cut, "{text}");
            for (row, value) in expected.iter().enumerate() {
                assert_eq!(shown(&column.get(row).to_value()), shown(value), "{text}");
            }
        }
        assert_eq!(V1_2.elements("{}", &mut ColumnBuilder::default()), None);
    }

    #[test]
    fn ranks_count_from_one() {
        let text = V1_2.ranked(&mut [r#"{"a":1}"#, "[2]"].into_iter());
        assert_eq!(
            text,
            r#"[{"rank":1,"value":{"a":1}},{"rank":2,"value":[2]}]"#
        );
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<i32>().prop_map(|number| number.to_string()),
            (-999_i32..999).prop_map(|eighths| (f64::from(eighths) / 8.0).to_string()),
            prop::sample::select(vec!["-0", "0.10", "1E2", "-1.50e-3", r#""\u0061\/\n""#])
                .prop_map(str::to_owned),
            "[ab\\u00e4\"]{0,3}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            let blank = prop_oneof![Just(""), Just(" ")];
            let fields = prop::collection::vec(("[abAB]", blank, inner.clone()), 0..4);
            prop_oneof![
                fields.prop_map(|fields| {
                    let fields = fields
                        .iter()
                        .map(|(name, b, v)| format!("{b}\"{name}\"{b}:{b}{v}"));
                    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
                }),
                prop::collection::vec(inner, 0..4).prop_map(|all| format!("[{}]", all.join(" ,"))),
            ]
        })
    }

    proptest! {
        /// A decoder that leaves nested values as text gives the values of one that builds them.
        #[test]
        fn text_and_built_values_are_the_same(lines in prop::collection::vec(json(), 1..6)) {
            let path = |names: &[&str]| Field::Path(names.iter().map(|name| (*name).to_owned()).collect());
            let fields = vec![Field::Whole, path(&["a"]), path(&["a", "b"]), path(&["B"])];
            let block = lines.iter().map(|line| format!("{{\"a\":{line},\"b\":{line}}}\n")).collect::<String>();
            let mut decoders = [Decoder::new(fields.clone()), Decoder::new(fields.clone())];
            decoders[1].build_nested();
            let decoded = decoders.map(|mut decoder| {
                let mut batch = super::super::Batch::new(fields.len());
                decoder.decode(block.as_bytes(), 1, &mut batch);
                batch.finish()
            });
            prop_assert_eq!(decoded[0].rows, decoded[1].rows);
            let written = decoded.each_ref().map(|decoded| {
                let names = ["x", "y", "z"].map(|name| highwater_query::plan::Name::Field(name.to_owned()));
                let names = std::iter::once(highwater_query::plan::Name::Spread).chain(names);
                let times = vec![0; decoded.rows].into();
                let chunk = highwater_engine::Chunk::new(times, decoded.columns.clone());
                let mut out = Vec::new();
                super::super::JsonWriter::new(names.collect()).write(&chunk, &mut out);
                String::from_utf8(out).unwrap()
            });
            prop_assert_eq!(&written[0], &written[1]);
            for (lazy, built) in decoded[0].columns.iter().zip(&decoded[1].columns) {
                for row in 0..lazy.len() {
                    prop_assert_eq!(shown(&lazy.get(row).to_value()), shown(&built.get(row).to_value()));
                }
            }
        }
    }
}
