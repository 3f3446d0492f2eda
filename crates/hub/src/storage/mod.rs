//! The storage of one partition: segments on a disk, written by one thread at a time and read by
//! many.
//!
//! This is the part that must not lose anything, so it is plain: no task, no clock, no randomness. A
//! [`Store`] is handed a group of batches, writes it, syncs it and only then shows it. The crash
//! model drives it over the simulated disk, step by step, from one thread.
//!
//! `docs/formats/log.md` draws the files.

pub mod cache;
pub mod checked_file;
mod checkpoint;
mod compact;
mod index;
mod names;
mod read;
mod recover;
mod retain;
mod roll;
mod scan;
mod segment;
mod shared;
mod store;
mod sync_marker;
mod tail;
mod time_lookup;
mod view;
mod write_group;

pub use read::TailRead;
pub use recover::{Recovery, TornTail};
pub use retain::before;
pub use shared::{Counters, Shared};
pub use store::{Store, WriteError};
pub use view::Damage;
pub use write_group::{StampedBatch, WriteGroup};
