//! Third-party transport: is another carrier needed for this destination?
//!
//! `PUT /api/thirdparty/{uuid}` with a location returns `true` if it is out of the drones' range. The answer for an id
//! never changes, even if the range is changed later.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::{bad, no_such_path};
use crate::http::{Answer, Request, Service};
use crate::journal::{State, Store};
use crate::model::{DEPOT, Location, is_id};

#[derive(Debug, Default)]
pub struct Decisions(pub BTreeMap<String, bool>);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecisionEvent {
    pub id: String,
    pub needed: bool,
}

impl State for Decisions {
    type Event = DecisionEvent;

    fn apply(&mut self, event: &DecisionEvent) {
        self.0.insert(event.id.clone(), event.needed);
    }
}

pub struct ThirdPartyService {
    pub store: Store<Decisions>,
    pub range_km: f64,
}

impl Service for ThirdPartyService {
    async fn answer(&self, request: Request<'_>) -> Answer {
        match (&request.method, &request.parts()[..]) {
            (&Method::PUT, ["api", "thirdparty", id]) if is_id(id) => match request.json() {
                Ok(location) => self.decide(id, location).await,
                Err(answer) => answer,
            },
            (&Method::PUT, ["api", "thirdparty", _]) => bad("that cannot be an id"),
            _ => no_such_path(),
        }
    }
}

impl ThirdPartyService {
    async fn decide(&self, id: &str, location: Location) -> Answer {
        let needed = self.store.change(|decisions| {
            if let Some(needed) = decisions.0.get(id) {
                return (None, *needed);
            }
            let needed = location.kilometres_to(DEPOT) > self.range_km;
            let id = id.to_owned();
            (Some(DecisionEvent { id, needed }), needed)
        });
        Answer::json(StatusCode::OK, &needed.await)
    }
}
