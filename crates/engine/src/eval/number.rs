//! Numbers by value, independent of their representation, and parsed from text where one is expected.

use std::cmp::Ordering;

use crate::value::ValueRef;

/// The first float above every bigint, and the negation of the smallest bigint.
pub(super) const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    /// The number of a bit, bigint or float.
    pub(super) fn of(value: ValueRef<'_>) -> Option<Number> {
        match value {
            ValueRef::Bit(b) => Some(Number::Int(b.into())),
            ValueRef::Int(i) => Some(Number::Int(i)),
            ValueRef::Float(f) => Some(Number::Float(f)),
            _ => None,
        }
    }

    /// Parses a text. Whole numbers that fit a bigint are exact.
    pub(super) fn read(text: &str) -> Option<Number> {
        match read_int(text) {
            Some(i) => Some(Number::Int(i)),
            None => read_float(text).map(Number::Float),
        }
    }

    pub(super) fn to_float(self) -> f64 {
        match self {
            Number::Int(i) => i as f64,
            Number::Float(f) => f,
        }
    }

    /// By value, without rounding a bigint to a float first.
    pub(super) fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(&b),
            (Number::Float(a), Number::Float(b)) => compare_floats(a, b),
            (Number::Int(a), Number::Float(b)) => compare_int_float(a, b),
            (Number::Float(a), Number::Int(b)) => compare_int_float(b, a).reverse(),
        }
    }
}

/// Floats in the engine are finite: inputs and arithmetic admit no others.
pub(super) fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

#[inline]
pub(super) fn compare_int_float(int: i64, float: f64) -> Ordering {
    if float >= TWO_POW_63 {
        return Ordering::Less;
    }
    if float < -TWO_POW_63 {
        return Ordering::Greater;
    }
    let whole = float.trunc();
    int.cmp(&(whole as i64)).then(compare_floats(whole, float))
}

/// The bigint that is exactly this float.
pub(crate) fn float_as_int(float: f64) -> Option<i64> {
    let in_range = (-TWO_POW_63..TWO_POW_63).contains(&float);
    (in_range && float.trunc() == float).then_some(float as i64)
}

/// The float that is exactly this bigint.
pub(super) fn int_as_float(int: i64) -> Option<f64> {
    let float = int as f64;
    (float_as_int(float) == Some(int)).then_some(float)
}

/// An optional sign and digits, blanks around them ignored.
pub(super) fn read_int(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

/// Decimal or exponent notation, blanks around it ignored. Infinity, NaN and values beyond the largest float are no
/// numbers.
pub(super) fn read_float(text: &str) -> Option<f64> {
    let text = text.trim();
    if !text
        .bytes()
        .all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
    {
        return None;
    }
    text.parse().ok().filter(|f: &f64| f.is_finite())
}

/// `true`, `false`, `1` or `0`, in any case, blanks around it ignored.
pub(super) fn read_bit(text: &str) -> Option<bool> {
    match text.trim() {
        "1" => Some(true),
        "0" => Some(false),
        word if word.eq_ignore_ascii_case("true") => Some(true),
        word if word.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn bigint_and_float_compare_by_value_without_rounding() {
        use Ordering::*;
        for (int, float, expected) in [
            (1, 1.0, Equal),
            (1, 1.5, Less),
            (-1, -1.5, Greater),
            (0, -0.0, Equal),
            (9_007_199_254_740_993, 9_007_199_254_740_992.0, Greater),
            (i64::MAX, TWO_POW_63, Less),
            (i64::MIN, -TWO_POW_63, Equal),
            (i64::MIN, -1e300, Greater),
        ] {
            assert_eq!(
                compare_int_float(int, float),
                expected,
                "{int} with {float}"
            );
        }
    }

    // proves S1
    #[test]
    fn text_reads_as_a_number_only_if_it_spells_one() {
        assert_eq!(read_int(" +7\t"), Some(7));
        for text in ["", " ", "1.5", "7 7", "9223372036854775808", "0x1", "1_000"] {
            assert_eq!(read_int(text), None, "{text:?}");
        }
        for (text, expected) in [(" 1.5 ", 1.5), (".5", 0.5), ("5.", 5.0), ("-1e3", -1000.0)] {
            assert_eq!(read_float(text), Some(expected), "{text:?}");
        }
        for text in [
            "", ".", "NaN", "Infinity", "inf", "-inf", "1e999", "1,5", "e5", "+-1",
        ] {
            assert_eq!(read_float(text), None, "{text:?}");
        }
        assert_eq!(read_bit(" TRUE"), Some(true));
        assert_eq!(read_bit("0"), Some(false));
        assert_eq!(read_bit("yes"), None);
    }
}
