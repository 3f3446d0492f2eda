//! The properties of a message as filters see them.

use super::value::Value;

/// A property of the message itself, which all messages may have. All are texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemProperty {
    ContentType,
    CorrelationId,
    Label,
    MessageId,
    PartitionKey,
    ReplyTo,
    ReplyToSessionId,
    SessionId,
    To,
}

impl SystemProperty {
    pub const ALL: [SystemProperty; 9] = [
        SystemProperty::ContentType,
        SystemProperty::CorrelationId,
        SystemProperty::Label,
        SystemProperty::MessageId,
        SystemProperty::PartitionKey,
        SystemProperty::ReplyTo,
        SystemProperty::ReplyToSessionId,
        SystemProperty::SessionId,
        SystemProperty::To,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SystemProperty::ContentType => "ContentType",
            SystemProperty::CorrelationId => "CorrelationId",
            SystemProperty::Label => "Label",
            SystemProperty::MessageId => "MessageId",
            SystemProperty::PartitionKey => "PartitionKey",
            SystemProperty::ReplyTo => "ReplyTo",
            SystemProperty::ReplyToSessionId => "ReplyToSessionId",
            SystemProperty::SessionId => "SessionId",
            SystemProperty::To => "To",
        }
    }

    /// By its name, in any case. The label is the subject, too.
    pub fn of_name(name: &str) -> Option<SystemProperty> {
        if name.eq_ignore_ascii_case("Subject") {
            return Some(SystemProperty::Label);
        }
        let mut all = SystemProperty::ALL.into_iter();
        all.find(|property| property.name().eq_ignore_ascii_case(name))
    }
}

/// The name of a property in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    System(SystemProperty),
    /// A property of the application.
    User(String),
}

/// The properties of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageProperties {
    system: [Option<String>; SystemProperty::ALL.len()],
    user: Vec<(String, Option<Value>)>,
}

impl MessageProperties {
    pub fn set_system(&mut self, property: SystemProperty, text: Option<String>) {
        self.system[property as usize] = text;
    }

    pub fn system(&self, property: SystemProperty) -> Option<&str> {
        self.system[property as usize].as_deref()
    }

    /// Sets a property of the application; `None` is null.
    pub fn set_user(&mut self, name: &str, value: Option<Value>) {
        match self.position(name) {
            Some(at) => self.user[at].1 = value,
            None => self.user.push((name.to_owned(), value)),
        }
    }

    pub(super) fn remove_user(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.user.remove(at);
        }
    }

    /// The value of a property; `None` if there is none, or it is null.
    pub(super) fn get(&self, property: &Property) -> Option<Value> {
        match property {
            Property::System(property) => self.system(*property).map(Value::text),
            Property::User(name) => self.user(name).cloned(),
        }
    }

    pub(super) fn user(&self, name: &str) -> Option<&Value> {
        self.user[self.position(name)?].1.as_ref()
    }

    pub(super) fn exists(&self, property: &Property) -> bool {
        match property {
            Property::System(property) => self.system(*property).is_some(),
            Property::User(name) => self.position(name).is_some(),
        }
    }

    /// The property of this name, else the first whose name differs in case.
    fn position(&self, name: &str) -> Option<usize> {
        let exact = self.user.iter().position(|(known, _)| known == name);
        exact.or_else(|| {
            let mut user = self.user.iter();
            user.position(|(known, _)| known.eq_ignore_ascii_case(name))
        })
    }
}
