//! The performatives of the protocol and of SASL.
//!
//! Every field is written. Fields that the server has no use for are read as values, so that they can be sent back as
//! they came.

mod field;
#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};

use crate::decode::{DecodeError, Decoder};
use crate::encode::Encoder;
use crate::error::AmqpError;
use crate::value::Value;
use field::Field;

pub use field::Properties;
pub(crate) use field::{ERROR, Fields, Symbol, Symbols};

/// The end of a link that sent a performative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Sender,
    Receiver,
}

impl Field for Role {
    fn read(decoder: &mut Decoder<'_>) -> Result<Role, DecodeError> {
        Ok(match decoder.bool()? {
            true => Role::Receiver,
            false => Role::Sender,
        })
    }

    fn absent() -> Option<Role> {
        None
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        encoder.bool(*self == Role::Receiver);
    }
}

/// Structs of fields with their descriptor, and the enum of all of them.
macro_rules! performatives {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $code:literal {
        $($(#[$field_doc:meta])* $field_vis:vis $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq)]
            $vis struct $name {
                $($(#[$field_doc])* $field_vis $field: $type,)*
            }

            impl $name {
                #[allow(dead_code, reason = "a server writes no SaslInit, except in tests")]
                pub(crate) fn write(&self, out: &mut BytesMut) {
                    let mut encoder = Encoder::new(out);
                    encoder.descriptor($code);
                    let list = encoder.list();
                    let mut count = 0;
                    $(
                        self.$field.write(&mut encoder);
                        count += 1;
                    )*
                    encoder.end(list, count);
                }
            }
        )*

        /// Any performative.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum Performative {
            $($name(Box<$name>),)*
        }

        impl Performative {
            /// The performative at the front of a frame's body, and the position after it.
            pub(crate) fn read(body: &[u8]) -> Result<(Performative, usize), DecodeError> {
                let mut decoder = Decoder::new(body);
                let code = decoder.descriptor()?;
                let mut fields = Fields::new(&mut decoder)?;
                let performative = match code {
                    $($code => Performative::$name(Box::new($name {
                        $($field: fields.next(stringify!($field))?,)*
                    })),)*
                    unknown => return Err(DecodeError::Descriptor(unknown)),
                };
                Ok((performative, body.len() - decoder.rest().len()))
            }
        }
    };
}

performatives! {
    pub(crate) Open = 0x10 {
        pub(crate) container_id: String,
        pub(crate) hostname: Option<String>,
        pub(crate) max_frame_size: Option<u32>,
        pub(crate) channel_max: Option<u16>,
        /// Milliseconds.
        pub(crate) idle_time_out: Option<u32>,
        pub(crate) outgoing_locales: Symbols,
        pub(crate) incoming_locales: Symbols,
        pub(crate) offered_capabilities: Symbols,
        pub(crate) desired_capabilities: Symbols,
        pub(crate) properties: Properties,
    }

    pub(crate) Begin = 0x11 {
        pub(crate) remote_channel: Option<u16>,
        pub(crate) next_outgoing_id: u32,
        pub(crate) incoming_window: u32,
        pub(crate) outgoing_window: u32,
        pub(crate) handle_max: Option<u32>,
        pub(crate) offered_capabilities: Symbols,
        pub(crate) desired_capabilities: Symbols,
        pub(crate) properties: Properties,
    }

    /// A client's request for a link.
    pub Attach = 0x12 {
        pub name: String,
        pub(crate) handle: u32,
        /// The client's end.
        pub role: Role,
        /// 0: unsettled, 1: settled, 2 or null: mixed.
        pub snd_settle_mode: Option<u8>,
        pub(crate) rcv_settle_mode: Option<u8>,
        pub source: Value<'static>,
        pub target: Value<'static>,
        pub(crate) unsettled: Value<'static>,
        pub(crate) incomplete_unsettled: bool,
        pub(crate) initial_delivery_count: Option<u32>,
        pub(crate) max_message_size: Option<u64>,
        pub(crate) offered_capabilities: Symbols,
        pub(crate) desired_capabilities: Symbols,
        pub properties: Properties,
    }

    pub(crate) Flow = 0x13 {
        pub(crate) next_incoming_id: Option<u32>,
        pub(crate) incoming_window: u32,
        pub(crate) next_outgoing_id: u32,
        pub(crate) outgoing_window: u32,
        pub(crate) handle: Option<u32>,
        pub(crate) delivery_count: Option<u32>,
        pub(crate) link_credit: Option<u32>,
        pub(crate) available: Option<u32>,
        pub(crate) drain: bool,
        pub(crate) echo: bool,
        pub(crate) properties: Properties,
    }

    pub(crate) Transfer = 0x14 {
        pub(crate) handle: u32,
        pub(crate) delivery_id: Option<u32>,
        pub(crate) delivery_tag: Option<Bytes>,
        pub(crate) message_format: Option<u32>,
        pub(crate) settled: bool,
        pub(crate) more: bool,
        pub(crate) rcv_settle_mode: Option<u8>,
        pub(crate) state: Value<'static>,
        pub(crate) resume: bool,
        pub(crate) aborted: bool,
        pub(crate) batchable: bool,
    }

    pub(crate) Disposition = 0x15 {
        pub(crate) role: Role,
        pub(crate) first: u32,
        pub(crate) last: Option<u32>,
        pub(crate) settled: bool,
        pub(crate) state: Value<'static>,
        pub(crate) batchable: bool,
    }

    pub(crate) Detach = 0x16 {
        pub(crate) handle: u32,
        pub(crate) closed: bool,
        pub(crate) error: Option<AmqpError>,
    }

    pub(crate) End = 0x17 {
        pub(crate) error: Option<AmqpError>,
    }

    pub(crate) Close = 0x18 {
        pub(crate) error: Option<AmqpError>,
    }

    pub(crate) SaslMechanisms = 0x40 {
        pub(crate) mechanisms: Symbols,
    }

    pub(crate) SaslInit = 0x41 {
        pub(crate) mechanism: Symbol,
        pub(crate) initial_response: Option<Bytes>,
        pub(crate) hostname: Option<String>,
    }

    pub(crate) SaslOutcome = 0x44 {
        /// 0: the client is authenticated.
        pub(crate) code: u8,
        pub(crate) additional_data: Option<Bytes>,
    }
}

impl Attach {
    /// The text of an address: of the source for a receiving client, else of the target.
    pub fn address(&self) -> Option<&str> {
        let terminus = match self.role {
            Role::Receiver => &self.source,
            Role::Sender => &self.target,
        };
        terminus_field(terminus, 0)?.as_text()
    }

    /// The source with another value under a key of its filter map, which must be there.
    pub fn source_with_filter(&self, key: &str, value: Value<'static>) -> Option<Value<'static>> {
        let Value::Described(described) = &self.source else {
            return None;
        };
        let mut fields = described.1.as_list()?.to_vec();
        let Some(Value::Map(entries)) = fields.get_mut(7) else {
            return None;
        };
        let entry = entries
            .iter_mut()
            .find(|entry| entry.0.as_text() == Some(key))?;
        entry.1 = value;
        let source = (described.0.clone(), Value::List(fields));
        Some(Value::Described(Box::new(source)))
    }

    /// Whether the link begins and ends transactions.
    pub fn is_coordinator(&self) -> bool {
        const COORDINATOR: u64 = 0x30;
        let is_coordinator = |target: &(Value<'static>, Value<'static>)| match &target.0 {
            Value::U64(code) => *code == COORDINATOR,
            name => name.as_text() == Some("amqp:coordinator:list"),
        };
        match &self.target {
            Value::Described(target) => self.role == Role::Sender && is_coordinator(target),
            _ => false,
        }
    }

    /// The filter map of the source.
    pub fn filter(&self) -> Option<&Value<'static>> {
        terminus_field(&self.source, 7).filter(|filter| filter.as_map().is_some())
    }

    pub fn desires(&self, capability: &str) -> bool {
        let mut desired = self.desired_capabilities.0.iter();
        desired.any(|desired| desired == capability)
    }

    /// The address of the target, which for a receiving client is its own and names where replies go.
    pub fn target_address(&self) -> Option<&str> {
        terminus_field(&self.target, 0)?.as_text()
    }
}

/// A field of a source or target.
fn terminus_field<'a>(terminus: &'a Value<'static>, index: usize) -> Option<&'a Value<'static>> {
    terminus.undescribed().as_list()?.get(index)
}
