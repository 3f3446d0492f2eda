//! Columns, expressions and operators: runs a compiled query as a state machine.
//!
//! The engine takes chunks and watermarks and emits chunks and watermarks. It knows no sources, no files, no threads
//! and no clock. A [`PhysicalPlan`] decides which steps run on each partition and which run once; a [`Pipeline`] runs
//! them, and its state can be snapshot and restored at any point.

mod chunk;
pub mod codec;
mod column;
mod column_type;
mod estimate;
pub mod eval;
mod item_codec;
mod key_routes;
mod lazy;
mod lazy_texts;
mod ops;
mod physical_plan;
mod pipeline;
mod script;
mod value;
mod work_limit;

pub use chunk::{CHUNK_ROWS, Chunk, ChunkLanes, LaneName};
pub use column::{Column, ColumnBuilder};
pub use estimate::{StateEstimate, StateItem, StateUnit, VALUE_BYTES, estimate};
pub use item_codec::ItemReader;
pub use key_routes::{KeyClassifier, KeyRoutes};
pub use lazy::{LazyColumn, NestedPieces, ReadNested};
pub use lazy_texts::NestedTexts;
pub use ops::{
    Context, DataError, DataErrors, DataWarnings, Item, Merge, Operator, OutputBudget,
    OutputOverflow, PartialPane, ReferenceTable, WindowEntry,
};
pub use physical_plan::{PhysicalPlan, PhysicalPlanError, SharedPipeline};
pub use pipeline::{Pipeline, StepCounter, Target};
pub use script::{ScriptError, ScriptScope, Scripts};
pub use value::{Record, Value, ValueRef, eq_ignore_case};
pub use work_limit::WorkLimit;

/// Whether the geospatial functions are built in. Without them, compile queries with `Catalog::without_geo`.
pub const HAS_GEO: bool = cfg!(feature = "geo");
