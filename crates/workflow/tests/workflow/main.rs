//! Workflows against real services over HTTP.

mod common;
mod faults;
mod rest;
