//! Laws of every expression over every chunk.

use highwater_query::plan::{Expr, Pred};
use proptest::prelude::*;

use super::build::exact;
use super::generate::{chunks, exprs, floats, preds, values};
use super::oracle;
use crate::chunk::Chunk;
use crate::column::Column;
use crate::eval::{Fault, Faults, compare, encode_key, equal, evaluate, same, test, write_text};
use crate::value::{Value, ValueRef};

/// The result of a row: its value to the last bit, or why it failed.
type RuleResult = Result<String, Fault>;

fn outcomes(
    faults: &Faults,
    display_value: impl Fn(usize) -> String,
    rows: usize,
) -> Vec<RuleResult> {
    let mut outcomes: Vec<RuleResult> = (0..rows).map(|row| Ok(display_value(row))).collect();
    faults
        .iter()
        .for_each(|(row, fault)| outcomes[row] = Err(fault.clone()));
    outcomes
}

fn values_of(expr: &Expr, chunk: &Chunk) -> Vec<RuleResult> {
    let mut faults = Faults::new(chunk.rows());
    let column = evaluate(expr, chunk, &mut faults);
    assert_eq!(column.len(), chunk.rows());
    assert!(
        faults.iter().all(|(row, _)| column.is_null(row)),
        "a failed row is NULL"
    );
    outcomes(
        &faults,
        |row| exact(&column.get(row).to_value()),
        chunk.rows(),
    )
}

fn answers_of(pred: &Pred, chunk: &Chunk) -> Vec<RuleResult> {
    let mut faults = Faults::new(chunk.rows());
    let mask = test(pred, chunk, &mut faults);
    assert_eq!(mask.len(), chunk.rows());
    assert!(
        faults.iter().all(|(row, _)| !mask.value(row)),
        "a failed row is false"
    );
    outcomes(&faults, |row| mask.value(row).to_string(), chunk.rows())
}

/// Some or all columns of the chunk without their types.
fn untyped(chunk: &Chunk, which: u8) -> Chunk {
    let columns = chunk
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| match which >> at & 1 {
            1 => column.to_dynamic(),
            _ => column.clone(),
        });
    chunk.with_columns(columns.collect())
}

fn piece(chunk: &Chunk, start: usize, end: usize) -> Chunk {
    let columns = chunk
        .columns
        .iter()
        .map(|column| retyped(&column.slice(start, end - start)));
    Chunk::new(chunk.times.slice(start, end - start), columns.collect())
}

/// The column as a source would have built it: typed if these values allow it, though more of them did not.
fn retyped(column: &Column) -> Column {
    match column {
        Column::Dynamic(values) => super::build::column(values),
        typed => typed.clone(),
    }
}

fn cuts(chunk: &Chunk, cut: usize) -> Vec<Chunk> {
    let rows = chunk.rows();
    let (first, second) = (cut % (rows + 1), (cut / 7) % (rows + 1));
    let ends = [first.min(second), first.max(second), rows];
    let starts = [0, ends[0], ends[1]];
    starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| piece(chunk, start, end))
        .collect()
}

fn agrees(outcome: &RuleResult, expected: Option<String>) -> bool {
    match (outcome, expected) {
        (Ok(found), Some(expected)) => *found == expected,
        (Err(_), None) => true,
        _ => false,
    }
}

fn key(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(value.view(), &mut bytes);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_500))]

    // proves S1
    #[test]
    fn typed_and_dynamic_columns_give_the_same_values_and_faults(
        expr in exprs(3), chunk in chunks(), which in 1_u8..16,
    ) {
        let typed = values_of(&expr, &chunk);
        prop_assert_eq!(&typed, &values_of(&expr, &untyped(&chunk, 0b1111)));
        prop_assert_eq!(&typed, &values_of(&expr, &untyped(&chunk, which)));
    }

    // proves S1
    #[test]
    fn typed_and_dynamic_columns_give_the_same_answers_and_faults(
        pred in preds(3), chunk in chunks(), which in 1_u8..16,
    ) {
        let typed = answers_of(&pred, &chunk);
        prop_assert_eq!(&typed, &answers_of(&pred, &untyped(&chunk, 0b1111)));
        prop_assert_eq!(&typed, &answers_of(&pred, &untyped(&chunk, which)));
    }

    // proves S1
    #[test]
    fn a_chunk_and_its_pieces_give_the_same(
        expr in exprs(3), pred in preds(2), chunk in chunks(), cut in any::<u16>(),
    ) {
        let pieces = cuts(&chunk, cut.into());
        let values: Vec<_> = pieces.iter().flat_map(|piece| values_of(&expr, piece)).collect();
        prop_assert_eq!(values_of(&expr, &chunk), values);
        let answers: Vec<_> = pieces.iter().flat_map(|piece| answers_of(&pred, piece)).collect();
        prop_assert_eq!(answers_of(&pred, &chunk), answers);
    }

    // proves S1
    #[test]
    fn expressions_agree_with_the_oracle(expr in exprs(3), chunk in chunks()) {
        for (row, outcome) in values_of(&expr, &chunk).iter().enumerate() {
            let expected = oracle::value(&expr, &chunk, row).map(|value| exact(&value));
            prop_assert!(agrees(outcome, expected.clone()), "{row}: {outcome:?}, {expected:?}");
        }
    }

    // proves S1
    #[test]
    fn conditions_agree_with_the_oracle(pred in preds(3), chunk in chunks()) {
        for (row, outcome) in answers_of(&pred, &chunk).iter().enumerate() {
            let expected = oracle::holds(&pred, &chunk, row).map(|answer| answer.to_string());
            prop_assert!(agrees(outcome, expected.clone()), "{row}: {outcome:?}, {expected:?}");
        }
    }

    // proves S1
    #[test]
    fn plain_operations_on_columns_agree_with_the_oracle(
        expr in exprs(1), pred in preds(1), chunk in chunks(),
    ) {
        for (row, outcome) in values_of(&expr, &chunk).iter().enumerate() {
            let expected = oracle::value(&expr, &chunk, row).map(|value| exact(&value));
            prop_assert!(agrees(outcome, expected.clone()), "{row}: {outcome:?}, {expected:?}");
        }
        for (row, outcome) in answers_of(&pred, &chunk).iter().enumerate() {
            let expected = oracle::holds(&pred, &chunk, row).map(|answer| answer.to_string());
            prop_assert!(agrees(outcome, expected.clone()), "{row}: {outcome:?}, {expected:?}");
        }
    }

    // proves S1
    #[test]
    fn comparing_agrees_with_the_oracle_and_is_symmetric(a in values(), b in values()) {
        let forth = compare(a.view(), b.view()).ok();
        prop_assert_eq!(forth, oracle::order(&a, &b));
        let back = compare(b.view(), a.view()).ok();
        prop_assert_eq!(back, forth.map(|order| order.map(std::cmp::Ordering::reverse)));
    }

    // proves S1
    #[test]
    fn keys_are_equal_exactly_when_the_values_are(a in values(), b in values()) {
        let one_group = key(&a) == key(&b);
        prop_assert_eq!(one_group, same(a.view(), b.view()));
        prop_assert_eq!(one_group, oracle::alike(&a, &b));
        // `=` converts text beside another type, a key never does.
        let converts = matches!(a, Value::Text(_)) != matches!(b, Value::Text(_));
        if !converts && !a.is_null() && !b.is_null() {
            prop_assert_eq!(one_group, equal(a.view(), b.view()) == Ok(Some(true)));
        }
    }

    // proves S1
    #[test]
    fn keys_delimit_themselves(a in values(), b in values(), c in values(), d in values()) {
        let (ab, cd) = ([key(&a), key(&b)].concat(), [key(&c), key(&d)].concat());
        let pairwise = same(a.view(), c.view()) && same(b.view(), d.view());
        prop_assert_eq!(ab == cd, pairwise);
        let starts = key(&a).starts_with(&key(&b));
        prop_assert_eq!(starts, same(a.view(), b.view()), "no key begins another");
    }

    // proves S1
    #[test]
    fn float_text_reads_back_as_the_same_float(float in floats()) {
        let mut text = String::new();
        write_text(ValueRef::Float(float), &mut text);
        prop_assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(float.to_bits()), "{}", text);
    }
}
