//! Numbers: integers stay integers, numbers with a fraction or exponent become correctly rounded floats.
//!
//! Most numbers in events are short, so the fast path reads up to seven digits on each side of the point in one step of
//! eight bytes each, without a loop over digits. Longer numbers take the slow path, which follows the grammar and
//! leaves hard roundings to the standard library. Skipped numbers are checked for range as well: whether an event is
//! good must not depend on the fields that a query reads.

use super::fault::{Fault, FaultKind};
use super::scan::{byte, load8};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

/// Powers of ten that a float holds exactly.
const POW10: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
const POW10_INT: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Eight bytes and how many digits they start with.
#[derive(Clone, Copy)]
struct Digits {
    word: u64,
    count: usize,
}

impl Digits {
    #[inline(always)]
    fn at(bytes: &[u8], at: usize) -> Digits {
        let word = load8(bytes, at);
        let t = word ^ 0x3030_3030_3030_3030;
        // A byte above 9 sets its high bit; a carry can only disturb the bytes behind the first
        // such byte.
        let other = (t.wrapping_add(0x7676_7676_7676_7676) | t) & 0x8080_8080_8080_8080;
        Digits {
            word,
            count: (other.trailing_zeros() / 8) as usize,
        }
    }

    /// Between one and seven digits.
    #[inline(always)]
    fn is_short(self) -> bool {
        self.count.wrapping_sub(1) < 7
    }

    #[inline(always)]
    fn has_leading_zero(self) -> bool {
        self.word as u8 == b'0' && self.count > 1
    }

    /// The byte after the digits, if they are short.
    #[inline(always)]
    fn next(self) -> u8 {
        (self.word >> (8 * self.count)) as u8
    }

    /// The value of short digits.
    #[inline(always)]
    fn value(self) -> u64 {
        let t = (self.word ^ 0x3030_3030_3030_3030) << (64 - 8 * self.count);
        let pairs = t.wrapping_mul(10).wrapping_add(t >> 8);
        let high = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
        let low = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
        high.wrapping_add(low) >> 32
    }
}

/// Reads a number. Callers send everything here that starts with a byte from `-` to `9`, which is one comparison; the
/// two bytes between the sign and the digits start no number and fail here.
#[inline(always)]
pub(crate) fn number(bytes: &[u8], at: usize) -> Result<(Number, usize), Fault> {
    let negative = byte(bytes, at) == b'-';
    let start = at + usize::from(negative);
    let whole = Digits::at(bytes, start);
    if !whole.is_short() || whole.has_leading_zero() {
        return long_number(bytes, at);
    }
    let end = start + whole.count;
    match whole.next() {
        b'.' => {
            let part = Digits::at(bytes, end + 1);
            if !part.is_short() || matches!(part.next(), b'e' | b'E') {
                return long_number(bytes, at);
            }
            let mantissa = whole.value() * POW10_INT[part.count & 7] + part.value();
            // Converting from a signed integer is one instruction.
            let value = mantissa as i64 as f64 / POW10[part.count & 7];
            let value = if negative { -value } else { value };
            Ok((Number::Float(value), end + 1 + part.count))
        }
        b'e' | b'E' => long_number(bytes, at),
        _ => {
            let value = whole.value() as i64;
            Ok((Number::Int(if negative { -value } else { value }), end))
        }
    }
}

/// The end of a number that is valid and in range.
#[inline(always)]
pub(crate) fn skip(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    let start = at + usize::from(byte(bytes, at) == b'-');
    let whole = Digits::at(bytes, start);
    if whole.is_short() && !whole.has_leading_zero() {
        let end = start + whole.count;
        match whole.next() {
            b'.' => {
                let part = Digits::at(bytes, end + 1);
                if part.is_short() && !matches!(part.next(), b'e' | b'E') {
                    return Ok(end + 1 + part.count);
                }
            }
            b'e' | b'E' => {}
            _ => return Ok(end),
        }
    }
    long_number(bytes, at).map(|(_, end)| end)
}

/// Any number, by the grammar.
#[inline(never)]
fn long_number(bytes: &[u8], start: usize) -> Result<(Number, usize), Fault> {
    let negative = byte(bytes, start) == b'-';
    let whole = start + usize::from(negative);
    let whole_end = digits_end(bytes, whole)?;
    if byte(bytes, whole) == b'0' && whole_end > whole + 1 {
        return Err(Fault::new(whole, FaultKind::Number));
    }
    let mut end = whole_end;
    if byte(bytes, end) == b'.' {
        end = digits_end(bytes, end + 1)?;
    }
    let mantissa_end = end;
    if matches!(byte(bytes, end), b'e' | b'E') {
        let signed = matches!(byte(bytes, end + 1), b'+' | b'-');
        end = digits_end(bytes, end + 1 + usize::from(signed))?;
    }
    if end == whole_end {
        let value = integer(&bytes[whole..end], negative);
        let value = value.ok_or_else(|| Fault::new(start, FaultKind::IntegerRange))?;
        return Ok((Number::Int(value), end));
    }
    let value = short_decimal(bytes, whole, mantissa_end, end)
        .map(|value| if negative { -value } else { value })
        .or_else(|| std::str::from_utf8(&bytes[start..end]).ok()?.parse().ok());
    match value {
        Some(value) if value.is_finite() => Ok((Number::Float(value), end)),
        _ => Err(Fault::new(start, FaultKind::FloatRange)),
    }
}

/// The end of a run of at least one digit.
fn digits_end(bytes: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start;
    while byte(bytes, at).is_ascii_digit() {
        at += 1;
    }
    if at == start {
        Err(Fault::new(at, FaultKind::Number))
    } else {
        Ok(at)
    }
}

fn integer(digits: &[u8], negative: bool) -> Option<i64> {
    let mut value = 0u64;
    for digit in digits {
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    if negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// Exact if both the digits and the power of ten fit a float: then there is only one rounding.
fn short_decimal(bytes: &[u8], start: usize, mantissa_end: usize, end: usize) -> Option<f64> {
    let (mut mantissa, mut fraction_digits, mut in_fraction) = (0u64, 0i64, false);
    for &b in &bytes[start..mantissa_end] {
        if b == b'.' {
            in_fraction = true;
            continue;
        }
        mantissa = mantissa * 10 + u64::from(b - b'0');
        fraction_digits += i64::from(in_fraction);
        if mantissa >= 1 << 53 {
            return None;
        }
    }
    let exponent = match bytes.get(mantissa_end + 1..end) {
        Some(text) if !text.is_empty() => std::str::from_utf8(text).ok()?.parse::<i64>().ok()?,
        _ => 0,
    };
    let exponent = exponent.checked_sub(fraction_digits)?;
    let power = POW10.get(usize::try_from(exponent.unsigned_abs()).ok()?)?;
    Some(if exponent < 0 {
        mantissa as f64 / power
    } else {
        mantissa as f64 * power
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Number, FaultKind> {
        let read = number(text.as_bytes(), 0).map_err(|fault| fault.kind);
        let skipped = skip(text.as_bytes(), 0).map_err(|fault| fault.kind);
        assert_eq!(read.map(|(_, end)| end), skipped, "{text}");
        read.map(|(number, end)| {
            assert_eq!(end, text.len(), "{text}");
            number
        })
    }

    #[test]
    fn integers_reach_to_both_ends_of_64_bits_and_no_further() {
        for value in [0, 7, -7, 1_234_567, 12_345_678, i64::MAX, i64::MIN] {
            assert_eq!(read(&value.to_string()), Ok(Number::Int(value)));
        }
        assert_eq!(read("-0"), Ok(Number::Int(0)));
        for text in [
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
        ] {
            assert_eq!(read(text), Err(FaultKind::IntegerRange));
        }
    }

    #[test]
    fn a_fraction_or_exponent_makes_a_float() {
        for (text, value) in [
            ("1.0", 1.0f64),
            ("-0.0", -0.0),
            ("11.25", 11.25),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("0.1e1", 1.0),
            ("123456789.125", 123_456_789.125),
            ("0.30000000000000004", 0.300_000_000_000_000_04),
            ("9007199254740993.0", 9_007_199_254_740_992.0),
            ("1e-400", 0.0),
        ] {
            match read(text) {
                Ok(Number::Float(read)) => assert_eq!(read.to_bits(), value.to_bits(), "{text}"),
                other => panic!("{text} became {other:?}"),
            }
        }
    }

    #[test]
    fn malformed_numbers_and_infinities_are_refused() {
        for text in [
            "-",
            "01",
            "-01",
            "1.",
            "1.e3",
            "1e",
            "1e+",
            "-.5",
            "00",
            "012345678",
        ] {
            assert_eq!(read(text), Err(FaultKind::Number), "{text}");
        }
        for text in ["1e309", "-1e309", "1e99999999999999999999"] {
            assert_eq!(read(text), Err(FaultKind::FloatRange), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_decimal_is_rounded_as_the_standard_library_does(
            text in "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?"
        ) {
            match read(&text) {
                Ok(Number::Int(value)) => prop_assert_eq!(text.parse::<i64>(), Ok(value)),
                Ok(Number::Float(value)) => {
                    let expected = text.parse::<f64>().unwrap();
                    prop_assert_eq!(expected.to_bits(), value.to_bits());
                }
                Err(FaultKind::IntegerRange) => prop_assert!(text.parse::<i64>().is_err()),
                Err(kind) => {
                    prop_assert_eq!(kind, FaultKind::FloatRange);
                    prop_assert!(text.parse::<f64>().unwrap().is_infinite());
                }
            }
        }
    }
}
