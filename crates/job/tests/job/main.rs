//! Whole jobs. Tests that measure the memory of the process are binaries of their own.

mod bad_input;
mod early;
mod formats;
mod live;
mod outputs;
mod projects;
mod repeatable;
