//! Messages of queues as AMQP messages, both ways.
//!
//! A message of a queue has a body, an id, a session, a content type and properties that are texts, the same for every
//! protocol. So a typed property becomes a readable text, and the property `amqp-types` names the types, so that AMQP
//! receivers see the types that AMQP senders sent. docs/amqp.md has the table.

mod filtered;
mod incoming;
mod outgoing;
mod properties;
#[cfg(test)]
mod tests;

pub(crate) use filtered::AmqpPropertyMap;
pub(super) use filtered::{amqp_value, filter_value};
pub(super) use incoming::parse;
pub(super) use outgoing::{OutgoingState, encode};
pub(super) use properties::edit;

use crate::amqp::event::{BODY, CONTENT_TYPE, PROPERTY_FIELDS, TYPES};

/// Annotations of the sender that a message keeps, and the properties they are kept in.
const ANNOTATIONS: [(&str, &str); 3] = [
    ("x-opt-partition-key", "amqp-partition-key"),
    ("x-opt-via-partition-key", "amqp-via-partition-key"),
    (SCHEDULED, "amqp-scheduled-enqueue-time"),
];
const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";

/// Properties of a message that are fields of its own in a queue, or follow from its time to live.
const MESSAGE_ID: &str = "amqp-message-id";
const EXPIRY_TIME: &str = "amqp-absolute-expiry-time";
const CREATION_TIME: &str = "amqp-creation-time";
const GROUP_ID: &str = "amqp-group-id";

const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

/// Whether a property is not one of the application's.
fn is_reserved(name: &str) -> bool {
    matches!(name, TYPES | BODY)
        || ANNOTATIONS.iter().any(|(_, property)| *property == name)
        || name != CONTENT_TYPE
            && PROPERTY_FIELDS
                .iter()
                .any(|(property, _)| *property == name)
}
