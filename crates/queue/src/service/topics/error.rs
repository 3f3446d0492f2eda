use super::super::error::{CreateError, Error};
use crate::filter::RuleError;

/// Why a topic, a subscription or a rule was not created, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    #[error("there is no topic `{0}`")]
    UnknownTopic(String),
    #[error("there is no subscription `{0}`")]
    UnknownSubscription(String),
    #[error("topic `{0}` exists already")]
    TopicExists(String),
    #[error("subscription `{0}` exists already")]
    SubscriptionExists(String),
    #[error("a node has at most {0} topics")]
    TooManyTopics(usize),
    #[error("a topic has at most {0} subscriptions")]
    TooManySubscriptions(usize),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Queue(#[from] Error),
}
