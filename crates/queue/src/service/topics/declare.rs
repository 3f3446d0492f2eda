//! Creates and changes the topics and subscriptions of a configuration together, which costs less than one after the
//! other.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    Topic, TopicError, TopicLimits, Topics, change, subscription_settings, topic_settings,
};
use crate::filter::Rule;
use crate::journal::subscription_path;
use crate::service::error::CreateError;
use crate::service::queues::NewQueue;
use crate::settings::Settings;

/// A topic to create.
#[derive(Clone, Debug)]
pub struct NewTopic {
    pub name: String,
    pub settings: Settings,
    pub subscriptions: Vec<NewSubscription>,
}

/// A subscription to create.
#[derive(Clone, Debug)]
pub struct NewSubscription {
    pub name: String,
    pub settings: Settings,
    /// Without any, it receives every message.
    pub rules: Vec<Rule>,
}

/// A subscription whose queue does not exist.
struct MissingSubscription<'a> {
    topic: Arc<Topic>,
    spec: &'a NewSubscription,
}

impl Topics {
    /// Creates the topics and subscriptions that do not exist, and gives the others their settings and rules; rules
    /// that are not named stay. Completes when all would survive a crash. An error has the name of the entity that
    /// could not be created or changed.
    pub async fn declare(&self, specs: &[NewTopic]) -> Result<(), (String, TopicError)> {
        let _changing = self.inner.changing.lock().await;
        self.create_missing(specs).await?;
        let changed = specs.iter().map(async |spec| {
            let changed = self.change_to(spec).await;
            changed.map_err(|error| (spec.name.clone(), error))
        });
        join_all(changed).await.into_iter().collect()
    }

    async fn change_to(&self, spec: &NewTopic) -> Result<(), TopicError> {
        let topic = self.known(&spec.name)?;
        let settings = topic_settings(spec.settings.clone());
        change(&self.inner.topics, &topic.queue, settings).await?;
        for subscription in &spec.subscriptions {
            let known = topic.subscription(&subscription.name);
            let known = known.ok_or_else(|| {
                TopicError::UnknownSubscription(subscription_path(&spec.name, &subscription.name))
            })?;
            let settings = subscription_settings(subscription.settings.clone());
            change(&self.inner.subscriptions, known.queue(), settings).await?;
            known.put_rules(subscription.rules.clone()).await?;
        }
        Ok(())
    }

    async fn create_missing(&self, specs: &[NewTopic]) -> Result<(), (String, TopicError)> {
        self.create_missing_topics(specs).await?;
        let mut missing = BTreeMap::new();
        for spec in specs {
            let failed = |error| (spec.name.clone(), error);
            let topic = self.known(&spec.name).map_err(failed)?;
            let mut count = topic.subscriptions.read().len();
            for subscription in &spec.subscriptions {
                let checked = subscription.rules.iter().try_for_each(Rule::check);
                checked.map_err(|error| failed(error.into()))?;
                if topic.subscription(&subscription.name).is_none() {
                    let path = subscription_path(&spec.name, &subscription.name);
                    let (topic, spec) = (topic.clone(), subscription);
                    missing.insert(path, MissingSubscription { topic, spec });
                    count += 1;
                }
            }
            let max = TopicLimits::SUBSCRIPTIONS_MAX;
            if count > max {
                return Err(failed(TopicError::TooManySubscriptions(max)));
            }
        }
        self.create_missing_subscriptions(missing).await
    }

    async fn create_missing_topics(&self, specs: &[NewTopic]) -> Result<(), (String, TopicError)> {
        let missing = specs.iter().filter(|spec| self.get(&spec.name).is_none());
        let new: Vec<NewQueue> = missing
            .map(|spec| NewQueue {
                name: spec.name.clone(),
                settings: topic_settings(spec.settings.clone()),
            })
            .collect();
        let max = TopicLimits::TOPICS_MAX;
        let free = max.saturating_sub(self.inner.running.read().len());
        if let Some(beyond) = new.get(free) {
            return Err((beyond.name.clone(), TopicError::TooManyTopics(max)));
        }
        let created = self.inner.topics.create_missing(new).await;
        for queue in created.map_err(named)? {
            let topic = self.run_topic(queue);
            self.run_trimmer(&topic);
        }
        Ok(())
    }

    async fn create_missing_subscriptions(
        &self,
        missing: BTreeMap<String, MissingSubscription<'_>>,
    ) -> Result<(), (String, TopicError)> {
        let new = missing.iter().map(|(path, missing)| NewQueue {
            name: path.clone(),
            settings: subscription_settings(missing.spec.settings.clone()),
        });
        let created = self.inner.subscriptions.create_missing(new.collect()).await;
        let begun = created.map_err(named)?.into_iter().map(async |queue| {
            let name = queue.name().to_owned();
            let missing = &missing[&name];
            let rules = missing.spec.rules.clone();
            let begun = self.begin_subscription(&missing.topic, queue, rules).await;
            begun.map_err(|error| (name, error))
        });
        join_all(begun).await.into_iter().collect()
    }
}

fn named(failure: (String, CreateError)) -> (String, TopicError) {
    let (name, error) = failure;
    (name, error.into())
}
