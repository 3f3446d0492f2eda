//! The checker: reads the services' journals and verifies the guarantees of the whole application.
//!
//! - Every accepted request is scheduled, or undone without a trace, or parked with a reason.
//! - No delivery ever has two drones, no parcel is carried by two, no drone serves two deliveries.
//! - No drone and no parcel is held for a delivery that failed, was refused or cancelled.
//! - The history has every delivery once, with at most one end.
//!
//! It trusts no service's answers and no summary: [`gather`] reads journals event by event, and [`verify`] is a
//! function of them alone.

mod gather;
#[cfg(test)]
mod tests;
mod verify;

pub use self::gather::{Outcome, gather, read_lines};
pub use self::verify::{CheckReport, Evidence, verify};
use std::path::PathBuf;

/// Read the journals of stopped services and report whether anything was lost, left behind or done twice.
#[derive(Clone, Debug, clap::Args)]
pub struct Check {
    /// Folder with the services' folders, `ledger.jsonl` and `outcomes.jsonl`
    #[arg(long, default_value = "data")]
    pub data: PathBuf,
}

impl Check {
    /// Returns whether there are no violations.
    pub async fn run(self) -> anyhow::Result<bool> {
        let report = verify(&gather(&self.data).await?);
        print!("{report}");
        Ok(report.violations.is_empty())
    }
}
