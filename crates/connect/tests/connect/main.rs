//! Formats and endpoints. The tests of PostgreSQL need a server and are a binary of their own.

mod avro;
mod bad_input;
mod common;
mod decode_against_serde;
mod formats;
mod hub;
#[cfg(feature = "parquet")]
mod parquet_files;
mod round_trip;
