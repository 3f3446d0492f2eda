//! Deliveries scheduled or in progress: create, track, reschedule, cancel, confirm.
//!
//! `PUT /api/deliveries/{id}` returns 201 if it creates the delivery and 204 if it exists; callers treat both alike.
//! [`publish`] publishes the events of a delivery from the journal.

mod api;
pub mod publish;
pub mod state;

use std::sync::Arc;

use highwater_env::Clock;
use hyper::StatusCode;
use serde_json::{Value, json};

use self::api::{ConfirmationRequest, NotificationRequest, Position, Reschedule};
use self::state::{Body, Deliveries, Delivery, Event};
use super::{OwnerMonth, bad, closed, now_ms};
use crate::http::{Answer, Request};
use crate::journal::Store;
use crate::model::{Stage, time_text};

pub struct DeliveryService {
    pub store: Arc<Store<Deliveries>>,
    pub clock: Arc<dyn Clock>,
}

/// The event to append, if any, and the answer.
type Verdict = (Option<Event>, Answer);

fn unchanged(status: StatusCode) -> Verdict {
    (None, Answer::empty(status))
}

fn over() -> Verdict {
    let message = "this delivery is over";
    (None, Answer::problem(StatusCode::CONFLICT, message))
}

impl DeliveryService {
    /// Decides about an existing delivery.
    async fn decide(&self, id: &str, decide: impl FnOnce(&Delivery) -> Verdict) -> Answer {
        let changing = self
            .store
            .change(|deliveries| match deliveries.by_id.get(id) {
                Some(delivery) => decide(delivery),
                None => (None, Answer::not_found()),
            });
        changing.await
    }

    async fn put(&self, id: &str, mut body: Body) -> Answer {
        body.id = id.to_owned();
        let at_ms = now_ms(&*self.clock);
        let changing = self.store.change(|deliveries| {
            let answer = match deliveries.by_id.get(id) {
                None if deliveries.closed.contains(id) => return (None, closed()),
                Some(delivery) if delivery.stage == Stage::Cancelled => return (None, closed()),
                Some(delivery) if delivery.body.drone_id != body.drone_id => {
                    let message = format!("drone {} flies already", delivery.body.drone_id);
                    return (None, Answer::problem(StatusCode::CONFLICT, message));
                }
                Some(_) => return unchanged(StatusCode::NO_CONTENT),
                None => {
                    Answer::json(StatusCode::CREATED, &body).at(format!("/api/deliveries/{id}"))
                }
            };
            let delivery = body;
            (Some(Event::Created { delivery, at_ms }), answer)
        });
        changing.await
    }

    async fn get(&self, id: &str, show: impl FnOnce(&Delivery) -> Value) -> Answer {
        let show = |delivery: &Delivery| match delivery.stage {
            Stage::Cancelled => Answer::not_found(),
            _ => Answer::json(StatusCode::OK, &show(delivery)),
        };
        self.decide(id, |delivery| (None, show(delivery))).await
    }

    /// Arrival times are estimated from the remaining distance at 40 km/h.
    fn status(&self, delivery: &Delivery) -> Value {
        let minutes = |kilometres: f64| (kilometres / 40.0 * 3_600_000.0) as i64;
        let now = now_ms(&*self.clock);
        let body = &delivery.body;
        let pickup = match delivery.stage {
            Stage::HeadedToDropoff | Stage::Completed => None,
            _ => Some(now + minutes(delivery.location.kilometres_to(body.pickup))),
        };
        let flight = match pickup {
            Some(pickup) => pickup + minutes(body.pickup.kilometres_to(body.dropoff)),
            None => now + minutes(delivery.location.kilometres_to(body.dropoff)),
        };
        json!({
            "stage": delivery.stage, "lastKnownLocation": delivery.location,
            "pickupETA": pickup.map(time_text), "deliveryETA": time_text(flight),
        })
    }

    async fn reschedule(&self, id: &str, wanted: Reschedule) -> Answer {
        let at_ms = now_ms(&*self.clock);
        let decide = |delivery: &Delivery| {
            let body = &delivery.body;
            let pickup = wanted.pickup.unwrap_or(body.pickup);
            let dropoff = wanted.dropoff.unwrap_or(body.dropoff);
            let deadline = wanted.deadline.unwrap_or_else(|| body.deadline.clone());
            let same =
                (pickup, dropoff) == (body.pickup, body.dropoff) && deadline == body.deadline;
            match delivery.is_over() {
                true => over(),
                false if same => unchanged(StatusCode::OK),
                false => {
                    let event = Event::Rescheduled {
                        id: id.to_owned(),
                        pickup,
                        dropoff,
                        deadline,
                        at_ms,
                    };
                    (Some(event), Answer::empty(StatusCode::OK))
                }
            }
        };
        self.decide(id, decide).await
    }

    async fn cancel(&self, id: &str) -> Answer {
        let at_ms = now_ms(&*self.clock);
        let id = id.to_owned();
        let changing = self
            .store
            .change(|deliveries| match deliveries.by_id.get(&id) {
                Some(delivery) if delivery.stage == Stage::Cancelled => unchanged(StatusCode::OK),
                Some(delivery) if delivery.stage == Stage::Completed => over(),
                Some(_) => (
                    Some(Event::Cancelled { id, at_ms }),
                    Answer::empty(StatusCode::OK),
                ),
                None if deliveries.closed.contains(&id) => (None, Answer::not_found()),
                None => (Some(Event::Closed { id }), Answer::not_found()),
            });
        changing.await
    }

    async fn moved(&self, id: &str, Position { stage, location }: Position) -> Answer {
        if !matches!(stage, Stage::HeadedToPickup | Stage::HeadedToDropoff) {
            return bad("a drone is HeadedToPickup or HeadedToDropoff");
        }
        let at_ms = now_ms(&*self.clock);
        let decide = |delivery: &Delivery| match delivery.is_over() {
            true => over(),
            false if (stage, location) == (delivery.stage, delivery.location) => {
                unchanged(StatusCode::NO_CONTENT)
            }
            false => {
                let event = Event::Moved {
                    id: id.to_owned(),
                    stage,
                    location,
                    at_ms,
                };
                (Some(event), Answer::empty(StatusCode::NO_CONTENT))
            }
        };
        self.decide(id, decide).await
    }

    async fn confirm(&self, id: &str, confirmed: ConfirmationRequest) -> Answer {
        let at_ms = now_ms(&*self.clock);
        let decide = |delivery: &Delivery| match delivery.stage {
            Stage::Completed => unchanged(StatusCode::OK),
            Stage::Cancelled => over(),
            _ => {
                let event = Event::Completed {
                    id: id.to_owned(),
                    location: confirmed.geo_coordinates,
                    confirmation: confirmed.rest,
                    at_ms,
                };
                (Some(event), Answer::empty(StatusCode::OK))
            }
        };
        self.decide(id, decide).await
    }

    async fn notify(&self, id: &str, key: Option<&str>, who: NotificationRequest) -> Answer {
        let decide = |delivery: &Delivery| {
            let repeated = key.is_some_and(|key| delivery.keys.contains(key));
            let event = (!repeated && !delivery.is_over()).then(|| Event::NotifyAsked {
                id: id.to_owned(),
                key: key.map(str::to_owned),
                email_address: who.email_address,
                sms: who.sms,
            });
            (event, Answer::empty(StatusCode::NO_CONTENT))
        };
        self.decide(id, decide).await
    }

    /// The number of deliveries of an owner in a month.
    async fn summary(&self, request: &Request<'_>) -> Answer {
        let Some(query) = OwnerMonth::from_query(request) else {
            return bad(OwnerMonth::MISSING);
        };
        let counting = self.store.read(|deliveries| {
            let all = deliveries.by_id.values();
            let of_owner = all.filter(|delivery| delivery.body.owner.user_id == query.owner);
            of_owner
                .filter(|delivery| query.includes(delivery.created_ms))
                .count()
        });
        Answer::json(StatusCode::OK, &json!({"count": counting.await}))
    }
}
