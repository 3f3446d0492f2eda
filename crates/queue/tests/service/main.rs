//! Queues at work over a log: answers, waiting, crashes, a log that turns away, disks that fail, hubs that feed.

mod common;
mod crash;
mod disk;
mod feed;
mod waiting;
