//! Queues at work over a log: answers, waiting, crashes, a log that turns away, hubs that feed.

mod common;
mod crash;
mod feed;
mod full_disk;
mod waiting;
