//! Reads and writes Parquet.
//!
//! The `parquet` crate decodes pages into the values and levels of one leaf column at a time. What those levels mean is
//! said here: [`schema`] turns a file's schema into trees of values, [`record`] puts records and lists together from
//! levels, and [`shred`] takes them apart. The Arrow half of that crate would do the same, for a fifth of the time that
//! the whole binary takes to build.

mod leaf;
mod leaf_type;
mod record;
mod schema;
mod shred;
mod source;
mod value_type;
mod write;

pub(crate) use source::ParquetSource;
pub(crate) use write::{ParquetWriter, write_whole};
