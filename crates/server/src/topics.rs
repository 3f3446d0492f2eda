//! The topics of a node: created from the settings.

use std::sync::Arc;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::Log;
use highwater_queue::{NewTopic, Options, SystemProperty, TopicError, Topics};

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

/// Opens the stored topics, and creates or changes those of the settings.
pub(crate) async fn start(
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    declared: &[NewTopic],
) -> Result<Topics, (String, TopicError)> {
    let (random, options) = (Random::from_os(), Options::default());
    let created_ms = clock.unix_millis();
    let (topics, failed) =
        Topics::open(log, clock, random, options, Arc::new(AmqpPropertyMap)).await;
    for (name, error) in failed {
        tracing::error!(%error, "topic or subscription `{name}` cannot be opened");
    }
    let mut declared = declared.to_vec();
    for topic in &mut declared {
        let subscriptions = topic.subscriptions.iter_mut();
        for rule in subscriptions.flat_map(|subscription| &mut subscription.rules) {
            rule.created_ms = created_ms;
        }
    }
    topics.declare(&declared).await?;
    Ok(topics)
}
