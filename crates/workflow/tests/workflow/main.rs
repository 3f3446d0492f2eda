//! Workflows against real services over HTTP.

mod common;
mod elsewhere;
mod faults;
mod rest;
