//! Topics over HTTP: listed, described and deleted. The settings create them.

use std::sync::Arc;

use highwater_access::{Resource, Right};
use highwater_queue::{Filter, Rule, Subscription, Topic, TopicError, Topics};
use hyper::StatusCode;
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::json_answer::JsonAnswer;
use super::reply::{self, Reply};

fn topics(app: &App) -> Result<&Topics, Error> {
    let none = || Error::new(Code::NotFound, "this node has no topics", "");
    app.backend()?.topics.as_ref().ok_or_else(none)
}

/// The topics that the caller may listen to or manage.
pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let ApiRequest { app, caller, .. } = request;
    let mut answer = JsonAnswer::new(&app.budget)?;
    answer.begin_rows("topics")?;
    for topic in topics(app)?.list() {
        let name = Resource::Queue(topic.name());
        if caller.may(Right::Listen, name) || caller.may(Right::Manage, name) {
            answer.row(&facts(&topic))?;
        }
    }
    answer.end_rows()?;
    answer.finish()
}

pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let topic = topics(request.app)?.get(name);
    let topic = topic.ok_or_else(|| TopicError::UnknownTopic(name.to_owned()))?;
    Ok(reply::json(StatusCode::OK, &facts(&topic)))
}

pub(super) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    topics(request.app)?.delete_topic(name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn delete_subscription(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic, name] = request.variables();
    topics(request.app)?
        .delete_subscription(topic, name)
        .await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

fn facts(topic: &Topic) -> Value {
    let (counts, _) = topic.queue().counters();
    let subscriptions = topic.subscriptions();
    let subscriptions: Vec<Value> = subscriptions.iter().map(subscription_facts).collect();
    json!({
        "name": topic.name(),
        "waiting": counts.active,
        "scheduled": counts.scheduled,
        "bytes": counts.bytes,
        "subscriptions": subscriptions,
    })
}

fn subscription_facts(subscription: &Arc<Subscription>) -> Value {
    let (counts, _) = subscription.queue().counters();
    let rules = subscription.rules();
    let rules: Vec<Value> = rules.iter().map(|rule| rule_facts(rule)).collect();
    json!({
        "name": subscription.name(),
        "active": counts.active, "scheduled": counts.scheduled, "deferred": counts.deferred,
        "locked": counts.locked, "dead_letters": counts.dead, "bytes": counts.bytes,
        "rules": rules,
    })
}

fn rule_facts(rule: &Rule) -> Value {
    let (kind, sql) = match &rule.filter {
        Filter::True => ("true", None),
        Filter::False => ("false", None),
        Filter::Sql(sql) => ("sql", Some(sql.text())),
        Filter::Correlation(_) => ("correlation", None),
    };
    let action = rule.action.as_ref().map(|action| action.text());
    json!({ "name": rule.name, "filter": kind, "sql": sql, "action": action })
}

impl From<TopicError> for Error {
    fn from(error: TopicError) -> Error {
        let (code, hint) = match error {
            TopicError::Queue(error) => return error.into(),
            TopicError::Create(error) => return error.into(),
            TopicError::UnknownTopic(_) | TopicError::UnknownSubscription(_) => {
                (Code::NotFound, "GET /api/topics lists them")
            }
            TopicError::TooManyTopics(_)
            | TopicError::TooManySubscriptions(_)
            | TopicError::Rule(_) => (Code::BadRequest, "docs/servicebus.md has the limits"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
