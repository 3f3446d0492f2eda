//! Why the text of a filter or an action is refused.

/// A mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at character {position})")]
pub struct FilterError {
    /// The character of the mistake, counted from 1.
    pub position: usize,
    pub message: String,
}

impl FilterError {
    pub(super) fn new(position: usize, message: impl Into<String>) -> FilterError {
        let message = message.into();
        FilterError { position, message }
    }
}
