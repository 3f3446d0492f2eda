//! A checker that cannot fail proves nothing: every guarantee is violated here once, and must be reported.

use serde_json::json;

use super::*;
use crate::ledger::{CustomerAction, Entry};
use crate::model::{Location, Size};
use crate::services::delivery::state::{Body, Event as DeliveryEvent, Owner};
use crate::services::drone::{Event as DroneEvent, drone_name};
use crate::services::history::ReadEvents;
use crate::services::package::{Event as PackageEvent, Parcel};

fn stored(package: &str, delivery: &str) -> PackageEvent {
    PackageEvent::Stored {
        parcel: Parcel {
            id: package.into(),
            size: Size::Small,
            weight: 1.0,
            tag: String::new(),
            delivery_id: delivery.into(),
        },
    }
}

fn assigned(delivery: &str, drone: u32, package: &str) -> DroneEvent {
    DroneEvent::Assigned {
        delivery_id: delivery.into(),
        drone,
        owner_id: "ann".into(),
        packages: vec![package.into()],
        expedited: false,
        kilometres: 1.0,
        at_ms: 0,
    }
}

fn flown_home(delivery: &str) -> DroneEvent {
    DroneEvent::Cancelled {
        delivery_id: delivery.into(),
        at_ms: 0,
    }
}

fn created(delivery: &str, drone: u32) -> DeliveryEvent {
    DeliveryEvent::Created {
        delivery: Body {
            id: delivery.into(),
            owner: Owner::default(),
            pickup: Location::default(),
            dropoff: Location::default(),
            deadline: String::new(),
            expedited: false,
            confirmation_required: Default::default(),
            drone_id: drone_name(drone),
        },
        at_ms: 0,
    }
}

fn outcome(id: &str, state: &str, reason: &str) -> Outcome {
    Outcome {
        id: id.into(),
        state: state.into(),
        reason: reason.into(),
    }
}

fn ledger_entry(id: &str, wish: CustomerAction) -> Entry {
    Entry {
        id: id.into(),
        wish,
    }
}

fn track(id: &str, stage: &str) -> serde_json::Value {
    json!({"deliveryId": id, "stage": stage})
}

/// One scheduled, one failed and undone, one scheduled and cancelled, one parked.
fn well() -> Evidence {
    let released = |id: &str| PackageEvent::Released {
        delivery_id: id.into(),
    };
    let cancelled = DeliveryEvent::Cancelled {
        id: "changed-mind".into(),
        at_ms: 1,
    };
    let ids = ["flies", "failed", "changed-mind", "parked"];
    let mut ledger: Vec<_> = ids
        .iter()
        .map(|id| ledger_entry(id, CustomerAction::Deliver))
        .collect();
    ledger.push(ledger_entry("changed-mind", CustomerAction::Cancel));
    Evidence {
        ledger,
        outcomes: vec![
            outcome("flies", "completed", ""),
            outcome("failed", "failed", "no answer"),
            outcome("changed-mind", "completed", ""),
            outcome("parked", "parked", "the drone cannot be called back"),
        ],
        packages: vec![
            stored("p1", "flies"),
            stored("p2", "failed"),
            released("failed"),
            stored("p2", "changed-mind"),
            released("changed-mind"),
        ],
        drones: vec![
            assigned("flies", 0, "p1"),
            assigned("failed", 1, "p2"),
            flown_home("failed"),
            assigned("changed-mind", 1, "p2"),
            flown_home("changed-mind"),
            assigned("parked", 1, "p3"),
        ],
        deliveries: vec![created("flies", 0), created("changed-mind", 1), cancelled],
        histories: vec![ReadEvents {
            partition: 0,
            next: 3,
            events: vec![
                track("flies", "Created"),
                track("changed-mind", "Created"),
                track("changed-mind", "Cancelled"),
            ],
        }],
    }
}

#[test]
fn what_is_well_is_called_well() {
    let report = verify(&well());
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!((report.accepted, report.scheduled), (4, 1));
    assert_eq!((report.cancelled, report.parked), (1, 1));
    assert_eq!(report.undone.get("failed: no answer"), Some(&1));
}

/// Changes the evidence and returns the violations.
fn broken(how: impl FnOnce(&mut Evidence)) -> Vec<String> {
    let mut evidence = well();
    how(&mut evidence);
    verify(&evidence).violations
}

#[track_caller]
fn reports(how: impl FnOnce(&mut Evidence), expected: &str) {
    let violations = broken(how);
    assert!(
        violations
            .iter()
            .any(|violation| violation.contains(expected)),
        "expected `{expected}` among {violations:#?}"
    );
}

// proves D3
#[test]
fn every_broken_promise_is_noticed() {
    reports(
        |e| e.ledger.push(ledger_entry("gone", CustomerAction::Deliver)),
        "request gone was accepted and is lost",
    );
    reports(
        |e| e.outcomes[0].state = "running".into(),
        "flies has come to no end",
    );
    reports(|e| e.outcomes[3].reason.clear(), "parked without a reason");
    reports(
        |e| e.outcomes.push(outcome("flies", "failed", "x")),
        "flies has two outcomes",
    );
    reports(
        |e| e.drones.push(assigned("flies", 5, "p1")),
        "flies was given a drone twice",
    );
    reports(
        |e| e.drones.push(assigned("new", 0, "p9")),
        "drone-000000 flies for flies and new",
    );
    reports(
        |e| e.drones.push(assigned("new", 5, "p1")),
        "parcel p1 is carried for flies and new",
    );
    reports(
        |e| drop(e.drones.remove(2)),
        "failed request failed holds a drone",
    );
    reports(
        |e| e.drones.push(flown_home("flies")),
        "flies has lost its drone",
    );
    reports(
        |e| drop(e.drones.remove(0)),
        "names drone-000000, and its drone is None",
    );
    reports(
        |e| drop(e.packages.remove(2)),
        "failed request failed holds a parcel",
    );
    reports(|e| drop(e.packages.remove(0)), "flies has no parcel");
    reports(
        |e| e.packages.push(stored("p1", "new")),
        "given to new while flies held it",
    );
    reports(
        |e| e.packages.push(stored("p7", "failed")),
        "given to failed after its end",
    );
    reports(
        |e| drop(e.deliveries.remove(0)),
        "scheduled request flies has no delivery",
    );
    reports(
        |e| e.deliveries.push(created("flies", 0)),
        "flies was created twice",
    );
    reports(
        |e| e.deliveries.push(created("failed", 1)),
        "failed request failed has a delivery",
    );
    reports(
        |e| drop(e.deliveries.pop()),
        "goes on though its customer cancelled it",
    );
    reports(|e| drop(e.ledger.pop()), "was cancelled without a request");
    reports(
        |e| drop(e.drones.remove(4)),
        "cancelled request changed-mind holds a drone",
    );
    reports(
        |e| e.packages.push(stored("p8", "stray")),
        "stray is known to services only",
    );
    reports(
        |e| drop(e.histories[0].events.remove(0)),
        "the history has flies created 0 times",
    );
    reports(
        |e| drop(e.histories[0].events.pop()),
        "does not have the end of changed-mind 1 times",
    );
    let end = track("flies", "Completed");
    reports(
        |e| e.histories[0].events.push(end),
        "does not have the end of flies 0 times",
    );
}
