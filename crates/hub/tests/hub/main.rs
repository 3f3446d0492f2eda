//! The embedded log: appends, recovery after crashes and damage, retention.

mod appends;
mod catalogue;
mod common;
mod crash;
mod damage;
mod kill;
mod memory;
mod retention;
mod threads;
