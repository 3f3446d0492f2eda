//! Queues over a log: replies, waiting, crashes, rejected appends, failing disks, owners, feeds.

mod claims;
mod common;
mod crash;
mod disk;
mod feed;
mod topics;
mod waiting;
