//! Files of Avro and Parquet to begin with: those of the golden cases, and small ones with every type.

use std::sync::Arc;

use highwater_connect::{OutputFormat, WriterOutput, row_writer};
use highwater_engine::{Chunk, ColumnBuilder, Record, Value};
use highwater_query::plan::Name;
use highwater_time::Instant;

use crate::files;

pub(crate) fn words() -> Vec<String> {
    let words = "null boolean int long float double bytes string fixed enum array record union name type items size \
                 symbols fields logicalType decimal timestamp-millis date scale avro.schema avro.codec deflate snappy \
                 zstandard PAR1 { } [ ] : ,";
    let bytes = ["\0", "\x01", "\x02", "\x7f", "\0\0\0\0"].map(String::from);
    let words = words.split_whitespace().map(String::from);
    words.chain(bytes).collect()
}

pub(crate) fn avro_files() -> Vec<Vec<u8>> {
    let mut all = files("cases", &|name| name.ends_with(".avro"));
    let schemas: [(&str, i64, &[u8]); 7] = [
        (r#""long""#, 3, b"\x02\x04\x06"),
        (r#"["null","string"]"#, 2, b"\0\x02\x04ab"),
        (
            r#"{"type":"array","items":"int"}"#,
            2,
            b"\x04\x02\x04\0\x01\x02\x06\0",
        ),
        (r#"{"type":"array","items":"null"}"#, 1, b"\x06\0"),
        (
            r#"{"type":"array","items":{"type":"array","items":"null"}}"#,
            1,
            b"\x04\x04\0\x02\0\0",
        ),
        (
            r#"{"type":"record","name":"R","fields":[{"name":"n","type":"null"},{"name":"f","type":{"type":"fixed","name":"F","size":2}},{"name":"e","type":{"type":"enum","name":"K","symbols":["A","B"]}}]}"#,
            2,
            b"xy\0zz\x02",
        ),
        (
            r#"["null","E",{"type":"bytes","logicalType":"decimal","scale":2}]"#,
            2,
            b"\x02\0\x04\x02\x07",
        ),
    ];
    for (kind, events, body) in schemas {
        let schema =
            format!(r#"{{"type":"record","name":"E","fields":[{{"name":"a","type":{kind}}}]}}"#);
        all.push(avro_file(&schema, events, body));
    }
    all.push(avro_file(
        r#"{"type":"record","name":"E","fields":[]}"#,
        3,
        b"",
    ));
    let nothing = r#"{"type":"record","name":"E","fields":[{"name":"a","type":"null"}]}"#;
    all.push(avro_file(nothing, 3, b"\0"));
    all
}

fn avro_file(schema: &str, events: i64, body: &[u8]) -> Vec<u8> {
    let long = |value: i64| {
        let mut rest = (value << 1) as u64;
        let mut bytes = Vec::new();
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    };
    let sized = |bytes: &[u8]| [long(bytes.len() as i64), bytes.to_vec()].concat();
    let marker = [7; 16];
    let header = [
        long(1),
        sized(b"avro.schema"),
        sized(schema.as_bytes()),
        vec![0],
    ]
    .concat();
    let block = [long(events), sized(body)].concat();
    [b"Obj\x01", &header[..], &marker, &block, &marker].concat()
}

pub(crate) fn parquet_files() -> Vec<Vec<u8>> {
    let mut all = files("cases", &|name| name.ends_with(".parquet"));
    let fields = [(
        "x".into(),
        Value::Array([Value::Int(1), Value::Null].into()),
    )];
    let record = Value::Record(Arc::new(Record::from_fields(fields.to_vec())));
    let time = Value::Time(Instant::parse_iso(b"2026-03-02T00:00:00.1234567Z").expect("a time"));
    let kinds: [(&str, Value); 6] = [
        ("a", Value::Int(7)),
        ("v", Value::Float(0.5)),
        ("b", Value::Bit(true)),
        ("t", time),
        ("s", Value::text("ä")),
        ("device", record),
    ];
    for (name, value) in &kinds {
        all.push(parquet_file(&[(name, [value.clone(), Value::Null].into())]));
        // Many equal values are few bytes.
        all.push(parquet_file(&[(name, vec![value.clone(); 3000])]));
    }
    let columns: Vec<(&str, Vec<Value>)> = kinds
        .iter()
        .map(|(name, value)| (*name, vec![value.clone(); 5]))
        .collect();
    all.push(parquet_file(&columns));
    let many = (0..400)
        .map(|i| Value::text(&format!("text {i}")))
        .collect();
    all.push(parquet_file(&[("s", many)]));
    all
}

fn parquet_file(columns: &[(&str, Vec<Value>)]) -> Vec<u8> {
    let names = columns
        .iter()
        .map(|(name, _)| Name::Field(name.to_string()));
    let rows = columns[0].1.len() as i64;
    let columns = columns.iter().map(|(_, values)| {
        let mut builder = ColumnBuilder::default();
        values.iter().for_each(|value| builder.push(value.view()));
        builder.finish()
    });
    let chunk = Chunk::new((0..rows).collect(), columns.collect());
    let mut writer = row_writer(OutputFormat::Parquet, names.collect()).expect("a writer");
    writer.write(&chunk).expect("rows can be written");
    writer.finish().expect("a file has an end");
    let mut bytes = Vec::new();
    while let Some(written) = writer.take() {
        if let WriterOutput::Bytes(more) = written {
            bytes.extend(more);
        }
    }
    bytes
}
