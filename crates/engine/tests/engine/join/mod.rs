//! Joins, lookups and APPLY against a brute-force oracle: every pair is tried, for any cuts of the streams into chunks,
//! any order of the streams, any watermarks, and restarts anywhere.

mod applies;
mod joins;
mod lookups;
mod plans;
mod queries;
