//! The outside world, behind doors: the clock, randomness and data files.
//!
//! Every other crate gets these handed in, which is what makes a run repeatable: under test the
//! clock is moved by hand and the random numbers come from a seed. `clippy.toml` bans the direct
//! ways everywhere else. This crate knows nothing of the others.
//!
//! ```
//! use highwater_env::{Clock, SimClock};
//! use std::time::Duration;
//!
//! let clock = SimClock::at_unix_nanos(0);
//! clock.advance(Duration::from_secs(2));
//! assert_eq!(clock.unix_nanos(), 2_000_000_000);
//! ```

mod clock;
pub mod disk;
mod egress;
mod folder_policy;
pub mod random;
mod shutdown;
mod usage;

pub use clock::{Clock, RealClock, SimClock};
pub use disk::{Disk, RealDisk, SimDisk};
pub use egress::EgressPolicy;
pub use folder_policy::FolderPolicy;
pub use shutdown::shutdown_signal;
pub use usage::{Usage, process_cpu, thread_cpu, usage};
