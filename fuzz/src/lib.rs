//! What is fuzzed, and what must hold whatever comes in.

pub mod batches;
pub mod targets;
