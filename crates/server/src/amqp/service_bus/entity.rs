//! Which queue, topic or subscription a client means.

use std::fmt;

use highwater_amqp::Properties;
use highwater_queue::SubQueue;

/// The kind of an entity. All are queues; they differ in the allowed operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::amqp) enum EntityKind {
    Queue,
    /// Takes messages.
    Topic,
    /// Delivers messages, and has rules.
    Subscription,
}

/// A queue, a topic or a subscription, or its dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::amqp) struct QueueEntity {
    pub(in crate::amqp) kind: EntityKind,
    /// The queue or topic over which a client needs rights: the topic of a subscription.
    pub(in crate::amqp) owner: String,
    /// The name or path that the entity has, whatever case the client writes.
    pub(in crate::amqp) queue: String,
    pub(in crate::amqp) sub_queue: SubQueue,
}

/// The path, as tokens name it.
impl fmt::Display for QueueEntity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sub_queue {
            SubQueue::Main => write!(out, "{}", self.queue),
            SubQueue::DeadLetters => write!(out, "{}/$DeadLetterQueue", self.queue),
        }
    }
}

/// The service that a client declares. The same address may name a hub and a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::amqp) enum ClientService {
    EventHubs,
    ServiceBus,
    /// Any other client of AMQP.
    Unknown,
}

impl ClientService {
    /// By the properties with which the client has opened its connection: all SDKs name their product there.
    pub(in crate::amqp) fn of(properties: &Properties) -> ClientService {
        let mut service = ClientService::Unknown;
        for (_, value) in &properties.0 {
            let text = value.as_text().unwrap_or_default().to_ascii_lowercase();
            if text.contains("servicebus") || text.contains("service-bus") {
                return ClientService::ServiceBus;
            }
            if text.contains("eventhub") || text.contains("event-hub") {
                service = ClientService::EventHubs;
            }
        }
        service
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_amqp::Value;

    // proves A2
    #[test]
    fn a_client_is_known_by_the_product_that_it_names() {
        let service = |product: &'static str| {
            let entry = |name, value| (Value::symbol(name), Value::string(value));
            let entries = vec![entry("version", "1.0"), entry("user-agent", product)];
            ClientService::of(&Properties(entries))
        };
        for product in [
            "azsdk-python-servicebus/7.14.3",
            "azsdk-js-azureservicebus/7.9.5",
            "azsdk-java-azure-messaging-servicebus/7.17",
            "azsdk-net-Messaging.ServiceBus/7.20",
        ] {
            assert_eq!(service(product), ClientService::ServiceBus, "{product}");
        }
        assert_eq!(
            service("azsdk-go-azeventhubs/v2.0.2"),
            ClientService::EventHubs
        );
        assert_eq!(service("proton-j"), ClientService::Unknown);
    }
}
