//! Avro files: those that another implementation wrote, and those that are wrong.

#![cfg(feature = "avro")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests prepare the files that are read"
)]

use highwater_connect::json::Field;
use highwater_connect::{BadKind, Level, SourceOptions, open};
use highwater_engine::eval;

/// The schema, and the markers and blocks behind the header, of files that the crate apache-avro 0.21
/// wrote with each codec.
const SCHEMA: &str = r#"{"type":"record","namespace":"a.b","name":"Event","fields":[{"name":"id","type":"long"},{"name":"small","type":["null","int"]},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"on","type":"boolean"},{"name":"x","type":"double"},{"name":"kind","type":{"type":"enum","namespace":"a.b","name":"Kind","symbols":["A","B"]}},{"name":"tags","type":{"type":"array","items":"string"}},{"name":"inner","type":{"type":"record","namespace":"a.b","name":"Inner","fields":[{"name":"f","type":"float"},{"name":"k","type":"a.b.Kind"}]}}]}"#;
const WRITTEN: [(&str, &str); 3] = [
    (
        "null",
        "09a34f9cabf4c992fad38a40d98ff492046c010080a0d5edee6600000000000000000000000000003f020002\
     d80482a0d5edee6601000000000000d03f0202047430000000003f0209a34f9cabf4c992fad38a40d98ff492\
     02420202b00984a0d5edee6600000000000000e03f0004047430047431000000003f0209a34f9cabf4c992fa\
     d38a40d98ff492",
    ),
    (
        "deflate",
        "75cd0c5d57348653f99c3120c57a032c046255c9410d00200c04c1eba582705037284000410992f890600234\
     90b4afee7347d0e7beaf2265048f0e1789b58cd456423f75cd0c5d57348653f99c3120c57a032c023a6362da\
     c0d9b2e0eadb77690c10f0c09e8185a5c480a5c410c4b367020075cd0c5d57348653f99c3120c57a032c",
    ),
    (
        "snappy",
        "9d62592f20766d780aed0c2fedee0013045c3620010080a0d5edee6600320100183f020002d80482051a0001\
     091a30d03f0202047430000000003f025f01357d9d62592f20766d780aed0c2fedee0013024821280202b009\
     84a0d5edee660009013ce03f0004047430047431000000003f023a5b8d859d62592f20766d780aed0c2fedee\
     0013",
    ),
];

#[derive(Debug, Default)]
struct Found {
    rows: Vec<String>,
    lines: Vec<u64>,
    bad: Vec<(u64, String)>,
    error: Option<(Option<BadKind>, String)>,
}

fn read_with(bytes: &[u8], options: SourceOptions) -> Found {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.avro");
    std::fs::write(&path, bytes).unwrap();
    let mut source = open(&path, options).unwrap();
    let mut found = Found::default();
    loop {
        match source.next_batch() {
            Ok(None) => return found,
            Err(error) => {
                found.error = Some((error.kind(), error.to_string()));
                return found;
            }
            Ok(Some(events)) => {
                for row in 0..events.rows {
                    let mut text = String::new();
                    eval::write_json(events.columns[0].get(row), &mut text);
                    found.rows.push(text);
                }
                found.lines.extend(events.lines);
                let bad = events.bad.into_iter();
                found.bad.extend(bad.map(|bad| (bad.line, bad.reason)));
            }
        }
    }
}

fn read(bytes: &[u8]) -> Found {
    read_with(bytes, SourceOptions::of(vec![Field::Whole]))
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn long(value: i64) -> Vec<u8> {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [long(bytes.len() as i64), bytes.to_vec()].concat()
}

fn header(schema: &str, codec: &str) -> Vec<u8> {
    let mut bytes = b"Obj\x01".to_vec();
    bytes.extend(long(2));
    bytes.extend(sized(b"avro.schema"));
    bytes.extend(sized(schema.as_bytes()));
    bytes.extend(sized(b"avro.codec"));
    bytes.extend(sized(codec.as_bytes()));
    bytes.push(0);
    bytes
}

/// A file of blocks, each with its number of events.
fn file(schema: &str, blocks: &[(i64, &[u8])]) -> Vec<u8> {
    let marker = [7; 16];
    let mut bytes = header(schema, "null");
    bytes.extend(marker);
    for (events, block) in blocks {
        bytes.extend(long(*events));
        bytes.extend(sized(block));
        bytes.extend(marker);
    }
    bytes
}

fn one_field(kind: &str) -> String {
    format!(r#"{{"type":"record","name":"E","fields":[{{"name":"a","type":{kind}}}]}}"#)
}

#[test]
fn files_of_another_implementation_are_read() {
    for (codec, rest) in WRITTEN {
        let bytes = [header(SCHEMA, codec), unhex(rest)].concat();
        let found = read(&bytes);
        assert_eq!(
            found.rows,
            [
                r#"{"id":-1,"small":null,"at":"2026-01-01T00:00:00.0000000Z","on":false,"x":0.0,"kind":"A","tags":[],"inner":{"f":0.5,"k":"B"}}"#,
                r#"{"id":0,"small":300,"at":"2026-01-01T00:00:00.0010000Z","on":true,"x":0.25,"kind":"B","tags":["t0"],"inner":{"f":0.5,"k":"B"}}"#,
                r#"{"id":1,"small":600,"at":"2026-01-01T00:00:00.0020000Z","on":false,"x":0.5,"kind":"A","tags":["t0","t1"],"inner":{"f":0.5,"k":"B"}}"#,
            ],
            "{codec}: {found:?}"
        );
        assert_eq!(found.lines, [1, 2, 3]);
        assert!(found.bad.is_empty() && found.error.is_none());
    }
}

#[test]
fn a_file_that_is_cut_short_gives_what_it_can() {
    let (codec, rest) = WRITTEN[0];
    let bytes = [header(SCHEMA, codec), unhex(rest)].concat();
    let found = read(&bytes[..bytes.len() - 20]);
    assert_eq!(found.rows.len(), 2);
    assert_eq!(found.error.unwrap().0, None);
    for cut in 0..bytes.len() {
        let found = read(&bytes[..cut]);
        assert!(found.rows.len() < 3);
    }
}

#[test]
fn damage_within_a_block_costs_the_rest_of_that_block() {
    let good = sized(b"x");
    let schema = one_field("\"string\"");
    let broken = [&good[..], &long(-5), &good].concat();
    let found = read(&file(&schema, &[(3, &broken), (1, &good)]));
    assert_eq!(found.rows, [r#"{"a":"x"}"#, r#"{"a":"x"}"#]);
    assert_eq!(found.lines, [1, 3]);
    assert_eq!(found.bad.len(), 1);
    assert!(
        found.bad[0].1.contains("1 later events in the same block"),
        "{found:?}"
    );
    let mut bytes = file(&schema, &[(1, &good)]);
    *bytes.last_mut().unwrap() = 8;
    assert!(read(&bytes).error.unwrap().1.contains("marker"));
}

#[test]
fn bytes_that_are_no_text_cost_only_their_event() {
    let block = [sized(b"\xff"), sized(b"ok")].concat();
    let found = read(&file(&one_field("\"bytes\""), &[(2, &block)]));
    assert_eq!(found.rows, [r#"{"a":"ok"}"#]);
    assert_eq!(found.bad[0].0, 1);
}

#[test]
fn strange_floats_are_bad_events_except_at_level_1_0() {
    let block = [f64::NAN.to_le_bytes(), 1.5f64.to_le_bytes()].concat();
    let bytes = file(&one_field("\"double\""), &[(2, &block)]);
    let found = read(&bytes);
    assert_eq!(found.rows, [r#"{"a":1.5}"#]);
    assert!(found.bad[0].1.contains("NaN"));
    let options = SourceOptions {
        level: Level::V1_0,
        ..SourceOptions::of(vec![Field::Whole])
    };
    assert_eq!(read_with(&bytes, options).rows.len(), 2);
}

#[test]
fn booleans_are_numbers_before_level_1_2() {
    let bytes = file(&one_field("\"boolean\""), &[(1, &[1])]);
    let options = SourceOptions {
        level: Level::V1_1,
        ..SourceOptions::of(vec![Field::Whole])
    };
    assert_eq!(read_with(&bytes, options).rows, [r#"{"a":1}"#]);
}

#[test]
fn what_cannot_be_read_is_named() {
    for (bytes, reason) in [
        (b"{}".to_vec(), "does not start with the header of an Avro"),
        (
            file(&one_field(r#"{"type":"map","values":"int"}"#), &[]),
            "a is an Avro map",
        ),
        (file("\"string\"", &[]), "is not a record"),
        (file("{", &[]), "not valid JSON"),
        (file(&one_field("\"nothing\""), &[]), "lacks the type"),
        (
            [header(SCHEMA, "bzip2"), vec![0; 16]].concat(),
            "compressed with bzip2",
        ),
    ] {
        let (kind, message) = read(&bytes).error.unwrap();
        assert_eq!(kind, Some(BadKind::InvalidData));
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_type_may_hold_itself() {
    let schema = r#"{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}"#;
    let found = read(&file(schema, &[(1, &[2, 2, 0])]));
    assert_eq!(found.rows, [r#"{"next":{"next":{"next":null}}}"#]);
    let deep = [2; 1000];
    assert_eq!(read(&file(schema, &[(1, &deep)])).bad.len(), 1);
}

/// Counts of values without bytes could be anything; neither time nor memory may grow with them.
// proves S2 S3
#[test]
fn counts_that_no_bytes_stand_behind_are_not_believed() {
    let more = "the block has more values than its bytes can hold";
    let nothing = r#"{"type":"record","name":"E","fields":[]}"#;
    let found = read(&file(nothing, &[(3, b""), (i64::MAX, b""), (1, b"")]));
    assert!(found.rows.len() < 10_000, "{}", found.rows.len());
    assert!(found.bad[0].1.starts_with(more), "{:?}", found.bad);

    let nulls = one_field("\"null\"");
    let found = read(&file(&nulls, &[(i64::MAX, b"x")]));
    assert!(found.rows.len() < 10_000 && found.bad.len() == 1);
    assert!(found.bad[0].1.contains(more), "{:?}", found.bad);

    // A thousand arrays, each with a count of a million nulls.
    let arrays = one_field(r#"{"type":"array","items":{"type":"array","items":"null"}}"#);
    let inner = [long(1_000_000), vec![0]].concat();
    let block = [long(1000), inner.repeat(1000), vec![0]].concat();
    let found = read(&file(&arrays, &[(1, &block)]));
    assert!(
        found.rows.is_empty() && found.bad[0].1.contains(more),
        "{found:?}"
    );

    // There may be many nulls if bytes follow them.
    let optional = one_field(r#"{"type":"array","items":["null","long"]}"#);
    let block = [long(100_000), vec![0; 100_000], vec![0]].concat();
    assert_eq!(read(&file(&optional, &[(1, &block)])).rows.len(), 1);
}
