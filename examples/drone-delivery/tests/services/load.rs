//! The load generator against a public API that fails in every way.

use std::collections::BTreeMap;
use std::sync::Arc;

use drone_delivery::chaos::Faults;
use drone_delivery::check::read_lines;
use drone_delivery::http::{Answer, Request, Service};
use drone_delivery::ledger::{CustomerAction, Entry};
use drone_delivery::load::{Load, Mix};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;

use crate::support::*;

/// Names a delivery by its key, and counts requests and cancellations.
#[derive(Clone, Default)]
struct Api {
    asked: Arc<Mutex<BTreeMap<String, u32>>>,
    cancelled: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Service for Api {
    async fn answer(&self, request: Request<'_>) -> Answer {
        if request.method == Method::DELETE {
            let id = request.parts()[2].to_owned();
            *self.cancelled.lock().entry(id).or_default() += 1;
            return Answer::empty(StatusCode::NO_CONTENT);
        }
        let key = request.header("idempotency-key").unwrap().to_owned();
        let answer = Answer::json(StatusCode::ACCEPTED, &json!({"deliveryId": key}));
        *self.asked.lock().entry(key).or_default() += 1;
        answer
    }
}

fn load(to: &str, folder: &std::path::Path) -> Load {
    Load {
        to: to.to_owned(),
        requests: 300,
        rate: 1_000_000,
        spike: None,
        connections: 60,
        timeout_ms: 60_000,
        tries: 100,
        name: "t".into(),
        ledger: Some(folder.join("ledger.jsonl")),
        mix: Mix {
            cancelled: 5,
            ..Mix::default()
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_has_every_request_once_however_often_it_was_sent() {
    let api = Api::default();
    let faults = Faults {
        errors: 0.1,
        lost: 0.1,
        ..Faults::default()
    };
    let running = run(api.clone(), faults).await;
    let folder = folder();
    let book = load(&running.address, folder.path()).run().await.unwrap();
    assert_eq!((book.accepted, book.lost, book.timed_out), (300, 0, 0));
    assert!(book.refused > 0 && book.broken > 0 && book.repeated > 0);
    let entries: Vec<Entry> = read_lines(&folder.path().join("ledger.jsonl")).unwrap();
    let with = |wish| {
        let entries = entries.iter().filter(move |entry| entry.wish == wish);
        let mut ids: Vec<_> = entries.map(|entry| entry.id.clone()).collect();
        ids.sort();
        ids
    };
    let known = |counts: &Mutex<BTreeMap<String, u32>>| -> Vec<String> {
        counts.lock().keys().cloned().collect()
    };
    assert_eq!(with(CustomerAction::Deliver), known(&api.asked));
    assert_eq!(with(CustomerAction::Cancel), known(&api.cancelled));
    assert_eq!(book.cancelled, api.cancelled.lock().len() as u64);
    assert!(book.cancelled > 30, "{}", book.cancelled);
    let again = api.asked.lock().values().any(|count| *count > 1);
    assert!(again, "none was done and not answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_never_accepted_is_given_up_and_not_promised() {
    let faults = Faults {
        errors: 1.0,
        ..Faults::default()
    };
    let running = run(Api::default(), faults).await;
    let folder = folder();
    let load = Load {
        tries: 2,
        ..load(&running.address, folder.path())
    };
    let book = load.run().await.unwrap();
    assert_eq!((book.accepted, book.lost, book.refused), (0, 300, 600));
    let entries: Vec<Entry> = read_lines(&folder.path().join("ledger.jsonl")).unwrap();
    assert_eq!(entries, []);
}
