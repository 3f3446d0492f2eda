//! What keeper and supervisor say to each other, as JSON. Instances and events are the journal's own bytes, in base64
//! (`docs/formats/workflow.md`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::core::Lock;

/// What a supervisor gets to undo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    pub lock: Lock,
    /// Those on which the instances run, by version.
    pub definitions: BTreeMap<String, Box<RawValue>>,
    pub instances: Vec<Offered>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offered {
    pub id: String,
    pub snapshot: Packed,
}

/// How undoing went.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub lock: Lock,
    pub events: Vec<Reported>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    pub id: String,
    pub event: Packed,
}

/// The answer to a report: everything else is safe.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// What is not the reporter's any more.
    pub refused: Vec<String>,
}

/// Whoever has this lock needs it no more.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Farewell {
    pub lock: Lock,
}

/// Bytes as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Packed(pub Vec<u8>);

impl From<Packed> for String {
    fn from(Packed(bytes): Packed) -> String {
        STANDARD.encode(bytes)
    }
}

impl TryFrom<String> for Packed {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Packed, base64::DecodeError> {
        STANDARD.decode(text).map(Packed)
    }
}
