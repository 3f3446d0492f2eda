//! The requests of forwarding to its sources. Only `forwarding/` makes them.

use std::time::Duration;

use super::error::Error;
use super::handle::Queue;
use super::waiting::WaitCondition;
use crate::machine::{ForwardedMessage, LockToken, Machine, ReceiveLimit, SubQueue};

impl Queue {
    /// The messages in transfer to the target, as soon as there are any. Returns none if the wait ends first.
    pub(super) async fn forward(
        &self,
        sub_queue: SubQueue,
        limit: ReceiveLimit,
        wait: Duration,
    ) -> Result<Vec<ForwardedMessage>, Error> {
        let condition = WaitCondition::Forward(sub_queue);
        let forward = move |machine: &mut Machine, ()| Ok(machine.forward(sub_queue, limit));
        self.wait_unused(condition, wait, None, |_| (), forward)
            .await
    }

    /// Removes messages that the target has.
    pub(super) async fn finish_forward(&self, tokens: Vec<LockToken>) -> Result<(), Error> {
        let finish = move |machine: &mut Machine| {
            machine.finish_forward(&tokens);
            Ok(())
        };
        self.ask_unused(finish).await
    }

    /// Returns the in-flight messages.
    pub(super) async fn stop_forward(&self, sub_queue: SubQueue) -> Result<(), Error> {
        let stop = move |machine: &mut Machine| {
            machine.stop_forward(sub_queue);
            Ok(())
        };
        self.ask_unused(stop).await
    }

    /// The number of the next lock.
    pub(super) async fn next_lock(&self) -> Result<u64, Error> {
        self.ask_unused(|machine| Ok(machine.next_lock())).await
    }
}
