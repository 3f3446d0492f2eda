//! Pipelines over a log in memory, under a clock that moves only when nothing else can be done.

mod common;
mod fake;
mod groups;
mod law;
mod pipeline;
