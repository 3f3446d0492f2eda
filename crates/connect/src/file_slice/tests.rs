//! A file that is sliced at any position has the same events as the whole file.

use std::io::Write;

use flate2::write::GzEncoder;
use highwater_engine::eval;
use highwater_env::disk;
use proptest::prelude::*;

use super::*;
use crate::json::Field;
use crate::{OutputFormat, SourceOptions, ValueDecoder, open};

fn write(path: &Path, bytes: &[u8]) {
    let mut file = disk::create_atomic(path).unwrap();
    file.write_all(bytes).unwrap();
    file.commit().unwrap();
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn options() -> SourceOptions {
    SourceOptions {
        keep_text: true,
        ..SourceOptions::of(vec![Field::Whole])
    }
}

/// Good events as JSON, and how many bad ones there are.
fn shown(events: &crate::Events) -> (Vec<String>, usize) {
    let json = |row: usize| {
        let mut text = String::new();
        eval::write_json(events.columns[0].get(row), &mut text);
        text
    };
    ((0..events.rows).map(json).collect(), events.bad.len())
}

fn as_a_whole(path: &Path) -> (Vec<String>, usize) {
    let mut source = open(path, options()).unwrap();
    let (mut rows, mut bad) = (Vec::new(), 0);
    loop {
        match source.next_batch() {
            Ok(Some(events)) => {
                let found = shown(&events);
                rows.extend(found.0);
                bad += found.1;
            }
            Ok(None) => return (rows, bad),
            Err(_) => bad += 1,
        }
    }
}

/// Reopens the file after every slice, like a process that crashes all the time. Also returns the final position.
fn in_cuts(path: &Path, from: u64, last: bool) -> (Vec<String>, usize, u64) {
    let cutting = SliceOptions::default();
    let (mut rows, mut bad, mut next) = (Vec::new(), 0, from);
    loop {
        let slice = cutting.open(path, next).unwrap().next(last).unwrap();
        let Some(slice) = slice else {
            return (rows, bad, next);
        };
        let mut values = ValueDecoder::of_slices(slice.kind, options());
        for (number, value) in (0..).zip(slice.values()) {
            values.push(value, number);
        }
        let found = shown(&values.finish());
        rows.extend(found.0);
        bad += found.1;
        next = slice.next;
        if slice.is_end {
            return (rows, bad, next);
        }
    }
}

fn same(name: &str, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    write(&path, bytes);
    let (rows, bad, _) = in_cuts(&path, 0, true);
    assert_eq!((rows, bad), as_a_whole(&path), "{name}");
}

// proves S3
#[test]
fn whatever_the_format_a_file_in_cuts_holds_the_same_events() {
    let lines = b"\xef\xbb\xbf{\"a\":1}\n\n{\"a\":\r\n  {\"a\":[2]}\r\n7\n[{\"a\":9}]\n{\"a\":3}";
    let table = b"\n\xc3\xa4,b\n1,2\n\n\"x\n,\"\"y\",3\n1\n4,5\"\n\"a\"b,2\n6,7";
    let array = b"[{\"a\":1},\n{\"a\":{\"b\":2}}, 7, {\"a\":3}]";
    for (name, bytes) in [
        ("x.jsonl", &lines[..]),
        ("x.json", lines),
        ("x.csv", table),
        ("x.json", array),
        ("x.json", b""),
        ("x.csv", b"a,b"),
        ("x.csv", b"a,a\n1,2\n"),
    ] {
        same(name, bytes);
        same(&format!("{name}.gz"), &packed(bytes));
    }
    same("slice.jsonl.gz", &packed(lines)[..30]);
    same("plain.jsonl.gz", lines);
    same("packed.csv", &packed(table));
    same("no.avro", b"Obj\x01and nothing else");
    same("no.parquet", b"PAR1");
}

#[cfg(feature = "parquet")]
#[test]
fn types_of_a_table_are_kept() {
    use highwater_engine::{Chunk, Column, ColumnBuilder, Value};
    use highwater_query::plan::Name;
    use highwater_time::Instant;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let count = 40_000;
    let times: Vec<i64> = (0..count).map(|n| n * 10_000_000).collect();
    let names = ["t", "n"].map(|name| Name::Field(name.to_owned()));
    let mut writer = crate::row_writer(OutputFormat::Parquet, names.to_vec()).unwrap();
    let mut at = ColumnBuilder::default();
    for ticks in &times {
        let time = Instant::from_ticks(*ticks + 630_000_000_000_000_000);
        at.push_owned(Value::Time(time));
    }
    let columns = vec![at.finish(), Column::from_ints((0..count).collect())];
    writer.write(&Chunk::new(times.into(), columns)).unwrap();
    writer.finish().unwrap();
    let mut bytes = Vec::new();
    while let Some(crate::WriterOutput::Bytes(written)) = writer.take() {
        bytes.extend(written);
    }
    write(&path, &bytes);
    let (rows, bad, next) = in_cuts(&path, 0, true);
    assert_eq!((next, bad), (count as u64, 0));
    assert_eq!((rows, bad), as_a_whole(&path));
    let slice = SliceOptions::default()
        .open(&path, 39_999)
        .unwrap()
        .next(true);
    let slice = slice.unwrap().unwrap();
    let time = SourceOptions::of(vec![Field::Path(vec!["t".into()])]);
    let mut values = ValueDecoder::of_slices(slice.kind, time);
    values.push(slice.values().next().unwrap(), 5);
    let events = values.finish();
    assert!(matches!(events.columns[0], Column::Time(_)));
    assert_eq!((events.rows, &events.lines[..]), (1, &[5][..]));
}

#[test]
fn what_has_no_end_yet_is_left_until_it_has_or_the_file_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, taken) in [
        ("x.jsonl", "{\"a\":1}\n{\"a\":", 8),
        ("y.csv", "a,b\n1,2\n3,\"4\n", 8),
        ("z.csv", "a,b", 0),
    ] {
        let path = folder.path().join(name);
        write(&path, text.as_bytes());
        let (_, bad, next) = in_cuts(&path, 0, false);
        assert_eq!((bad, next), (0, taken), "{name}");
        let (_, bad, next) = in_cuts(&path, next, true);
        let unfinished = usize::from(taken > 0);
        assert_eq!((bad, next > 0), (unfinished, taken > 0), "{name}");
    }
}

#[test]
fn a_line_that_is_far_too_long_is_one_bad_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let long = vec![b'x'; LINE_BYTES_MAX + (2 << 20)];
    write(
        &path,
        &[&b"{\"a\":1}\n"[..], &long, b"\n{\"a\":2}\n"].concat(),
    );
    let (rows, bad, next) = in_cuts(&path, 0, false);
    assert_eq!((rows.len(), bad), (2, 1));
    assert_eq!(next, 17 + long.len() as u64);
}

fn record() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,3},[0-9]{1,2}\n",
        "\"[a-z,\n]{0,4}\",x\r\n",
        "[a-z\",]{1,6}\n",
        Just("\n".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Any bytes can be sliced, and the good events are those of the whole file.
    #[test]
    fn any_bytes_have_the_events_of_the_whole(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\",:\r\n\\ 1a"[..])], 0..60),
        name in prop::sample::select(vec!["x.jsonl", "x.csv", "x.jsonl.gz", "x.csv.gz", "x.avro"]),
        is_packed in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        match is_packed && name.ends_with(".gz") {
            true => write(&path, &packed(&bytes)),
            false => write(&path, &bytes),
        }
        let (rows, bad, _) = in_cuts(&path, 0, true);
        let (expected, expected_bad) = as_a_whole(&path);
        prop_assert_eq!(rows, expected);
        // A header alone is no value, so its errors show with the first record.
        prop_assert!(bad == 0 || expected_bad > 0);
        prop_assert!(bad > 0 || expected_bad == 0 || name.contains("csv"));
    }

    /// However often the file is read while it grows, its records are those of the whole file.
    #[test]
    fn csv_that_grows_has_the_records_of_the_whole(
        records in prop::collection::vec(record(), 0..12),
        looks in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        let text = "a,b\n".to_owned() + &records.concat();
        let mut ends: Vec<usize> = looks.iter().map(|look| look.index(text.len() + 1)).collect();
        ends.sort();
        let (mut rows, mut bad, mut next) = (Vec::new(), 0, 0);
        for (end, last) in ends.into_iter().map(|end| (end, false)).chain([(text.len(), true)]) {
            write(&path, &text.as_bytes()[..end]);
            let found = in_cuts(&path, next, last);
            rows.extend(found.0);
            bad += found.1;
            next = found.2;
        }
        prop_assert_eq!((rows, bad), as_a_whole(&path));
    }
}
