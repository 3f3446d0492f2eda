//! Reads the TOML files of users: typed values, and every mistake with its position, its key and the nearest known
//! name.
//!
//! ```
//! use highwater_settings::read_file;
//!
//! let error = read_file("portt = 8080", "server.toml", |reader, top| {
//!     reader.known_keys(top, &["port", "host"]);
//!     reader.number(top, "port")
//! });
//! assert_eq!(error.unwrap_err().to_string(), "\
//! error: unknown key \"portt\"
//!  --> server.toml:1:1
//!   |
//! 1 | portt = 8080
//!   | ^^^^^ did you mean \"port\"?
//!   = known keys: port, host");
//! ```
//!
//! A person waits for the result, so all mistakes of a file are reported at once. That is why files are walked by hand
//! over spanned TOML and not derived: a derived reader stops at the first mistake and knows no neighbours of a misspelt
//! key.
//!
//! *Invariants:* a shown line has no secret; a file with a mistake never gives a value; a file that is no TOML is not
//! searched further, because half-read tables give false mistakes.

mod error;
mod reader;
mod redact;
mod secrets;

pub use error::{FileError, LineIndex, Mistake, Position};
pub use reader::{Entry, FileReader, Section, read_file};
pub use redact::redact_url;
pub use secrets::{SecretError, Secrets};

/// The suggestion for an unknown name: the nearest known one, if one is near.
pub fn did_you_mean(name: &str, known: &[&str]) -> Option<String> {
    let near = highwater_spelling::nearest(name, known.iter().copied())?;
    Some(format!("did you mean \"{near}\"?"))
}
