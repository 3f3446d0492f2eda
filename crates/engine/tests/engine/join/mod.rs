//! Joins, lookups and APPLY against a brute-force oracle: every pair is tried, however the streams are cut into chunks,
//! whichever stream comes first, however often watermarks come, and wherever the run is stopped and taken up again.

mod applies;
mod joins;
mod lookups;
mod plans;
mod queries;
