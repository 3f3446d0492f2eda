//! The checker: reads what the services wrote in their own journals, and holds the whole to its promises.
//!
//! - Every request that was accepted is scheduled, or undone without a trace, or parked with a reason.
//! - No delivery ever has two drones, no parcel is carried by two, no drone serves two deliveries.
//! - No drone and no parcel is held for a delivery that failed, was refused or cancelled.
//! - The history has every delivery once, with one ending at most.
//!
//! It trusts no service's answers and no summary: [`gather`] reads journals event by event, and [`judge`]
//! is a function of them alone.

mod gather;
mod judge;
#[cfg(test)]
mod tests;

pub use self::gather::{Outcome, gather, read_lines};
pub use self::judge::{Evidence, Report, judge};
use std::path::PathBuf;

/// Read the journals of stopped services and say whether anything was lost, kept or done twice.
#[derive(Clone, Debug, clap::Args)]
pub struct Check {
    /// Folder with the services' folders, `ledger.jsonl` and `outcomes.jsonl`
    #[arg(long, default_value = "data")]
    pub data: PathBuf,
}

impl Check {
    /// Whether all is well.
    pub async fn run(self) -> anyhow::Result<bool> {
        let report = judge(&gather(&self.data).await?);
        print!("{report}");
        Ok(report.violations.is_empty())
    }
}
