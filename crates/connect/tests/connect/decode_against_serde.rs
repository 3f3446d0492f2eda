//! The decoder against serde_json: the same lines are accepted and mean the same values.
//!
//! Deliberate differences, none of which a test here may blur: an integer outside 64 bits makes an
//! event bad (serde_json turns it into a float); `-0` is the integer 0 (serde_json: the float
//! -0.0); 128 levels are allowed (serde_json: 127); floats are rounded correctly (serde_json is off
//! by a bit at times, so floats are compared with a tolerance here and against the standard library
//! elsewhere).

use crate::common::lines;
use highwater_connect::json::{BadJson, Batch, DecodedBatch, Decoder, Field};
use highwater_engine::{ValueRef, eq_ignore_case};
use highwater_time::Instant;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value as Json;

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Paths that share beginnings, contain each other and differ in case only.
fn wanted() -> Vec<Field> {
    vec![
        Field::Path(path(&["a"])),
        Field::Path(path(&["b", "A"])),
        Field::Path(path(&["B"])),
        Field::Time(path(&["t"])),
        Field::Path(path(&["ä"])),
        Field::Path(path(&["c", "a", "b"])),
        Field::Path(path(&["c", "b"])),
        Field::Path(path(&["a", "b"])),
        Field::Path(path(&["aB"])),
        Field::Time(path(&["c", "b"])),
        Field::Path(path(&["another name that is longer than 32 bytes"])),
        Field::Path(path(&["quote\"d"])),
        Field::Whole,
    ]
}

fn decode(decoder: &mut Decoder, fields: usize, blocks: &[&[u8]]) -> DecodedBatch {
    let mut batch = Batch::tracking_lines(fields);
    let mut line = 1;
    for block in blocks {
        decoder.decode(block, line, &mut batch);
        line += block.iter().filter(|&&b| b == b'\n').count() as u64;
    }
    batch.finish()
}

/// The rule of A-17, over a parsed event.
fn look_up<'a>(event: &'a Json, path: &[String]) -> &'a Json {
    path.iter().fold(event, |value, name| {
        let Json::Object(fields) = value else {
            return &Json::Null;
        };
        if let Some(exact) = fields.get(name) {
            return exact;
        }
        let mut alike = fields
            .iter()
            .filter(|(known, _)| eq_ignore_case(known, name));
        match (alike.next(), alike.next()) {
            (Some((_, only)), None) => only,
            _ => &Json::Null,
        }
    })
}

fn same(ours: ValueRef<'_>, theirs: &Json) -> bool {
    match (ours, theirs) {
        (ValueRef::Null, Json::Null) => true,
        (ValueRef::Bit(a), Json::Bool(b)) => a == *b,
        (ValueRef::Int(a), Json::Number(b)) => {
            b.as_i64() == Some(a) || a == 0 && b.to_string() == "-0.0"
        }
        (ValueRef::Float(a), Json::Number(b)) => {
            let Some(b) = b.as_f64().filter(|_| b.is_f64()) else {
                return false;
            };
            a.to_bits() == b.to_bits() || (a - b).abs() <= 1e-15 * b.abs() + 1e-323
        }
        (ValueRef::Text(a), Json::String(b)) => a == b,
        (ValueRef::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a.view(), b))
        }
        (ValueRef::Record(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|((x, a), (y, b))| **x == **y && same(a.view(), b))
        }
        _ => false,
    }
}

fn same_field(ours: ValueRef<'_>, field: &Field, event: &Json) -> bool {
    match field {
        Field::Whole => same(ours, event),
        Field::Path(path) => same(ours, look_up(event, path)),
        Field::Time(path) => {
            let theirs = look_up(event, path);
            let text = theirs.as_str().unwrap_or_default();
            match (ours, Instant::parse_iso(text.as_bytes())) {
                (ValueRef::Time(a), Some(b)) => a == b,
                (ours, None) => same(ours, theirs),
                _ => false,
            }
        }
    }
}

/// Compares a decoded batch with serde_json's result for the same lines.
fn check(decoded: &DecodedBatch, fields: &[Field], lines: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let (mut row, mut bad) = (0, decoded.bad.iter());
    for (line, number) in lines.iter().zip(1u64..) {
        let shown = String::from_utf8_lossy(line);
        let theirs = serde_json::from_slice::<Json>(line)
            .ok()
            .filter(Json::is_object);
        if decoded.lines.get(row) != Some(&number) {
            let report = bad.next().expect("a line is a row or bad");
            prop_assert_eq!(report.line, number);
            let excused = report.reason == BadJson::IntegerRange && has_huge_integer(line);
            prop_assert!(
                theirs.is_none() || excused,
                "refused {}: {}",
                shown,
                report.reason
            );
            continue;
        }
        prop_assert!(theirs.is_some(), "accepted {}", shown);
        let event = theirs.unwrap_or_default();
        for (field, column) in fields.iter().zip(&decoded.columns) {
            let ours = column.get(row);
            prop_assert!(
                same_field(ours, field, &event),
                "{:?} of {}: {:?}",
                field,
                shown,
                ours
            );
        }
        row += 1;
    }
    prop_assert_eq!(row, decoded.rows);
    prop_assert!(bad.next().is_none());
    Ok(())
}

/// Whether a run of digits in the line does not fit into 64 bits. Checked in the text, because serde_json loses it.
fn has_huge_integer(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    text.split(|c: char| !c.is_ascii_digit() && c != '-')
        .any(|run| run.len() >= 19 && run.parse::<i64>().is_err())
}

fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| line.iter().copied().chain([b'\n']))
        .collect()
}

fn shown(decoded: &DecodedBatch) -> (Vec<String>, &[u64], String) {
    let row = |row| {
        let values: Vec<_> = decoded
            .columns
            .iter()
            .map(|column| column.get(row))
            .collect();
        format!("{values:?}")
    };
    (
        (0..decoded.rows).map(row).collect(),
        &decoded.lines,
        format!("{:?}", decoded.bad),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn valid_lines_mean_what_serde_json_says(lines in lines(), few in any::<u16>()) {
        let lines: Vec<Vec<u8>> = lines.into_iter().map(String::into_bytes).collect();
        let chosen = |(i, _): &(usize, Field)| few >> i & 1 == 1;
        let fields: Vec<Field> =
            wanted().into_iter().enumerate().filter(chosen).map(|(_, field)| field).collect();
        let mut decoder = Decoder::new(fields.clone());
        let decoded = decode(&mut decoder, fields.len(), &[&joined(&lines)]);
        check(&decoded, &fields, &lines)?;
    }

    #[test]
    fn mutated_lines_are_accepted_exactly_when_serde_json_accepts_them(
        lines in lines(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>(), 0..3u8), 1..20),
        whole in any::<bool>(),
    ) {
        let mut lines: Vec<Vec<u8>> = lines.into_iter().map(String::into_bytes).collect();
        for (place, byte, how) in changes {
            if lines.is_empty() {
                break;
            }
            let line = place.index(lines.len());
            mutate(&mut lines[line], place, byte, how);
        }
        lines.retain(|line| !line.iter().all(|b| b" \t\r".contains(b)));
        let mut fields = wanted();
        fields.truncate(if whole { 13 } else { 12 });
        let mut decoder = Decoder::new(fields.clone());
        let decoded = decode(&mut decoder, fields.len(), &[&joined(&lines)]);
        check(&decoded, &fields, &lines)?;
    }

    #[test]
    fn how_lines_are_cut_into_blocks_changes_nothing(lines in lines(), cuts in any::<u64>()) {
        let mut lines: Vec<Vec<u8>> = lines.into_iter().map(String::into_bytes).collect();
        lines.extend([b"{\"a\":oops}".to_vec(), vec![], b"{\"b\":{\"a\":\"\xff\"}}".to_vec()]);
        let mut fields = wanted();
        fields.truncate(12);
        let all = joined(&lines);
        let one = decode(&mut Decoder::new(fields.clone()), 12, &[&all]);
        let mut blocks: Vec<Vec<u8>> = vec![vec![]];
        for (i, line) in lines.iter().enumerate() {
            if cuts >> (i & 63) & 1 == 1 {
                blocks.push(vec![]);
            }
            let block = blocks.last_mut().expect("there is a block");
            block.extend_from_slice(line);
            block.push(b'\n');
        }
        let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let many = decode(&mut Decoder::new(fields), 12, &blocks);
        prop_assert_eq!(shown(&one), shown(&many));
    }

    #[test]
    fn the_decoder_never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decode(&mut Decoder::new(wanted()), 13, &[&bytes]);
    }
}

/// Overwrites, inserts or removes a byte, mostly with one that means something to JSON; never makes
/// a new line.
fn mutate(line: &mut Vec<u8>, place: Index, byte: u8, how: u8) {
    let telling = b"\"\\{}[]:,0123456789.eE+-tfnu \t\r/\x00\x1f\x7f\xc3\xa4";
    let byte = match byte {
        200.. => byte,
        _ => telling[byte as usize % telling.len()],
    };
    if byte == b'\n' {
        return;
    }
    match how {
        0 => line.insert(place.index(line.len() + 1), byte),
        _ if line.is_empty() => {}
        1 => drop(line.remove(place.index(line.len()))),
        _ => {
            let at = place.index(line.len());
            line[at] = byte;
        }
    }
}
