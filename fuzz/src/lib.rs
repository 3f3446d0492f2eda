//! The fuzz targets, and their laws for any input.

pub mod batches;
pub mod targets;
