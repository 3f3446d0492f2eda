//! Values of properties and constants: comparison and arithmetic.
//!
//! Numbers of different types meet as floats. All other mixtures have no result (`None`), which is unknown.

use std::cmp::Ordering;

/// The longest text that an expression makes.
const TEXT_BYTES_MAX: usize = 32 << 10;

#[derive(Clone, Debug)]
pub enum Value {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// A point in time, in milliseconds since 1970.
    Time(i64),
    /// A value of any other type: it is there, and compares with nothing.
    Opaque,
}

/// Identity, not the comparison of the language: floats are equal if their bits are.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Integer(a), Value::Integer(b)) | (Value::Time(a), Value::Time(b)) => a == b,
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::Opaque, Value::Opaque) => true,
            _ => false,
        }
    }
}

impl Eq for Value {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// The order of two values; `None` if they have none.
    pub(super) fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Integer(a), Value::Integer(b)) | (Value::Time(a), Value::Time(b)) => {
                Some(a.cmp(b))
            }
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            _ => self.as_float()?.partial_cmp(&other.as_float()?),
        }
    }

    /// Whether two values are equal; `None` if they cannot be compared.
    pub(super) fn equals(&self, other: &Value) -> Option<bool> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a == b),
            _ => Some(self.compare(other)? == Ordering::Equal),
        }
    }

    pub(super) fn negate(&self) -> Option<Value> {
        match self {
            Value::Integer(number) => number.checked_neg().map(Value::Integer),
            Value::Float(number) => Some(Value::Float(-number)),
            _ => None,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Value::Integer(_) | Value::Float(_))
    }

    /// The result of an operator; `None` for an overflow, a division by zero and operands without one.
    pub(super) fn calculate(&self, operator: Arithmetic, other: &Value) -> Option<Value> {
        match (self, other) {
            (Value::Integer(a), Value::Integer(b)) => {
                let result = match operator {
                    Arithmetic::Add => a.checked_add(*b),
                    Arithmetic::Subtract => a.checked_sub(*b),
                    Arithmetic::Multiply => a.checked_mul(*b),
                    Arithmetic::Divide => a.checked_div(*b),
                    Arithmetic::Remainder => a.checked_rem(*b),
                };
                result.map(Value::Integer)
            }
            (Value::Text(a), Value::Text(b)) if operator == Arithmetic::Add => {
                let fits = a.len() + b.len() <= TEXT_BYTES_MAX;
                fits.then(|| Value::Text(format!("{a}{b}")))
            }
            _ => {
                let (a, b) = (self.as_float()?, other.as_float()?);
                Some(Value::Float(match operator {
                    Arithmetic::Add => a + b,
                    Arithmetic::Subtract => a - b,
                    Arithmetic::Multiply => a * b,
                    Arithmetic::Divide => a / b,
                    Arithmetic::Remainder => a % b,
                }))
            }
        }
    }

    fn as_float(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }
}
