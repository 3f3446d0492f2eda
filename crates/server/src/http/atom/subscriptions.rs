//! Subscriptions of a topic.

use std::sync::Arc;

use highwater_access::Resource;
use highwater_queue::{Settings, Subscription, Topic, TopicError};
use hyper::StatusCode;

use super::answer::{Entry, Feed, Page};
use super::description::{self, Described};
use super::xml::Element;
use super::{find_named, is_update, read_description, rule, time};
use crate::http::app::App;
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::queues::admin::check_forwarding;
use crate::http::reply::{self, Reply};
use crate::http::topics::topics;
use crate::text::percent_decode;

/// The topic of this name, over which the caller has the right of the operation.
pub(super) fn topic(request: &ApiRequest<'_>, name: &str) -> Result<Arc<Topic>, Error> {
    let name = percent_decode(name);
    let found = find_named(topics(request.app)?.list(), &name, |topic| topic.name());
    let found = found.ok_or_else(|| TopicError::UnknownTopic(name.into_owned()))?;
    request.authorise(Resource::Queue(found.name()))?;
    Ok(found)
}

pub(super) fn subscription(topic: &Topic, name: &str) -> Result<Arc<Subscription>, Error> {
    let name = percent_decode(name);
    let found = find_named(topic.subscriptions(), &name, |known| known.name());
    let path = || format!("{}/Subscriptions/{name}", topic.name());
    Ok(found.ok_or_else(|| TopicError::UnknownSubscription(path()))?)
}

pub(in crate::http) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic_name, name] = request.variables();
    let found = subscription(&*topic(&request, topic_name)?, name)?;
    reply(&request, StatusCode::OK, &found).await
}

/// Creates a subscription, or changes it.
pub(in crate::http) async fn put(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let names = [Described::Subscription.element()];
    let described = read_description(&mut request, &names).await?;
    let [topic_name, name] = request.variables();
    let topic = topic(&request, topic_name)?;
    let topics = topics(request.app)?;
    if is_update(&request) {
        let known = subscription(&topic, name)?;
        let now = known.queue().stats().await?.settings;
        let settings = description::settings(&described, now.clone())?;
        check_forwarding(&request, &now, &settings)?;
        let changed = topics.change_subscription(topic.name(), known.name(), settings);
        changed.await?;
        return reply(&request, StatusCode::OK, &known).await;
    }
    let settings = description::settings(&described, Settings::default())?;
    check_forwarding(&request, &Settings::default(), &settings)?;
    let rules = match described.child("DefaultRuleDescription") {
        Some(default) => vec![default_rule(default, request.app)?],
        None => Vec::new(),
    };
    request.charge_partitions(1)?;
    let name = percent_decode(name);
    if let Ok(known) = subscription(&topic, &name) {
        let path = known.queue().name().to_owned();
        return Err(TopicError::SubscriptionExists(path).into());
    }
    let created = topics.create_subscription(topic.name(), &name, settings, rules);
    created.await?;
    let created = subscription(&topic, &name)?;
    reply(&request, StatusCode::CREATED, &created).await
}

/// The rule that a client wants in the place of the one that selects everything.
fn default_rule(default: &Element, app: &App) -> Result<highwater_queue::Rule, Error> {
    let name = default
        .value("Name")
        .unwrap_or(highwater_queue::DEFAULT_RULE);
    rule::parse(default, name, app.clock.unix_millis())
}

pub(in crate::http) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic_name, name] = request.variables();
    let topic = topic(&request, topic_name)?;
    let known = subscription(&topic, name)?;
    let topics = topics(request.app)?;
    topics
        .delete_subscription(topic.name(), known.name())
        .await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(in crate::http) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic_name] = request.variables();
    let topic = topic(&request, topic_name)?;
    let subscriptions = topic.subscriptions();
    let page = Page::of(request.query())?;
    let path = format!("{}/Subscriptions", topic.name());
    let mut feed = Feed::begin(&request, &path, page, subscriptions.len())?;
    for subscription in page.of_items(&subscriptions) {
        feed.push(&entry(request.app, subscription).await?)?;
    }
    feed.finish()
}

async fn reply(
    request: &ApiRequest<'_>,
    status: StatusCode,
    subscription: &Subscription,
) -> Result<Reply, Error> {
    let entry = entry(request.app, subscription).await?;
    Ok(entry.reply(request, status))
}

async fn entry(app: &App, subscription: &Subscription) -> Result<Entry, Error> {
    let queue = subscription.queue();
    let created = time(topics(app)?.subscription_created_ms(subscription));
    Ok(Entry {
        path: queue.name().to_owned(),
        title: subscription.name().to_owned(),
        content: description::write(Described::Subscription, queue, &created, 0).await?,
        created,
    })
}
