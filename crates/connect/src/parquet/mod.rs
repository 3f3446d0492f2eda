//! Reads and writes Parquet.

mod column;
mod source;
mod value_type;
mod write;

pub(crate) use source::ParquetSource;
pub(crate) use write::{ParquetWriter, write_whole};
