//! Rules of a subscription.

use std::sync::Arc;

use highwater_queue::{Error as QueueError, Refusal, Rule, Subscription, TopicError};
use hyper::StatusCode;

use super::answer::{Entry, Feed, Page};
use super::subscriptions::{subscription, topic};
use super::{find_named, is_update, read_description, rule, time};
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::text::percent_decode;

const NAMES: [&str; 1] = ["RuleDescription"];

fn known_rule(of: &Subscription, name: &str) -> Result<Arc<Rule>, Error> {
    let name = percent_decode(name);
    let found = find_named(of.rules().to_vec(), &name, |rule| &rule.name);
    let refusal = || QueueError::from(Refusal::NoSuchRule(name.into_owned()));
    Ok(found.ok_or_else(|| TopicError::from(refusal()))?)
}

pub(in crate::http) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic_name, name, rule] = request.variables();
    let subscription = subscription(&*topic(&request, topic_name)?, name)?;
    let rule = known_rule(&subscription, rule)?;
    Ok(reply(&request, StatusCode::OK, &subscription, &rule))
}

/// Adds a rule, or replaces it.
pub(in crate::http) async fn put(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let described = read_description(&mut request, &NAMES).await?;
    let [topic_name, name, rule_name] = request.variables();
    let subscription = subscription(&*topic(&request, topic_name)?, name)?;
    let now_ms = request.app.clock.unix_millis();
    if is_update(&request) {
        let known = known_rule(&subscription, rule_name)?;
        let rule = rule::parse(&described, &known.name, now_ms)?;
        subscription.change_rule(rule.clone()).await?;
        return Ok(reply(&request, StatusCode::OK, &subscription, &rule));
    }
    let rule = rule::parse(&described, &percent_decode(rule_name), now_ms)?;
    subscription.add_rule(rule.clone()).await?;
    Ok(reply(&request, StatusCode::CREATED, &subscription, &rule))
}

pub(in crate::http) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic_name, name, rule] = request.variables();
    let subscription = subscription(&*topic(&request, topic_name)?, name)?;
    let rule = known_rule(&subscription, rule)?;
    subscription.remove_rule(&rule.name).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(in crate::http) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic_name, name] = request.variables();
    let subscription = subscription(&*topic(&request, topic_name)?, name)?;
    let rules = subscription.rules();
    let page = Page::of(request.query())?;
    let list = format!("{}/Rules", subscription.queue().name());
    let mut feed = Feed::begin(&request, &list, page, rules.len())?;
    for rule in page.of_items(&rules) {
        feed.push(&entry(&subscription, rule))?;
    }
    feed.finish()
}

fn reply(
    request: &ApiRequest<'_>,
    status: StatusCode,
    subscription: &Subscription,
    rule: &Rule,
) -> Reply {
    entry(subscription, rule).reply(request, status)
}

fn entry(of: &Subscription, rule: &Rule) -> Entry {
    let mut content = String::new();
    rule::write(rule, &mut content);
    Entry {
        path: format!("{}/Rules/{}", of.queue().name(), rule.name),
        title: rule.name.clone(),
        created: time(Some(rule.created_ms)),
        content,
    }
}
