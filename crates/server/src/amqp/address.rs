//! Addresses of links: the source or target of a link.
//!
//! Clients write them as `hub`, `/hub` or `amqps://host:port/hub`, and the fixed words in any case.

use std::fmt;

use highwater_queue::SubQueue;

const MANAGEMENT: &str = "$management";
const DEAD_LETTERS: &str = "$DeadLetterQueue";
const SUBSCRIPTIONS: &str = "Subscriptions";

/// The entity of Service Bus that an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntityPath {
    /// A queue or a topic.
    Named(String),
    Subscription {
        topic: String,
        name: String,
    },
}

impl fmt::Display for EntityPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntityPath::Named(name) => write!(out, "{name}"),
            EntityPath::Subscription { topic, name } => {
                write!(out, "{topic}/{SUBSCRIPTIONS}/{name}")
            }
        }
    }
}

/// The node that an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// Claims-based security: tokens.
    Cbs,
    /// Requests about hubs and partitions.
    Management,
    /// Requests about an entity; about hubs if there is no queue or topic of this name.
    QueueManagement {
        entity: EntityPath,
        sub_queue: SubQueue,
    },
    /// The dead letters of a queue or a subscription.
    DeadLetters(EntityPath),
    /// A subscription of a topic, for receivers.
    Subscription { topic: String, name: String },
    /// All partitions of a hub, for senders; or a queue or a topic.
    Hub(String),
    /// One partition; for senders.
    Partition { hub: String, partition: String },
    /// A key of its own for every sender.
    Publisher { hub: String, name: String },
    /// One partition for the readers of a consumer group.
    Consumer {
        hub: String,
        group: String,
        partition: String,
    },
}

impl Address {
    pub(super) fn parse(text: &str) -> Option<Address> {
        let parts: Vec<&str> = path(text).split('/').collect();
        let is = |part: &str, word: &str| part.eq_ignore_ascii_case(word);
        let own = |part: &str| part.to_owned();
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        Some(match parts[..] {
            [node] if is(node, "$cbs") => Address::Cbs,
            [node] if is(node, MANAGEMENT) => Address::Management,
            [ref entity @ .., dead, node] if is(dead, DEAD_LETTERS) && is(node, MANAGEMENT) => {
                Address::QueueManagement {
                    entity: entity_path(entity)?,
                    sub_queue: SubQueue::DeadLetters,
                }
            }
            [ref entity @ .., node] if is(node, MANAGEMENT) => Address::QueueManagement {
                entity: entity_path(entity)?,
                sub_queue: SubQueue::Main,
            },
            [ref entity @ .., dead] if is(dead, DEAD_LETTERS) => {
                Address::DeadLetters(entity_path(entity)?)
            }
            [topic, word, name] if is(word, SUBSCRIPTIONS) => Address::Subscription {
                topic: own(topic),
                name: own(name),
            },
            [hub] => Address::Hub(own(hub)),
            [hub, word, partition] if is(word, "Partitions") => Address::Partition {
                hub: own(hub),
                partition: own(partition),
            },
            [hub, word, name] if is(word, "Publishers") => Address::Publisher {
                hub: own(hub),
                name: own(name),
            },
            [hub, groups, group, word, partition]
                if is(groups, "ConsumerGroups") && is(word, "Partitions") =>
            {
                Address::Consumer {
                    hub: own(hub),
                    group: own(group),
                    partition: own(partition),
                }
            }
            _ => return None,
        })
    }
}

/// As tokens name it.
impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Cbs => write!(out, "$cbs"),
            Address::Management => write!(out, "{MANAGEMENT}"),
            Address::QueueManagement { entity, sub_queue } => match sub_queue {
                SubQueue::Main => write!(out, "{entity}/{MANAGEMENT}"),
                SubQueue::DeadLetters => write!(out, "{entity}/{DEAD_LETTERS}/{MANAGEMENT}"),
            },
            Address::DeadLetters(entity) => write!(out, "{entity}/{DEAD_LETTERS}"),
            Address::Subscription { topic, name } => {
                write!(out, "{topic}/{SUBSCRIPTIONS}/{name}")
            }
            Address::Hub(hub) => write!(out, "{hub}"),
            Address::Partition { hub, partition } => write!(out, "{hub}/Partitions/{partition}"),
            Address::Publisher { hub, name } => write!(out, "{hub}/Publishers/{name}"),
            Address::Consumer {
                hub,
                group,
                partition,
            } => write!(out, "{hub}/ConsumerGroups/{group}/Partitions/{partition}"),
        }
    }
}

/// `QUEUE` or `TOPIC/Subscriptions/NAME`
fn entity_path(parts: &[&str]) -> Option<EntityPath> {
    match *parts {
        [name] => Some(EntityPath::Named(name.to_owned())),
        [topic, word, name] if word.eq_ignore_ascii_case(SUBSCRIPTIONS) => {
            Some(EntityPath::Subscription {
                topic: topic.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => None,
    }
}

/// The path of an address, without scheme, authority and outer slashes.
pub(super) fn path(text: &str) -> &str {
    let path = match text.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => text,
    };
    path.trim_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_all_clients_are_understood() {
        let hub = Some(Address::Hub("Hub1".into()));
        for text in [
            "Hub1",
            "/Hub1",
            "amqps://localhost:5672/Hub1",
            "sb://h/Hub1/",
        ] {
            assert_eq!(Address::parse(text), hub, "{text}");
        }
        let reader = "amqps://h:1/hub/ConsumerGroups/$Default/Partitions/0";
        let expected = Address::Consumer {
            hub: "hub".into(),
            group: "$Default".into(),
            partition: "0".into(),
        };
        assert_eq!(Address::parse(reader), Some(expected.clone()));
        let lower = "hub/consumergroups/$Default/partitions/0";
        assert_eq!(Address::parse(lower), Some(expected));
        assert_eq!(Address::parse("$CBS"), Some(Address::Cbs));
        assert_eq!(Address::parse("$management"), Some(Address::Management));
        for text in ["q/$management", "q/$DEADLETTERQUEUE/$Management"] {
            let Some(Address::QueueManagement { entity, sub_queue }) = Address::parse(text) else {
                panic!("{text}");
            };
            assert_eq!(entity, EntityPath::Named("q".into()));
            assert_eq!(sub_queue == SubQueue::DeadLetters, text.contains("DEAD"));
        }
        let dead = Some(Address::DeadLetters(EntityPath::Named("q".into())));
        assert_eq!(Address::parse("amqps://h:1/q/$deadletterqueue"), dead);
        for text in [
            "",
            "/",
            "sb://host",
            "hub/Partitions",
            "hub//Partitions/0",
            "a/b/c/d/e",
        ] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }

    // proves A3
    #[test]
    fn subscriptions_have_dead_letters_and_management_of_their_own() {
        for (text, expected) in [
            ("t/subscriptions/s", "t/Subscriptions/s"),
            (
                "sb://h/t/Subscriptions/s/$deadletterqueue",
                "t/Subscriptions/s/$DeadLetterQueue",
            ),
            (
                "t/SUBSCRIPTIONS/s/$Management",
                "t/Subscriptions/s/$management",
            ),
            (
                "t/Subscriptions/s/$DeadLetterQueue/$management",
                "t/Subscriptions/s/$DeadLetterQueue/$management",
            ),
        ] {
            let address = Address::parse(text).map(|address| address.to_string());
            assert_eq!(address.as_deref(), Some(expected), "{text}");
        }
        for text in ["t/Subscriptions", "t/Subscriptions/s/x", "a/b/$management"] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }
}
