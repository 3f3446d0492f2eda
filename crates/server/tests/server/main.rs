//! A whole node over HTTP.

mod formats;
mod http;
mod jobs;
mod node;
mod processing;
mod whole_node;
