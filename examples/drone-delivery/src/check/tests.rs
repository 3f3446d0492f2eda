//! A checker that cannot fail proves nothing: every promise is broken here once, and must be noticed.

use serde_json::json;

use super::*;
use crate::ledger::{Entry, Wish};
use crate::model::{Location, Size};
use crate::services::delivery::state::{Body, Event as DeliveryEvent, Owner};
use crate::services::drone::{Event as DroneEvent, drone_name};
use crate::services::history::Read;
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

fn told(id: &str, wish: Wish) -> Entry {
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
    let mut ledger: Vec<_> = ids.iter().map(|id| told(id, Wish::Deliver)).collect();
    ledger.push(told("changed-mind", Wish::Cancel));
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
        histories: vec![Read {
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
    let report = judge(&well());
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!((report.accepted, report.scheduled), (4, 1));
    assert_eq!((report.cancelled, report.parked), (1, 1));
    assert_eq!(report.undone.get("failed: no answer"), Some(&1));
}

/// Breaks one thing and returns what the checker says.
fn broken(how: impl FnOnce(&mut Evidence)) -> Vec<String> {
    let mut evidence = well();
    how(&mut evidence);
    judge(&evidence).violations
}

#[track_caller]
fn noticed(how: impl FnOnce(&mut Evidence), expected: &str) {
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
    noticed(
        |e| e.ledger.push(told("gone", Wish::Deliver)),
        "request gone was accepted and is lost",
    );
    noticed(
        |e| e.outcomes[0].state = "running".into(),
        "flies has come to no end",
    );
    noticed(
        |e| e.outcomes[3].reason.clear(),
        "parked, and nobody knows why",
    );
    noticed(
        |e| e.outcomes.push(outcome("flies", "failed", "x")),
        "flies has two outcomes",
    );
    noticed(
        |e| e.drones.push(assigned("flies", 5, "p1")),
        "flies was given a drone twice",
    );
    noticed(
        |e| e.drones.push(assigned("new", 0, "p9")),
        "drone-000000 flies for flies and new",
    );
    noticed(
        |e| e.drones.push(assigned("new", 5, "p1")),
        "parcel p1 is carried for flies and new",
    );
    noticed(
        |e| drop(e.drones.remove(2)),
        "failed request failed holds a drone",
    );
    noticed(
        |e| e.drones.push(flown_home("flies")),
        "flies has lost its drone",
    );
    noticed(
        |e| drop(e.drones.remove(0)),
        "names drone-000000, and its drone is None",
    );
    noticed(
        |e| drop(e.packages.remove(2)),
        "failed request failed holds a parcel",
    );
    noticed(|e| drop(e.packages.remove(0)), "flies has no parcel");
    noticed(
        |e| e.packages.push(stored("p1", "new")),
        "given to new while flies held it",
    );
    noticed(
        |e| e.packages.push(stored("p7", "failed")),
        "given to failed after its end",
    );
    noticed(
        |e| drop(e.deliveries.remove(0)),
        "scheduled request flies has no delivery",
    );
    noticed(
        |e| e.deliveries.push(created("flies", 0)),
        "flies was created twice",
    );
    noticed(
        |e| e.deliveries.push(created("failed", 1)),
        "failed request failed has a delivery",
    );
    noticed(
        |e| drop(e.deliveries.pop()),
        "goes on though its customer cancelled it",
    );
    noticed(|e| drop(e.ledger.pop()), "was cancelled by nobody");
    noticed(
        |e| drop(e.drones.remove(4)),
        "cancelled request changed-mind holds a drone",
    );
    noticed(
        |e| e.packages.push(stored("p8", "stray")),
        "stray is known to services",
    );
    noticed(
        |e| drop(e.histories[0].events.remove(0)),
        "the history has flies created 0 times",
    );
    noticed(
        |e| drop(e.histories[0].events.pop()),
        "does not have the end of changed-mind 1 times",
    );
    let end = track("flies", "Completed");
    noticed(
        |e| e.histories[0].events.push(end),
        "does not have the end of flies 0 times",
    );
}
