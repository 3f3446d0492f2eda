//! Formats and endpoints: how events come in from files and how results go out.
//!
//! A file is read in blocks of whole lines ([`LineReader`]), a block is decoded into columns
//! ([`json::Decoder`]), rows become lines again ([`json::JsonWriter`]) and go to a [`Sink`]. This
//! crate knows nothing of jobs: it neither decides what to read nor when.
//!
//! ```
//! use highwater_connect::json::{Batch, Decoder, Field};
//!
//! let fields = vec![Field::Path(vec!["speed".into()])];
//! let mut batch = Batch::new(fields.len());
//! let mut decoder = Decoder::new(fields);
//! decoder.decode(b"{\"speed\": 88}\n{\"speed\": oops}\n{\"speed\": 90}\n", 1, &mut batch);
//! let decoded = batch.finish();
//! assert_eq!(decoded.rows, 2);
//! assert_eq!((decoded.bad[0].line, decoded.bad[0].column), (2, 11));
//! ```

pub mod json;
mod lines;
mod sink;

pub use lines::{Block, LineOptions, LineReader, ReadError, SourceNote};
pub use sink::{FileSink, Sink, SinkError, StdoutSink};
