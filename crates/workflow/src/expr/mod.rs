//! Expressions of a definition: paths, templates and conditions over the input of an instance and the answers of its
//! steps.
//!
//! They are written as text (`{{steps.drone.body.id}}`, `input.weight > 20`), validated when a definition is read, and
//! pure functions of a [`Scope`].

mod body;
mod condition;
mod path;
mod scope;
mod template;

pub(crate) use body::Body;
pub(crate) use condition::Condition;
pub(crate) use path::{Path, Root};
pub(crate) use scope::{Answers, Scope};
pub use template::Template;

/// Why a text is not a valid path, template or condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExprError(pub String);

/// A template variable has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{{{{{path}}}}}` is not there")]
pub struct MissingValue {
    pub path: String,
}

/// Expressions that are stored as text and validated when they are read.
macro_rules! stored_as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = ExprError;

            fn try_from(text: String) -> Result<$type, ExprError> {
                <$type>::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(it: $type) -> String {
                it.source().to_owned()
            }
        }
    };
}
pub(crate) use stored_as_text;
