//! Actions of rules: `SET` and `REMOVE` on the copy of a message.

use super::error::FilterError;
use super::expression::Expression;
use super::parser::parse_statements;
use super::properties::{MessageProperties, Property};
use super::value::Value;

/// The texts that an action sets together: a copy is not much larger than the message.
const TEXT_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Set(Property, Expression),
    Remove(Property),
}

/// The action of a rule, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlAction {
    text: String,
    statements: Vec<Statement>,
}

/// The change of a property by an action: its new value, or `None` if it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyChange {
    pub property: Property,
    pub value: Option<Value>,
}

impl SqlAction {
    pub fn parse(text: &str) -> Result<SqlAction, FilterError> {
        let text = text.to_owned();
        let statements = parse_statements(&text)?;
        Ok(SqlAction { text, statements })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Runs the statements in order, each on the result of those before. A value that is unknown, or too long, removes
    /// the property.
    pub(super) fn run(&self, message: &mut MessageProperties) -> Vec<PropertyChange> {
        let (mut changes, mut bytes_left) = (Vec::new(), TEXT_BYTES_MAX);
        for statement in &self.statements {
            let (property, value) = match statement {
                Statement::Set(property, expression) => (property, expression.value(message)),
                Statement::Remove(property) => (property, None),
            };
            let value = value.filter(|value| take_bytes(value, &mut bytes_left));
            let value = match property {
                Property::System(system) => {
                    let text = value.as_ref().and_then(system_text);
                    message.set_system(*system, text.clone());
                    text.map(Value::Text)
                }
                Property::User(name) => {
                    let value = value.filter(|value| *value != Value::Opaque);
                    match &value {
                        Some(value) => message.set_user(name, Some(value.clone())),
                        None => message.remove_user(name),
                    }
                    value
                }
            };
            let property = property.clone();
            changes.push(PropertyChange { property, value });
        }
        changes
    }
}

/// Whether a value fits into the bytes that are left, which then are fewer.
fn take_bytes(value: &Value, bytes_left: &mut usize) -> bool {
    let Value::Text(text) = value else {
        return true;
    };
    let left = bytes_left.checked_sub(text.len());
    *bytes_left = left.unwrap_or(*bytes_left);
    left.is_some()
}

/// Properties of the message itself are texts.
fn system_text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Time(_) | Value::Opaque => None,
    }
}
