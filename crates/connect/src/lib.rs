//! Formats and endpoints: how events come in from files and how results go out.
//!
//! A file of any format is a [`Source`] of columns ([`open`]): JSON is read in blocks of whole lines
//! ([`LineReader`]) that become columns ([`json::Decoder`]), CSV, Avro and Parquet have readers of
//! their own. Rows become bytes again in a [`RowWriter`] and go to a [`Sink`]; those of a job that
//! never ends go to an [`Endpoint`], which knows by their numbers what it has. This crate knows
//! nothing of jobs: it neither decides what to read nor when.
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

#[cfg(feature = "avro")]
mod avro;
mod bytes;
pub mod csv;
mod cut;
mod declared;
mod endpoint;
pub mod http;
pub mod json;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod sink;
mod source;
mod table;
pub mod tls;
mod values;
mod writer;

pub use cut::{Cut, CutKind, Cutter, Cutting};
#[cfg(feature = "postgres")]
pub use endpoint::PostgresOutput;
pub use endpoint::{
    Endpoint, EndpointError, FilesOutput, HubOutput, Memory, MemoryEndpoint, OUTPUT_KINDS,
    OutputContext, OutputKind, OutputSettings, QueueOutput, Rows, SettingsReader, StdoutOutput,
    Underway, WebhookOutput,
};
pub use lines::{Block, LineOptions, LineReader, ReadError, SourceNote};
pub use rows::RowNames;
pub use sink::{FileSink, Sink, SinkError, StdoutSink};
pub use source::{
    BadEvent, BadKind, Compression, CsvFormat, Events, Format, Level, Source, SourceOptions, open,
};
pub use values::Values;
pub use writer::{OutputFormat, RowWriter, WriteError, Written, row_writer};
