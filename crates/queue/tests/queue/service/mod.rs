//! Queues over a log: replies, waiting, crashes, rejected appends, failing disks, feeds.

mod common;
mod crash;
mod disk;
mod feed;
mod waiting;
