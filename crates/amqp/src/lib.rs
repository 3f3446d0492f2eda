//! AMQP 1.0 without I/O: the type system, frames, message sections, and the server's side of a connection as a pure
//! state machine.
//!
//! [`Connection`] takes the client's bytes and the time, and gives [`Event`]s and bytes to write. It keeps the rules of
//! the protocol (sessions, windows, credit, settlement, heartbeats) and its limits; what an address means, who may use
//! it and where messages go is the business of its owner. Event Hubs and Service Bus are conventions above this layer.
//!
//! Bytes come from untrusted peers: no length is believed before the bytes are there, nesting and counts are bounded,
//! and a violation ends the connection of the client that committed it.
//!
//! Performatives are written with all their fields. The standard lets a peer omit trailing nulls, but some clients read
//! fields by position and fail on what is missing.
//!
//! ```
//! use highwater_amqp::{MessageReader, Section, Value};
//!
//! let mut bytes = bytes::BytesMut::new();
//! let mut encoder = highwater_amqp::Encoder::new(&mut bytes);
//! encoder.data_section(b"hello");
//!
//! let mut sections = MessageReader::new(&bytes);
//! assert_eq!(sections.next(), Some(Ok(Section::Data(b"hello"))));
//! assert_eq!(Value::decode(&[0x54, 0xff]), Ok(Value::I32(-1)));
//! ```

mod connection;
mod decode;
mod encode;
mod error;
mod frame;
mod message;
mod performative;
mod value;

pub use connection::{
    ClientOutcome, Connection, CoordinatorRequest, Delivery, Event, LinkId, LinkTerms, Options,
    Outcome, OutcomeKind, OutgoingMessage, TrackedDelivery,
};
pub use decode::DecodeError;
pub use encode::{Compound, Encoder};
pub use error::{AmqpError, ProtocolError, condition};
pub use message::{MessageReader, Section};
pub use performative::{Attach, Properties, Role};
pub use value::Value;
