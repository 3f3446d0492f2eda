//! Queues over a log: replies, waiting, crashes, rejected appends, failing disks, owners, feeds, topics, forwarding,
//! transactions, deletion of idle entities.

mod claims;
mod common;
mod crash;
mod disk;
mod feed;
mod forwarding;
mod idle;
mod one_copy;
mod topics;
mod transactions;
mod waiting;
