//! The descriptions of queues, topics and subscriptions: settings from and to the elements of Service Bus.
//!
//! Clients send the whole description at an update, with counts and times that only the node knows: those are ignored,
//! and so are hints about speed (`EnableBatchedOperations`, `EnableExpress`). An unsupported element is refused,
//! because to ignore it would promise its effect.

use std::time::Duration;

use highwater_queue::{Counts, Queue, Settings};

use super::duration;
use super::xml::{Element, push_element};
use crate::http::error::Error;
use crate::text::percent_decode;

const PAGE: &str = "docs/servicebus.md has what is supported";
const AUTO_DELETE_ON_IDLE: &str = "AutoDeleteOnIdle";
const FORWARD_TO: &str = "ForwardTo";
const FORWARD_DEAD_LETTERS_TO: &str = "ForwardDeadLetteredMessagesTo";
const DUPLICATES_DEFAULT: Duration = Duration::from_secs(600);
const MEGABYTE: u64 = 1 << 20;
const KILOBYTE: u32 = 1 << 10;

/// The described entity, by the name of its element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Described {
    Queue,
    Topic,
    Subscription,
}

impl Described {
    pub(super) fn element(self) -> &'static str {
        match self {
            Described::Queue => "QueueDescription",
            Described::Topic => "TopicDescription",
            Described::Subscription => "SubscriptionDescription",
        }
    }
}

/// Reads the values of a description.
struct Fields<'a>(&'a Element);

impl Fields<'_> {
    fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.0.value(name) else {
            return Ok(None);
        };
        let shown: String = text.chars().take(100).collect();
        let wrong = || Error::bad(format!("{name} is `{shown}`, and not {expected}"), PAGE);
        parse(text).map(Some).ok_or_else(wrong)
    }

    fn time(&self, name: &str) -> Result<Option<Duration>, Error> {
        self.parsed(name, "a duration such as PT1M", duration::parse)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        self.parsed(name, "true or false", |text| {
            let is = |word: &str| text.eq_ignore_ascii_case(word);
            match (is("true"), is("false")) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            }
        })
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        self.parsed(name, "a number", |text| text.parse().ok())
    }

    /// The name of a queue or topic, which clients send as a URL.
    fn target(&self, name: &str) -> Option<String> {
        let text = self.0.value(name)?;
        let path = text.split_once("://").map_or(text, |(_, rest)| {
            rest.split_once('/').map_or("", |(_, path)| path)
        });
        Some(percent_decode(path.trim_matches('/')).into_owned())
    }

    /// Refuses unsupported settings.
    fn refuse_unsupported(&self) -> Result<(), Error> {
        let refused = |name: &str| Error::bad(format!("{name} is not supported"), PAGE);
        if self.0.value("UserMetadata").is_some() {
            return Err(refused("UserMetadata"));
        }
        let is_topic = self.0.name == Described::Topic.element();
        for name in [FORWARD_TO, FORWARD_DEAD_LETTERS_TO] {
            if is_topic && self.0.value(name).is_some() {
                return Err(refused(name));
            }
        }
        let rules = self.0.child("AuthorizationRules");
        if rules.is_some_and(|rules| !rules.children().is_empty()) {
            return Err(refused("AuthorizationRules"));
        }
        for name in ["EnablePartitioning", "FilteringMessagesBeforePublishing"] {
            if self.flag(name)? == Some(true) {
                return Err(refused(name));
            }
        }
        match self.0.value("Status") {
            None | Some("Active") => Ok(()),
            Some(_) => Err(refused("a Status other than Active")),
        }
    }
}

/// The settings that a description asks for. Omitted settings are unchanged, or have their defaults in a new entity.
pub(super) fn settings(description: &Element, now: Settings) -> Result<Settings, Error> {
    let fields = Fields(description);
    fields.refuse_unsupported()?;
    let window = fields.time("DuplicateDetectionHistoryTimeWindow")?;
    let duplicates_within = match fields.flag("RequiresDuplicateDetection")? {
        Some(true) => Some(window.unwrap_or(DUPLICATES_DEFAULT)),
        Some(false) => None,
        None => now.duplicates_within,
    };
    let time_to_live = fields.time("DefaultMessageTimeToLive")?;
    let megabytes = fields.number("MaxSizeInMegabytes")?;
    let kilobytes = fields.number("MaxMessageSizeInKilobytes")?;
    let clipped = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let mut settings = now;
    // A client that leaves them out has removed them.
    settings.forward_to = fields.target(FORWARD_TO);
    settings.forward_dead_letters_to = fields.target(FORWARD_DEAD_LETTERS_TO);
    settings.lock = fields.time("LockDuration")?.unwrap_or(settings.lock);
    if let Some(count) = fields.number("MaxDeliveryCount")? {
        settings.deliveries_max = clipped(count);
    }
    if let Some(time) = time_to_live {
        settings.time_to_live = Some(time).filter(|time| !duration::is_forever(*time));
    }
    if let Some(time) = fields.time(AUTO_DELETE_ON_IDLE)? {
        settings.auto_delete_on_idle = Some(time).filter(|time| !duration::is_forever(*time));
    }
    let expired = fields.flag("DeadLetteringOnMessageExpiration")?;
    settings.dead_letter_expired = expired.unwrap_or(settings.dead_letter_expired);
    settings.duplicates_within = duplicates_within;
    settings.sessions = fields.flag("RequiresSession")?.unwrap_or(settings.sessions);
    if let Some(size) = megabytes.filter(|size| *size > 0) {
        settings.bytes_max = size.saturating_mul(MEGABYTE);
    }
    if let Some(size) = kilobytes.filter(|size| *size > 0) {
        settings.message_bytes_max = clipped(size).saturating_mul(KILOBYTE);
    }
    Ok(settings)
}

/// The parts of a description beside the settings.
struct EntityFacts<'a> {
    settings: &'a Settings,
    counts: &'a Counts,
    /// `2026-01-01T00:00:00.000Z`
    created: &'a str,
    /// Of a topic.
    subscriptions: usize,
}

/// The description of an entity, which is a queue or has one.
pub(super) async fn write(
    of: Described,
    queue: &Queue,
    created: &str,
    subscriptions: usize,
) -> Result<String, Error> {
    let stats = queue.stats().await?;
    let facts = EntityFacts {
        settings: &stats.settings,
        counts: &stats.counts,
        created,
        subscriptions,
    };
    Ok(text(of, &facts))
}

fn text(of: Described, facts: &EntityFacts<'_>) -> String {
    let name = of.element();
    let mut out = format!(
        "<{name} xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
         xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">"
    );
    for element in elements(of).split(' ') {
        write_element(element, facts, &mut out);
    }
    out.push_str(&format!("</{name}>"));
    out
}

/// The elements of a description, in the order of Service Bus.
fn elements(of: Described) -> &'static str {
    match of {
        Described::Queue => {
            "LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession \
             DefaultMessageTimeToLive DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow \
             MaxDeliveryCount EnableBatchedOperations SizeInBytes MessageCount IsAnonymousAccessible \
             AuthorizationRules Status ForwardTo CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails \
             AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus ForwardDeadLetteredMessagesTo \
             EnableExpress MaxMessageSizeInKilobytes"
        }
        Described::Topic => {
            "DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection \
             DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes \
             FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status CreatedAt \
             UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount AutoDeleteOnIdle \
             EnablePartitioning EntityAvailabilityStatus EnableSubscriptionPartitioning EnableExpress \
             MaxMessageSizeInKilobytes"
        }
        // A filter that fails is unknown and selects nothing, so none becomes a dead letter.
        Described::Subscription => {
            "LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration \
             DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount \
             EnableBatchedOperations Status ForwardTo CreatedAt UpdatedAt AccessedAt \
             ForwardDeadLetteredMessagesTo CountDetails AutoDeleteOnIdle EntityAvailabilityStatus"
        }
    }
}

fn write_element(name: &str, facts: &EntityFacts<'_>, out: &mut String) {
    let (settings, counts) = (facts.settings, facts.counts);
    let flag = |flag: bool| Some(flag.to_string());
    let number = |number: u64| Some(number.to_string());
    let time = |time: Option<Duration>| Some(time.map_or(duration::FOREVER.into(), duration::text));
    let value = match name {
        "LockDuration" => time(Some(settings.lock)),
        "MaxSizeInMegabytes" => number((settings.bytes_max / MEGABYTE).max(1)),
        "RequiresDuplicateDetection" => flag(settings.duplicates_within.is_some()),
        "RequiresSession" => flag(settings.sessions),
        "DefaultMessageTimeToLive" => time(settings.time_to_live),
        "DeadLetteringOnMessageExpiration" => flag(settings.dead_letter_expired),
        "DuplicateDetectionHistoryTimeWindow" => {
            time(settings.duplicates_within.or(Some(DUPLICATES_DEFAULT)))
        }
        "MaxDeliveryCount" => number(settings.deliveries_max.into()),
        "SizeInBytes" => number(counts.bytes),
        "MessageCount" => number(active(counts) + counts.scheduled + counts.dead),
        "SubscriptionCount" => number(facts.subscriptions as u64),
        FORWARD_TO => settings.forward_to.clone(),
        FORWARD_DEAD_LETTERS_TO => settings.forward_dead_letters_to.clone(),
        AUTO_DELETE_ON_IDLE => time(settings.auto_delete_on_idle),
        "MaxMessageSizeInKilobytes" => {
            number((settings.message_bytes_max / KILOBYTE).max(1).into())
        }
        // The node knows when an entity was created, and not when it was last changed or used.
        "CreatedAt" | "UpdatedAt" | "AccessedAt" => Some(facts.created.to_owned()),
        "Status" => Some("Active".to_owned()),
        "EntityAvailabilityStatus" => Some("Available".to_owned()),
        "EnableBatchedOperations" | "SupportOrdering" => flag(true),
        "AuthorizationRules" => Some(String::new()),
        "CountDetails" => return write_counts(counts, out),
        "IsAnonymousAccessible"
        | "EnablePartitioning"
        | "EnableSubscriptionPartitioning"
        | "EnableExpress"
        | "FilteringMessagesBeforePublishing"
        | "DeadLetteringOnFilterEvaluationExceptions" => flag(false),
        _ => {
            debug_assert!(false, "element {name} has no value");
            None
        }
    };
    if let Some(value) = value {
        push_element(out, name, &value);
    }
}

/// Service Bus counts locked and deferred messages as active.
fn active(counts: &Counts) -> u64 {
    counts.active + counts.locked + counts.deferred
}

/// The JavaScript client wants exactly one attribute here, which declares the prefix.
fn write_counts(counts: &Counts, out: &mut String) {
    out.push_str(
        "<CountDetails xmlns:d2p1=\"http://schemas.microsoft.com/netservices/2011/06/servicebus\">",
    );
    for (name, count) in [
        ("d2p1:ActiveMessageCount", active(counts)),
        ("d2p1:DeadLetterMessageCount", counts.dead),
        ("d2p1:ScheduledMessageCount", counts.scheduled),
        ("d2p1:TransferMessageCount", 0),
        ("d2p1:TransferDeadLetterMessageCount", 0),
    ] {
        push_element(out, name, &count.to_string());
    }
    out.push_str("</CountDetails>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(inside: &str) -> Element {
        let document = format!("<QueueDescription>{inside}</QueueDescription>");
        Element::parse(document.as_bytes()).unwrap()
    }

    #[test]
    fn every_element_has_a_value() {
        let (settings, counts) = (Settings::default(), Counts::default());
        let facts = EntityFacts {
            settings: &settings,
            counts: &counts,
            created: "2026-01-01T00:00:00.000Z",
            subscriptions: 3,
        };
        for of in [Described::Queue, Described::Topic, Described::Subscription] {
            let read = Element::parse(text(of, &facts).as_bytes()).unwrap();
            assert_eq!(read.name, of.element());
            let written = read.children().iter().map(|child| child.name.as_str());
            let optional = |name: &&str| ![FORWARD_TO, FORWARD_DEAD_LETTERS_TO].contains(name);
            let expected: Vec<&str> = elements(of).split(' ').filter(optional).collect();
            assert_eq!(written.collect::<Vec<_>>(), expected);
        }
    }

    // proves A3
    #[test]
    fn settings_survive_a_description() {
        let wanted = Settings {
            lock: Duration::from_secs(30),
            deliveries_max: 7,
            time_to_live: Some(Duration::from_secs(86_400)),
            dead_letter_expired: true,
            duplicates_within: Some(Duration::from_secs(60)),
            sessions: true,
            bytes_max: 2 << 30,
            message_bytes_max: 512 << 10,
            forward_to: Some("other".into()),
            forward_dead_letters_to: Some("graveyard".into()),
            auto_delete_on_idle: Some(Duration::from_secs(3600)),
        };
        for settings_given in [wanted, Settings::default()] {
            let facts = EntityFacts {
                settings: &settings_given,
                counts: &Counts::default(),
                created: "2026-01-01T00:00:00.000Z",
                subscriptions: 0,
            };
            let written = text(Described::Queue, &facts);
            let read = Element::parse(written.as_bytes()).unwrap();
            let again = settings(&read, Settings::default()).unwrap();
            assert_eq!(again, settings_given);
        }
        let empty = settings(&element(""), Settings::default());
        assert_eq!(empty.unwrap(), Settings::default());
    }

    #[test]
    fn what_the_node_does_not_have_is_refused_by_name() {
        for (inside, expected) in [
            (
                "<EnablePartitioning>true</EnablePartitioning>",
                "EnablePartitioning is not",
            ),
            (
                "<Status>Disabled</Status>",
                "a Status other than Active is not",
            ),
            (
                "<LockDuration>soon</LockDuration>",
                "LockDuration is `soon`",
            ),
            (
                "<MaxDeliveryCount>-1</MaxDeliveryCount>",
                "MaxDeliveryCount is `-1`",
            ),
            (
                "<RequiresSession>yes</RequiresSession>",
                "RequiresSession is `yes`",
            ),
        ] {
            let refused = settings(&element(inside), Settings::default()).unwrap_err();
            assert!(refused.message.starts_with(expected), "{}", refused.message);
        }
    }
}
