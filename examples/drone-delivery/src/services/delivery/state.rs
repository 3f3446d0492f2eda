//! The state of the delivery service and its events.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::journal::State;
use crate::model::{Confirmation, Location, Stage};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    pub user_id: String,
    pub account_id: String,
}

/// A delivery as sent and returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Body {
    /// Taken from the path.
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub owner: Owner,
    pub pickup: Location,
    pub dropoff: Location,
    #[serde(default)]
    pub deadline: String,
    #[serde(default)]
    pub expedited: bool,
    #[serde(default)]
    pub confirmation_required: Confirmation,
    pub drone_id: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    Created {
        delivery: Body,
        at_ms: i64,
    },
    Rescheduled {
        id: String,
        pickup: Location,
        dropoff: Location,
        deadline: String,
        at_ms: i64,
    },
    /// The position reported by the drone.
    Moved {
        id: String,
        stage: Stage,
        location: Location,
        at_ms: i64,
    },
    Cancelled {
        id: String,
        at_ms: i64,
    },
    /// Cancelled before it was created.
    Closed {
        id: String,
    },
    /// The receiver has the parcel; subscribers are notified.
    Completed {
        id: String,
        location: Location,
        confirmation: Value,
        at_ms: i64,
    },
    /// `key` detects a repeated POST.
    NotifyAsked {
        id: String,
        key: Option<String>,
        email_address: String,
        sms: String,
    },
}

/// A delivery and its progress.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub body: Body,
    pub stage: Stage,
    pub location: Location,
    pub created_ms: i64,
    pub notify: Vec<(String, String)>,
    /// Idempotency keys of accepted POSTs.
    pub keys: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub struct Deliveries {
    pub by_id: BTreeMap<String, Delivery>,
    /// Cancelled before they were created.
    pub closed: BTreeSet<String>,
}

impl State for Deliveries {
    type Event = Event;

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Created { delivery, at_ms } => self.create(delivery, *at_ms),
            Event::Rescheduled {
                id,
                pickup,
                dropoff,
                deadline,
                ..
            } => self.change(id, |delivery| {
                delivery.body.pickup = *pickup;
                delivery.body.dropoff = *dropoff;
                delivery.body.deadline = deadline.clone();
                delivery.stage = Stage::Rescheduled;
            }),
            Event::Moved {
                id,
                stage,
                location,
                ..
            } => self.change(id, |delivery| {
                delivery.stage = *stage;
                delivery.location = *location;
            }),
            Event::Cancelled { id, .. } => {
                self.change(id, |delivery| delivery.stage = Stage::Cancelled);
            }
            Event::Closed { id } => drop(self.closed.insert(id.clone())),
            Event::Completed { id, location, .. } => self.change(id, |delivery| {
                delivery.stage = Stage::Completed;
                delivery.location = *location;
                delivery.body.dropoff = *location;
            }),
            Event::NotifyAsked {
                id,
                key,
                email_address,
                sms,
            } => self.change(id, |delivery| {
                delivery.notify.push((email_address.clone(), sms.clone()));
                delivery.keys.extend(key.clone());
            }),
        }
    }
}

impl Deliveries {
    fn create(&mut self, body: &Body, at_ms: i64) {
        let delivery = Delivery {
            stage: Stage::Created,
            location: body.pickup,
            created_ms: at_ms,
            notify: Vec::new(),
            keys: BTreeSet::new(),
            body: body.clone(),
        };
        self.by_id.insert(body.id.clone(), delivery);
    }

    fn change(&mut self, id: &str, how: impl FnOnce(&mut Delivery)) {
        if let Some(delivery) = self.by_id.get_mut(id) {
            how(delivery);
        }
    }
}

impl Delivery {
    /// Completed or cancelled.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Completed | Stage::Cancelled)
    }
}
