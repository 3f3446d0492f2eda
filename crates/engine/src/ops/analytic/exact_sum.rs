//! A sum of floats without rounding: values can be subtracted again, and the order does not matter.
//!
//! Every float is a multiple of 2^-1074. The sum is such a number, in signed digits of 32 bits in 64-bit words, so
//! adding touches three digits and carries are deferred. Reading the sum rounds once, to the nearest float (ties to
//! even). So a sliding range is summed in constant time per row, and the result depends only on the range.

const DIGIT_BITS: usize = 32;
/// The largest float begins at bit 2045 and has 53 bits; two digits more hold the carries of 2^63 additions.
const DIGITS: usize = 2045 / DIGIT_BITS + 3 + 2;
/// Digits hold 31 bits more than they need, so this many changes cannot overflow one.
const CHANGES_MAX: u32 = 1 << 29;
const MANTISSA_BITS: usize = 52;

#[derive(Clone, Debug)]
pub(crate) struct ExactSum {
    digits: [i64; DIGITS],
    changes: u32,
}

impl ExactSum {
    pub(crate) fn new() -> ExactSum {
        ExactSum {
            digits: [0; DIGITS],
            changes: 0,
        }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.change(value, 1);
    }

    pub(crate) fn subtract(&mut self, value: f64) {
        self.change(value, -1);
    }

    pub(crate) fn add_int(&mut self, value: i128) {
        self.add_scaled(value, 1.0);
    }

    /// Adds `value` times a power of two.
    pub(crate) fn add_scaled(&mut self, value: i128, mut weight: f64) {
        let sign = value.signum() as f64;
        let mut rest = value.unsigned_abs();
        while rest != 0 {
            self.add(sign * (rest & 0xffff_ffff) as f64 * weight);
            rest >>= 32;
            weight *= 4_294_967_296.0;
        }
    }

    fn change(&mut self, value: f64, sign: i64) {
        debug_assert!(value.is_finite());
        let bits = value.to_bits();
        let exponent = ((bits >> MANTISSA_BITS) & 0x7ff) as usize;
        let fraction = bits & ((1 << MANTISSA_BITS) - 1);
        let (mantissa, shift) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << MANTISSA_BITS, exponent - 1),
        };
        let sign = if value.is_sign_negative() {
            -sign
        } else {
            sign
        };
        let (first, within) = (shift / DIGIT_BITS, shift % DIGIT_BITS);
        let wide = u128::from(mantissa) << within;
        for (digit, part) in self.digits[first..first + 3].iter_mut().zip([0, 32, 64]) {
            *digit += sign * ((wide >> part) as u32 as i64);
        }
        self.changes += 1;
        if self.changes == CHANGES_MAX {
            self.carry();
            self.changes = 0;
        }
    }

    /// Brings every digit but the last into 0..2^32.
    fn carry(&mut self) {
        for index in 0..DIGITS - 1 {
            let over = self.digits[index] >> DIGIT_BITS;
            self.digits[index] -= over << DIGIT_BITS;
            self.digits[index + 1] += over;
        }
    }

    /// The float nearest to the sum; infinite if that is out of range.
    pub(crate) fn round(&self) -> f64 {
        let mut sum = self.clone();
        sum.carry();
        let negative = sum.digits[DIGITS - 1] < 0;
        if negative {
            sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
            sum.carry();
        }
        let magnitude = sum.round_magnitude();
        if negative { -magnitude } else { magnitude }
    }

    fn round_magnitude(&self) -> f64 {
        let Some(top) = self.digits.iter().rposition(|&digit| digit != 0) else {
            return 0.0;
        };
        let digit = |index: usize| self.digits[index] as u64;
        let top_bit = top * DIGIT_BITS + digit(top).ilog2() as usize;
        if top_bit <= MANTISSA_BITS {
            // So small that a float's bits are the number itself.
            let high = if top == 0 { 0 } else { digit(1) };
            return f64::from_bits(high << DIGIT_BITS | digit(0));
        }
        let below = |steps: usize| top.checked_sub(steps).map_or(0, digit);
        let window =
            u128::from(digit(top)) << 64 | u128::from(below(1)) << 32 | u128::from(below(2));
        let drop = 64 + digit(top).ilog2() as usize - MANTISSA_BITS;
        let mantissa = (window >> drop) as u64;
        let half = window >> (drop - 1) & 1 == 1;
        let rest = window & ((1 << (drop - 1)) - 1) != 0;
        let beyond = self.digits[..top.saturating_sub(2)].iter();
        let rest = rest || beyond.copied().any(|digit| digit != 0);
        let up = half && (rest || mantissa & 1 == 1);
        let exponent = (top_bit - MANTISSA_BITS + 1) as u64;
        if exponent >= 0x7ff {
            return f64::INFINITY;
        }
        // A mantissa that overflows carries into the exponent, as it should.
        f64::from_bits(
            (exponent << MANTISSA_BITS) + (mantissa - (1 << MANTISSA_BITS)) + u64::from(up),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(values: &[f64]) -> f64 {
        let mut sum = ExactSum::new();
        values.iter().for_each(|&value| sum.add(value));
        sum.round()
    }

    // proves S1
    #[test]
    fn sums_are_rounded_once() {
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[1e308, 1e308, -1e308, -1e308, 0.1]), 0.1);
        assert_eq!(sum(&[1e16, 1.0, 1.0, -1e16]), 2.0);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[-f64::MAX, -f64::MAX]), f64::NEG_INFINITY);
        assert_eq!(sum(&[5e-324, 5e-324]), 1e-323);
        assert_eq!(
            sum(&[f64::MIN_POSITIVE, -5e-324]),
            f64::from_bits((1 << 52) - 1)
        );
        let half = 2f64.powi(-53);
        assert_eq!(sum(&[1.0, half]), 1.0, "ties go to even");
        assert_eq!(sum(&[1.0, half, 5e-324]), 1.0 + f64::EPSILON);
        assert_eq!(sum(&[1.0 + f64::EPSILON, half]), 1.0 + 2.0 * f64::EPSILON);
    }

    fn floats() -> impl Strategy<Value = f64> {
        prop_oneof![
            prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
            -1e6..1e6f64,
            any::<i32>().prop_map(f64::from),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        // proves S1
        #[test]
        fn one_or_two_floats_add_as_floats_do(a in floats(), b in floats()) {
            prop_assert_eq!(sum(&[a]), a);
            prop_assert_eq!(sum(&[a, b]), a + b);
        }

        // proves S1 T8
        #[test]
        fn what_was_taken_out_leaves_no_trace(
            kept in prop::collection::vec(floats(), 0..20), gone in prop::collection::vec(floats(), 0..20)
        ) {
            let mut there_and_back = ExactSum::new();
            gone.iter().for_each(|&value| there_and_back.add(value));
            kept.iter().for_each(|&value| there_and_back.add(value));
            gone.iter().for_each(|&value| there_and_back.subtract(value));
            let backwards: Vec<f64> = kept.iter().rev().copied().collect();
            prop_assert_eq!(there_and_back.round().to_bits(), sum(&kept).to_bits());
            prop_assert_eq!(sum(&kept).to_bits(), sum(&backwards).to_bits());
        }

        // proves S1
        #[test]
        fn integers_are_exact(values in prop::collection::vec(any::<i64>(), 0..20)) {
            let mut sum = ExactSum::new();
            values.iter().for_each(|&value| sum.add_int(value.into()));
            let total: i128 = values.iter().map(|&value| i128::from(value)).sum();
            prop_assert_eq!(sum.round(), total as f64);
        }
    }
}
