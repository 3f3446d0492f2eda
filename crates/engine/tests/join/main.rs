//! Joins, lookups and APPLY against a brute-force oracle: every pair is tried, however the streams are cut into chunks,
//! whichever stream comes first, however often watermarks come, and wherever the run is stopped and taken up again.

mod applies;
#[path = "../by_hand/mod.rs"]
mod by_hand;
mod joins;
mod lookups;
mod plans;
mod queries;
#[path = "../running/mod.rs"]
mod running;
#[path = "../streams/mod.rs"]
mod streams;
