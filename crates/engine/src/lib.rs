//! Columns, expressions and operators: the state machine that a query becomes.
//!
//! The engine is pushed chunks and watermarks and emits chunks and watermarks. It knows no sources, no files, no threads
//! and no clock. A [`Physical`] plan says what runs on each partition and what runs once for all; a [`Pipeline`] is one
//! such run, whose state can be written down and read back at any point.

mod chunk;
pub mod codec;
mod column;
mod estimate;
pub mod eval;
mod ops;
mod physical;
mod pipeline;
mod script;
mod value;

pub use chunk::{CHUNK_ROWS, Chunk, LaneName, Lanes};
pub use column::{Column, ColumnBuilder};
pub use estimate::{Each, Kept, StateEstimate, VALUE_BYTES, estimate};
pub use ops::{
    Context, DataError, DataErrors, Item, Merge, Operator, ReferenceTable, Remarks, Share,
    WindowEntry,
};
pub use physical::{Physical, PhysicalError, Shared};
pub use pipeline::{Pipeline, Target};
pub use script::{Entered, ScriptError, Scripts};
pub use value::{Record, Value, ValueRef, same_but_for_case};

/// Whether the geospatial functions are built in. Without them, compile queries with `Catalog::without_geo`.
pub const HAS_GEO: bool = cfg!(feature = "geo");
