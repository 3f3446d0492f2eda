//! Events as AMQP messages and as records, both ways.
//!
//! A record has a key, a value and headers of bytes, the same for every protocol. An AMQP message has typed properties.
//! So texts become headers as they are, other types become readable texts, and the header [`TYPES`] names the types, so
//! that AMQP readers receive the types that AMQP senders sent. docs/amqp.md has the table.

mod incoming;
mod outgoing;
mod property;
#[cfg(test)]
mod tests;

pub(super) use incoming::{IncomingEvent, partition_key, producer_sequence, unpack_batch};
pub(super) use outgoing::{LastEnqueued, MessageEncoder, is_body};
pub(super) use property::{from_header, to_header};

/// JSON object from header names to AMQP types, for headers that are no strings.
pub(super) const TYPES: &str = "amqp-types";
/// The kind of a body that is not binary data: `string` or `sections`.
pub(super) const BODY: &str = "amqp-body";
/// A body that is a single string value.
pub(super) const BODY_STRING: &str = "string";
/// Any other body: the encoded sections are the record's value.
pub(super) const BODY_SECTIONS: &str = "sections";
/// The header of the content type, as HTTP has it.
pub(super) const CONTENT_TYPE: &str = "content-type";

const PARTITION_KEY: &str = "x-opt-partition-key";

/// The fields of the properties section in the order of the standard: the header, and the type without an entry in
/// [`TYPES`].
pub(super) const PROPERTY_FIELDS: [(&str, &str); 13] = [
    ("amqp-message-id", "string"),
    ("amqp-user-id", "binary"),
    ("amqp-to", "string"),
    ("amqp-subject", "string"),
    ("amqp-reply-to", "string"),
    ("amqp-correlation-id", "string"),
    (CONTENT_TYPE, "symbol"),
    ("amqp-content-encoding", "symbol"),
    ("amqp-absolute-expiry-time", "timestamp"),
    ("amqp-creation-time", "timestamp"),
    ("amqp-group-id", "string"),
    ("amqp-group-sequence", "uint"),
    ("amqp-reply-to-group-id", "string"),
];
