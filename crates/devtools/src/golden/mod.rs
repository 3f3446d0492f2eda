//! Golden cases: a folder with a job, its inputs and the rows that it must produce.
//!
//! [`discover`] finds cases on disk, [`run_case`] runs one and compares its rows with the expected ones.

mod compare;
mod discover;
mod matching;
mod rows;
mod run_case;
#[cfg(test)]
mod tests;

pub use discover::{CaseDir, discover};
pub use run_case::{CaseFailure, run_case};
