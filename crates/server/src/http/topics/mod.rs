//! Topics over HTTP: created, changed, listed, described and deleted, with their subscriptions and rules.

pub(super) mod rules;
pub(super) mod subscriptions;

use std::sync::Arc;

use highwater_access::{Resource, Right};
use highwater_queue::{Settings, Topic, TopicError, Topics};
use hyper::StatusCode;
use serde_json::Value;

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::json_answer::JsonAnswer;
use super::queues::admin::{QueueRequest, settings_facts};
use super::reply::{self, Reply};

const EXAMPLE: &str = "{\"name\":\"prices\",\"time_to_live\":\"7d\"}";

/// Settings of queues that a topic does not have, because it has no receivers.
const NOT_OF_TOPICS: &[&str] = &[
    "lock",
    "deliveries_max",
    "dead_letter_expired",
    "sessions",
    "forward_to",
    "forward_dead_letters_to",
];

pub(super) fn topics(app: &App) -> Result<&Topics, Error> {
    let none = || Error::not_found("this node has no topics", "");
    app.backend()?.topics.as_ref().ok_or_else(none)
}

pub(super) fn topic(app: &App, name: &str) -> Result<Arc<Topic>, Error> {
    let topic = topics(app)?.get(name);
    Ok(topic.ok_or_else(|| TopicError::UnknownTopic(name.to_owned()))?)
}

/// The topics that the caller may listen to or manage.
pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let ApiRequest { app, caller, .. } = request;
    let mut answer = JsonAnswer::new(&app.budget)?;
    answer.begin_rows("topics")?;
    for topic in topics(app)?.list() {
        let name = Resource::Queue(topic.name());
        if caller.may(Right::Listen, name) || caller.may(Right::Manage, name) {
            answer.row(&topic_json(&topic).await?)?;
        }
    }
    answer.end_rows()?;
    answer.finish()
}

pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    reply(StatusCode::OK, request.app, name).await
}

pub(super) async fn create(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let wanted: QueueRequest = request.read_json(EXAMPLE).await?;
    let name = wanted.new_name("topic", EXAMPLE)?;
    request.authorise(Resource::Queue(name))?;
    wanted.refuse("topic", NOT_OF_TOPICS)?;
    let settings = wanted.settings(Settings::default())?;
    request.app.check_entity_name(name)?;
    request.charge_partitions(1)?;
    let _naming = request.app.entity_names.lock().await;
    request.app.check_entity_is_new(name)?;
    let topics = topics(request.app)?;
    topics.create_topic(name, settings).await?;
    reply(StatusCode::CREATED, request.app, name).await
}

pub(super) async fn change(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let wanted: QueueRequest = request.read_json("{\"time_to_live\":\"7d\"}").await?;
    wanted.refuse_name("topic")?;
    wanted.refuse("topic", NOT_OF_TOPICS)?;
    let [name] = request.variables();
    let topic = topic(request.app, name)?;
    let settings = wanted.settings(topic.queue().stats().await?.settings)?;
    topics(request.app)?.change_topic(name, settings).await?;
    reply(StatusCode::OK, request.app, name).await
}

pub(super) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    topics(request.app)?.delete_topic(name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

async fn reply(status: StatusCode, app: &App, name: &str) -> Result<Reply, Error> {
    Ok(reply::json(status, &topic_json(&*topic(app, name)?).await?))
}

async fn topic_json(topic: &Topic) -> Result<Value, Error> {
    let (counts, _) = topic.queue().counters();
    let settings = topic.queue().stats().await?.settings;
    let mut subscriptions = Vec::new();
    for subscription in topic.subscriptions() {
        subscriptions.push(subscriptions::subscription_json(&subscription).await?);
    }
    let mut topic_json = settings_facts(topic.name(), &settings, NOT_OF_TOPICS);
    topic_json["waiting"] = counts.active.into();
    topic_json["scheduled"] = counts.scheduled.into();
    topic_json["bytes"] = counts.bytes.into();
    topic_json["subscriptions"] = subscriptions.into();
    Ok(topic_json)
}

impl From<TopicError> for Error {
    fn from(error: TopicError) -> Error {
        let (code, hint) = match error {
            TopicError::Queue(error) => return error.into(),
            TopicError::Create(error) => return error.into(),
            TopicError::UnknownTopic(_) | TopicError::UnknownSubscription(_) => {
                (Code::NotFound, "GET /api/topics lists them")
            }
            TopicError::TopicExists(_) | TopicError::SubscriptionExists(_) => {
                (Code::Exists, "choose another name, or use it as it is")
            }
            TopicError::TooManyTopics(_)
            | TopicError::TooManySubscriptions(_)
            | TopicError::Rule(_) => (Code::BadRequest, "docs/servicebus.md has the limits"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
