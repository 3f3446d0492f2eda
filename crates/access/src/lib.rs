//! Keys, rights and the one rule that decides whether a client may do something.
//!
//! Every listener (HTTP, Kafka) authenticates its clients in its own protocol and gets a [`Principal`]. What the principal
//! may do is decided here, by [`Key::may`], so that a right means the same on every listener.

#![warn(unreachable_pub)]

mod key;
mod names;
mod principal;
mod resource;
mod right;
pub mod sas;

pub use key::{Key, KeyScope, Keys, SECRET_LEN_MIN};
pub use names::NamePatterns;
pub use principal::Principal;
pub use resource::Resource;
pub use right::{Right, Rights};
