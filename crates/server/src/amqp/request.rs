//! Requests and replies over a pair of links: tokens (`$cbs`) and management share their form.

use bytes::{Bytes, BytesMut};
use highwater_amqp::{AmqpError, Encoder, MessageReader, Section, Value, condition};

use super::service_bus::{
    ENTITY_ALREADY_EXISTS, MESSAGE_LOCK_LOST, MESSAGE_NOT_FOUND, SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
};

/// A request of a client.
#[derive(Debug, Default)]
pub(super) struct Request {
    message_id: Value<'static>,
    pub(super) reply_to: Option<String>,
    properties: Vec<(Value<'static>, Value<'static>)>,
    /// The body, if it is a value.
    pub(super) body: Value<'static>,
}

/// The reply to a request.
#[derive(Debug)]
pub(super) struct Reply {
    status: i32,
    description: String,
    condition: Option<String>,
    body: Value<'static>,
}

impl Request {
    pub(super) fn parse(message: &[u8]) -> Result<Request, AmqpError> {
        let mut request = Request::default();
        for section in MessageReader::new(message) {
            let section = section
                .map_err(|error| AmqpError::new(condition::DECODE_ERROR, error.to_string()))?;
            match section {
                Section::Properties(fields) => {
                    let mut fields = fields.into_iter();
                    request.message_id = fields.next().unwrap_or_default().into_owned();
                    let reply_to = fields.nth(3);
                    let reply_to = reply_to.as_ref().and_then(Value::as_text);
                    request.reply_to = reply_to.map(str::to_owned);
                }
                Section::ApplicationProperties(entries) => {
                    let own = |(key, value): (Value<'_>, Value<'_>)| {
                        (key.into_owned(), value.into_owned())
                    };
                    request.properties = entries.into_iter().map(own).collect();
                }
                Section::Value(value) => request.body = value.into_owned(),
                _ => {}
            }
        }
        Ok(request)
    }

    /// The text of an application property.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut properties = self.properties.iter();
        let property = properties.find(|(key, _)| key.as_text() == Some(name));
        property?.1.as_text()
    }

    /// The encoded reply, under the id of the request in its own type.
    pub(super) fn reply(&self, reply: &Reply) -> Bytes {
        let mut out = BytesMut::new();
        let mut encoder = Encoder::new(&mut out);
        encoder.descriptor(Section::PROPERTIES);
        let list = encoder.list();
        for field in 0..13 {
            match field {
                5 => encoder.value(&self.message_id),
                _ => encoder.null(),
            }
        }
        encoder.end(list, 13);
        encoder.descriptor(Section::APPLICATION_PROPERTIES);
        let map = encoder.map();
        // Clients look under either name.
        for (code, description) in [
            ("status-code", "status-description"),
            ("statusCode", "statusDescription"),
        ] {
            encoder.string(code);
            encoder.int(reply.status);
            encoder.string(description);
            encoder.string(&reply.description);
        }
        let mut count = 8;
        if let Some(condition) = &reply.condition {
            // Event Hubs clients look under the first name, Service Bus clients under the second.
            for name in ["error-condition", "errorCondition"] {
                encoder.string(name);
                encoder.symbol(condition);
            }
            count += 4;
        }
        encoder.end(map, count);
        encoder.descriptor(Section::VALUE);
        encoder.value(&reply.body);
        out.freeze()
    }
}

impl Reply {
    pub(super) fn ok(status: i32, body: Value<'static>) -> Reply {
        Reply {
            status,
            description: if status == 202 { "Accepted" } else { "OK" }.into(),
            condition: None,
            body,
        }
    }

    /// There is nothing to return.
    pub(super) fn no_content(condition: Option<&'static str>) -> Reply {
        Reply {
            status: 204,
            description: "No Content".into(),
            condition: condition.map(str::to_owned),
            body: Value::Null,
        }
    }

    pub(super) fn error(error: AmqpError) -> Reply {
        let status = match &*error.condition {
            condition::UNAUTHORIZED_ACCESS => 401,
            condition::NOT_FOUND | MESSAGE_NOT_FOUND => 404,
            super::error::TIMEOUT => 408,
            ENTITY_ALREADY_EXISTS | SESSION_CANNOT_BE_LOCKED => 409,
            MESSAGE_LOCK_LOST | SESSION_LOCK_LOST => 410,
            condition::INTERNAL_ERROR => 500,
            super::error::SERVER_BUSY => 503,
            _ => 400,
        };
        Reply {
            status,
            description: error.description,
            condition: Some(error.condition.into_owned()),
            body: Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A1
    #[test]
    fn a_reply_carries_the_id_of_the_request_in_its_own_type() {
        for id in [Value::U64(7), Value::string("seven"), Value::Uuid([7; 16])] {
            let mut message = BytesMut::new();
            let mut encoder = Encoder::new(&mut message);
            encoder.descriptor(Section::PROPERTIES);
            encoder.value(&Value::List(vec![id.clone()]));
            let request = Request::parse(&message).unwrap();
            let reply = request.reply(&Reply::ok(202, Value::Null));
            let sections: Vec<_> = MessageReader::new(&reply).map(Result::unwrap).collect();
            let Section::Properties(fields) = &sections[0] else {
                panic!("{sections:?}")
            };
            assert_eq!(fields[5], id);
            let Section::ApplicationProperties(entries) = &sections[1] else {
                panic!("{sections:?}")
            };
            assert_eq!(entries[0].1, Value::I32(202), "the status is an int");
        }
    }
}
