//! Pipelines over a log in memory, under a clock that moves only when nothing else can be done; and over
//! the embedded hub on a disk that fails.

mod circuit;
mod circuits;
mod common;
mod dead_letters;
mod fake;
mod full_disk;
mod groups;
mod law;
mod pipeline;
mod processor;
