//! Section 8.2.

use highwater_query::functions::Function::*;
use proptest::prelude::*;

use super::*;

// proves S1
#[test]
fn functions_of_one_number_keep_its_type_or_give_a_float() {
    check(Abs, args![-2], 2);
    check(Abs, args![-2.5], 2.5);
    check(Abs, args!["-2"], 2.0);
    check(Abs, args![true], 1);
    check(Ceiling, args![1.2], 2.0);
    check(Ceiling, args![-1.2], -1.0);
    check(Ceiling, args![-0.5], 0.0);
    check(Ceiling, args![7], 7);
    check(Floor, args![1.8], 1.0);
    check(Floor, args![-1.2], -2.0);
    check(Floor, args![i64::MIN], i64::MIN);
    check(Exp, args![0], 1.0);
    check(Exp, args![1.0], std::f64::consts::E);
    check(Exp, args![-1e9], 0.0);
    check(Sign, args![-3.5], -1.0);
    check(Sign, args![0], 0);
    check(Sign, args![0.0], 0.0);
    check(Sign, args![-0.0], 0.0);
    check(Sign, args![i64::MIN], -1);
    check(Square, args![3], 9.0);
    check(Square, args![-1.5], 2.25);
    check(Sqrt, args![9], 3.0);
    check(Sqrt, args!["9"], 3.0);
    check(Sqrt, args![-0.0], 0.0);
    for function in [Abs, Ceiling, Exp, Floor, Sign, Square, Sqrt] {
        check(function, args![NULL], NULL);
    }
}

// proves S2
#[test]
fn numbers_without_a_result_fail() {
    fails(
        Abs,
        args![i64::MIN],
        "ABS(-9223372036854775808) is out of range for bigint; \
         cast an operand to float to continue with less precision",
    );
    fails(Exp, args![1000], "EXP(1000) is out of range for float");
    fails(
        Square,
        args![1e200],
        "SQUARE(1E+200) is out of range for float",
    );
    fails(
        Sqrt,
        args![-1],
        "argument 1 of SQRT is -1, but a negative number has no square root",
    );
    fails(
        Abs,
        args!["x"],
        "argument 1 of ABS: cannot read the text 'x' as a number; \
         TRY_CAST(.. AS float) gives NULL instead",
    );
    fails(
        Floor,
        args![time("2024-01-01")],
        "argument 1 of FLOOR is datetime, but it takes bigint, float, bit and text that spells a number",
    );
    assert!(answer(Exp, None, args!["NaN"]).is_err());
}

// proves S1
#[test]
fn power_has_the_type_of_its_base() {
    for (base, exponent, expected) in [
        (2, 3, 8),
        (2, -1, 0),
        (-2, 63, i64::MIN),
        (3, 0, 1),
        (0, 0, 1),
        (0, 5, 0),
        (1, i64::MAX, 1),
        (-1, i64::MAX, -1),
        (-1, i64::MAX - 1, 1),
        (9_007_199_254_740_993, 1, 9_007_199_254_740_993),
    ] {
        check(Power, args![base, exponent], expected);
    }
    check(Power, args![2, 0.5], 1);
    check(Power, args![10, -1.0], 0);
    check(Power, args![2, 3.0], 8);
    check(Power, args![-1, 1e300], 1);
    check(Power, args![2.0, 3], 8.0);
    check(Power, args!["2", 3], 8.0);
    check(Power, args![2.0, -1], 0.5);
    check(Power, args![NULL, 1], NULL);
    check(Power, args!["x", NULL], NULL);
    let impossible: [&[Value]; 4] = [args![2, 63], args![10, 1e300], args![0, -1], args![-8, 0.5]];
    for args in impossible {
        let message = answer(Power, None, args)
            .expect_err("no bigint")
            .to_string();
        assert!(message.contains("is out of range for bigint"), "{message}");
    }
    fails(
        Power,
        args![-8.0, 0.5],
        "POWER(-8, 0.5) is out of range for float",
    );
    fails(
        Power,
        args![10.0, 400],
        "POWER(10, 400) is out of range for float",
    );
}

// proves S1
#[test]
fn round_goes_half_away_from_zero_on_the_decimal_that_is_shown() {
    for (number, places, expected) in [
        (-0.5, 0, -1.0),
        (501.1, -3, 1000.0),
        (123.9995, 3, 124.0),
        (123.9994, 3, 123.999),
        (2.5, 0, 3.0),
        (-2.5, 0, -3.0),
        (0.4999, 0, 0.0),
        (-0.4, 0, 0.0),
        (1.005, 2, 1.01),
        (2.675, 2, 2.68),
        (748.58, -4, 0.0),
        (150.75, -2, 200.0),
        (49.0, -2, 0.0),
        (50.0, -2, 100.0),
        (1e22, 5, 1e22),
        (1.5, 400, 1.5),
        (1.5, i64::MAX, 1.5),
        (1.5, i64::MIN, 0.0),
        (5e-324, 324, 5e-324),
        (5e-324, 323, 1e-323),
        (1.25e-7, 8, 1.3e-7),
        (4503599627370497.5, 0, 4503599627370498.0),
        (0.0, 3, 0.0),
        (-0.0, 3, 0.0),
    ] {
        check(Round, args![number, places], expected);
    }
    for (number, places, expected) in [
        (12, -3, 0),
        (500, -3, 1000),
        (499, -3, 0),
        (-1550, -2, -1600),
        (7, 2, 7),
        (i64::MAX, -20, 0),
        (4_999_999_999_999_999_999, -19, 0),
        (i64::MAX, i64::MIN, 0),
    ] {
        check(Round, args![number, places], expected);
    }
    check(Round, args!["2.5", 0], 3.0);
    check(Round, args![2.55, 1.9], 2.6);
    check(Round, args![2.5, "0"], 3.0);
    check(Round, args![NULL, 0], NULL);
    check(Round, args!["x", NULL], NULL);
    fails(
        Round,
        args![i64::MAX, -1],
        "ROUND(9223372036854775807, -1) is out of range for bigint; \
         cast an operand to float to continue with less precision",
    );
    fails(
        Round,
        args![1.7e308, -308],
        "ROUND(1.7E+308, -308) is out of range for float",
    );
    fails(
        Round,
        args!["x", 0],
        "argument 1 of ROUND: cannot read the text 'x' as a number; \
         TRY_CAST(.. AS float) gives NULL instead",
    );
}

/// Rounds the shortest decimal as a person would, digit by digit.
fn rounded_by_hand(number: f64, places: usize) -> f64 {
    let text = format!("{}", number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let up = fraction
        .as_bytes()
        .get(places)
        .is_some_and(|digit| *digit >= b'5');
    let kept: String = fraction
        .chars()
        .chain(std::iter::repeat('0'))
        .take(places)
        .collect();
    let mut digits: Vec<u8> = format!("0{whole}{kept}").into_bytes();
    if up {
        for digit in digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
    }
    let digits = String::from_utf8(digits).expect("digits");
    let value: f64 = format!("{digits}e-{places}").parse().expect("a number");
    value.copysign(number) + 0.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    // proves S1
    #[test]
    fn rounding_is_what_a_person_does_with_the_digits(
        number in prop_oneof![
            any::<f64>().prop_filter("finite", |f| f.is_finite()),
            (-1_000_000_i64..1_000_000, 0..8).prop_map(|(n, e)| n as f64 / 10_f64.powi(e)),
            -1e6..1e6_f64,
        ],
        places in 0_usize..12,
    ) {
        let expected = Ok(format!("{:?}", Value::Float(rounded_by_hand(number, places))));
        prop_assert_eq!(answer(Round, None, args![number, places as i64]), expected);
    }
}
