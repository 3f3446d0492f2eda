//! Tools for developing a query: the time picture, golden cases, and a generator of test events.
//!
//! - [`picture`] draws event time against arrival time from plain points and watermark steps. It knows no jobs;
//!   [`job_picture`] makes its input from a finished run.
//! - [`golden`] finds golden cases, runs them and compares the rows.
//! - [`tollbooth`] generates the demo's events: toll booths with skewed clocks, late and repeated events.

pub mod golden;
mod job_picture;
pub mod picture;
pub mod tollbooth;

pub use job_picture::job_picture;
