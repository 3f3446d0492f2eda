//! The storage engine of one partition: segments on a disk, with one writer at a time and many readers.
//!
//! It must not lose data, so it is simple: no task, no clock, no randomness. A [`Store`] writes a group of batches,
//! syncs it, and only then publishes it to readers. The crash model drives it over the simulated disk from one thread.
//!
//! `docs/formats/log.md` has the layouts of the files.

pub(crate) mod cache;
pub(crate) mod checked_file;
mod checkpoint;
mod compact;
mod compaction_progress;
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
mod swap;
mod sync_marker;
mod tail;
mod time_lookup;
mod timestamp_lookup;
mod view;
mod write_group;

pub(crate) use read::TailRead;
pub use recover::{Recovery, TornTail};
pub(crate) use retain::before;
pub(crate) use shared::{Counters, Shared};
pub(crate) use store::{Store, WriteError};
pub use view::Damage;
pub(crate) use write_group::{StampedBatch, WriteGroup};
