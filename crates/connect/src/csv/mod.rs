//! CSV in and out.
//!
//! A record is a line, except that a field in quotes may hold delimiters, newlines and, doubled,
//! quotes. Fields are text unless CREATE TABLE says more.

mod source;
mod split;
mod write;

pub(crate) use source::{CsvSource, RECORD_BYTES_MAX};
pub(crate) use split::{Split, split};
pub(crate) use write::CsvWriter;
