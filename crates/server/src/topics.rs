//! The topics of a node: created from the settings.

use std::sync::Arc;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::Log;
use highwater_queue::{Options, Rule, Settings, SystemProperty, TopicError, Topics};

use crate::amqp::AmqpPropertyMap;

/// The conditions of a correlation filter that have keys of their own, in the settings and over HTTP.
pub(crate) const CONDITIONS: &[(&str, SystemProperty)] = &[
    ("content_type", SystemProperty::ContentType),
    ("correlation_id", SystemProperty::CorrelationId),
    ("label", SystemProperty::Label),
    ("message_id", SystemProperty::MessageId),
    ("reply_to", SystemProperty::ReplyTo),
    ("reply_to_session_id", SystemProperty::ReplyToSessionId),
    ("session_id", SystemProperty::SessionId),
    ("to", SystemProperty::To),
];

/// A topic of the settings.
#[derive(Clone, Debug)]
pub struct DeclaredTopic {
    pub name: String,
    pub settings: Settings,
    pub subscriptions: Vec<DeclaredSubscription>,
}

/// A subscription of the settings.
#[derive(Clone, Debug)]
pub struct DeclaredSubscription {
    pub name: String,
    pub settings: Settings,
    /// Without any, a new subscription gets every message.
    pub rules: Vec<Rule>,
}

/// Opens the stored topics, and creates or changes those of the settings.
pub(crate) async fn start(
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    declared: &[DeclaredTopic],
) -> Result<Topics, (String, TopicError)> {
    let (random, options) = (Random::from_os(), Options::default());
    let created_ms = clock.unix_millis();
    let (topics, failed) =
        Topics::open(log, clock, random, options, Arc::new(AmqpPropertyMap)).await;
    for (name, error) in failed {
        tracing::error!(%error, "topic or subscription `{name}` cannot be opened");
    }
    for topic in declared {
        let put = put(&topics, topic, created_ms).await;
        put.map_err(|error| (topic.name.clone(), error))?;
    }
    Ok(topics)
}

async fn put(topics: &Topics, topic: &DeclaredTopic, created_ms: i64) -> Result<(), TopicError> {
    topics
        .put_topic(&topic.name, topic.settings.clone())
        .await?;
    for subscription in &topic.subscriptions {
        let rules = subscription.rules.iter().cloned();
        let rules = rules.map(|rule| Rule { created_ms, ..rule });
        let settings = subscription.settings.clone();
        let (topic, name) = (&topic.name, &subscription.name);
        topics
            .put_subscription(topic, name, settings, rules.collect())
            .await?;
    }
    Ok(())
}
