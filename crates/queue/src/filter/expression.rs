//! Expressions, and their value for a message.
//!
//! The logic has three values. `None` is unknown: the property is absent, or a result cannot be computed. Unknown in a
//! comparison, in arithmetic, `LIKE` or `IN` gives unknown; `AND` and `OR` decide without it if they can.

use std::cmp::Ordering;

use super::like;
use super::properties::{MessageProperties, Property};
use super::value::{Arithmetic, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// `None` is `NULL`.
    Constant(Option<Value>),
    Property(Property),
    Exists(Property),
    Not(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Compare(Comparison, Box<Expression>, Box<Expression>),
    IsNull(Box<Expression>),
    In(Box<Expression>, Vec<Expression>),
    Like {
        text: Box<Expression>,
        pattern: Box<Expression>,
        escape: Option<char>,
    },
    /// Unary plus: a number as it is.
    Plus(Box<Expression>),
    Negate(Box<Expression>),
    Calculate(Arithmetic, Box<Expression>, Box<Expression>),
}

impl Expression {
    /// Whether the expression is true for a message.
    pub(super) fn selects(&self, message: &MessageProperties) -> bool {
        self.truth(message) == Some(true)
    }

    pub(super) fn value(&self, message: &MessageProperties) -> Option<Value> {
        match self {
            Expression::Constant(value) => value.clone(),
            Expression::Property(property) => message.get(property),
            Expression::Plus(operand) => operand.value(message).filter(Value::is_number),
            Expression::Negate(operand) => operand.value(message)?.negate(),
            Expression::Calculate(operator, left, right) => {
                let left = left.value(message)?;
                left.calculate(*operator, &right.value(message)?)
            }
            _ => self.truth(message).map(Value::Bool),
        }
    }

    fn truth(&self, message: &MessageProperties) -> Option<bool> {
        match self {
            Expression::Exists(property) => Some(message.exists(property)),
            Expression::Not(operand) => operand.truth(message).map(|truth| !truth),
            Expression::And(left, right) => match left.truth(message) {
                Some(false) => Some(false),
                left => match (left, right.truth(message)) {
                    (_, Some(false)) => Some(false),
                    (Some(true), right) => right,
                    _ => None,
                },
            },
            Expression::Or(left, right) => match left.truth(message) {
                Some(true) => Some(true),
                left => match (left, right.truth(message)) {
                    (_, Some(true)) => Some(true),
                    (Some(false), right) => right,
                    _ => None,
                },
            },
            Expression::Compare(comparison, left, right) => {
                comparison.truth(&left.value(message)?, &right.value(message)?)
            }
            Expression::IsNull(operand) => Some(operand.value(message).is_none()),
            Expression::In(operand, items) => is_in(&operand.value(message)?, items, message),
            Expression::Like {
                text,
                pattern,
                escape,
            } => match (text.value(message)?, pattern.value(message)?) {
                (Value::Text(text), Value::Text(pattern)) => {
                    like::matches(&text, &pattern, *escape)
                }
                _ => None,
            },
            _ => match self.value(message)? {
                Value::Bool(truth) => Some(truth),
                _ => None,
            },
        }
    }
}

/// As the items compared one by one and joined by `OR`.
fn is_in(value: &Value, items: &[Expression], message: &MessageProperties) -> Option<bool> {
    let mut result = Some(false);
    for item in items {
        match item.value(message).and_then(|item| value.equals(&item)) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => result = None,
        }
    }
    result
}

impl Comparison {
    fn truth(self, left: &Value, right: &Value) -> Option<bool> {
        match self {
            Comparison::Equal => return left.equals(right),
            Comparison::NotEqual => return left.equals(right).map(|equal| !equal),
            _ => {}
        }
        let order = left.compare(right)?;
        Some(match self {
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            _ => order != Ordering::Less,
        })
    }
}
