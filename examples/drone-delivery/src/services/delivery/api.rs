//! Routes and request bodies of the delivery service.

use serde::Deserialize;
use serde_json::{Value, json};

use super::DeliveryService;
use crate::http::{Answer, Request, Service};
use crate::model::{Location, Stage, is_id};
use crate::services::{bad, no_such_path};

/// Absent fields stay unchanged.
#[derive(Deserialize)]
pub(super) struct Reschedule {
    pub pickup: Option<Location>,
    pub dropoff: Option<Location>,
    pub deadline: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NotificationRequest {
    #[serde(default)]
    pub email_address: String,
    #[serde(default)]
    pub sms: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfirmationRequest {
    pub geo_coordinates: Location,
    /// The confirmation as it was sent.
    #[serde(flatten)]
    pub rest: Value,
}

#[derive(Deserialize)]
pub(super) struct Position {
    pub stage: Stage,
    pub location: Location,
}

impl Service for DeliveryService {
    async fn answer(&self, request: Request<'_>) -> Answer {
        self.route(&request).await.unwrap_or_else(|problem| problem)
    }
}

impl DeliveryService {
    /// `Err` is the answer to an unreadable body.
    async fn route(&self, request: &Request<'_>) -> Result<Answer, Answer> {
        let parts = request.parts();
        let ["api", "deliveries", rest @ ..] = &parts[..] else {
            return Err(no_such_path());
        };
        Ok(match (request.method.as_str(), rest) {
            ("GET", ["summary"]) => self.summary(request).await,
            ("GET", [id] | ["public", id]) => self.get(id, |delivery| json!(delivery.body)).await,
            ("GET", [id, "owner"]) => self.get(id, |delivery| json!(delivery.body.owner)).await,
            ("GET", [id, "status"]) => self.get(id, |delivery| self.status(delivery)).await,
            (_, [id, ..]) if !is_id(id) => bad("that cannot be an id"),
            ("PUT", [id]) => self.put(id, request.json()?).await,
            ("PATCH", [id]) => self.reschedule(id, request.json()?).await,
            ("DELETE", [id]) => self.cancel(id).await,
            ("PUT", [id, "position"]) => self.moved(id, request.json()?).await,
            ("POST", [id, "confirmations"]) => self.confirm(id, request.json()?).await,
            ("POST", [id, "notifymerequests"]) => {
                let key = request.header("idempotency-key");
                self.notify(id, key, request.json()?).await
            }
            _ => no_such_path(),
        })
    }
}
