//! The drone scheduler: one drone for one delivery, however often it is asked.
//!
//! `PUT /api/dronedeliveries/{deliveryId}` answers with the id of the drone, `DELETE` cancels, and
//! `POST .../return` says that the drone has come home. A drone that is free again flies again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_env::Clock;
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{bad, closed, no_such_path};
use crate::http::{Answer, Request, Service};
use crate::journal::{State, Store};
use crate::model::{Location, Size, is_id, month_of};

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
pub enum Hold {
    Flying,
    Cancelled,
    Returned,
}

#[derive(Clone, Debug)]
pub struct Assignment {
    /// `None` when the cancellation came before the request.
    pub drone: Option<u32>,
    pub hold: Hold,
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
    /// Drones that are home.
    free: BTreeSet<u32>,
    /// Drones that have ever flown.
    known: u32,
}

impl Fleet {
    fn next(&self, drones: u32) -> Option<u32> {
        let rested = self.free.first().copied();
        rested.or((self.known < drones).then_some(self.known))
    }

    fn end(&mut self, delivery_id: &str, hold: Hold, at_ms: i64) {
        let assignment = self
            .assignments
            .entry(delivery_id.to_owned())
            .or_insert(Assignment {
                drone: None,
                hold,
                owner_id: String::new(),
                packages: Vec::new(),
                expedited: false,
                kilometres: 0.0,
                from_ms: at_ms,
                until_ms: None,
            });
        assignment.hold = hold;
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
                    hold: Hold::Flying,
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
                self.end(delivery_id, Hold::Cancelled, *at_ms)
            }
            Event::Returned { delivery_id, at_ms } => self.end(delivery_id, Hold::Returned, *at_ms),
        }
    }
}

pub struct Drone {
    pub store: Store<Fleet>,
    pub drones: u32,
    pub clock: Arc<dyn Clock>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
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

impl Service for Drone {
    async fn answer(&self, request: Request<'_>) -> Answer {
        match (&request.method, &request.parts()[..]) {
            (&Method::GET, ["api", "dronedeliveries", "utilization"]) => {
                self.utilization(&request).await
            }
            (&Method::GET, ["api", "dronedeliveries", id]) => self.get(id).await,
            (&Method::PUT, ["api", "dronedeliveries", id]) if is_id(id) => match request.json() {
                Ok(wanted) => self.assign(id, wanted).await,
                Err(answer) => answer,
            },
            (&Method::DELETE, ["api", "dronedeliveries", id]) if is_id(id) => self.cancel(id).await,
            (&Method::POST, ["api", "dronedeliveries", id, "return"]) => self.home(id).await,
            (&Method::PUT | &Method::DELETE, ["api", "dronedeliveries", _]) => {
                bad("that cannot be an id")
            }
            _ => no_such_path(),
        }
    }
}

impl Drone {
    fn now_ms(&self) -> i64 {
        (self.clock.unix_nanos() / 1_000_000) as i64
    }

    async fn assign(&self, delivery_id: &str, wanted: Wanted) -> Answer {
        let now = self.now_ms();
        let changing = self.store.change(|fleet| {
            if let Some(assignment) = fleet.assignments.get(delivery_id) {
                return match (assignment.hold, assignment.drone) {
                    (Hold::Flying | Hold::Returned, Some(drone)) => (None, assigned(drone)),
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
                owner_id: wanted.owner_id,
                packages: wanted
                    .package_details
                    .into_iter()
                    .map(|detail| detail.id)
                    .collect(),
                expedited: wanted.expedited,
                kilometres: wanted.pickup.kilometres_to(wanted.dropoff),
                at_ms: now,
            };
            (Some(event), assigned(drone))
        });
        changing.await
    }

    async fn cancel(&self, delivery_id: &str) -> Answer {
        let at_ms = self.now_ms();
        let changing = self.store.change(|fleet| {
            let known = fleet.assignments.get(delivery_id);
            let ended = known.is_some_and(|assignment| assignment.hold != Hold::Flying);
            let delivery_id = delivery_id.to_owned();
            (
                (!ended).then_some(Event::Cancelled { delivery_id, at_ms }),
                (),
            )
        });
        changing.await;
        Answer::empty(StatusCode::OK)
    }

    async fn home(&self, delivery_id: &str) -> Answer {
        let at_ms = self.now_ms();
        let changing = self
            .store
            .change(|fleet| match fleet.assignments.get(delivery_id) {
                Some(assignment) if assignment.hold == Hold::Flying => {
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
                hold: Hold::Flying,
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
        let number = |name| {
            request
                .parameter(name)
                .and_then(|text| text.parse::<i16>().ok())
        };
        let (Some(owner), Some(year), Some(month @ 1..=12)) = (
            request.parameter("ownerId"),
            number("year"),
            number("month"),
        ) else {
            return bad("ownerId, year and a month from 1 to 12 are needed");
        };
        let now = self.now_ms();
        let (kilometres, held_ms) = self
            .store
            .read(|fleet| {
                let all = fleet.assignments.values();
                let wanted = all.filter(|assignment| {
                    assignment.owner_id == owner
                        && month_of(assignment.from_ms) == (year, month as i8)
                });
                wanted.fold((0.0, 0), |(kilometres, held_ms), assignment| {
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
