//! The embedded log: hubs and their partitions on the disk of this machine.
//!
//! A [`Hub`] is a folder with a catalogue and, for every partition, segments that hold batches in their wire format. An
//! append is answered when it is durable, and readers see only durable batches; batches that arrive during a sync share
//! the next one. After a crash a torn end is truncated and reported; damage before it is an error that names file and
//! position.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//!
//! use highwater_env::{RealClock, SimDisk};
//! use highwater_hub::{Hub, Options};
//! use highwater_log::batch::NewRecord;
//! use highwater_log::{HubName, HubSettings, HubSpec, Isolation, Log, Offset};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let (disk, clock) = (Arc::new(SimDisk::new(1)), Arc::new(RealClock::new()));
//! let hub = Hub::open(disk, Path::new("data"), Options::default(), clock, &|_| {})?;
//! let (name, settings) = (HubName::new("toll-booth")?, HubSettings::default());
//! hub.create(HubSpec { name, partitions: 4, settings }).await?;
//!
//! let partition = hub.partition("toll-booth", 0).expect("it was just created");
//! let record = NewRecord { key: None, value: Some(b"a car"), headers: &[] };
//! let appended = partition.append_records(&[record]).await?; // now it is durable
//! let fetched = partition.read(appended.offset, 1 << 20, Isolation::Committed).await?;
//! assert_eq!((fetched.pieces.len(), fetched.bounds.end), (1, Offset(1)));
//! hub.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `storage` is the synchronous storage engine of one partition, tested with a crash model over the simulated disk of
//! `highwater-env`. `partition` is its asynchronous interface. [`groups`] and [`transactions`] are coordinators over
//! any log. This crate knows neither Kafka's protocol nor SQL.

mod catalogue;
mod coordinator;
pub mod groups;
mod hub;
mod options;
mod partition;
mod pool;
mod status;
mod storage;
pub mod transactions;

pub use hub::{Hub, OpenError, OpenProgress, lock_folder};
pub use options::{Durability, Options};
pub use status::{PartitionStatus, Status, Totals};
pub use storage::{Damage, Recovery, TornTail};
