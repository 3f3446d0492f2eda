//! Verifies the invariants over the journals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::Outcome;
use crate::journal::State;
use crate::ledger::{CustomerAction, Entry};
use crate::model::Stage;
use crate::services::delivery::state::{Deliveries, Event as DeliveryEvent};
use crate::services::drone::{AssignmentState, Event as DroneEvent, Fleet, drone_name};
use crate::services::history::{Histories, ReadEvents};
use crate::services::package::{Event as PackageEvent, Parcels};

#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub ledger: Vec<Entry>,
    pub outcomes: Vec<Outcome>,
    pub packages: Vec<PackageEvent>,
    pub drones: Vec<DroneEvent>,
    pub deliveries: Vec<DeliveryEvent>,
    pub histories: Vec<ReadEvents>,
}

/// The outcomes of the requests, and all violations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub accepted: usize,
    /// All requests that services or workflows know, accepted or not.
    pub known: usize,
    pub scheduled: usize,
    /// Scheduled, then cancelled by the customer.
    pub cancelled: usize,
    /// Refused or failed with nothing left behind, by reason.
    pub undone: BTreeMap<String, usize>,
    pub parked: usize,
    pub violations: Vec<String>,
}

/// Violations printed; the rest are counted.
const SHOWN: usize = 20;

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let undone: usize = self.undone.values().sum();
        writeln!(f, "accepted   {:>8}", self.accepted)?;
        writeln!(f, "known      {:>8}", self.known)?;
        writeln!(f, "scheduled  {:>8}", self.scheduled)?;
        writeln!(f, "cancelled  {:>8}", self.cancelled)?;
        writeln!(f, "undone     {undone:>8}")?;
        for (reason, count) in &self.undone {
            writeln!(f, "           {count:>8}  {reason}")?;
        }
        writeln!(f, "parked     {:>8}", self.parked)?;
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "VIOLATION  {violation}")?;
        }
        match self.violations.len() {
            0 => writeln!(f, "every promise was kept"),
            count => writeln!(f, "{count} promises were broken"),
        }
    }
}

pub fn verify(evidence: &Evidence) -> CheckReport {
    let mut checker = Checker {
        parcels: Parcels::default(),
        fleet: Fleet::default(),
        deliveries: Deliveries::default(),
        histories: Histories::default(),
        report: CheckReport::default(),
    };
    checker.packages(&evidence.packages);
    checker.drones(&evidence.drones);
    checker.deliveries(&evidence.deliveries);
    for read in &evidence.histories {
        checker.histories.apply(read);
    }
    checker.requests(evidence);
    checker.histories();
    checker.report
}

/// The services' states, rebuilt from their journals, and the violations found.
struct Checker {
    parcels: Parcels,
    fleet: Fleet,
    deliveries: Deliveries,
    histories: Histories,
    report: CheckReport,
}

impl Checker {
    fn violation(&mut self, text: String) {
        self.report.violations.push(text);
    }

    /// A parcel changes deliveries only after it was released.
    fn packages(&mut self, events: &[PackageEvent]) {
        for event in events {
            if let PackageEvent::Stored { parcel } = event {
                let id = &parcel.id;
                match self.parcels.held.get(id) {
                    Some(held) if held.delivery_id != parcel.delivery_id => {
                        let (a, b) = (held.delivery_id.clone(), &parcel.delivery_id);
                        self.violation(format!("parcel {id} was given to {b} while {a} held it"));
                    }
                    _ => {}
                }
                if self.parcels.closed.contains(&parcel.delivery_id) {
                    let delivery = &parcel.delivery_id;
                    self.violation(format!("parcel {id} was given to {delivery} after its end"));
                }
            }
            self.parcels.apply(event);
        }
    }

    /// A drone has one delivery, a delivery one drone, and a parcel is carried by one.
    fn drones(&mut self, events: &[DroneEvent]) {
        let mut busy: BTreeMap<u32, &str> = BTreeMap::new();
        let mut carried: BTreeMap<&str, &str> = BTreeMap::new();
        let mut of: BTreeMap<&str, (u32, &[String])> = BTreeMap::new();
        for event in events {
            match event {
                DroneEvent::Assigned {
                    delivery_id,
                    drone,
                    packages,
                    ..
                } => {
                    let name = drone_name(*drone);
                    if self.fleet.assignments.contains_key(delivery_id) {
                        self.violation(format!("delivery {delivery_id} was given a drone twice"));
                    }
                    if let Some(other) = busy.insert(*drone, delivery_id) {
                        self.violation(format!("{name} flies for {other} and {delivery_id}"));
                    }
                    for package in packages {
                        if let Some(other) = carried.insert(package, delivery_id) {
                            self.violation(format!(
                                "parcel {package} is carried for {other} and {delivery_id}"
                            ));
                        }
                    }
                    of.insert(delivery_id, (*drone, packages));
                }
                DroneEvent::Cancelled { delivery_id, .. }
                | DroneEvent::Returned { delivery_id, .. } => {
                    if let Some((drone, packages)) = of.remove(delivery_id.as_str()) {
                        busy.remove(&drone);
                        for package in packages {
                            carried.remove(package.as_str());
                        }
                    }
                }
            }
            self.fleet.apply(event);
        }
    }

    fn deliveries(&mut self, events: &[DeliveryEvent]) {
        for event in events {
            if let DeliveryEvent::Created { delivery, .. } = event {
                let id = &delivery.id;
                if self.deliveries.by_id.contains_key(id) || self.deliveries.closed.contains(id) {
                    self.violation(format!("delivery {id} was created twice, or after its end"));
                }
            }
            self.deliveries.apply(event);
        }
    }

    /// Every request has ended, and the services' states match its outcome.
    fn requests(&mut self, evidence: &Evidence) {
        let of_kind = |wish: CustomerAction| {
            let entries = evidence
                .ledger
                .iter()
                .filter(move |entry| entry.wish == wish);
            entries
                .map(|entry| entry.id.as_str())
                .collect::<BTreeSet<_>>()
        };
        let (accepted, cancelled) = (
            of_kind(CustomerAction::Deliver),
            of_kind(CustomerAction::Cancel),
        );
        let mut outcomes: BTreeMap<&str, &Outcome> = BTreeMap::new();
        for outcome in &evidence.outcomes {
            if outcomes.insert(&outcome.id, outcome).is_some() {
                self.violation(format!("request {} has two outcomes", outcome.id));
            }
        }
        let mut known: BTreeSet<String> = outcomes.keys().map(|id| (*id).to_owned()).collect();
        known.extend(accepted.iter().map(|id| (*id).to_owned()));
        known.extend(self.deliveries.by_id.keys().cloned());
        known.extend(self.fleet.assignments.keys().cloned());
        known.extend(
            self.parcels
                .held
                .values()
                .map(|parcel| parcel.delivery_id.clone()),
        );
        self.report.accepted = accepted.len();
        self.report.known = known.len();
        for id in &known {
            match outcomes.get(id.as_str()) {
                Some(outcome) => self.request(outcome, cancelled.contains(id.as_str())),
                None if accepted.contains(id.as_str()) => {
                    self.violation(format!("request {id} was accepted and is lost"));
                }
                None if cancelled.contains(id.as_str()) => self.nothing_held(id, "cancelled"),
                None => self.violation(format!("{id} is known to services only")),
            }
        }
    }

    fn request(&mut self, outcome: &Outcome, cancelled: bool) {
        let id = outcome.id.as_str();
        match outcome.state.as_str() {
            "completed" => self.scheduled(id, cancelled),
            state @ ("refused" | "failed" | "cancelled" | "resolved") => {
                self.nothing_held(id, state);
                if self
                    .deliveries
                    .by_id
                    .get(id)
                    .is_some_and(|known| known.stage != Stage::Cancelled)
                {
                    self.violation(format!("{state} request {id} has a delivery"));
                }
                let reason = format!("{state}: {}", outcome.reason);
                *self.report.undone.entry(reason).or_default() += 1;
            }
            "parked" if !outcome.reason.is_empty() => self.report.parked += 1,
            "parked" => self.violation(format!("request {id} is parked without a reason")),
            state => self.violation(format!("request {id} has come to no end: it is {state}")),
        }
    }

    /// It has a delivery, a drone and a parcel; or it was cancelled and has none.
    fn scheduled(&mut self, id: &str, cancelled: bool) {
        let Some(delivery) = self.deliveries.by_id.get(id) else {
            return self.violation(format!("scheduled request {id} has no delivery"));
        };
        let (stage, drone_id) = (delivery.stage, delivery.body.drone_id.clone());
        if stage == Stage::Cancelled {
            self.report.cancelled += 1;
            if !cancelled {
                self.violation(format!("delivery {id} was cancelled without a request"));
            }
            return self.nothing_held(id, "cancelled");
        }
        self.report.scheduled += 1;
        if cancelled && stage != Stage::Completed {
            self.violation(format!(
                "delivery {id} goes on though its customer cancelled it"
            ));
        }
        let assignment = self.fleet.assignments.get(id);
        let drone = assignment
            .and_then(|assignment| assignment.drone)
            .map(drone_name);
        let state = assignment.map(|assignment| assignment.state);
        if drone.as_ref() != Some(&drone_id) {
            self.violation(format!(
                "delivery {id} names {drone_id}, and its drone is {drone:?}"
            ));
        }
        let over = stage == Stage::Completed;
        if state != Some(AssignmentState::Flying)
            && !(over && state == Some(AssignmentState::Returned))
        {
            self.violation(format!("delivery {id} has lost its drone"));
        }
        if !self.parcels.has_any(id) {
            self.violation(format!("delivery {id} has no parcel"));
        }
    }

    fn nothing_held(&mut self, id: &str, state: &str) {
        let assignment = self.fleet.assignments.get(id);
        if assignment.is_some_and(|assignment| assignment.state == AssignmentState::Flying) {
            self.violation(format!("{state} request {id} holds a drone"));
        }
        if self.parcels.has_any(id) {
            self.violation(format!("{state} request {id} holds a parcel"));
        }
    }

    /// Every delivery is in the history with its outcome, once.
    fn histories(&mut self) {
        let mut missing = Vec::new();
        for (id, delivery) in &self.deliveries.by_id {
            let events = self.histories.by_id.get(id).map_or(&[][..], Vec::as_slice);
            let count = |stage: Stage| {
                let named = |event: &&Value| event["stage"] == stage.name();
                events.iter().filter(named).count()
            };
            let over = usize::from(delivery.is_over());
            if count(Stage::Created) != 1 {
                missing.push(format!(
                    "the history has {id} created {} times",
                    count(Stage::Created)
                ));
            }
            if count(Stage::Completed) + count(Stage::Cancelled) != over {
                missing.push(format!(
                    "the history does not have the end of {id} {over} times"
                ));
            }
        }
        self.report.violations.append(&mut missing);
    }
}
