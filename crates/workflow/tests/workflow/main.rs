//! Workflows against real services over HTTP.

mod common;
mod faults;
mod features;
mod remote_supervisor;
