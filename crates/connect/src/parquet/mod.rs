//! Reads and writes Parquet.

mod column;
mod kind;
mod source;
mod write;

pub(crate) use source::ParquetSource;
pub(crate) use write::{ParquetWriter, write_whole};
