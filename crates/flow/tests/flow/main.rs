//! Pipelines over a log in memory, under a clock that moves only when nothing else can be done.

mod circuit;
mod circuits;
mod common;
mod fake;
mod groups;
mod law;
mod letters;
mod pipeline;
mod processor;
