//! Addresses of links: what a client wants to send to or read from.
//!
//! Clients write them as `hub`, `/hub` or `amqps://host:port/hub`, and the fixed words in any case.

use std::fmt;

use highwater_queue::SubQueue;

const MANAGEMENT: &str = "$management";
const DEAD_LETTERS: &str = "$DeadLetterQueue";

/// The node that an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// Claims-based security: tokens.
    Cbs,
    /// Requests about hubs and partitions.
    Management,
    /// Requests about a queue; about hubs if there is no queue of this name.
    QueueManagement { queue: String, sub_queue: SubQueue },
    /// The dead letters of a queue.
    DeadLetters(String),
    /// All partitions of a hub, for senders; or a queue.
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
            [queue, node] if is(node, MANAGEMENT) => Address::QueueManagement {
                queue: own(queue),
                sub_queue: SubQueue::Main,
            },
            [queue, dead, node] if is(dead, DEAD_LETTERS) && is(node, MANAGEMENT) => {
                Address::QueueManagement {
                    queue: own(queue),
                    sub_queue: SubQueue::DeadLetters,
                }
            }
            [queue, dead] if is(dead, DEAD_LETTERS) => Address::DeadLetters(own(queue)),
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
            Address::QueueManagement { queue, sub_queue } => match sub_queue {
                SubQueue::Main => write!(out, "{queue}/{MANAGEMENT}"),
                SubQueue::DeadLetters => write!(out, "{queue}/{DEAD_LETTERS}/{MANAGEMENT}"),
            },
            Address::DeadLetters(queue) => write!(out, "{queue}/{DEAD_LETTERS}"),
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
            let Some(Address::QueueManagement { queue, sub_queue }) = Address::parse(text) else {
                panic!("{text}");
            };
            assert_eq!(queue, "q");
            assert_eq!(sub_queue == SubQueue::DeadLetters, text.contains("DEAD"));
        }
        let dead = Some(Address::DeadLetters("q".into()));
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
}
