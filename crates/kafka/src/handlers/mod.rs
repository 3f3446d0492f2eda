//! The handlers, by request.

use std::collections::HashSet;
use std::hash::Hash;

use highwater_log::{HubId, HubInfo};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::access::UserChangeError;
use crate::codes::ErrorCode;

pub(crate) mod acls;
pub(crate) mod cluster;
pub(crate) mod configs;
pub(crate) mod consumer_groups;
pub(crate) mod credentials;
pub(crate) mod features;
pub(crate) mod fetch;
pub(crate) mod groups;
pub(crate) mod list_offsets;
pub(crate) mod markers;
pub(crate) mod metadata;
pub(crate) mod offsets;
pub(crate) mod partitions;
pub(crate) mod placement;
pub(crate) mod produce;
pub(crate) mod quorum;
pub(crate) mod quotas;
pub(crate) mod resources;
pub(crate) mod sasl;
pub(crate) mod storage;
pub(crate) mod telemetry;
pub(crate) mod topic_partitions;
pub(crate) mod topics;
pub(crate) mod transaction_list;
pub(crate) mod transactions;
pub(crate) mod versions;

/// The leader never changes, so neither does its epoch.
const LEADER_EPOCH: i32 = 0;

/// Why a hub was not created or changed: the code, and the message for people.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    code: Code,
    reason: String,
}

impl Refusal {
    fn new(code: Code, reason: impl ToString) -> Refusal {
        let reason = reason.to_string();
        Refusal { code, reason }
    }

    /// Why a user is not changed. `refused` is the code of a change that cannot be expressed.
    fn of_user(error: UserChangeError, refused: Code) -> Refusal {
        let code = match error {
            UserChangeError::NotFound(_) => Code::ResourceNotFound,
            UserChangeError::Forbidden(_) => Code::ClusterAuthorizationFailed,
            UserChangeError::Storage(_) => Code::KafkaStorageError,
            UserChangeError::Refused(_) => refused,
        };
        Refusal::new(code, error)
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Refusal {
        Refusal::new(code, code)
    }
}

impl From<highwater_log::AdminError> for Refusal {
    fn from(error: highwater_log::AdminError) -> Refusal {
        Refusal::new(error.kind(), error)
    }
}

/// Puts the code and message of a `Result<_, Refusal>` into a response that has fields for both.
macro_rules! with_refusal {
    ($context:expr, $response:expr, $result:expr) => {{
        let response = $response;
        match $result {
            // The codec's default is an empty text.
            Ok(_) => response.with_error_message(None),
            Err(refusal) => response
                .with_error_code($context.error_code(&refusal.code))
                .with_error_message(some_text(refusal.reason)),
        }
    }};
}
use with_refusal;

/// Removes repeated values, so that a response is as large as the state that it describes.
fn distinct<T: Clone + Eq + Hash>(mut values: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(values.len());
    values.retain(|value| seen.insert(value.clone()));
    values
}

pub(crate) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

fn some_text(value: impl ToString) -> Option<StrBytes> {
    Some(text(value.to_string()))
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

fn uuid_of(hub: &HubInfo) -> Uuid {
    Uuid::from_bytes(hub.id.0)
}

pub(crate) fn hub_id(uuid: Uuid) -> HubId {
    HubId(*uuid.as_bytes())
}
