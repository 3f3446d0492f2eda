//! What a definition says about data: paths, templates and conditions over the input of an instance
//! and the answers of its steps.
//!
//! All of them are texts that people write (`{{steps.drone.body.id}}`, `input.weight > 20`), are
//! checked when a definition is read, and are pure functions of a [`Scope`].

mod body;
mod condition;
mod path;
mod scope;
mod template;

pub use body::Body;
pub use condition::Condition;
pub use path::{Path, Root};
pub use scope::{Answers, Scope};
pub use template::Template;

/// Why a text is no path, template or condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExprError(pub String);

/// A template asks for something that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{{{{{path}}}}}` is not there")]
pub struct Missing {
    pub path: String,
}

/// Texts that are stored as they were written and checked when they are read.
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
