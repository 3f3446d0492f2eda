//! Topics and subscriptions that are deleted when idle.

use super::{Topic, TopicError, Topics};
use crate::service::handle::Queue;

impl Topics {
    /// Deletes topics and subscriptions whose idle time exceeds their setting. Returns their names.
    pub async fn delete_idle(&self) -> Vec<(String, Result<(), TopicError>)> {
        let _changing = self.inner.changing.lock().await;
        let mut deleted = Vec::new();
        for topic in self.list() {
            for subscription in topic.subscriptions() {
                if subscription.queue().retire_if_idle() {
                    let path = subscription.queue().name().to_owned();
                    let result = self.remove_subscription(&topic, subscription.name()).await;
                    deleted.push((path, result));
                }
            }
            if retire_if_idle(&topic) {
                let result = self.remove_topic(&topic).await;
                deleted.push((topic.name().to_owned(), result));
            }
        }
        deleted
    }
}

/// The use of a subscription is use of its topic.
fn retire_if_idle(topic: &Topic) -> bool {
    let Some(limit) = topic.queue.idle_limit() else {
        return false;
    };
    let subscriptions = topic.subscriptions();
    let subscriptions = subscriptions.iter().map(|it| it.queue());
    let queues: Vec<&Queue> = std::iter::once(&topic.queue).chain(subscriptions).collect();
    let retired = queues
        .iter()
        .take_while(|queue| queue.retire(limit))
        .count();
    if retired < queues.len() {
        queues[..retired].iter().for_each(|queue| queue.revive());
    }
    retired == queues.len()
}
