//! The tasks of a load: delivery requests, and cancellations of some that were accepted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use highwater_devtools::load::{AttemptError, DueTime, LoadClient};

use super::customer::Customers;
use super::report::LoadReport;
use crate::ledger::CustomerAction;

pub(super) struct Sender<'a> {
    pub(super) customers: Customers,
    /// Deliveries to cancel after all requests are sent, when some are in progress.
    pub(super) to_cancel: Vec<String>,
    pub(super) report: &'a mut LoadReport,
    pub(super) stop: &'a AtomicBool,
    /// The number of accepted requests, for `run_watched`.
    pub(super) accepted: &'a AtomicU64,
}

pub(super) enum Task {
    Deliver { number: u64, due: DueTime },
    Cancel { id: String },
}

impl Task {
    fn expected_status(&self) -> u16 {
        match self {
            Task::Deliver { .. } => 202,
            Task::Cancel { .. } => 204,
        }
    }
}

impl LoadClient for Sender<'_> {
    type Task = Task;

    fn task(&mut self, number: u64, due: DueTime) -> Task {
        Task::Deliver { number, due }
    }

    fn last_task(&mut self) -> Option<Task> {
        self.to_cancel.pop().map(|id| Task::Cancel { id })
    }

    fn write(&mut self, task: &Task, request: &mut Vec<u8>) {
        match task {
            Task::Deliver { number, .. } => self.customers.request(*number, request),
            Task::Cancel { id } => self.customers.cancellation(id, request),
        }
    }

    fn receive(
        &mut self,
        task: &Task,
        status: u16,
        body: &[u8],
        now: Duration,
    ) -> Result<Option<Task>, AttemptError> {
        let refused = || AttemptError::Refused(status, String::from_utf8_lossy(body).into_owned());
        if status != task.expected_status() {
            return Err(refused());
        }
        match task {
            Task::Deliver { number, due } => {
                let id = delivery_id(body).ok_or_else(refused)?;
                let took = now.saturating_sub(due.at);
                self.report.record_latency(took, due.in_spike);
                self.report.record(id, CustomerAction::Deliver);
                self.accepted.store(self.report.accepted, Ordering::Relaxed);
                // Some cancel at once, others when their delivery may be in progress.
                match (self.customers.changes_mind(*number), number % 2) {
                    (false, _) => {}
                    (true, 0) => return Ok(Some(Task::Cancel { id: id.to_owned() })),
                    (true, _) => self.to_cancel.push(id.to_owned()),
                }
            }
            Task::Cancel { id } => self.report.record(id, CustomerAction::Cancel),
        }
        Ok(None)
    }

    fn attempt(&mut self, number: u32) {
        self.report.repeated += u64::from(number == 2);
    }

    fn fail(&mut self, error: AttemptError, given_up: bool) {
        self.report.lost += u64::from(given_up);
        self.report.error(error);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// From `{"deliveryId":"..."`, the beginning of the response.
fn delivery_id(body: &[u8]) -> Option<&str> {
    let rest = body.strip_prefix(b"{\"deliveryId\":\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}
