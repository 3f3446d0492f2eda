//! Moves the messages of one queue, or its dead letters, to a target.
//!
//! The source locks messages during the transfer, durably and under growing numbers; the target stores the next number
//! it expects in the same batch as the messages, and takes none below it; then the source removes them. After a crash
//! anywhere in between, in-flight messages are offered again.

use std::sync::Weak;
use std::time::Duration;

use tokio::sync::watch;

use super::Router;
use crate::machine::{ForwardedMessage, ReceiveLimit, SubQueue};
use crate::message::{Message, NewMessage};
use crate::service::error::Error;
use crate::service::handle::Queue;

/// The size of one transfer.
const LIMIT: ReceiveLimit = ReceiveLimit {
    count: 256,
    bytes: 1 << 20,
};

/// A wait that is longer is repeated.
const WAIT: Duration = Duration::from_secs(60);

/// The delay after a failure, such as a full target.
const PAUSE: Duration = Duration::from_millis(500);

/// Properties that tell why a message was a dead letter, as Service Bus names them.
const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

pub(super) struct ForwardTask {
    pub(super) source: Queue,
    pub(super) sub_queue: SubQueue,
    pub(super) target: String,
    pub(super) router: Weak<Router>,
    pub(super) stopped: watch::Receiver<bool>,
}

impl ForwardTask {
    /// Runs until it is stopped, or the source is closed.
    pub(super) async fn run(mut self) {
        let mut is_warned = false;
        while !*self.stopped.borrow() {
            let result = tokio::select! {
                result = self.forward_all() => result,
                () = self.source.closed() => return,
            };
            if let Err(error) = result {
                if !std::mem::replace(&mut is_warned, true) {
                    let (from, to) = (self.source.name(), &self.target);
                    tracing::warn!(%error, "`{from}` cannot be forwarded to `{to}` for now");
                }
                let _ = tokio::time::timeout(PAUSE, self.stopped.changed()).await;
            }
        }
    }

    /// Forwards until it is stopped or something fails.
    async fn forward_all(&self) -> Result<(), Error> {
        let router = self.router.upgrade();
        let Some(target) = router.and_then(|router| router.target(&self.target)) else {
            let text = format!("there is no queue or topic `{}`", self.target);
            return Err(Error::Stopped(text));
        };
        self.begin(&target).await?;
        let mut stopped = self.stopped.clone();
        while !*stopped.borrow() {
            let messages = tokio::select! {
                messages = self.source.forward(self.sub_queue, LIMIT, WAIT) => messages?,
                _ = stopped.changed() => return Ok(()),
            };
            self.move_all(&target, &messages).await?;
        }
        Ok(())
    }

    /// A source that was deleted and made again numbers its messages anew. All numbers of this one are below its next.
    async fn begin(&self, target: &Queue) -> Result<(), Error> {
        let next = self.source.next_lock().await?;
        let (key, partition) = (self.key(), self.partition());
        let position = target.feed_position(key.clone(), partition).await?;
        match position.is_some_and(|position| position as u64 > next) {
            true => target.restart_feed(key, partition).await,
            false => Ok(()),
        }
    }

    /// Moves messages, in smaller requests if the target does not accept them at once.
    async fn move_all(&self, target: &Queue, messages: &[ForwardedMessage]) -> Result<(), Error> {
        let (mut rest, mut count) = (messages, messages.len());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(count.min(rest.len()));
            match self.move_piece(target, piece).await {
                Ok(()) => rest = behind,
                Err(error) if error.is_over_limit() && piece.len() > 1 => count = piece.len() / 2,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn move_piece(&self, target: &Queue, piece: &[ForwardedMessage]) -> Result<(), Error> {
        let Some(last) = piece.last() else {
            return Ok(());
        };
        let now_ms = self.source.now_ms();
        let numbered = piece.iter().map(|forwarded| {
            let message = forwarded_message(&forwarded.message, now_ms);
            (forwarded.token.number as i64, message)
        });
        let next = last.token.number as i64 + 1;
        target
            .feed(self.key(), self.partition(), numbered.collect(), next)
            .await?;
        let tokens = piece.iter().map(|forwarded| forwarded.token).collect();
        self.source.finish_forward(tokens).await
    }

    /// The name of the source among all that feed the target. No hub can have it.
    fn key(&self) -> String {
        format!("forward:{}", self.source.name())
    }

    fn partition(&self) -> u32 {
        match self.sub_queue {
            SubQueue::Main => 0,
            SubQueue::DeadLetters => 1,
        }
    }
}

/// A message as sent to the target: with the rest of its time, and with the reason why it was a dead letter.
fn forwarded_message(message: &Message, now_ms: i64) -> NewMessage {
    let mut content = (*message.content).clone();
    let mut expires_ms = message.expires_ms;
    if let Some(cause) = &message.dead_letter {
        expires_ms = None;
        let is_told = |name: &str| name == REASON || name == DESCRIPTION;
        content.properties.retain(|(name, _)| !is_told(name));
        for (name, text) in [(REASON, &cause.reason), (DESCRIPTION, &cause.description)] {
            content.properties.push((name.to_owned(), text.clone()));
        }
    }
    NewMessage {
        content,
        scheduled_ms: None,
        time_to_live_ms: expires_ms.map(|at| at.saturating_sub(now_ms).max(1)),
    }
}
