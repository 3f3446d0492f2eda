//! A whole node over HTTP.

mod http;
mod jobs;
mod node;
mod processing;
