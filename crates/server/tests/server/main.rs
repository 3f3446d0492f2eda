//! A whole node over HTTP.

mod formats;
mod http;
mod jobs;
mod keys;
mod node;
mod processing;
mod whole_node;
