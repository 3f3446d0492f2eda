//! JSON in and out.
//!
//! In: [`Decoder`] reads blocks of lines into a [`Batch`] of columns, one for each [`Field`]; arrays
//! and objects over several lines are laid out as lines first. Out: [`JsonWriter`].
//!
//! How JSON becomes values: an integer is a bigint (outside 64 bits the event is bad), a number
//! with a fraction or exponent is a float (beyond its range the event is bad), `true` and `false`
//! are bits, null and a missing field are NULL. A name is looked up exactly, else by the only match
//! but for case; of repeated keys the last one counts. A line is taken whole or not at all: what a
//! query does not read is checked like what it does.

mod batch;
mod build;
mod decoder;
mod fault;
mod number;
mod objects;
mod row;
mod scan;
mod shape;
mod source;
mod text;
mod write;

pub use batch::{Batch, Decoded};
pub use decoder::Decoder;
pub use fault::{BadJson, BadLine, Found};
pub(crate) use objects::{Objects, is_lines};
pub(crate) use source::{JsonSource, PEEK_BYTES};
pub use write::JsonWriter;

/// How many objects and arrays may be open at once, the event itself included.
pub(crate) const DEPTH_MAX: u32 = 128;

/// What one column takes from each event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The value at a path of names.
    Path(Vec<String>),
    /// The same, as a point in time: text in ISO form becomes a time, anything else stays what it is.
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
