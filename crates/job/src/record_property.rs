//! Properties of a record outside its value, as columns of events: headers and key.
//!
//! GetMetadataPropertyValue reads them. The headers of a record are those of Kafka, the properties of an HTTP request
//! or of an AMQP message; what IoT Hub says of a device is in headers that its routing sets. Values are text; a value
//! that is not UTF-8 is NULL.

use std::sync::Arc;

use highwater_engine::{Column, ColumnBuilder, Record as Fields, Value};
use highwater_log::batch::{Record, RecordHeaders};

/// A property that a query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordProperty {
    /// The first of these headers that the record has. An exact name is preferred to one that differs in case, because
    /// HTTP has no case.
    Header(Vec<String>),
    /// `User`: all headers but those of protocols, as a record.
    User,
    /// The key, which is the partition key of Event Hubs.
    Key,
    /// `IoTHub`: what IoT Hub says of the event, as a record.
    IotHub,
}

/// The properties of IoT Hub and their headers.
const IOT_HUB: [(&str, &[&str]); 9] = [
    ("ConnectionDeviceId", &["iothub-connection-device-id"]),
    ("ConnectionModuleId", &["iothub-connection-module-id"]),
    ("AuthMethod", &["iothub-connection-auth-method"]),
    ("AuthGenerationId", GENERATION),
    ("ConnectionDeviceGenerationId", GENERATION),
    ("MessageSource", &["iothub-message-source"]),
    ("InterfaceName", &["iothub-interface-name", "dt-dataschema"]),
    ("MessageId", &["message-id", "amqp-message-id"]),
    ("CorrelationId", &["correlation-id", "amqp-correlation-id"]),
];

const GENERATION: &[&str] = &["iothub-connection-auth-generation-id"];
const ENQUEUED: &[&str] = &["iothub-enqueuedtime"];
const PUBLISHER: &[&str] = &["x-opt-publisher", "publisher"];

/// Headers that a protocol sets, and not the sender.
const PROTOCOL_PREFIXES: [&str; 4] = ["iothub-", "amqp-", "x-opt-", "dt-"];
const PROTOCOL_HEADERS: [&str; 3] = ["content-type", "message-id", "correlation-id"];

impl RecordProperty {
    /// The property at a path of GetMetadataPropertyValue, if a record has such a property.
    pub(crate) fn of(path: &[String]) -> Option<RecordProperty> {
        let (adapter, rest) = path.split_first()?;
        let is = |name: &str| adapter.eq_ignore_ascii_case(name);
        match rest {
            [] if is("User") => Some(RecordProperty::User),
            [] if is("IoTHub") => Some(RecordProperty::IotHub),
            [] => None,
            names if is("User") => Some(RecordProperty::Header(vec![names.join(".")])),
            [name] if is("IoTHub") => header_of(name).map(header),
            [name] if is("EventHub") => RecordProperty::of_event_hub(name),
            _ => None,
        }
    }

    fn of_event_hub(name: &str) -> Option<RecordProperty> {
        match &name.to_ascii_lowercase()[..] {
            "partitionkey" => Some(RecordProperty::Key),
            "publisher" => Some(header(PUBLISHER)),
            "iotenqueuetime" => Some(header(ENQUEUED)),
            // `IoTConnectionDeviceId` is `ConnectionDeviceId` of IoT Hub.
            lower => header_of(lower.strip_prefix("iot").unwrap_or(lower)).map(header),
        }
    }

    fn write(&self, record: &Record<'_>, out: &mut ColumnBuilder) {
        match self {
            RecordProperty::Header(names) => match find(record.headers, names) {
                Some(text) => out.push_text(text),
                None => out.push_null(),
            },
            RecordProperty::Key => match record.key.and_then(as_text) {
                Some(text) => out.push_text(text),
                None => out.push_null(),
            },
            RecordProperty::User => out.push_owned(user_properties(record.headers)),
            RecordProperty::IotHub => out.push_owned(iot_hub(record.headers)),
        }
    }
}

fn header(names: &[&str]) -> RecordProperty {
    RecordProperty::Header(names.iter().map(|name| (*name).to_owned()).collect())
}

fn header_of(name: &str) -> Option<&'static [&'static str]> {
    let mut known = IOT_HUB.iter();
    let found = known.find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, headers)| *headers)
}

/// The last header of a name counts, as for Kafka's clients.
fn find<'a>(headers: RecordHeaders<'a>, names: &[String]) -> Option<&'a str> {
    names.iter().find_map(|wanted| {
        let (mut exact, mut alike) = (None, None);
        for (name, value) in headers {
            if *wanted == *name {
                exact = Some(value);
            } else if wanted.eq_ignore_ascii_case(&name) {
                alike = Some(value);
            }
        }
        exact.or(alike).flatten().and_then(as_text)
    })
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn user_properties(headers: RecordHeaders<'_>) -> Value {
    let mut fields = Fields::with_capacity(headers.len());
    for (name, value) in headers {
        let protocol = PROTOCOL_HEADERS.contains(&&*name)
            || PROTOCOL_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix));
        if !protocol {
            let text = value.and_then(as_text).map_or(Value::Null, Value::text);
            fields.set(Arc::from(&*name), text);
        }
    }
    Value::Record(Arc::new(fields))
}

/// NULL for an event that did not come through IoT Hub.
fn iot_hub(headers: RecordHeaders<'_>) -> Value {
    let mut names = headers;
    if !names.any(|(name, _)| name.starts_with("iothub-")) {
        return Value::Null;
    }
    let mut fields = Fields::with_capacity(IOT_HUB.len());
    for (name, names) in IOT_HUB {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let text = find(headers, &names).map_or(Value::Null, Value::text);
        fields.set(Arc::from(name), text);
    }
    Value::Record(Arc::new(fields))
}

/// The properties of the records of a block.
#[derive(Default)]
pub(crate) struct PropertyColumns {
    properties: Vec<RecordProperty>,
    builders: Vec<ColumnBuilder>,
    offsets: Vec<u64>,
}

impl PropertyColumns {
    pub(crate) fn new(properties: &[RecordProperty]) -> PropertyColumns {
        PropertyColumns {
            properties: properties.to_vec(),
            builders: properties
                .iter()
                .map(|_| ColumnBuilder::default())
                .collect(),
            offsets: Vec::new(),
        }
    }

    /// Takes the properties of a record; offsets grow.
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        if self.properties.is_empty() {
            return;
        }
        self.offsets.push(record.offset.0 as u64);
        for (property, builder) in self.properties.iter().zip(&mut self.builders) {
            property.write(record, builder);
        }
    }

    /// The columns of the events of the records since the last call; a record may hold several events, or none.
    pub(crate) fn take(&mut self, events: &[u64]) -> Vec<Column> {
        if self.properties.is_empty() {
            return Vec::new();
        }
        let offsets = std::mem::take(&mut self.offsets);
        let builders = self.builders.iter_mut().map(std::mem::take);
        let columns = builders.map(ColumnBuilder::finish);
        if offsets == events {
            return columns.collect();
        }
        let mut record = 0;
        let rows = events.iter().map(|offset| {
            while offsets[record] < *offset {
                record += 1;
            }
            record as u32
        });
        let rows: Vec<u32> = rows.collect();
        columns.map(|column| column.take(&rows)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &[&str]) -> Option<RecordProperty> {
        let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
        RecordProperty::of(&path)
    }

    // proves S1
    #[test]
    fn paths_name_headers_and_the_key() {
        assert_eq!(of(&["User", "Kind"]), Some(header(&["Kind"])));
        assert_eq!(of(&["User"]), Some(RecordProperty::User));
        assert_eq!(of(&["EventHub", "partitionKey"]), Some(RecordProperty::Key));
        let device = Some(header(&["iothub-connection-device-id"]));
        assert_eq!(of(&["IoTHub", "ConnectionDeviceId"]), device);
        assert_eq!(of(&["EventHub", "IoTConnectionDeviceId"]), device);
        assert_eq!(of(&["EventHub", "Offset"]), None);
        assert_eq!(of(&["IoTHub", "Colour"]), None);
    }
}
