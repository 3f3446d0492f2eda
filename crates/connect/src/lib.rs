//! Formats and endpoints: how events come in from files and how results go out.
//!
//! A file of any format is a [`Source`] of columns ([`open`]): JSON is read in blocks of complete lines
//! that become columns ([`json::Decoder`]); CSV, Avro and Parquet have readers of their own. Rows go to
//! an [`Endpoint`], which knows from their numbers which rows it has; a [`RowWriter`] encodes them, and a [`Sink`] is a
//! file or standard output. This crate knows nothing of jobs.
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
mod cluster;
mod csv;
mod declared;
mod endpoint;
mod file_slice;
mod format_settings;
pub mod http;
pub mod json;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod sink;
mod source;
mod state_store;
mod table;
mod value_decoder;
mod writer;

pub use cluster::{
    CLUSTER_KEYS, Cluster, ClusterAddress, ClusterConnector, ClusterLogin, ClusterRef,
    ClusterSettings, Clusters, SaslMechanism, TokenFn,
};
#[cfg(feature = "postgres")]
pub use endpoint::PostgresOutput;
pub use endpoint::{
    Destination, Endpoint, EndpointError, EndpointFuture, FINAL_COLUMN, FilesOutput, HubOutput,
    OUTPUT_KINDS, OpenResult, OpenSink, OutputContext, OutputKind, OutputSettings, OutputShard,
    OutsideAccess, Rows, SinkEndpoint, SinkTarget, StdoutOutput,
};
pub use file_slice::{FileSlice, FileSlicer, SliceKind, SliceOptions};
pub use format_settings::is_delimiter;
pub use lines::{ReadError, SourceNote};
pub use rows::RowNames;
pub use sink::{FileSink, Sink, SinkError, StdoutSink};
pub use source::{
    BadEvent, BadKind, Compression, CsvFormat, Events, Format, Level, MissingFeature, Source,
    SourceOptions, open,
};
pub use state_store::{FolderStore, STATE_KEYS, StateSettings, StateStore, StoreUnavailable};
pub use value_decoder::ValueDecoder;
pub use writer::{OutputFormat, RowWriter, WriteError, WriterOutput, row_writer};
