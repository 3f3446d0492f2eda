//! Ingestion, the public API: stores requests durably on a hub and answers.
//!
//! | | |
//! |---|---|
//! | `POST /api/deliveryrequests` | 202, the request with its `deliveryId`, `Location` of the delivery |
//! | `PATCH /api/deliveryrequests/{id}` | reschedule: 200, the id |
//! | `DELETE /api/deliveryrequests/{id}` | cancel: 204 |
//! | `GET /api/probe` | 200 |
//!
//! Every kind of request has its own hub, partitioned by delivery, so a cancellation is never taken for a delivery. A
//! client without an answer may repeat the request with the same `Idempotency-Key`: the same key makes the same
//! `deliveryId`, and one id is one delivery.

mod hub_writer;
mod request;

use highwater_env::random::Random;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use self::hub_writer::{HubWriter, Partitioning, SendError};
pub use self::request::{DeliveryRequest, PackageInfo, Reschedule};
use crate::http::{Answer, Request, Service};
use crate::model::is_id;
use crate::node::CloudEvent;

/// The hubs, and the types of their events.
pub const REQUESTS: &str = "delivery-requests";
pub const RESCHEDULES: &str = "delivery-reschedules";
pub const CANCELLATIONS: &str = "delivery-cancellations";

/// The writers of all hubs.
pub struct HubWriters {
    requests: HubWriter,
    reschedules: HubWriter,
    cancellations: HubWriter,
}

impl HubWriters {
    /// Writers to the node at `address` (host and port).
    pub fn open(address: &str) -> HubWriters {
        HubWriters {
            requests: HubWriter::open(address, REQUESTS, Partitioning::ByBatch),
            reschedules: HubWriter::open(address, RESCHEDULES, Partitioning::ByKey),
            cancellations: HubWriter::open(address, CANCELLATIONS, Partitioning::ByKey),
        }
    }
}

pub struct Ingestion {
    pub writers: HubWriters,
    pub random: Mutex<Random>,
    /// Base URL of deliveries, without a trailing slash.
    pub delivery_url: String,
}

impl Service for Ingestion {
    async fn answer(&self, request: Request<'_>) -> Answer {
        self.route(&request).await.unwrap_or_else(|problem| problem)
    }
}

impl Ingestion {
    async fn route(&self, request: &Request<'_>) -> Result<Answer, Answer> {
        let parts = request.parts();
        // Behind a gateway the path begins with a version.
        let parts = match &parts[..] {
            [version, "api", ..] if version.starts_with('v') => &parts[1..],
            all => all,
        };
        match (&request.method, parts) {
            (&Method::POST, ["api", "deliveryrequests"]) => self.deliver(request).await,
            (&Method::PATCH, ["api", "deliveryrequests", id]) if is_id(id) => {
                self.reschedule(id, request).await
            }
            (&Method::DELETE, ["api", "deliveryrequests", id]) if is_id(id) => {
                self.cancel(id).await
            }
            (&Method::GET, ["api", "probe"]) => Ok(Answer::empty(StatusCode::OK)),
            _ => Err(Answer::not_found()),
        }
    }

    async fn deliver(&self, request: &Request<'_>) -> Result<Answer, Answer> {
        let mut wanted: DeliveryRequest<'_> = request.json()?;
        let key = request.header("idempotency-key");
        wanted.delivery_id = self.id(&wanted.owner_id, key);
        wanted
            .complete()
            .map_err(|problem| Answer::problem(StatusCode::BAD_REQUEST, problem))?;
        let id = &wanted.delivery_id;
        send(&self.writers.requests, id, id, &wanted.queued()).await?;
        let location = format!(
            "{}/api/deliveries/{}",
            self.delivery_url, wanted.delivery_id
        );
        Ok(Answer::json(StatusCode::ACCEPTED, &wanted).at(location))
    }

    async fn reschedule(&self, id: &str, request: &Request<'_>) -> Result<Answer, Answer> {
        let wanted: Reschedule = request.json()?;
        // Each one counts, so it has an id of its own unless the caller marks it as a repetition.
        let own = self.id(id, request.header("idempotency-key"));
        let queued = wanted.queued(&own, id);
        send(&self.writers.reschedules, &own, id, &queued).await?;
        Ok(Answer::json(StatusCode::OK, &id))
    }

    async fn cancel(&self, id: &str) -> Result<Answer, Answer> {
        let queued = json!({"deliveryId": id});
        send(&self.writers.cancellations, id, id, &queued).await?;
        Ok(Answer::empty(StatusCode::NO_CONTENT))
    }

    fn id(&self, caller: &str, key: Option<&str>) -> String {
        delivery_id(&self.random, caller, key).to_string()
    }
}

/// Completes when the event is durable. `id` names the event, `key` determines its partition.
async fn send(
    hub_writer: &HubWriter,
    id: &str,
    key: &str,
    data: &impl Serialize,
) -> Result<(), Answer> {
    let event = CloudEvent {
        specversion: "1.0",
        id,
        source: "/drone-delivery/ingestion",
        kind: hub_writer.hub(),
        subject: key,
        data,
    };
    let sent = hub_writer.send(|batch| batch.push(&event)).await;
    sent.map_err(|refusal| match refusal {
        SendError::Full => Answer::problem(StatusCode::TOO_MANY_REQUESTS, "try again in a second"),
        SendError::Node(text) => Answer::problem(StatusCode::SERVICE_UNAVAILABLE, text),
    })
}

/// A new id, or the same one for the same key of the same caller.
fn delivery_id(random: &Mutex<Random>, caller: &str, key: Option<&str>) -> Uuid {
    let Some(key) = key else {
        let mut random = random.lock();
        let (high, low) = (random.next_u64(), random.next_u64());
        let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        return uuid::Builder::from_random_bytes(bytes).into_uuid();
    };
    let mut hash = Sha256::new();
    hash.update(caller.len().to_le_bytes());
    hash.update(caller);
    hash.update(key);
    let digest = hash.finalize();
    let bytes = std::array::from_fn(|at| digest[at]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(caller: &str, key: Option<&str>) -> Uuid {
        delivery_id(&Mutex::new(Random::from_os()), caller, key)
    }

    #[test]
    fn a_key_makes_the_same_id_for_its_caller_alone() {
        assert_eq!(id("ann", Some("k")), id("ann", Some("k")));
        assert_ne!(id("ann", Some("k")), id("annk", Some("")));
        assert_ne!(id("ann", Some("k")), id("bob", Some("k")));
    }

    #[test]
    fn without_a_key_every_request_is_new() {
        assert_ne!(id("ann", None), id("ann", None));
        assert_eq!(id("ann", None).get_version_num(), 4);
    }
}
