//! Parcels, each held by one delivery at a time.
//!
//! A parcel belongs to the delivery named by `deliveryId`. Another delivery cannot take it meanwhile (409), which
//! prevents two drones for one parcel. `DELETE /api/packages?delivery={deliveryId}` is the compensation: the delivery
//! releases its parcels and cannot take any more.

use std::collections::{BTreeMap, BTreeSet};

use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{bad, closed, no_such_path};
use crate::http::{Answer, Request, Service};
use crate::journal::{State, Store};
use crate::model::{Size, is_id};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parcel {
    pub id: String,
    pub size: Size,
    pub weight: f64,
    pub tag: String,
    /// The delivery that holds it.
    pub delivery_id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    Stored {
        parcel: Parcel,
    },
    /// A delivery released its parcels. Also written if it had none.
    Released {
        delivery_id: String,
    },
}

#[derive(Debug, Default)]
pub struct Parcels {
    pub held: BTreeMap<String, Parcel>,
    /// Delivery and parcel.
    by_delivery: BTreeSet<(String, String)>,
    /// Deliveries that cannot take parcels any more.
    pub closed: BTreeSet<String>,
}

impl Parcels {
    /// Whether the delivery holds a parcel.
    pub fn has_any(&self, delivery_id: &str) -> bool {
        self.of_delivery(delivery_id).next().is_some()
    }

    fn of_delivery(&self, delivery_id: &str) -> impl Iterator<Item = &(String, String)> {
        let from = (delivery_id.to_owned(), String::new());
        self.by_delivery
            .range(from..)
            .take_while(move |(delivery, _)| delivery == delivery_id)
    }
}

impl State for Parcels {
    type Event = Event;

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Stored { parcel } => {
                let pair = (parcel.delivery_id.clone(), parcel.id.clone());
                self.by_delivery.insert(pair);
                self.held.insert(parcel.id.clone(), parcel.clone());
            }
            Event::Released { delivery_id } => {
                let released: Vec<_> = self.of_delivery(delivery_id).cloned().collect();
                for pair in released {
                    self.held.remove(&pair.1);
                    self.by_delivery.remove(&pair);
                }
                self.closed.insert(delivery_id.clone());
            }
        }
    }
}

pub struct PackageService {
    pub store: Store<Parcels>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    size: Size,
    #[serde(default)]
    weight: f64,
    #[serde(default)]
    tag: String,
    delivery_id: String,
}

impl Service for PackageService {
    async fn answer(&self, request: Request<'_>) -> Answer {
        match (&request.method, &request.parts()[..]) {
            (&Method::GET, ["api", "packages", "summary", owner]) => self.summary(owner).await,
            (&Method::GET, ["api", "packages", id]) => self.get(id).await,
            (&Method::PUT | &Method::PATCH, ["api", "packages", id]) if is_id(id) => {
                match request.json() {
                    Ok(body) => self.put(id, body, request.method == Method::PATCH).await,
                    Err(answer) => answer,
                }
            }
            (&Method::DELETE, ["api", "packages"]) => match request.parameter("delivery") {
                Some(delivery) if is_id(delivery) => self.release(delivery).await,
                _ => bad("say whose: ?delivery=ID"),
            },
            (&Method::PUT | &Method::PATCH, ["api", "packages", _]) => bad("that cannot be an id"),
            _ => no_such_path(),
        }
    }
}

impl PackageService {
    async fn get(&self, id: &str) -> Answer {
        match self
            .store
            .read(|parcels| parcels.held.get(id).cloned())
            .await
        {
            Some(parcel) => Answer::json(StatusCode::OK, &parcel),
            None => Answer::not_found(),
        }
    }

    /// The weight of the parcels with this tag, which senders set to the owner.
    async fn summary(&self, tag: &str) -> Answer {
        let weight = self.store.read(|parcels| {
            let tagged = parcels.held.values().filter(|parcel| parcel.tag == tag);
            tagged.map(|parcel| parcel.weight).sum::<f64>()
        });
        Answer::json(StatusCode::OK, &json!({"totalWeight": weight.await}))
    }

    async fn put(&self, id: &str, body: Body, only_if_there: bool) -> Answer {
        if !is_id(&body.delivery_id) {
            return bad("deliveryId cannot be an id");
        }
        if !(body.weight.is_finite() && body.weight >= 0.0) {
            return bad("the weight cannot be");
        }
        let parcel = Parcel {
            id: id.to_owned(),
            size: body.size,
            weight: body.weight,
            tag: body.tag,
            delivery_id: body.delivery_id,
        };
        let changing = self.store.change(|parcels| {
            let answer = match parcels.held.get(id) {
                _ if parcels.closed.contains(&parcel.delivery_id) => return (None, closed()),
                None if only_if_there => return (None, Answer::not_found()),
                Some(held) if held.delivery_id != parcel.delivery_id => {
                    let message = "another delivery has this package";
                    return (None, Answer::problem(StatusCode::CONFLICT, message));
                }
                Some(held) if *held == parcel => {
                    return (None, Answer::empty(StatusCode::NO_CONTENT));
                }
                Some(_) => Answer::empty(StatusCode::NO_CONTENT),
                None => Answer::json(StatusCode::CREATED, &parcel),
            };
            (Some(Event::Stored { parcel }), answer)
        });
        changing.await
    }

    async fn release(&self, delivery_id: &str) -> Answer {
        let changing = self.store.change(|parcels| {
            let known = parcels.has_any(delivery_id);
            let done = parcels.closed.contains(delivery_id);
            let delivery_id = delivery_id.to_owned();
            let answer = match known || done {
                true => Answer::empty(StatusCode::NO_CONTENT),
                false => Answer::not_found(),
            };
            ((!done).then_some(Event::Released { delivery_id }), answer)
        });
        changing.await
    }
}
