//! The drone scheduler: assigns one drone per delivery, however often it is called.
//!
//! `PUT /api/dronedeliveries/{deliveryId}` returns the id of the drone, `DELETE` cancels, and `POST .../return` reports
//! that the drone is back. A drone that is back can be assigned again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_env::Clock;
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{OwnerMonth, bad, closed, no_such_path, now_ms};
use crate::http::{Answer, Request, Service};
use crate::journal::{State, Store};
use crate::model::{Location, Size, is_id};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    Assigned {
        delivery_id: String,
        drone: u32,
        owner_id: String,
        packages: Vec<String>,
        expedited: bool,
        kilometres: f64,
        at_ms: i64,
    },
    /// Also written when there was no assignment.
    Cancelled {
        delivery_id: String,
        at_ms: i64,
    },
    Returned {
        delivery_id: String,
        at_ms: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignmentState {
    Flying,
    Cancelled,
    Returned,
}

#[derive(Clone, Debug)]
pub struct Assignment {
    /// `None` if the cancellation came before the request.
    pub drone: Option<u32>,
    pub state: AssignmentState,
    pub owner_id: String,
    pub packages: Vec<String>,
    pub expedited: bool,
    pub kilometres: f64,
    pub from_ms: i64,
    pub until_ms: Option<i64>,
}

#[derive(Debug, Default)]
pub struct Fleet {
    pub assignments: BTreeMap<String, Assignment>,
    /// Available drones.
    free: BTreeSet<u32>,
    /// Number of drones used so far.
    known: u32,
}

impl Fleet {
    fn next(&self, drones: u32) -> Option<u32> {
        let rested = self.free.first().copied();
        rested.or((self.known < drones).then_some(self.known))
    }

    fn end(&mut self, delivery_id: &str, state: AssignmentState, at_ms: i64) {
        let assignment = self
            .assignments
            .entry(delivery_id.to_owned())
            .or_insert(Assignment {
                drone: None,
                state,
                owner_id: String::new(),
                packages: Vec::new(),
                expedited: false,
                kilometres: 0.0,
                from_ms: at_ms,
                until_ms: None,
            });
        assignment.state = state;
        assignment.until_ms = Some(at_ms);
        self.free.extend(assignment.drone);
    }
}

impl State for Fleet {
    type Event = Event;

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Assigned {
                delivery_id,
                drone,
                owner_id,
                packages,
                expedited,
                kilometres,
                at_ms,
            } => {
                self.free.remove(drone);
                self.known = self.known.max(drone + 1);
                let assignment = Assignment {
                    drone: Some(*drone),
                    state: AssignmentState::Flying,
                    owner_id: owner_id.clone(),
                    packages: packages.clone(),
                    expedited: *expedited,
                    kilometres: *kilometres,
                    from_ms: *at_ms,
                    until_ms: None,
                };
                self.assignments.insert(delivery_id.clone(), assignment);
            }
            Event::Cancelled { delivery_id, at_ms } => {
                self.end(delivery_id, AssignmentState::Cancelled, *at_ms)
            }
            Event::Returned { delivery_id, at_ms } => {
                self.end(delivery_id, AssignmentState::Returned, *at_ms)
            }
        }
    }
}

pub struct DroneService {
    pub store: Store<Fleet>,
    pub drones: u32,
    pub clock: Arc<dyn Clock>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AssignRequest {
    pickup: Location,
    dropoff: Location,
    #[serde(default)]
    package_details: Vec<PackageDetail>,
    #[serde(default)]
    expedited: bool,
    #[serde(default)]
    owner_id: String,
}

#[derive(Deserialize)]
struct PackageDetail {
    id: String,
    #[serde(default)]
    #[allow(
        dead_code,
        reason = "checked when it is read; every drone carries every size"
    )]
    size: Size,
}

impl Service for DroneService {
    async fn answer(&self, request: Request<'_>) -> Answer {
        match (&request.method, &request.parts()[..]) {
            (&Method::GET, ["api", "dronedeliveries", "utilization"]) => {
                self.utilization(&request).await
            }
            (&Method::GET, ["api", "dronedeliveries", id]) => self.get(id).await,
            (&Method::PUT, ["api", "dronedeliveries", id]) if is_id(id) => match request.json() {
                Ok(request) => self.assign(id, request).await,
                Err(answer) => answer,
            },
            (&Method::DELETE, ["api", "dronedeliveries", id]) if is_id(id) => self.cancel(id).await,
            (&Method::POST, ["api", "dronedeliveries", id, "return"]) => self.returned(id).await,
            (&Method::PUT | &Method::DELETE, ["api", "dronedeliveries", _]) => {
                bad("that cannot be an id")
            }
            _ => no_such_path(),
        }
    }
}

impl DroneService {
    async fn assign(&self, delivery_id: &str, request: AssignRequest) -> Answer {
        let now = now_ms(&*self.clock);
        let changing = self.store.change(|fleet| {
            if let Some(assignment) = fleet.assignments.get(delivery_id) {
                return match (assignment.state, assignment.drone) {
                    (AssignmentState::Flying | AssignmentState::Returned, Some(drone)) => {
                        (None, assigned(drone))
                    }
                    _ => (None, closed()),
                };
            }
            let Some(drone) = fleet.next(self.drones) else {
                let message = "every drone is in the air";
                return (
                    None,
                    Answer::problem(StatusCode::SERVICE_UNAVAILABLE, message),
                );
            };
            let event = Event::Assigned {
                delivery_id: delivery_id.to_owned(),
                drone,
                owner_id: request.owner_id,
                packages: request
                    .package_details
                    .into_iter()
                    .map(|detail| detail.id)
                    .collect(),
                expedited: request.expedited,
                kilometres: request.pickup.kilometres_to(request.dropoff),
                at_ms: now,
            };
            (Some(event), assigned(drone))
        });
        changing.await
    }

    async fn cancel(&self, delivery_id: &str) -> Answer {
        let at_ms = now_ms(&*self.clock);
        let changing = self.store.change(|fleet| {
            let known = fleet.assignments.get(delivery_id);
            let ended = known.is_some_and(|assignment| assignment.state != AssignmentState::Flying);
            let delivery_id = delivery_id.to_owned();
            (
                (!ended).then_some(Event::Cancelled { delivery_id, at_ms }),
                (),
            )
        });
        changing.await;
        Answer::empty(StatusCode::OK)
    }

    async fn returned(&self, delivery_id: &str) -> Answer {
        let at_ms = now_ms(&*self.clock);
        let changing = self
            .store
            .change(|fleet| match fleet.assignments.get(delivery_id) {
                Some(assignment) if assignment.state == AssignmentState::Flying => {
                    let delivery_id = delivery_id.to_owned();
                    (
                        Some(Event::Returned { delivery_id, at_ms }),
                        Answer::empty(StatusCode::OK),
                    )
                }
                Some(_) => (None, Answer::empty(StatusCode::OK)),
                None => (None, Answer::not_found()),
            });
        changing.await
    }

    async fn get(&self, delivery_id: &str) -> Answer {
        let found = self
            .store
            .read(|fleet| fleet.assignments.get(delivery_id).cloned())
            .await;
        match found {
            Some(Assignment {
                drone: Some(drone),
                state: AssignmentState::Flying,
                packages,
                expedited,
                ..
            }) => Answer::json(
                StatusCode::OK,
                &json!({"droneId": drone_name(drone), "packages": packages, "expedited": expedited}),
            ),
            _ => Answer::not_found(),
        }
    }

    async fn utilization(&self, request: &Request<'_>) -> Answer {
        let Some(query) = OwnerMonth::from_query(request) else {
            return bad(OwnerMonth::MISSING);
        };
        let now = now_ms(&*self.clock);
        let (kilometres, held_ms) = self
            .store
            .read(|fleet| {
                let all = fleet.assignments.values();
                let request = all.filter(|assignment| {
                    assignment.owner_id == query.owner && query.includes(assignment.from_ms)
                });
                request.fold((0.0, 0), |(kilometres, held_ms), assignment| {
                    let until = assignment.until_ms.unwrap_or(now);
                    (
                        kilometres + assignment.kilometres,
                        held_ms + (until - assignment.from_ms),
                    )
                })
            })
            .await;
        match kilometres == 0.0 && held_ms == 0 {
            true => Answer::not_found(),
            false => Answer::json(
                StatusCode::OK,
                &json!({
                    "traveledMiles": kilometres / 1.609_344,
                    "assignedHours": held_ms as f64 / 3_600_000.0,
                }),
            ),
        }
    }
}

pub fn drone_name(drone: u32) -> String {
    format!("drone-{drone:06}")
}

fn assigned(drone: u32) -> Answer {
    Answer::text(StatusCode::OK, drone_name(drone))
}
