//! The clock, randomness, data files and figures of the operating system.
//!
//! Other crates take them as arguments, so a run can be repeated: a test moves its clock by hand and seeds its random
//! numbers. `clippy.toml` bans direct access everywhere else. This crate depends on no other crate of the workspace.
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
mod descriptors;
pub mod disk;
mod egress;
mod folder_policy;
mod memory_budget;
pub mod random;
mod shutdown;
mod thread_priority;
mod usage;

pub use clock::{Clock, RealClock, SimClock};
pub use descriptors::{DescriptorBudget, is_descriptor_shortage};
pub use disk::{Disk, OutputDisk, RealDisk, SimDisk};
pub use egress::EgressPolicy;
pub use folder_policy::FolderPolicy;
pub use memory_budget::{BudgetExhausted, MemoryBudget, MemoryShare};
pub use shutdown::shutdown_signal;
pub use thread_priority::ThreadNumber;
pub use usage::{Usage, process_cpu, thread_cpu, usage};
