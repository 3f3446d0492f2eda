//! Subscriptions of a topic: created, changed, described and deleted.

use std::sync::Arc;

use highwater_queue::{Rule, Settings, Subscription, TopicError};
use hyper::StatusCode;
use serde_json::Value;

use super::rules::{self, RuleRequest};
use super::{topic, topics};
use crate::http::app::App;
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::queues::admin::{QueueRequest, add_counts, check_forwarding, settings_facts};
use crate::http::reply::{self, Reply};

const EXAMPLE: &str =
    "{\"name\":\"audit\",\"rules\":[{\"name\":\"red\",\"sql\":\"colour = 'red'\"}]}";

/// Settings of queues that the topic of a subscription decides.
const NOT_OF_SUBSCRIPTIONS: &[&str] = &["duplicates_within", "message_bytes_max"];

/// Rules in a request that creates a subscription. Others are added one at a time.
const NEW_RULES_MAX: usize = 10;

pub(in crate::http) fn subscription(
    app: &App,
    topic_name: &str,
    name: &str,
) -> Result<Arc<Subscription>, Error> {
    let found = topic(app, topic_name)?.subscription(name);
    let path = || format!("{topic_name}/Subscriptions/{name}");
    Ok(found.ok_or_else(|| TopicError::UnknownSubscription(path()))?)
}

pub(in crate::http) async fn create(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let mut body: Value = request.read_json(EXAMPLE).await?;
    let rules = body.as_object_mut().and_then(|body| body.remove("rules"));
    let unreadable = |error: serde_json::Error| {
        let message = format!("the body cannot be read: {error}");
        Error::bad(message, format!("such as {EXAMPLE}"))
    };
    let wanted: QueueRequest = serde_json::from_value(body).map_err(unreadable)?;
    let rules: Option<Vec<RuleRequest>> = rules
        .map(serde_json::from_value)
        .transpose()
        .map_err(unreadable)?;
    let rules = rules.unwrap_or_default();
    if rules.len() > NEW_RULES_MAX {
        let message = format!("a new subscription takes {NEW_RULES_MAX} rules at most");
        return Err(Error::bad(message, "add the others one at a time"));
    }
    let created_ms = request.app.clock.unix_millis();
    let rules = rules.into_iter().map(|rule| rule.rule(created_ms));
    let rules: Vec<Rule> = rules.collect::<Result<_, _>>()?;
    let name = wanted.new_name("subscription", EXAMPLE)?;
    wanted.refuse("subscription", NOT_OF_SUBSCRIPTIONS)?;
    let settings = wanted.settings(Settings::default())?;
    check_forwarding(&request, &Settings::default(), &settings)?;
    request.charge_partitions(1)?;
    let [topic] = request.variables();
    let topics = topics(request.app)?;
    topics
        .create_subscription(topic, name, settings, rules)
        .await?;
    reply(StatusCode::CREATED, request.app, topic, name).await
}

pub(in crate::http) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic, name] = request.variables();
    reply(StatusCode::OK, request.app, topic, name).await
}

pub(in crate::http) async fn change(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let wanted: QueueRequest = request.read_json("{\"lock\":\"30s\"}").await?;
    wanted.refuse_name("subscription")?;
    wanted.refuse("subscription", NOT_OF_SUBSCRIPTIONS)?;
    let [topic, name] = request.variables();
    let known = subscription(request.app, topic, name)?;
    let now = known.queue().stats().await?.settings;
    let settings = wanted.settings(now.clone())?;
    check_forwarding(&request, &now, &settings)?;
    let topics = topics(request.app)?;
    topics.change_subscription(topic, name, settings).await?;
    reply(StatusCode::OK, request.app, topic, name).await
}

pub(in crate::http) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic, name] = request.variables();
    topics(request.app)?
        .delete_subscription(topic, name)
        .await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

async fn reply(status: StatusCode, app: &App, topic: &str, name: &str) -> Result<Reply, Error> {
    let subscription_json = subscription_json(&*subscription(app, topic, name)?).await?;
    Ok(reply::json(status, &subscription_json))
}

pub(super) async fn subscription_json(subscription: &Subscription) -> Result<Value, Error> {
    let (counts, _) = subscription.queue().counters();
    let settings = subscription.queue().stats().await?.settings;
    let rules = subscription.rules();
    let rules: Vec<Value> = rules.iter().map(|rule| rules::rule_json(rule)).collect();
    let mut subscription_json =
        settings_facts(subscription.name(), &settings, NOT_OF_SUBSCRIPTIONS);
    add_counts(&mut subscription_json, &counts);
    subscription_json["rules"] = rules.into();
    Ok(subscription_json)
}
