//! The rules of a topic's subscriptions: filters that select messages, and actions that change the copies.
//!
//! The language is that of Service Bus: SQL-like expressions over the properties of a message (`lexer.rs`, `parser.rs`,
//! `expression.rs`), correlation filters, and actions of `SET` and `REMOVE` (`action.rs`). It is pure: a message is its
//! [`MessageProperties`], which a `PropertyMap` makes from the form of its protocol (`service/topics`). *Invariants:*
//! parsing never panics and is bounded in size and depth; evaluation never fails, because an expression that cannot be
//! computed is unknown, and only `TRUE` selects.

mod action;
mod error;
mod expression;
mod lexer;
mod like;
mod parser;
mod properties;
mod rule;
#[cfg(test)]
mod tests;
mod value;

pub use action::{PropertyChange, SqlAction};
pub use error::FilterError;
pub use properties::{MessageProperties, Property, SystemProperty};
pub use rule::{CorrelationFilter, DEFAULT_RULE, Filter, Rule, RuleError, SqlFilter};
pub use value::Value;

/// The longest expression of a filter or an action, in characters.
pub(crate) const EXPRESSION_CHARS_MAX: usize = 1024;
