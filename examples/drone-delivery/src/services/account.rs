//! Accounts: is the customer's account active?
//!
//! `GET /api/accounts/{owner}` answers `true` or `false`; `PUT /api/accounts/{owner} {"active": false}`
//! registers or suspends.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::{bad, no_such_path};
use crate::http::{Answer, Request, Service};
use crate::journal::{State, Store};
use crate::model::is_id;

#[derive(Debug, Default)]
pub struct Accounts(pub BTreeMap<String, bool>);

/// An account was registered, suspended or reactivated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    pub owner: String,
    pub active: bool,
}

impl State for Accounts {
    type Event = Event;

    fn apply(&mut self, event: &Event) {
        self.0.insert(event.owner.clone(), event.active);
    }
}

pub struct AccountService {
    pub store: Store<Accounts>,
}

#[derive(Deserialize)]
struct Change {
    active: bool,
}

impl Service for AccountService {
    async fn answer(&self, request: Request<'_>) -> Answer {
        match (&request.method, &request.parts()[..]) {
            (&Method::GET, ["api", "accounts", owner]) => self.active(owner).await,
            (&Method::PUT, ["api", "accounts", owner]) if is_id(owner) => match request.json() {
                Ok(change) => self.register(owner, change).await,
                Err(answer) => answer,
            },
            (&Method::PUT, ["api", "accounts", _]) => bad("that cannot be an id"),
            _ => no_such_path(),
        }
    }
}

impl AccountService {
    async fn active(&self, owner: &str) -> Answer {
        match self
            .store
            .read(|accounts| accounts.0.get(owner).copied())
            .await
        {
            Some(active) => Answer::json(StatusCode::OK, &active),
            None => Answer::not_found(),
        }
    }

    async fn register(&self, owner: &str, Change { active }: Change) -> Answer {
        let status = self.store.change(|accounts| {
            let known = accounts.0.get(owner);
            let event = (known != Some(&active)).then(|| Event {
                owner: owner.to_owned(),
                active,
            });
            match known {
                Some(_) => (event, StatusCode::NO_CONTENT),
                None => (event, StatusCode::CREATED),
            }
        });
        Answer::empty(status.await)
    }
}
