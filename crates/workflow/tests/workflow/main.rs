//! Workflows against real services over HTTP.

mod common;
mod remote_supervisor;
mod faults;
mod rest;
