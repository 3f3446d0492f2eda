//! Reads and writes JSON.
//!
//! [`Decoder`] reads blocks of lines into a [`Batch`] of columns, one per [`Field`]; arrays and objects over several
//! lines are rewritten as lines first. [`JsonWriter`] writes.
//!
//! JSON becomes values as follows: an integer is a bigint (outside 64 bits the event is bad), a number with a fraction
//! or exponent is a float (out of range the event is bad), `true` and `false` are bits, null and a missing field are
//! NULL. A name matches exactly, or else the only name that is equal ignoring case; of repeated keys the last one
//! counts. A line is valid or not as a whole: fields that a query does not read are checked too.

mod batch;
mod build;
mod decoder;
mod fault;
mod nested;
mod number;
mod objects;
mod rewrite;
mod row;
mod scan;
mod shape;
mod source;
mod text;
mod write;

pub use batch::{Batch, DecodedBatch};
pub use decoder::Decoder;
pub use fault::{BadJson, BadLine, FoundByte};
pub(crate) use objects::{Objects, is_lines};
pub(crate) use source::{JsonSource, PEEK_BYTES};
pub use write::JsonWriter;

/// How many objects and arrays may be nested, the event included.
pub(crate) const DEPTH_MAX: u32 = 128;

/// The part of each event that a column holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The value at a path of names.
    Path(Vec<String>),
    /// The value at a path as a time: ISO text becomes a time, anything else stays as it is.
    Time(Vec<String>),
    /// The event as one record.
    Whole,
}

impl Field {
    fn path(&self) -> &[String] {
        match self {
            Field::Path(path) | Field::Time(path) => path,
            Field::Whole => &[],
        }
    }
}
