//! Pipelines over a log in memory, under a clock that moves only when no task can run; and over the embedded hub on a
//! failing disk.

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
mod take_over;
