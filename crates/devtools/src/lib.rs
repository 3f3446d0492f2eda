//! Tools for developing a query: the time picture, golden cases, a generator of test events, and load.
//!
//! - [`picture`] draws event time against arrival time from plain points and watermark steps. It knows no jobs;
//!   [`job_picture`] makes its input from a finished run.
//! - [`golden`] finds golden cases, runs them and compares the rows.
//! - [`load`] sends requests at a fixed rate, on the machine of the node that it measures.
//! - [`tollbooth`] generates the demo's events: toll booths with skewed clocks, late and repeated events.

pub mod golden;
mod job_picture;
pub mod load;
pub mod picture;
pub mod tollbooth;

pub use job_picture::job_picture;
