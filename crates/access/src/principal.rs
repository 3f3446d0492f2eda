//! The authenticated caller of a request.

use std::sync::Arc;

use crate::{Key, Limiter, Resource, Right};

#[derive(Clone, Debug)]
pub enum Principal {
    /// The caller of a public operation, without rights.
    Anonymous,
    /// A client of a node without keys, or of a listener that is declared anonymous. It has all rights.
    Trusted,
    Key(Arc<Key>),
}

impl Principal {
    pub fn may(&self, right: Right, on: Resource<'_>) -> bool {
        match self {
            Principal::Anonymous => false,
            Principal::Trusted => true,
            Principal::Key(key) => key.may(right, on),
        }
    }

    /// The limits of its key, if it has any.
    pub fn limiter(&self) -> Option<&Arc<Limiter>> {
        match self {
            Principal::Key(key) if key.limiter.is_limited() => Some(&key.limiter),
            _ => None,
        }
    }

    /// The name in messages and in the audit log.
    pub fn name(&self) -> &str {
        match self {
            Principal::Anonymous | Principal::Trusted => "anonymous",
            Principal::Key(key) => &key.name,
        }
    }
}
