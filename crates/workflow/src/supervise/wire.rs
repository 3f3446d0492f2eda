//! The JSON messages between dispatcher and supervisor. Instances and events are the journal's own bytes, in base64
//! (`docs/formats/workflow.md`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::core::SupervisorLock;

/// The response to a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimResponse {
    pub lock: SupervisorLock,
    /// The definitions of the instances, by version.
    pub definitions: BTreeMap<String, Box<RawValue>>,
    pub instances: Vec<ClaimedSnapshot>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimedSnapshot {
    pub id: String,
    pub snapshot: Base64Bytes,
}

/// Outcomes of undo attempts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeReport {
    pub lock: SupervisorLock,
    pub events: Vec<ReportedEvent>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedEvent {
    pub id: String,
    pub event: Base64Bytes,
}

/// The response to a report: all other events are durable.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReportResponse {
    /// Ids whose claim is lost.
    pub refused: Vec<String>,
}

/// Releases a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    pub lock: SupervisorLock,
}

/// Bytes as base64 text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Base64Bytes(pub Vec<u8>);

impl From<Base64Bytes> for String {
    fn from(Base64Bytes(bytes): Base64Bytes) -> String {
        STANDARD.encode(bytes)
    }
}

impl TryFrom<String> for Base64Bytes {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Base64Bytes, base64::DecodeError> {
        STANDARD.decode(text).map(Base64Bytes)
    }
}
