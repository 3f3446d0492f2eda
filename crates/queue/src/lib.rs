//! Peek-lock queues over a log.

mod codec;
mod machine;
mod message;
mod settings;

pub use machine::*;
pub use message::*;
pub use settings::{Settings, SettingsError};
