//! A job: a query with its inputs, its time policy and its outputs, driven as one loop.

mod account;
mod combiner;
pub mod config;
mod data_errors;
mod events;
mod file_reader;
mod intake;
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
pub mod why;
mod witness;

pub use data_errors::data_errors;
pub use load::{Job, LoadError, job_file_of, render};
pub use outputs::{Collected, Outputs};
pub use reference::ReferenceError;
pub use report::{
    InputReport, OutputReport, Report, Trouble, TroubleKind, TroubleSum, Troubles, short_time,
};
pub use run::{Options, Outcome, ReadFile, RunError, run};
pub use witness::{EventFate, LostEvent, Witness, origin_file, origin_line};
