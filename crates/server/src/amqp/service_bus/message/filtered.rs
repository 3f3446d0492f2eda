//! The properties of a message as the filters of subscriptions see them, and the changes of their actions.

use highwater_amqp::Value as AmqpValue;
use highwater_queue::{
    Content, MessageProperties, Property, PropertyChange, PropertyMap, SystemProperty, Value,
};

use super::properties::{TypedProperties, types_of, value_of};
use super::{ANNOTATIONS, GROUP_ID, MESSAGE_ID, is_reserved};
use crate::amqp::event::CONTENT_TYPE;

/// Knows how properties of AMQP messages are stored. Those of HTTP senders are texts.
pub(crate) struct AmqpPropertyMap;

impl PropertyMap for AmqpPropertyMap {
    fn properties(&self, content: &Content) -> MessageProperties {
        let types = types_of(&content.properties);
        let mut properties = MessageProperties::default();
        for property in SystemProperty::ALL {
            properties.set_system(property, system_text(content, property));
        }
        for (name, text) in &content.properties {
            if !is_reserved(name) {
                let kind = types.get(name).and_then(|kind| kind.as_str());
                let value = value_of(text, kind.unwrap_or("string"));
                properties.set_user(name, filter_value(&value));
            }
        }
        properties
    }

    fn apply(&self, content: &mut Content, changes: &[PropertyChange]) {
        let mut typed = TypedProperties::of(&content.properties);
        for change in changes {
            match &change.property {
                Property::System(property) => {
                    set_system(content, &mut typed, *property, change.value.as_ref());
                }
                Property::User(name) if is_reserved(name) => {}
                Property::User(name) => set_user(&mut typed, name, change.value.as_ref()),
            }
        }
        content.properties = typed.finish();
    }
}

/// The name under which a message keeps a property of its own.
fn stored_name(property: SystemProperty) -> &'static str {
    match property {
        SystemProperty::ContentType => CONTENT_TYPE,
        SystemProperty::CorrelationId => "amqp-correlation-id",
        SystemProperty::Label => "amqp-subject",
        SystemProperty::MessageId => MESSAGE_ID,
        SystemProperty::PartitionKey => ANNOTATIONS[0].1,
        SystemProperty::ReplyTo => "amqp-reply-to",
        SystemProperty::ReplyToSessionId => "amqp-reply-to-group-id",
        SystemProperty::SessionId => GROUP_ID,
        SystemProperty::To => "amqp-to",
    }
}

/// The properties that are fields of a message.
fn field(content: &mut Content, property: SystemProperty) -> Option<&mut Option<String>> {
    match property {
        SystemProperty::ContentType => Some(&mut content.content_type),
        SystemProperty::MessageId => Some(&mut content.id),
        SystemProperty::SessionId => Some(&mut content.session),
        _ => None,
    }
}

fn system_text(content: &Content, property: SystemProperty) -> Option<String> {
    match property {
        SystemProperty::ContentType => content.content_type.clone(),
        SystemProperty::MessageId => content.id.clone(),
        SystemProperty::SessionId => content.session.clone(),
        _ => {
            let name = stored_name(property);
            let mut properties = content.properties.iter();
            let found = properties.find(|(known, _)| known == name);
            found.map(|(_, text)| text.clone())
        }
    }
}

fn set_system(
    content: &mut Content,
    typed: &mut TypedProperties,
    property: SystemProperty,
    value: Option<&Value>,
) {
    let text = match value {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let name = stored_name(property);
    match (field(content, property), text) {
        (Some(field), text) => {
            // It is a text now, whatever type the sender used.
            typed.forget_type(name);
            *field = text;
        }
        (None, Some(text)) => typed.set(name, &AmqpValue::string(text), "string"),
        (None, None) => typed.remove(name),
    }
}

/// Names of properties differ by more than case for filters.
fn set_user(typed: &mut TypedProperties, name: &str, value: Option<&Value>) {
    let known = typed.names().filter(|known| !is_reserved(known));
    let known: Vec<&str> = known
        .filter(|known| known.eq_ignore_ascii_case(name))
        .collect();
    let name = match known.contains(&name) {
        true => name.to_owned(),
        false => known.first().map_or(name, |known| known).to_owned(),
    };
    match value {
        None => typed.remove(&name),
        Some(value) => typed.set(&name, &amqp_value(value), "string"),
    }
}

/// The value of a filter or an action for a client.
pub(in crate::amqp::service_bus) fn amqp_value(value: &Value) -> AmqpValue<'static> {
    match value {
        Value::Bool(flag) => AmqpValue::Bool(*flag),
        Value::Integer(number) => AmqpValue::I64(*number),
        Value::Float(number) => AmqpValue::F64(*number),
        Value::Text(text) => AmqpValue::string(text.clone()),
        Value::Time(at_ms) => AmqpValue::Timestamp(*at_ms),
        Value::Opaque => AmqpValue::Null,
    }
}

/// The value of a property; `None` is null.
pub(in crate::amqp::service_bus) fn filter_value(value: &AmqpValue<'_>) -> Option<Value> {
    if let Some(number) = value.as_i64() {
        return Some(Value::Integer(number));
    }
    Some(match value {
        AmqpValue::Null => return None,
        AmqpValue::Bool(flag) => Value::Bool(*flag),
        AmqpValue::U64(number) => Value::Float(*number as f64),
        AmqpValue::F32(number) => Value::Float((*number).into()),
        AmqpValue::F64(number) => Value::Float(*number),
        AmqpValue::Timestamp(at_ms) => Value::Time(*at_ms),
        AmqpValue::String(text) | AmqpValue::Symbol(text) => Value::Text(text.to_string()),
        AmqpValue::Uuid(uuid) => {
            let (text, _) = crate::amqp::event::to_header(&AmqpValue::Uuid(*uuid));
            let text = text.unwrap_or_default();
            Value::Text(String::from_utf8_lossy(&text).into_owned())
        }
        _ => Value::Opaque,
    })
}
