//! A job: a query with its inputs, its time policy and its outputs.

mod account;
mod combiner;
pub mod config;
mod data_errors;
mod event_trace;
mod events;
mod file_reader;
pub mod live;
mod load;
mod order;
mod output_merge;
mod outputs;
mod partition_pipeline;
mod pending_chunks;
mod plan;
pub mod project;
mod reference;
mod report;
mod run;
mod side_output;
mod side_row;
mod stream;
mod substream_key;
mod timestamp_assigner;
pub mod why;

pub use data_errors::data_errors;
pub use event_trace::{TracedEvent, origin_file, origin_line};
pub use load::{Job, LoadError, job_file_of, render};
pub use outputs::{CollectedOutputs, Outputs};
pub use report::{InputErrorKind, InputErrorSample, InputReport, Report, short_time};
pub use run::{Options, Outcome, RunError, run};
