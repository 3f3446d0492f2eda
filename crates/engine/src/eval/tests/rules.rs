//! The rules of SAQL, one by one.

use highwater_query::plan::{BinaryOp::*, CompareOp::*, Expr, ExprKind, Pred, Type, UnaryOp};

use super::build::*;
use crate::eval::{EvalError, Faults, compare as order, evaluate, test};
use crate::value::Value;

fn value(expr: &Expr, columns: &[Value]) -> Result<Value, EvalError> {
    let chunk = row(columns);
    let mut faults = Faults::new(1);
    let result = evaluate(expr, &chunk, &mut faults).get(0).to_value();
    let fault = faults.iter().next().map(|(_, fault)| fault.reason.clone());
    match fault {
        Some(reason) => {
            assert!(result.is_null(), "a failed row is NULL");
            Err(reason)
        }
        None => Ok(result),
    }
}

/// Checks one expression with its operands as columns `a`, `b`.
fn check(expr: Expr, columns: &[Value], expected: Value) {
    let found = value(&expr, columns).unwrap_or_else(|e| panic!("{expr:?} over {columns:?}: {e}"));
    assert_eq!(exact(&found), exact(&expected), "{expr:?} over {columns:?}");
}

fn check_fails(expr: Expr, columns: &[Value], message: &str) {
    let error = value(&expr, columns).expect_err("an expression that fails");
    assert_eq!(error.to_string(), message);
}

fn holds(pred: &Pred, columns: &[Value]) -> Result<bool, EvalError> {
    let mut faults = Faults::new(1);
    let result = test(pred, &row(columns), &mut faults).value(0);
    let fault = faults.iter().next().map(|(_, fault)| fault.reason.clone());
    match fault {
        Some(reason) => {
            assert!(!result, "a failed row is false");
            Err(reason)
        }
        None => Ok(result),
    }
}

fn check_pred(pred: Pred, columns: &[Value], expected: bool) {
    assert_eq!(
        holds(&pred, columns),
        Ok(expected),
        "{pred:?} over {columns:?}"
    );
}

fn check_pred_fails(pred: Pred, columns: &[Value]) {
    assert!(holds(&pred, columns).is_err(), "{pred:?} over {columns:?}");
}

fn both(op: highwater_query::plan::BinaryOp) -> Expr {
    binary(op, col(0), col(1))
}

const NULL: Value = Value::Null;

fn t(text: &str) -> Value {
    Value::text(text)
}

// proves S1
#[test]
fn bigint_arithmetic_stays_bigint_and_truncates() {
    for (op, a, b, expected) in [
        (Add, 2, 3, 5),
        (Subtract, 2, 3, -1),
        (Multiply, -4, 3, -12),
        (Divide, 7, 2, 3),
        (Divide, -7, 2, -3),
        (Modulo, 7, -3, 1),
        (Modulo, -7, 3, -1),
        (Modulo, i64::MIN, -1, 0),
        (BitAnd, 170, 75, 10),
        (BitOr, 170, 75, 235),
        (BitXor, 170, 75, 225),
    ] {
        check(
            both(op),
            &[Value::Int(a), Value::Int(b)],
            Value::Int(expected),
        );
        check(
            binary(op, col(0), int(b)),
            &[Value::Int(a)],
            Value::Int(expected),
        );
        check(binary(op, int(a), int(b)), &[], Value::Int(expected));
    }
}

// proves S1
#[test]
fn overflow_and_division_by_zero_fail() {
    let max = Value::Int(i64::MAX);
    check_fails(
        both(Add),
        &[max, Value::Int(1)],
        "9223372036854775807 + 1 is out of range for bigint; cast an operand to float to continue with less precision",
    );
    check_fails(
        both(Divide),
        &[Value::Int(1), Value::Int(0)],
        "1 / 0 divides by zero",
    );
    check_fails(
        both(Modulo),
        &[Value::Float(1.5), Value::Int(0)],
        "1.5 % 0 divides by zero",
    );
    check_fails(
        both(Multiply),
        &[Value::Float(1e300), Value::Float(1e300)],
        "1E+300 * 1E+300 is out of range for float",
    );
    assert!(value(&both(Divide), &[Value::Int(i64::MIN), Value::Int(-1)]).is_err());
    assert!(value(&unary(UnaryOp::Minus, col(0)), &[Value::Int(i64::MIN)]).is_err());
    assert!(value(&binary(Divide, int(1), int(0)), &[]).is_err());
}

// proves S1
#[test]
fn mixed_arithmetic_gives_float_and_bits_act_as_numbers() {
    check(
        both(Add),
        &[Value::Int(1), Value::Float(0.5)],
        Value::Float(1.5),
    );
    check(
        both(Divide),
        &[Value::Int(1), Value::Float(2.0)],
        Value::Float(0.5),
    );
    check(
        both(Modulo),
        &[Value::Float(-7.5), Value::Int(2)],
        Value::Float(-1.5),
    );
    check(
        both(Add),
        &[Value::Bit(true), Value::Bit(true)],
        Value::Int(2),
    );
    check(
        both(Multiply),
        &[Value::Bit(true), Value::Float(2.5)],
        Value::Float(2.5),
    );
    check(
        unary(UnaryOp::Minus, col(0)),
        &[Value::Bit(true)],
        Value::Int(-1),
    );
    check(
        unary(UnaryOp::Plus, col(0)),
        &[Value::Float(2.5)],
        Value::Float(2.5),
    );
}

// proves S1
#[test]
fn text_joins_text_and_is_a_number_beside_numbers() {
    check(both(Add), &[t("a"), t("b")], t("ab"));
    check(both(Add), &[t("5"), Value::Int(3)], Value::Float(8.0));
    check(both(Subtract), &[t("5"), t(" 3 ")], Value::Float(2.0));
    check(
        unary(UnaryOp::Minus, col(0)),
        &[t("1.5")],
        Value::Float(-1.5),
    );
    check_fails(
        both(Add),
        &[t("five"), Value::Int(3)],
        "cannot read the text 'five' as a number; TRY_CAST(.. AS float) gives NULL instead",
    );
}

// proves S1
#[test]
fn null_in_arithmetic_gives_null_before_anything_fails() {
    for op in [
        Add, Subtract, Multiply, Divide, Modulo, BitAnd, BitOr, BitXor,
    ] {
        for other in [Value::Int(0), t("x"), record(&[]), Value::Float(1.0), NULL] {
            check(both(op), &[NULL, other.clone()], NULL);
            check(both(op), &[other, NULL], NULL);
        }
    }
    check(unary(UnaryOp::BitNot, col(0)), &[NULL], NULL);
}

// proves S1
#[test]
fn bitwise_takes_bits_and_bigints_only() {
    check(
        both(BitAnd),
        &[Value::Bit(true), Value::Bit(false)],
        Value::Bit(false),
    );
    check(
        both(BitOr),
        &[Value::Bit(true), Value::Int(6)],
        Value::Int(7),
    );
    check(
        unary(UnaryOp::BitNot, col(0)),
        &[Value::Int(170)],
        Value::Int(-171),
    );
    check(
        unary(UnaryOp::BitNot, col(0)),
        &[Value::Bit(true)],
        Value::Bit(false),
    );
    check_fails(
        both(BitAnd),
        &[Value::Int(1), Value::Float(1.0)],
        "operator & takes bit and bigint, but one operand is float; cast it to bigint first",
    );
    assert!(value(&both(BitXor), &[t("1"), Value::Int(1)]).is_err());
}

// proves S1
#[test]
fn arithmetic_with_times_and_records_fails() {
    let at = time("2024-01-01");
    check_fails(
        both(Add),
        &[at, Value::Int(1)],
        "operator + cannot take datetime and bigint",
    );
    check_fails(
        both(Add),
        &[t("a"), record(&[])],
        "operator + cannot take nvarchar(max) and record",
    );
    check_fails(
        unary(UnaryOp::Minus, col(0)),
        &[array(&[])],
        "operator - cannot take array",
    );
}

// proves S1
#[test]
fn comparison_with_null_is_false_and_not_flips_it() {
    for op in [Eq, Ne, Lt, Le, Gt, Ge] {
        check_pred(compare(op, col(0), int(1)), &[NULL], false);
        check_pred(not(compare(op, col(0), int(1))), &[NULL], true);
        check_pred(compare(op, col(0), col(1)), &[NULL, NULL], false);
    }
    check_pred(is_null(col(0), false), &[NULL], true);
    check_pred(is_null(col(0), true), &[Value::Int(1)], true);
}

// proves S1
#[test]
fn numbers_compare_by_value_whatever_they_are_stored_as() {
    let large = Value::Int(9_007_199_254_740_993);
    check_pred(
        compare(Eq, col(0), col(1)),
        &[large.clone(), Value::Float(9007199254740992.0)],
        false,
    );
    check_pred(
        compare(Gt, col(0), float(9007199254740992.0)),
        &[large],
        true,
    );
    check_pred(compare(Eq, col(0), int(1)), &[Value::Bit(true)], true);
    check_pred(compare(Lt, col(0), float(10.5)), &[Value::Int(10)], true);
    check_pred(compare(Ge, col(0), float(10.5)), &[Value::Int(10)], false);
    check_pred(compare(Lt, col(0), float(-10.5)), &[Value::Int(-11)], true);
    check_pred(
        compare(Lt, col(0), float(1e300)),
        &[Value::Int(i64::MAX)],
        true,
    );
    check_pred(compare(Eq, col(0), int(0)), &[Value::Float(-0.0)], true);
}

// proves S1
#[test]
fn text_compares_by_code_point_and_converts_beside_other_types() {
    check_pred(compare(Lt, text("B"), text("a")), &[], true);
    check_pred(
        compare(Lt, col(0), text("\u{10000}")),
        &[t("\u{ffff}")],
        true,
    );
    check_pred(compare(Gt, text("5"), int(3)), &[], true);
    check_pred(compare(Gt, col(0), int(3)), &[t("5.5")], true);
    check_pred(
        compare(Eq, col(0), col(1)),
        &[t("TRUE"), Value::Bit(true)],
        true,
    );
    check_pred(
        compare(Lt, col(0), text("2024-01-02")),
        &[time("2024-01-01")],
        true,
    );
    check_pred_fails(compare(Gt, col(0), int(3)), &[t("x")]);
    check_pred_fails(compare(Gt, col(0), text("x")), &[time("2024-01-01")]);
    check_pred_fails(compare(Gt, col(0), int(3)), &[time("2024-01-01")]);
}

// proves S1
#[test]
fn records_and_arrays_are_equal_by_their_parts_and_have_no_order() {
    let a = record(&[("x", Value::Int(1)), ("y", array(&[NULL, t("z")]))]);
    let b = record(&[("y", array(&[NULL, t("z")])), ("x", Value::Float(1.0))]);
    check_pred(compare(Eq, col(0), col(1)), &[a.clone(), b.clone()], true);
    check_pred(
        compare(Ne, col(0), col(1)),
        &[a.clone(), record(&[("x", Value::Int(1))])],
        true,
    );
    check_pred(
        compare(Eq, col(0), col(1)),
        &[array(&[t("1")]), array(&[Value::Int(1)])],
        false,
    );
    check_pred_fails(compare(Lt, col(0), col(1)), &[a.clone(), b.clone()]);
    check_pred_fails(compare(Eq, col(0), int(1)), std::slice::from_ref(&a));
    assert!(order(a.view(), b.view()).is_err());
    assert_eq!(order(a.view(), NULL.view()), Ok(None));
}

// proves S1
#[test]
fn a_guard_protects_what_stands_after_it() {
    let ratio = || compare(Gt, binary(Divide, int(10), col(0)), int(2));
    let zero = [Value::Int(0)];
    check_pred(and(compare(Ne, col(0), int(0)), ratio()), &zero, false);
    check_pred(or(compare(Eq, col(0), int(0)), ratio()), &zero, true);
    check_pred_fails(and(ratio(), compare(Ne, col(0), int(0))), &zero);
    check_pred_fails(not(ratio()), &zero);
    let guarded = case(
        vec![(compare(Eq, col(0), int(0)), int(-1))],
        binary(Divide, int(10), col(0)),
    );
    check(guarded.clone(), &zero, Value::Int(-1));
    check(guarded, &[Value::Int(5)], Value::Int(2));
    check(
        expr(ExprKind::Coalesce(vec![
            int(1),
            binary(Divide, int(1), int(0)),
        ])),
        &[],
        Value::Int(1),
    );
}

// proves S1
#[test]
fn between_includes_both_ends_and_is_false_on_null() {
    for (a, inside) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
        check_pred(
            between(col(0), int(2), int(4), false),
            &[Value::Int(a)],
            inside,
        );
        check_pred(
            between(col(0), int(2), int(4), true),
            &[Value::Int(a)],
            !inside,
        );
    }
    for negated in [false, true] {
        check_pred(between(col(0), int(2), int(4), negated), &[NULL], false);
        check_pred(between(int(9), col(0), int(4), negated), &[NULL], false);
        check_pred(between(int(1), int(2), col(0), negated), &[NULL], false);
    }
    check_pred_fails(between(col(0), int(2), int(4), false), &[t("x")]);
}

// proves S1
#[test]
fn in_list_compares_numbers_by_value_and_never_converts_text() {
    let list = || vec![int(1), text("two"), float(3.0), text("4")];
    for (of, found) in [
        (Value::Int(1), true),
        (Value::Float(1.0), true),
        (Value::Bit(true), true),
        (t("two"), true),
        (Value::Int(3), true),
        (Value::Int(4), false),
        (t("1"), false),
        (t("4"), true),
        (Value::Int(2), false),
        (t("x"), false),
        (time("2024-01-01"), false),
        (record(&[]), false),
    ] {
        check_pred(
            in_list(col(0), list(), false),
            std::slice::from_ref(&of),
            found,
        );
        check_pred(in_list(col(0), list(), true), &[of], !found);
    }
    for negated in [false, true] {
        check_pred(in_list(col(0), list(), negated), &[NULL], false);
        check_pred(
            in_list(col(0), vec![int(1), null()], negated),
            &[Value::Int(2)],
            false,
        );
    }
    check_pred(
        in_list(col(0), vec![null(), int(1)], false),
        &[Value::Int(1)],
        true,
    );
}

// proves S1
#[test]
fn like_takes_numbers_as_text_and_is_false_on_null() {
    check_pred(like(col(0), text("a%"), false), &[t("abc")], true);
    check_pred(like(col(0), text("A%"), false), &[t("abc")], false);
    check_pred(like(col(0), text("4_"), false), &[Value::Int(42)], true);
    check_pred(
        like(col(0), col(1), false),
        &[Value::Float(2.5), t("_.%")],
        true,
    );
    check_pred(like(col(0), int(42), false), &[t("42")], true);
    for negated in [false, true] {
        check_pred(like(col(0), text("%"), negated), &[NULL], false);
        check_pred(like(text("x"), col(0), negated), &[NULL], false);
    }
    check_pred_fails(like(col(0), text("%"), false), &[record(&[])]);
}

// proves S1
#[test]
fn case_takes_the_first_branch_that_holds_and_lifts_numbers_to_float() {
    let first = |then: Expr, otherwise: Expr| {
        case(
            vec![
                (compare(Gt, col(0), int(0)), then),
                (compare(Gt, col(0), int(9)), text("never")),
            ],
            otherwise,
        )
    };
    let yes = [Value::Int(10), Value::Int(7)];
    let no = [NULL, Value::Int(7)];
    check(first(int(1), text("x")), &yes, Value::Int(1));
    check(first(int(1), text("x")), &no, t("x"));
    check(first(int(1), float(2.0)), &yes, Value::Float(1.0));
    check(first(float(1.0), col(1)), &no, Value::Float(7.0));
    check(
        first(col(1), cast(int(3), Type::Float)),
        &yes,
        Value::Float(7.0),
    );
    check(first(float(1.5), text("x")), &no, t("x"));
    check(first(cast(int(1), Type::Bit), int(5)), &yes, Value::Int(1));
    check(first(col(1), null()), &yes, Value::Int(7));
}

// proves S1
#[test]
fn coalesce_keeps_the_type_of_the_first_value() {
    let of = |args: Vec<Expr>| expr(ExprKind::Coalesce(args));
    check(of(vec![null(), int(2), text("x")]), &[], Value::Int(2));
    check(
        of(vec![col(0), col(1), float(1.5)]),
        &[NULL, t("b")],
        t("b"),
    );
    check(
        of(vec![col(0), float(1.5)]),
        &[Value::Int(2)],
        Value::Int(2),
    );
    check(of(vec![null(), col(0)]), &[NULL], NULL);
}

// proves S1
#[test]
fn cast_follows_the_matrix() {
    let at = || time("2024-02-03T04:05:06.7Z");
    for (from, to, expected) in [
        (Value::Int(0), Type::Bit, Some(Value::Bit(false))),
        (Value::Int(-5), Type::Bit, Some(Value::Bit(true))),
        (Value::Int(5), Type::Float, Some(Value::Float(5.0))),
        (Value::Int(5), Type::Text, Some(t("5"))),
        (Value::Int(5), Type::Datetime, None),
        (Value::Float(-1.9), Type::Bigint, Some(Value::Int(-1))),
        (Value::Float(1e19), Type::Bigint, None),
        (Value::Float(9223372036854775808.0), Type::Bigint, None),
        (
            Value::Float(-9223372036854775808.0),
            Type::Bigint,
            Some(Value::Int(i64::MIN)),
        ),
        (Value::Float(0.1), Type::Bit, Some(Value::Bit(true))),
        (Value::Float(-0.0), Type::Bit, Some(Value::Bit(false))),
        (Value::Float(0.1), Type::Text, Some(t("0.1"))),
        (Value::Float(1.0), Type::Datetime, None),
        (t(" 7 "), Type::Bigint, Some(Value::Int(7))),
        (t("1.5"), Type::Bigint, None),
        (t(""), Type::Bigint, None),
        (t("1.5e1"), Type::Float, Some(Value::Float(15.0))),
        (t("NaN"), Type::Float, None),
        (t("Infinity"), Type::Float, None),
        (t("2024-02-03 04:05:06.7"), Type::Datetime, Some(at())),
        (t("2024-02-30"), Type::Datetime, None),
        (t("True"), Type::Bit, Some(Value::Bit(true))),
        (t("2"), Type::Bit, None),
        (t("{}"), Type::Record, None),
        (at(), Type::Text, Some(t("2024-02-03T04:05:06.7000000Z"))),
        (at(), Type::Datetime, Some(at())),
        (at(), Type::Bigint, None),
        (at(), Type::Bit, None),
        (Value::Bit(true), Type::Bigint, Some(Value::Int(1))),
        (Value::Bit(true), Type::Float, Some(Value::Float(1.0))),
        (Value::Bit(true), Type::Text, Some(t("1"))),
        (Value::Bit(true), Type::Datetime, None),
        (
            record(&[("a", Value::Int(1))]),
            Type::Text,
            Some(t(r#"{"a":1}"#)),
        ),
        (record(&[]), Type::Array, None),
        (record(&[]), Type::Bigint, None),
        (array(&[Value::Float(1.0)]), Type::Text, Some(t("[1.0]"))),
        (array(&[]), Type::Array, Some(array(&[]))),
        (array(&[]), Type::Record, None),
        (NULL, Type::Datetime, Some(NULL)),
    ] {
        let columns = [from];
        match expected {
            Some(expected) => check(cast(col(0), to), &columns, expected),
            None => {
                assert!(
                    value(&cast(col(0), to), &columns).is_err(),
                    "{columns:?} to {to:?}"
                );
                check(try_cast(col(0), to), &columns, NULL);
            }
        }
    }
}

// proves S2
#[test]
fn a_failed_cast_says_what_and_how_to_mend_it() {
    check_fails(
        cast(col(0), Type::Bigint),
        &[t("1.5")],
        "cannot cast '1.5' from nvarchar(max) to bigint; TRY_CAST gives NULL instead",
    );
    let inner = binary(Divide, int(1), int(0));
    assert!(
        value(&try_cast(inner, Type::Bigint), &[]).is_err(),
        "TRY_CAST mends only the cast"
    );
}

// proves S1
#[test]
fn fields_are_followed_and_missing_ones_are_null() {
    let event = record(&[("a", record(&[("b", Value::Int(1))])), ("s", t("x"))]);
    let columns = [event];
    check(field(field(col(0), "a"), "b"), &columns, Value::Int(1));
    check(field(field(col(0), "A"), "B"), &columns, Value::Int(1));
    check(field(field(col(0), "s"), "b"), &columns, NULL);
    check(field(col(0), "missing"), &columns, NULL);
    check(field(int(1), "a"), &columns, NULL);
    check(
        expr(ExprKind::Timestamp),
        &[],
        time("2024-01-01T00:00:00.0000001Z"),
    );
}

// proves S2
#[test]
fn rows_that_failed_before_stay_null_and_are_not_evaluated_again() {
    let chunk = crate::chunk::Chunk::new(
        vec![0, 1, 2].into(),
        vec![column(&[Value::Int(0), Value::Int(1), Value::Int(0)])],
    );
    let mut faults = Faults::new(3);
    let ratio = binary(Divide, int(6), col(0));
    let first = evaluate(&ratio, &chunk, &mut faults);
    assert!(first.is_null(0) && !first.is_null(1) && first.is_null(2));
    let second = evaluate(&col(0), &chunk, &mut faults);
    assert!(second.is_null(0) && !second.is_null(1) && second.is_null(2));
    let third = test(&not(compare(Eq, col(0), int(9))), &chunk, &mut faults);
    assert_eq!(third.set_indices().collect::<Vec<_>>(), [1]);
    assert_eq!(faults.len(), 2);
}
